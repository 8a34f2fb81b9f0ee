"""What an appender gathers and the log does not take: it is said to whom it belongs, and the others go on."""

import os
import time
from pathlib import Path

import pytest

import kstore
from kstore import RecordTooLargeError

MIB = 1 << 20


@pytest.mark.parametrize("codec", ["uncompressed", "lz4"])
def test_a_record_that_is_too_large_is_refused_at_once(tmp_path: Path, codec: str) -> None:
    options = {"segment_bytes": MIB, "max_message_bytes": 8 * MIB, "compression_type": codec}
    with (
        kstore.open(tmp_path / "t-0", "a", **options) as log,  # type: ignore[arg-type]
        log.appender(linger_ms=100_000) as appender,
    ):
        tickets = [appender.append(b"before")]
        for size in (2 * MIB, 9 * MIB):
            with pytest.raises(RecordTooLargeError):
                appender.append(os.urandom(size))
        if codec == "lz4":
            tickets.append(appender.append(bytes(2 * MIB)))  # packed, it fits
        tickets.append(appender.append(b"behind"))
        assert appender.flush() == len(tickets)
        assert [ticket.wait() for ticket in tickets] == list(range(len(tickets)))
        assert [record.offset for record in log] == list(range(len(tickets)))


def test_limits_that_are_lowered_under_it(tmp_path: Path) -> None:
    with (
        kstore.open(tmp_path / "t-0", "a") as log,
        log.appender(linger_ms=100_000, batch_bytes=2000) as appender,
    ):
        tickets = [appender.append(os.urandom(500)) for _ in range(3)]
        log.configure(max_message_bytes=600)
        with pytest.raises(RecordTooLargeError) as caught:
            appender.append(os.urandom(500))
        assert "append it again" in caught.value.__notes__[0]
        for ticket in tickets:
            with pytest.raises(RecordTooLargeError):
                ticket.wait()
            assert ticket.offset is None
        with pytest.raises(RecordTooLargeError):  # once, for who waits for no ticket
            appender.flush()
        assert appender.flush() == 0
        appender.append(b"small")
        assert appender.flush() == 1
        assert [record.value for record in log] == [b"small"]


def test_producers_are_a_copy(tmp_path: Path) -> None:
    batch = kstore.encode_batch(
        [(int(time.time() * 1000), None, b"v", None)], producer_id=7, producer_epoch=0, base_sequence=0
    )
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append_batches(batch)
        found = log.producers()
        found[7].batches.clear()
        found.popitem()
        found[None] = None  # type: ignore[index, assignment]
        log.append_batches(batch)
        assert log.log_end_offset == 1
        log.flush()
        reader = kstore.open(log.path)
        reader.producers().clear()
        assert list(reader.producers()) == [7]
