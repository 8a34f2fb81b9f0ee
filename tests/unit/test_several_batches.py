"""Batches of idempotent producers in one call of append_batches: Kafka takes one at a time, here each is checked as if it came
by itself."""

import errno
import time
from pathlib import Path

import pytest

import kstore
from kstore.testing import failing
from tests.hostile.test_forged import resealed


def batch(sequence: int, *values: bytes, producer: int = 1, epoch: int = 0) -> bytes:
    now = int(time.time() * 1000)  # else the producer is forgotten when the log is opened again
    records = [(now, None, value, None) for value in values]
    return kstore.encode_batch(
        records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence if producer >= 0 else -1
    )


def values_of(log: kstore.LogWriter) -> list[bytes | None]:
    return [record.value for record in log]


@pytest.fixture
def log(tmp_path: Path) -> kstore.LogWriter:
    log = kstore.open(tmp_path / "t-0", "a")
    assert log.append_batches(batch(0, b"a", b"b")) == (0, 1, 1, False)
    return log


def test_what_is_there_already_is_left_out(log: kstore.LogWriter) -> None:
    assert log.append_batches(batch(0, b"a", b"b") + batch(2, b"c")) == (2, 2, 1, False)
    again = batch(2, b"c"), batch(0, b"p", producer=2), batch(0, b"a", b"b"), batch(-1, b"plain", producer=-1)
    assert log.append_batches(b"".join(again)) == (3, 4, 2, False)
    assert values_of(log) == [b"a", b"b", b"c", b"p", b"plain"]
    assert log.append_batches(b"".join(again[:3])) == (0, 3, 0, True)
    assert values_of(log) == [b"a", b"b", b"c", b"p", b"plain"]
    log.close()
    with kstore.open(log.path, "a") as opened:
        assert opened.append_batches(batch(2, b"c") + batch(3, b"d")) == (5, 5, 1, False)
        assert {pid: state.batches[-1].last_offset for pid, state in opened.producers().items()} == {
            1: 5,
            2: 3,
        }


def test_one_that_comes_twice_in_the_call(log: kstore.LogWriter) -> None:
    assert log.append_batches(batch(2, b"c") + batch(2, b"c") + batch(3, b"d")) == (2, 3, 2, False)
    assert log.append_batches(batch(0, b"x", producer=3) * 2) == (4, 4, 1, False)
    assert values_of(log) == [b"a", b"b", b"c", b"d", b"x"]
    assert [b.base_offset for b in log.batches()] == [0, 2, 3, 4]


@pytest.mark.parametrize("producer", [1, 2])
def test_a_gap_within_the_call(log: kstore.LogWriter, producer: int) -> None:
    first = 2 if producer == 1 else 0
    with pytest.raises(kstore.OutOfOrderSequenceError, match=f"does not follow on {first}"):
        log.append_batches(batch(first, b"c", producer=producer) + batch(9, b"d", producer=producer))
    assert values_of(log) == [b"a", b"b"]
    assert log.append_batches(batch(first, b"c", producer=producer)).first_offset == 2


def test_the_rest_after_a_full_disk(tmp_path: Path) -> None:
    """Some batches are there, and the producer sends all of them again."""
    sent = [batch(i, b"%d" % i * 900) for i in range(5)]
    met = 0
    for nth in range(1, 60):
        path = tmp_path / f"{nth}" / "t-0"
        log = kstore.open(path, "a", internal_segment_bytes=2500)
        try:
            with failing(nth, errno.ENOSPC):
                log.append_batches(b"".join(sent))
        except OSError:
            met += 0 < log.log_end_offset < 5
            log.append_batches(b"".join(sent))
        assert values_of(log) == [b"%d" % i * 900 for i in range(5)]
        log.close()
    assert met


def test_one_that_grows_when_it_is_converted(tmp_path: Path) -> None:
    """Beyond the size of a segment: then none is appended."""
    now = int(time.time() * 1000)
    small, large = (
        kstore.encode_batch([(now, None, b"x" * size, None)], codec="lz4") for size in (1000, 9000)
    )
    with kstore.open(
        tmp_path / "t-0", "a", compression_type="uncompressed", internal_segment_bytes=5000
    ) as log:
        with pytest.raises(kstore.RecordTooLargeError):
            log.append_batches(small + large)
        assert (log.log_end_offset, len(log.segments)) == (0, 1)
        assert log.append_batches(small * 2) == (0, 1, 2, False)


@pytest.mark.parametrize("keep_offsets", [False, True])
@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_kafka_does_not_know(tmp_path: Path, codec: int, keep_offsets: bool) -> None:
    """Nobody could read on behind it."""
    batch = bytearray(kstore.encode_batch([(1711530458631, None, b"v", None)]))
    batch[22] |= codec
    with kstore.open(tmp_path / "t-0", "a") as log:
        with pytest.raises(kstore.UnsupportedCodecError, match=f"expected 0 to 4, found {codec}"):
            log.append_batches(resealed(bytes(batch)), keep_offsets=keep_offsets)
        assert log.append(b"v") == 0
