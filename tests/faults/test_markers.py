"""A transaction marker for which the disk has no room is not in the log, and its transaction not in the
index."""

import errno
from pathlib import Path

import pytest

import kstore
from kstore.testing import count_calls, failing
from tests.helpers.markers import marker

AT = 1_700_000_000_000


def begun(path: Path, **options: int) -> kstore.LogWriter:
    """A log with an open transaction."""
    log = kstore.open(path, "a", message_timestamp_before_max_ms=2**63 - 1, **options)
    log.append_batches(data(7))
    log.append(b"plain", timestamp=AT)
    return log


def data(producer_id: int) -> bytes:
    return kstore.encode_batch(
        [(AT, b"k", b"v", None)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


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
