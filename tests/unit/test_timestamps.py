"""Timestamps as callers give them: milliseconds, datetimes, and columns of numpy and Arrow."""

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore

try:
    import pyarrow
except ImportError:
    pyarrow = None

# any number is drawn, also one that may have been meant as seconds
pytestmark = pytest.mark.filterwarnings("ignore:timestamp .* is milliseconds since 1970")
needs_pyarrow = pytest.mark.skipif(pyarrow is None, reason="pyarrow is not installed")

MOST = 2**63 - 1
NOW = 7  # by the log's clock
MOMENT = datetime(2024, 3, 27, 10, 7, 38, 631999, timezone(timedelta(hours=1)))
MS = 1711530458631


class Times:
    """Appends records with a column of timestamps to a log, and reads the timestamps back."""

    def __init__(self, log: kstore.LogWriter) -> None:
        self._log = log

    def __call__(self, column: Any, count: int) -> list[int]:
        offsets = self._log.extend([b""] * count, timestamps=column)
        return [record.timestamp for record in self._log.records(offsets.start)] if offsets else []

    def refused(self, column: Any, count: int, error: type[Exception], words: str) -> None:
        end = self._log.log_end_offset
        with pytest.raises(error, match=words):
            self(column, count)
        assert self._log.log_end_offset == end


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Times]:
    limits: Any = {"message_timestamp_before_max_ms": MOST, "message_timestamp_after_max_ms": MOST}
    path = tmp_path_factory.mktemp("times") / "t-0"
    with kstore.open(path, "a", clock=lambda: NOW, **limits) as log:
        yield Times(log)


# ---- columns -------------------------------------------------------------------------------------


@given(numbers=st.lists(st.integers(-1, MOST), max_size=30))
def test_columns_of_milliseconds(times: Times, numbers: list[int]) -> None:
    count = len(numbers)
    for column in (numbers, iter(numbers), tuple(map(numpy.int64, numbers))):
        assert times(column, count) == numbers
    for column in (numpy.array(numbers, "i8"), numpy.array(numbers, ">i8"), numpy.array(numbers, object)):
        assert times(column, count) == numbers
        assert times(column[::-1], count) == numbers[::-1]
    if pyarrow is not None:
        column = pyarrow.array(numbers, pyarrow.int64())
        assert times(column, count) == numbers
        assert times(pyarrow.chunked_array([column[:3], column[3:]]), count) == numbers


def test_one_time_for_all(times: Times) -> None:
    assert times(None, 3) == [NOW, NOW, NOW]
    assert times(5, 3) == times(numpy.uint8(5), 3) == [5, 5, 5]
    assert times(-1, 1) == [-1]
    assert times(None, 0) == times([], 0) == times(numpy.array([], "i8"), 0) == []
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "<i4", ">u4"):
        assert times(numpy.array([1, 100], dtype), 2) == [1, 100]


def test_no_times(times: Times) -> None:
    wrong: list[Any] = [
        True, 1.5, "5", b"5", [True], [None], [1.5], ["5"], {1: 2},
        numpy.array([True]), numpy.array([1.5]), numpy.array([5], "u8"), numpy.array(["5"]),
        numpy.array([[5]]),
        numpy.array([5], "m8[ms]"), numpy.array([None], object), numpy.ma.masked_array([5], [True]),
    ]  # fmt: skip
    for column in wrong:
        times.refused(column, 1, TypeError, "timestamp")


@pytest.mark.parametrize("wrong", [-2, -(2**63), 2**63, -(2**70), 2**70])
def test_times_out_of_range(times: Times, wrong: int) -> None:
    times.refused(wrong, 1, ValueError, r"^timestamp:")
    columns: list[Any] = [[1, -1, wrong]]
    if -(2**63) <= wrong < 2**63:
        columns.append(numpy.array(columns[0]))
        if pyarrow is not None:
            whole = pyarrow.array(columns[0])
            columns += [whole, pyarrow.chunked_array([whole[:2], whole[2:]])]
    for column in columns:
        times.refused(column, 3, ValueError, "timestamp of record 2:")


def test_another_count_of_times(times: Times) -> None:
    for column in ([1, 2], iter([1, 2]), numpy.array([1, 2]), itertools.count()):
        times.refused(column, 1, ValueError, r"timestamps: .* for 1 records")


UNITS = {"W": 604_800_000, "D": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
FINE = {"us": 10**3, "ns": 10**6, "ps": 10**9, "fs": 10**12, "as": 10**15}


@given(
    unit=st.sampled_from([*UNITS, *FINE]),
    step=st.integers(1, 50),
    numbers=st.lists(st.integers(-1, MOST), min_size=1, max_size=5),
)
def test_datetime64(times: Times, unit: str, step: int, numbers: list[int]) -> None:
    """Against Python's integers, which do not overflow."""
    column = numpy.array(numbers, "i8").view(f"M8[{step}{unit}]")
    expected = [n * step * UNITS.get(unit, 1) // FINE.get(unit, 1) for n in numbers]
    fits = [-1 <= e <= MOST and n * step <= MOST for e, n in zip(expected, numbers, strict=True)]
    if all(fits):
        assert times(column, len(numbers)) == expected
    else:
        times.refused(column, len(numbers), ValueError, f"of record {fits.index(False)}:")


def test_calendar_units(times: Times) -> None:
    column = numpy.array(["1970-01", "2024-02", "2024-03"], "M8[M]")
    expected = column.astype("M8[ms]").view("i8").tolist()
    assert times(column, 3) == times(column.astype(">M8[M]"), 3) == expected
    assert times(numpy.array([54], "i8").view("M8[Y]"), 1) == [1_704_067_200_000]
    assert times(numpy.array([27], "i8").view("M8[2Y]"), 1) == [1_704_067_200_000]
    for unit in ("M8[Y]", "M8[M]", "M8[1000Y]", "M8[2147483647M]"):
        for number in (-1, 2**40, 2**62 + 5, MOST, -(2**63)):
            times.refused(numpy.array([0, number], "i8").view(unit), 2, ValueError, "of record 1:")


# numpy 2.5 warns when one without a unit is made
@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
def test_not_a_time(times: Times) -> None:
    for unit in ("Y", "M", "D", "ms", "ns"):
        column = numpy.array(["2024", "NaT"], f"M8[{unit}]")
        times.refused(column, 2, ValueError, "record 1: not a time")
    times.refused(numpy.array(["NaT"], "M8"), 1, ValueError, "without a unit")


@needs_pyarrow
@given(
    unit=st.sampled_from(["s", "ms", "us", "ns"]),
    zone=st.sampled_from([None, "UTC", "Europe/Berlin"]),
    numbers=st.lists(st.none() | st.integers(0, 2**50), max_size=12),
    cut=st.integers(0, 12),
)
def test_arrow_timestamps(
    times: Times, unit: str, zone: str | None, numbers: list[int | None], cut: int
) -> None:
    column = pyarrow.array(numbers, pyarrow.timestamp(unit, zone))
    expected = [-1 if n is None else n * UNITS.get(unit, 1) // FINE.get(unit, 1) for n in numbers]
    assert times(column, len(numbers)) == expected
    assert times(column[cut:], len(expected[cut:])) == expected[cut:]
    assert times(pyarrow.chunked_array([column[:cut], column[cut:]]), len(numbers)) == expected


@needs_pyarrow
def test_arrow_dates_and_nulls(times: Times) -> None:
    days = pyarrow.array([0, 19_723, None, 2**31 - 1], pyarrow.int32()).cast(pyarrow.date32())
    assert times(days, 4) == [0, 1_704_067_200_000, -1, (2**31 - 1) * 86_400_000]
    assert times(days[:2].cast(pyarrow.date64()), 2) == [0, 1_704_067_200_000]
    assert times(pyarrow.array([None, 5], pyarrow.int64()), 2) == [-1, 5]
    assert times(pyarrow.chunked_array([], pyarrow.int64()), 0) == []
    for column in (
        pyarrow.array([b"x"]), pyarrow.array([1], pyarrow.int32()), pyarrow.array([1], pyarrow.uint64()),
        pyarrow.array([1], pyarrow.time64("us")), pyarrow.array([1], pyarrow.duration("ms")),
        pyarrow.array([1]).dictionary_encode(), pyarrow.table({"a": [1]}), pyarrow.nulls(1),
    ):  # fmt: skip
        times.refused(column, 1, TypeError, "timestamps: an Arrow array")


@needs_pyarrow
def test_a_series_of_pandas_whose_missing_times_are_nulls(times: Times) -> None:
    """Arrow's nulls are records without a timestamp; a NaT is a mistake, in whatever column of pandas."""

    class Series:
        def __init__(self, *times: int | None) -> None:
            self.times = pyarrow.chunked_array([pyarrow.array(times, pyarrow.timestamp("ms", "UTC"))])
            self.__arrow_c_stream__ = self.times.__arrow_c_stream__

        def isna(self) -> Any:
            return self.times.is_null().to_numpy()

        def __len__(self) -> int:
            return len(self.times)

    assert times(Series(1, 2).times, 2) == times(Series(1, 2), 2) == [1, 2]
    assert times(Series(1, None).times, 2) == [1, -1]
    times.refused(Series(1, None), 2, kstore.InvalidTimestampError, r"record 1: not a time \(NaT\)")


# ---- one timestamp, in every way of appending ----------------------------------------------------

Way = Callable[[kstore.LogWriter, Any], object]


def gather(log: kstore.LogWriter, timestamp: Any) -> None:
    with log.appender() as out:
        out.append(b"v", timestamp=timestamp)


WAYS: dict[str, Way] = {
    "append": lambda log, timestamp: log.append(b"v", timestamp=timestamp),
    "extend": lambda log, timestamp: log.extend([b"v"], timestamps=timestamp),
    "extend with a list": lambda log, timestamp: log.extend([b"v"], timestamps=[timestamp]),
    "appender": gather,
    "encode_batch": lambda log, timestamp: log.append_batches(
        kstore.encode_batch([(timestamp, None, b"v", None)])
    ),
}
NO_TIMES: list[tuple[object, type[Exception], str]] = [
    (1_700_000_000.25, TypeError, r"int\(time.time\(\) \* 1000\)"),
    (1.5, TypeError, "timestamp"),
    (True, TypeError, "timestamp"),
    ("now", TypeError, "timestamp"),
    (datetime(2024, 1, 1), ValueError, "time zone"),
    (datetime(1969, 12, 31, 23, 59, 59, 999000, UTC), ValueError, "timestamp"),
    (-2, ValueError, "timestamp"),
    (2**63, ValueError, "timestamp"),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", WAYS)
def test_a_timestamp_in_every_way(log: kstore.LogWriter, name: str) -> None:
    way = WAYS[name]
    for timestamp, error, words in NO_TIMES:
        with pytest.raises(error, match=words):
            way(log, timestamp)
    assert log.log_end_offset == 0
    for timestamp in (MOMENT, MS, -1, 5):
        way(log, timestamp)
    assert [record.timestamp for record in log] == [MS, MS, -1, 5]
    with pytest.warns(UserWarning, match="if seconds were meant"):
        way(log, int(time.time()))


class NaT(datetime):
    """As pandas makes it: a datetime that equals nothing, not even itself."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False

    def __ne__(self, other: object) -> bool:
        return True


def test_an_error_says_which_record_and_what_to_give(log: kstore.LogWriter) -> None:
    at = "timestamp of record 1 is"
    far = 1_700_000_000_000_000
    several: list[tuple[Any, type[Exception], str]] = [
        ([1, date(2026, 1, 1)], TypeError, rf"{at} an int, not datetime.date\(2026, 1, 1\) \(date\): milli"),
        ([1, "2026-01-01"], TypeError, rf"{at} an int, not '2026-01-01' \(str\): milliseconds since 1970"),
        ([1, None], TypeError, f"{at} an int, not None"),
        ([1, NaT(2026, 1, 1)], ValueError, f"{at} not a time: "),
        ([1, far], kstore.InvalidTimestampError, f"record 1: timestamp {far} is"),
        (far, kstore.InvalidTimestampError, "if microseconds or nanoseconds were meant, divide by"),
    ]
    for timestamps, error, words in several:
        with pytest.raises(error, match=words):
            log.extend([b"a", b"b"], timestamps=timestamps)
    assert log.log_end_offset == 0


@needs_pyarrow
@pytest.mark.filterwarnings("error")
def test_a_warning_of_seconds_names_the_line_of_the_program(log: kstore.LogWriter) -> None:
    log.append(b"v", timestamp=MS)
    words = "if seconds were meant, multiply by 1000: 1711530458000"
    for use in (
        lambda timestamp: log.find(timestamp=timestamp),
        lambda timestamp: log.scan(since=timestamp),
        lambda timestamp: log.scan(until=timestamp),
        lambda timestamp: log.extend([b"v"], timestamps=numpy.array([timestamp])),
        lambda timestamp: log.extend([b"v"], timestamps=pyarrow.array([timestamp])),
    ):
        with pytest.warns(UserWarning, match=words) as warned:
            use(MS // 1000)
        assert warned[0].filename == __file__
        use(MS)
        use(5)


# ---- reading by time -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "a"])
def test_ranges_of_time_take_datetimes(tmp_path: Any, mode: Any) -> None:
    with kstore.open(tmp_path / "t-0", "a") as made:
        made.extend([b"v"] * 10, timestamps=[1_700_000_000_000 + n for n in range(10)])
    at = datetime.fromtimestamp(1_700_000_000, UTC)
    after = at.replace(microsecond=3999)  # of the 3rd millisecond
    with kstore.open(tmp_path / "t-0", mode) as log:
        found = log.find(timestamp=after)
        assert found.offset == 3
        assert sum(len(batch) for batch in log.scan(since=at, until=after)) == 3
        log.find(timestamp=datetime(1970, 1, 15, tzinfo=UTC))
        for name in ("since", "until"):
            with pytest.raises(ValueError, match="time zone"):
                log.scan(**{name: datetime(2024, 1, 1)})  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timestamp is from 0"):
            log.find(timestamp=datetime(1969, 12, 31, 23, 59, 59, 998_000, UTC))  # -2 ms would be "earliest"
