"""A transaction marker without room on the disk is not in the log, nor its transaction in the index."""

import errno
from pathlib import Path

import pytest

import kstore
from kstore.testing import count_calls, failing
from tests.helpers.markers import marker, transactional

AT = 1_700_000_000_000


def begun(path: Path, **options: int) -> kstore.LogWriter:
    """A log with an open transaction."""
    log = kstore.open(path, "a", message_timestamp_before_max_ms=2**63 - 1, **options)
    log.append_batches(data(7))
    log.append(b"plain", timestamp=AT)
    return log


def data(producer_id: int) -> bytes:
    return transactional((AT, b"k", b"v", None), producer=producer_id)


def state(log: kstore.PartitionLog) -> tuple[int, int, list[bytes | None]]:
    committed = log.records(0, log.log_end_offset, isolation="read_committed")
    return log.log_end_offset, log.last_stable_offset(), [record.value for record in committed]


@pytest.mark.parametrize(
    ("error", "how", "retried"),
    [
        (errno.ENOSPC, "error", "ABORT"),
        (errno.ENOSPC, "half", "COMMIT"),
        (errno.EIO, "error", "COMMIT"),
        (errno.EIO, "half", "ABORT"),
    ],
)
def test_it_changes_nothing(ram: Path, error: int, how: str, retried: str) -> None:
    def end(log: kstore.LogWriter, kind: str) -> None:
        log.append_batches(marker(kind, 7, AT), origin="coordinator", transaction_version=0)

    with begun(ram / "whole") as log:
        total = count_calls(lambda: end(log, "ABORT"))
    assert total >= 3
    for nth in range(1, total + (error == errno.ENOSPC)):  # an error in the .log itself is final
        path = ram / f"t{nth}"
        with begun(path) as log:
            before = state(log)
            with failing(nth, error, how), pytest.raises(OSError, match=r"\[Errno"):
                end(log, "ABORT")
            assert state(log) == before
            with kstore.open(path) as beside:
                assert state(beside) == before
                assert not beside.recovery.findings
            end(log, retried)
            after = state(log)
        assert after == (3, 3, [b"plain"] if retried == "ABORT" else [b"v", b"plain"])
        again = kstore.open(path)
        assert again.recovery.clean
        assert not again.recovery.findings
        assert state(again) == after
        assert len(again.aborted_transactions(0, 3)) == (retried == "ABORT")


def test_a_followers_fetch(ram: Path) -> None:
    with begun(ram / "leader") as leader:
        leader.append_batches(data(8))
        for producer_id in (8, 7):
            leader.append_batches(
                marker("ABORT", producer_id, AT), origin="coordinator", transaction_version=0
            )
        fetched = b"".join(bytes(batch.data) for batch in leader.batches())
        told = state(leader)
    with kstore.open(ram / "copy", "a") as log:
        before = state(log)
        with failing(2, errno.ENOSPC), pytest.raises(OSError, match="txnindex"):
            log.append_batches(fetched, keep_offsets=True)
        assert state(log) == before
        log.append_batches(fetched, keep_offsets=True)
        assert state(log) == told
    assert [t.producer_id for t in kstore.open(ram / "copy").aborted_transactions(0, 5)] == [8, 7]


def test_in_a_segment_of_its_own(ram: Path) -> None:
    """What was appended by then stays, so that is no OSError."""
    batches = kstore.encode_batch([(AT, None, b"x" * 200, None)]) + marker("ABORT", 7, AT)

    def log_of(name: str) -> kstore.LogWriter:
        return begun(ram / name, internal_segment_bytes=300, segment_index_bytes=800)

    with log_of("whole") as log:
        total = count_calls(lambda: log.append_batches(batches, origin="coordinator", transaction_version=0))
        assert len(log.segments) > 1
        assert state(log) == (4, 4, [b"plain", b"x" * 200])
    refused = 0
    for nth in range(1, total + 1):
        log = log_of(f"t{nth}")
        end = log.log_end_offset
        try:
            with failing(nth, errno.ENOSPC):
                log.append_batches(batches, origin="coordinator", transaction_version=0)
        except OSError:
            assert log.log_end_offset in (end, end + 1)  # each batch as a whole
            assert state(log)[1:] == (0, [])
            log.append_batches(marker("ABORT", 7, AT), origin="coordinator", transaction_version=0)
            log.close()
        except kstore.LogFailedError as e:
            assert isinstance(e.__cause__, OSError)
            refused += 1
            log.abandon()
        else:
            log.close()
        assert state(kstore.open(ram / f"t{nth}"))[2][:1] == [b"plain"]
    assert refused
