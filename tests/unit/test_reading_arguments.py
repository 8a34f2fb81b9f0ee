"""What the reading API refuses, before it touches anything; and what logs and their parts can do as Python objects."""

import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import pytest

import kstore
from kstore.engine.segment.index import TimestampOffset

NAN = float("nan")


@pytest.fixture(params=["r", "a"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[kstore.PartitionLog]:
    with kstore.open(tmp_path / "t-0", "a") as made:
        made.extend([b"v"] * 10, timestamps=[1_700_000_000_000 + n for n in range(10)])
    with kstore.open(tmp_path / "t-0", request.param) as opened:
        yield opened


INTS: list[tuple[str, Callable[[Any, Any], object]]] = [
    ("offset", lambda log, n: log.get(n)),
    ("offset", lambda log, n: log.read(n)),
    ("offset", lambda log, n: log.span(n)),
    ("offset", lambda log, n: log.send(None, n)),
    ("offset", lambda log, n: log.translate(n)),
    ("offset", lambda log, n: log.floor_segment(n)),
    ("offset", lambda log, n: log.find(offset=n) if n is not None else log.get(n)),
    ("offset", lambda log, n: log.follow(n) if n is not None else log.get(n)),
    ("max_bytes", lambda log, n: log.read(0, n)),
    ("max_bytes", lambda log, n: log.span(0, n)),
    ("start", lambda log, n: log.records(start=n) if n is not None else log.aborted_transactions(n, 0)),
    ("start", lambda log, n: log.batches(start=n) if n is not None else log.aborted_transactions(n, 0)),
    ("start", lambda log, n: log.scan(start=n) if n is not None else log.aborted_transactions(n, 0)),
    ("stop", lambda log, n: log.scan(stop=n) if n is not None else log.aborted_transactions(0, n)),
    ("stop", lambda log, n: log.aborted_transactions(0, n)),
    ("batch_rows", lambda log, n: log.scan(batch_rows=n)),
    ("batch_bytes", lambda log, n: log.scan(batch_bytes=n)),
    ("threads", lambda log, n: log.scan(threads=n)),
    ("epoch", lambda log, n: log.end_offset_for_epoch(n)),
    ("index_interval_bytes", lambda log, n: kstore.open(log.path, index_interval_bytes=n)),
    ("max_decompressed_bytes", lambda log, n: kstore.open(log.path, max_decompressed_bytes=n)),
]


def _past_inodes(number: Any) -> Any:
    """Numbers of files are 64 bits without a sign."""
    return 2**64 if number == 2**63 else number


OF_SEGMENTS: list[tuple[str, Callable[[kstore.Segment, Any], object]]] = [
    ("offset", lambda segment, n: segment.get(n)),
    ("offset", lambda segment, n: segment.translate(n)),
    ("offset", lambda segment, n: segment.scan_start(n)),
    ("since", lambda segment, n: segment.scan_start(0, n)),
    ("position", lambda segment, n: segment.batch_at(n)),
    ("timestamp", lambda segment, n: segment.find_timestamp(n)),
    ("start_offset", lambda segment, n: segment.find_timestamp(0, n)),
    ("start", lambda segment, n: segment.read_headers(n)),
    ("size", lambda segment, n: segment.limit_to(n)),
    ("device", lambda segment, n: segment.remember_file(_past_inodes(n), 1)),
    ("inode", lambda segment, n: segment.remember_file(1, _past_inodes(n))),
    ("offset", lambda segment, n: segment.check_followed_by(segment, n)),
    ("timestamp", lambda segment, n: segment.set_max_timestamp(TimestampOffset(n, 0))),
    ("offset", lambda segment, n: segment.set_max_timestamp(TimestampOffset(0, n))),
    ("position", lambda segment, n: segment.head(n)),
    ("position", lambda segment, n: segment.peek(n)),
    ("until", lambda segment, n: segment.walk_on(n)),
    ("start", lambda segment, n: segment.whole_until(n, 10)),
    ("end", lambda segment, n: segment.whole_until(0, n)),
    ("slot", lambda segment, n: segment.offset_index.entry(n)),
    ("position", lambda segment, n: segment.offset_index.fetch_upper_bound(n, 0)),
    ("size", lambda segment, n: segment.offset_index.fetch_upper_bound(0, n)),
    ("fetch_offset", lambda segment, n: segment.transaction_index.collect(n, 0)),
    ("upper_bound", lambda segment, n: segment.transaction_index.collect(0, n)),
    ("target", lambda segment, n: segment.offset_index.lookup(n)),
    ("target", lambda segment, n: segment.offset_index.locate(n)),
    ("slot", lambda segment, n: segment.time_index.entry(n)),
    ("timestamp", lambda segment, n: segment.time_index.lookup(n)),
]


@pytest.mark.parametrize(("name", "call"), OF_SEGMENTS)
def test_numbers_of_a_segment(
    log: kstore.PartitionLog, name: str, call: Callable[[kstore.Segment, Any], object]
) -> None:
    segment = log.segments[0]
    for number in (1.0, 3.7, NAN, True, "1", None):
        with pytest.raises(TypeError, match=f"{name} is an int"):
            call(segment, number)
    for number in (2**63, 2**200, -(2**63) - 1):
        with pytest.raises(ValueError, match=f"{name} is from"):
            call(segment, number)
    for each in (segment.limit_to, segment.head, segment.peek):
        with pytest.raises(ValueError, match="-1"):
            each(-1)
    assert segment.get(numpy.int32(3)) == segment.get(3)
    assert segment.get(-(2**63)) == segment.get(0)


def test_what_a_segment_is_given(log: kstore.PartitionLog) -> None:
    segment = log.segments[0]
    largest = segment.largest_timestamp
    for what in (True, None, (0, 0), 7):
        with pytest.raises(TypeError, match="max_timestamp is of the class TimestampOffset"):
            segment.set_max_timestamp(what)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="reason is of the class CorruptFileError"):
            segment.rebuild(what)  # type: ignore[arg-type]
    for what in (True, "s", log):
        with pytest.raises(TypeError, match="segment is of the class Segment"):
            kstore.Slice(what, 0, 0, 5)  # type: ignore[arg-type]
    assert (segment.largest_timestamp, segment.notes) == (largest, ())


PLANE = memoryview(bytearray(6)).cast("B", (2, 3))  # memoryviews of two dimensions cannot be iterated
ENDLESS = range(2**70)  # more than len() can say


@pytest.mark.parametrize("given", [PLANE, memoryview(b"ab"), bytearray(b"ab"), ENDLESS, iter(ENDLESS), 7])
def test_what_is_no_sequence_of_names(log: kstore.PartitionLog, given: Any) -> None:
    if isinstance(log, kstore.LogWriter):
        with pytest.raises((TypeError, ValueError), match="keys are several, not"):
            log.erase(keys=given, reason="asked")
    with pytest.raises((TypeError, ValueError), match="columns must be a list of names, not"):
        log.scan(given)
    with pytest.raises((TypeError, ValueError), match="fields are names, not"):
        log.segments[0].read_headers(fields=given)


@pytest.mark.parametrize("number", [1.0, NAN, True, "1", None])
@pytest.mark.parametrize(("name", "call"), INTS)
def test_what_is_no_int(
    log: kstore.PartitionLog, name: str, call: Callable[[Any, Any], object], number: object
) -> None:
    with pytest.raises(TypeError, match=f"{name} is an int"):
        call(log, number)


@pytest.mark.parametrize("number", [-1, 2**63, -(2**70), 2**70])
@pytest.mark.parametrize(("name", "call"), INTS)
def test_what_is_out_of_range(
    log: kstore.PartitionLog, name: str, call: Callable[[Any, Any], object], number: int
) -> None:
    try:
        call(log, number)
    except (ValueError, kstore.OffsetOutOfRangeError):
        return
    assert name in ("epoch", "offset", "start", "stop")  # an answer: nothing is there


WORDS: list[tuple[str, Callable[[Any], object]]] = [
    ("isolation", lambda log: log.records(isolation="committed")),
    ("isolation", lambda log: log.read(0, 100, "committed")),
    ("isolation", lambda log: log.scan(isolation=None)),
    ("isolation", lambda log: log.follow(isolation="committed")),
    ("on_error", lambda log: log.records(on_error="ignore")),
    ("on_error", lambda log: log.batches(on_error="ignore")),
    ("on_error", lambda log: log.scan(on_error="ignore")),
    ("on_error", lambda log: log.read(0, on_error="ignore")),
    ("cache", lambda log: log.records(cache="no")),
    ("timestamp", lambda log: log.find(timestamp="latset")),
    ("mode", lambda log: kstore.open(log.path, "w")),
]


@pytest.mark.parametrize(("name", "call"), WORDS)
def test_words_that_do_not_exist(log: kstore.PartitionLog, name: str, call: Callable[[Any], object]) -> None:
    with pytest.raises(ValueError, match=f"{name} (is|must be) .*'"):
        call(log)


FLAGS: list[tuple[str, Callable[[Any, Any], object]]] = [
    ("clean", lambda log, flag: kstore.open(log.path, clean=0 if flag is None else flag)),
    ("recover", lambda log, flag: kstore.open(log.path, recover=flag)),
    ("control", lambda log, flag: log.records(control=flag)),
    ("views", lambda log, flag: log.scan(views=flag)),
    ("in_order", lambda log, flag: log.scan(in_order=flag)),
    ("whole_batches", lambda log, flag: log.read(0, whole_batches=flag)),
    ("whole_batches", lambda log, flag: log.span(0, whole_batches=flag)),
    ("whole_batches", lambda log, flag: log.send(None, 0, whole_batches=flag)),
    ("min_one_message", lambda log, flag: log.read(0, min_one_message=flag)),
    ("min_one_message", lambda log, flag: log.span(0, min_one_message=flag)),
]


@pytest.mark.parametrize("flag", [None, 0, 1, "", "no", [], NAN])
@pytest.mark.parametrize(("name", "call"), FLAGS)
def test_what_is_neither_true_nor_false(
    log: kstore.PartitionLog, name: str, call: Callable[[Any, Any], object], flag: object
) -> None:
    with pytest.raises(TypeError, match=f"{name} must be True or False"):
        call(log, flag)


def test_ranges_of_time_take_datetimes(log: kstore.PartitionLog) -> None:
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    after = at.replace(microsecond=3999)  # of the 3rd millisecond
    found = log.find(timestamp=after)
    assert found is not None
    assert found.offset == 3
    assert sum(len(batch) for batch in log.scan(since=at, until=after)) == 3
    naive = datetime(2024, 1, 1)
    for call in (
        lambda: log.find(timestamp=naive),
        lambda: log.scan(since=naive),
        lambda: log.scan(until=naive),
    ):
        with pytest.raises(ValueError, match="time zone"):
            call()
    for call in (lambda: log.find(timestamp=1.5), lambda: log.scan(since=1.5), lambda: log.scan(until=True)):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="timestamp is from 0"):
        log.find(timestamp=datetime(1969, 12, 31, 23, 59, 59, 998_000, UTC))  # -2 ms would be "earliest"


def test_following_gives_records_or_batches(log: kstore.PartitionLog) -> None:
    assert [record.offset for record in log.follow(7, timeout=0)] == [7, 8, 9]
    assert [batch.last_offset for batch in log.follow(7, timeout=0, records=False)] == [9]
    for timeout, error in ((NAN, ValueError), (-1, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="timeout"):
            log.follow(timeout=timeout)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="records"):
        log.follow(records=1)  # type: ignore[call-overload]


def test_a_slice_has_no_length_that_could_be_bytes_or_records(log: kstore.PartitionLog) -> None:
    for part in (log.read(0), log.span(0)):
        with pytest.raises(TypeError, match="len"):
            len(part)  # type: ignore[arg-type]
        assert part
        assert part.size == len(bytes(part))
        assert len(list(part)) == 10
    for part in (log.read(10), log.span(10)):
        assert not part
        assert part.size == 0


def test_what_holds_files_is_not_pickled_and_says_what_to_do(log: kstore.PartitionLog) -> None:
    with pytest.raises(TypeError, match=r"its path, .*t-0.*, and open it there"):
        pickle.dumps(log)
    if isinstance(log, kstore.LogWriter):
        with log.appender() as out, pytest.raises(TypeError, match="pickled"):
            pickle.dumps(out)


def test_some_fields_of_headers(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(2_000):
            log.append(b"v" * (i % 7), timestamp=1_700_000_000_000 + i)
        [segment] = log.segments
        whole = segment.read_headers()
        assert whole.dtype.names is not None
        for fields in (["crc"], ["last_offset", "max_timestamp"], list(reversed(whole.dtype.names))):
            some = segment.read_headers(fields=fields)
            assert some.dtype.names == tuple(fields)
            assert all((some[name] == whole[name]).all() for name in fields)
            assert len(segment.read_headers(int(whole["position"][5]), fields)) == 1_995
        with pytest.raises(TypeError, match=r"\['crc'\]"):
            segment.read_headers(fields="crc")
        for wrong in ([], ["crc", "crc"], ["codec"], ["", "crc"], [1]):
            with pytest.raises(ValueError, match="fields"):
                segment.read_headers(fields=wrong)  # type: ignore[arg-type]
