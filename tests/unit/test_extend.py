"""extend() refuses before it writes, and takes columns of every kind."""

from pathlib import Path

import numpy
import pytest

import kstore
from kstore.engine.columns.binary_input import binary_input_list


@pytest.fixture
def log(tmp_path: Path) -> kstore.LogWriter:
    return kstore.open(tmp_path / "t-0", "a", clock=lambda: 1_000_000)


def test_a_record_too_large_is_found_before_anything_is_written(log: kstore.LogWriter) -> None:
    values = [b"x" * 100] * 50_000 + [bytes(2 << 20)]
    with pytest.raises(kstore.RecordTooLargeError, match="record 50000"):
        log.extend(values)
    assert log.log_end_offset == 0
    log.close()


@pytest.mark.parametrize("late", [1_000_000 + 3_600_001, 10**15])
def test_a_timestamp_too_far_ahead_is_found_before_anything_is_written(
    log: kstore.LogWriter, late: int
) -> None:
    with pytest.raises(kstore.InvalidTimestampError, match="record 2"):
        log.extend([b"a", b"b", b"c"], timestamps=[5, 6, late])
    assert log.log_end_offset == 0
    log.close()


def test_a_compacted_topic_needs_keys(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", cleanup_policy="compact") as log:
        with pytest.raises(kstore.InvalidRecordError, match="record 1: no key, and cleanup_policy"):
            log.extend([b"a", b"b"], [b"k", None])
        with pytest.raises(kstore.InvalidRecordError, match="no key"):
            log.append(b"a")
        assert log.log_end_offset == 0


def test_columns_of_every_kind(log: kstore.LogWriter) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    for values in (
        [b"one", None, b""],
        numpy.array([b"one", b"two", b"three"]),
        numpy.arange(6, dtype=numpy.uint8).reshape(3, 2),
        pyarrow.array([b"one", None, b"three"]),
        pyarrow.chunked_array([["a"], ["b", None]]),
        pyarrow.array(["x" * 50, "y", None], pyarrow.string_view()),
        (bytearray(b"1"), memoryview(b"2"), b"3"),
    ):
        expected = binary_input_list(values)
        span = log.extend(values, keys=expected, timestamps=numpy.array([1, 2, 3]), headers=[("h", b"v")])
        records = list(log.records(span.start))
        assert [r.value for r in records] == expected == [r.key for r in records]
        assert [r.timestamp for r in records] == [1, 2, 3]
        assert all(r.headers == (("h", b"v"),) for r in records)
    log.close()


def test_nothing_is_nothing(log: kstore.LogWriter) -> None:
    assert log.extend([]) == range(0)
    assert log.append_batches(b"").batch_count == 0
    log.close()
