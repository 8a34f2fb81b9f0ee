"""The timestamps that `extend` takes: milliseconds from every container, or what is wrong with them."""

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore.engine.columns.column_input import timestamp_input_list, timestamp_input_outliving
from tests.unit.capsules import Source, i64

try:
    import pyarrow
except ImportError:
    pyarrow = None

# any number is drawn, also one that may have been meant as seconds
pytestmark = pytest.mark.filterwarnings("ignore:timestamp .* is milliseconds since 1970")
needs_pyarrow = pytest.mark.skipif(pyarrow is None, reason="pyarrow is not installed")

MOST = 2**63 - 1
TIMES = st.lists(st.integers(-1, MOST), max_size=30)


@given(TIMES)
def test_times(times: list[int]) -> None:
    count = len(times)
    assert timestamp_input_list(times, count, 0) == times
    assert timestamp_input_list(iter(times), count, 0) == times
    assert timestamp_input_list(tuple(map(numpy.int64, times)), count, 0) == times
    for column in (numpy.array(times, "i8"), numpy.array(times, ">i8"), numpy.array(times, object)):
        assert timestamp_input_list(column, count, 0) == times
        assert timestamp_input_list(column[::-1], count, 0) == times[::-1]
    if pyarrow is not None:
        column = pyarrow.array(times, pyarrow.int64())
        assert timestamp_input_list(column, count, 0) == times
        assert timestamp_input_list(pyarrow.chunked_array([column[:3], column[3:]]), count, 0) == times


def test_one_time_for_all() -> None:
    assert timestamp_input_list(None, 3, 7) == [7, 7, 7]
    assert timestamp_input_list(5, 3, 7) == timestamp_input_list(numpy.uint8(5), 3, 7) == [5, 5, 5]
    assert timestamp_input_list(-1, 1, 7) == [-1]
    assert (
        timestamp_input_list(None, 0, 7)
        == timestamp_input_list([], 0, 7)
        == timestamp_input_list(numpy.array([], "i8"), 0, 7)
        == []
    )


def test_narrow_integers() -> None:
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "<i4", ">u4"):
        assert timestamp_input_list(numpy.array([1, 100], dtype), 2, 0) == [1, 100]


@pytest.mark.parametrize(
    "times",
    [
        True, 1.5, "5", b"5", [True], [None], [1.5], ["5"], {1: 2},
        numpy.array([True]), numpy.array([1.5]), numpy.array([5], "u8"), numpy.array(["5"]), numpy.array([[5]]),
        numpy.array([5], "m8[ms]"), numpy.array([None], object), numpy.ma.masked_array([5], [True]),
    ],
    ids=repr,
)  # fmt: skip
def test_no_times(times: Any) -> None:
    with pytest.raises(TypeError, match="timestamp"):
        timestamp_input_list(times, 1, 0)


@pytest.mark.parametrize("wrong", [-2, -(2**63), 2**63, -(2**70), 2**70])
def test_times_out_of_range(wrong: int) -> None:
    with pytest.raises(ValueError, match=r"^timestamp:"):
        timestamp_input_list(wrong, 1, 0)
    columns: list[Any] = [[1, -1, wrong]]
    if -(2**63) <= wrong < 2**63:
        columns.append(numpy.array(columns[0]))
        if pyarrow is not None:
            whole = pyarrow.array(columns[0])
            columns += [whole, pyarrow.chunked_array([whole[:2], whole[2:]])]
    for column in columns:
        with pytest.raises(ValueError, match="timestamp of record 2:"):
            timestamp_input_list(column, 3, 0)


def test_an_overflow_in_code_of_somebody_else_is_told_as_it_is() -> None:
    class Odd:
        def __index__(self) -> int:
            raise OverflowError("odd")

    for times in (Odd(), [1, Odd()]):
        with pytest.raises(OverflowError, match="odd"):
            timestamp_input_list(times, 2, 0)


@pytest.mark.parametrize("column", [[1, 2], iter([1, 2]), numpy.array([1, 2]), iter(range(10**9))])
def test_another_count_of_times(column: Any) -> None:
    with pytest.raises(ValueError, match=r"timestamps: .* for 1 records"):
        timestamp_input_list(column, 1, 0)


UNITS = {"W": 604_800_000, "D": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
FINE = {"us": 10**3, "ns": 10**6, "ps": 10**9, "fs": 10**12, "as": 10**15}


@given(
    st.sampled_from([*UNITS, *FINE]),
    st.integers(1, 50),
    st.lists(st.integers(-1, MOST), min_size=1, max_size=5),
)
def test_datetime64(unit: str, step: int, numbers: list[int]) -> None:
    """Against Python's integers, which do not overflow."""
    column = numpy.array(numbers, "i8").view(f"M8[{step}{unit}]")
    expected = [n * step * UNITS.get(unit, 1) // FINE.get(unit, 1) for n in numbers]
    fits = [-1 <= e <= MOST and n * step <= MOST for e, n in zip(expected, numbers, strict=True)]
    if all(fits):
        assert timestamp_input_list(column, len(numbers), 0) == expected
    else:
        with pytest.raises(ValueError, match=f"of record {fits.index(False)}:"):
            timestamp_input_list(column, len(numbers), 0)


def test_calendar_units() -> None:
    column = numpy.array(["1970-01", "2024-02", "2024-03"], "M8[M]")
    expected = column.astype("M8[ms]").view("i8").tolist()
    assert (
        timestamp_input_list(column, 3, 0) == timestamp_input_list(column.astype(">M8[M]"), 3, 0) == expected
    )
    assert timestamp_input_list(numpy.array([54], "i8").view("M8[Y]"), 1, 0) == [1_704_067_200_000]
    assert timestamp_input_list(numpy.array([27], "i8").view("M8[2Y]"), 1, 0) == [1_704_067_200_000]
    for unit in ("M8[Y]", "M8[M]", "M8[1000Y]", "M8[2147483647M]"):
        for number in (-1, 2**40, 2**62 + 5, MOST, -(2**63)):
            with pytest.raises(ValueError, match="of record 1:"):
                timestamp_input_list(numpy.array([0, number], "i8").view(unit), 2, 0)


@pytest.mark.parametrize("unit", ["Y", "M", "D", "ms", "ns"])
def test_not_a_time(unit: str) -> None:
    with pytest.raises(ValueError, match="timestamp of record 1: not a time"):
        timestamp_input_list(numpy.array(["2024", "NaT"], f"M8[{unit}]"), 2, 0)


# numpy 2.5 warns when one is made
@pytest.mark.filterwarnings("ignore:The 'generic' unit:DeprecationWarning")
def test_no_unit() -> None:
    with pytest.raises(ValueError, match="without a unit"):
        timestamp_input_list(numpy.array(["NaT"], "M8"), 1, 0)


@needs_pyarrow
@given(
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.sampled_from([None, "UTC", "Europe/Berlin"]),
    st.lists(st.none() | st.integers(0, 2**50), max_size=12),
    st.integers(0, 12),
)
def test_arrow_timestamps(unit: str, zone: str | None, numbers: list[int | None], cut: int) -> None:
    column = pyarrow.array(numbers, pyarrow.timestamp(unit, zone))
    expected = [-1 if n is None else n * UNITS.get(unit, 1) // FINE.get(unit, 1) for n in numbers]
    assert timestamp_input_list(column, len(numbers), 0) == expected
    assert timestamp_input_list(column[cut:], len(expected[cut:]), 0) == expected[cut:]
    assert (
        timestamp_input_list(pyarrow.chunked_array([column[:cut], column[cut:]]), len(numbers), 0) == expected
    )


@needs_pyarrow
def test_arrow_dates_and_nulls() -> None:
    days = pyarrow.array([0, 19_723, None, 2**31 - 1], pyarrow.int32()).cast(pyarrow.date32())
    assert timestamp_input_list(days, 4, 0) == [0, 1_704_067_200_000, -1, (2**31 - 1) * 86_400_000]
    assert timestamp_input_list(days[:2].cast(pyarrow.date64()), 2, 0) == [0, 1_704_067_200_000]
    assert timestamp_input_list(pyarrow.array([None, 5], pyarrow.int64()), 2, 0) == [-1, 5]
    assert timestamp_input_list(pyarrow.chunked_array([], pyarrow.int64()), 0, 0) == []
    for column in (
        pyarrow.array([b"x"]), pyarrow.array([1], pyarrow.int32()), pyarrow.array([1], pyarrow.uint64()),
        pyarrow.array([1], pyarrow.time64("us")), pyarrow.array([1], pyarrow.duration("ms")),
        pyarrow.array([1]).dictionary_encode(), pyarrow.table({"a": [1]}), pyarrow.nulls(1),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="timestamps: an Arrow array"):
            timestamp_input_list(column, 1, 0)


@pytest.mark.parametrize(
    ("format", "number"),
    [(b"tss:", -1), (b"tss:", 2**60), (b"tsm:UTC", -2), (b"tsu:", -1001), (b"tdm", -(2**63))],
)
def test_arrow_timestamps_out_of_range(format: bytes, number: int) -> None:
    source = Source(format, 2, [None, i64(5, number)])
    with pytest.raises(ValueError, match="timestamp of record 1:"):
        timestamp_input_list(source, 2, 0)
    assert sorted(source.released) == ["array", "schema"]


@pytest.mark.parametrize("format", [b"", b"t", b"ts", b"tss", b"tsx:", b"tdDx", b"tdm:", b"ll", b"l:", b"+s"])
def test_arrow_formats_of_no_time(format: bytes) -> None:
    with pytest.raises(TypeError, match="timestamps: an Arrow array of int64"):
        timestamp_input_list(Source(format, 1, [None, i64(5)]), 1, 0)


def test_hostile_times() -> None:
    for source in (
        Source(b"l", 1, None),
        Source(b"l", 1, [None, None]),
        Source(b"l", 1, [None, i64(1)], null_count=1),
    ):
        with pytest.raises(ValueError, match="timestamps:"):
            timestamp_input_list(source, 1, 0)
        assert sorted(source.released) == ["array", "schema"]


def test_misaligned() -> None:
    """Arrow asks for aligned buffers and does not insist."""
    source = Source(b"l", 2, [None, b"." + i64(5, 6)])
    source.pointers[1] += 1
    assert timestamp_input_list(source, 2, 0) == [5, 6]


def test_times_outlive_their_source() -> None:
    def numbers() -> Any:
        return numpy.arange(10_000) * 3

    expected = [3 * i for i in range(10_000)]
    assert timestamp_input_outliving(numbers, 10_000, 0) == expected
    assert timestamp_input_outliving(lambda: numbers()[::-1], 10_000, 0) == expected[::-1]
    assert timestamp_input_outliving(lambda: numbers().view("M8[ms]"), 10_000, 0) == expected
    if pyarrow is not None:
        assert timestamp_input_outliving(lambda: pyarrow.array(numbers()), 10_000, 0) == expected
        assert (
            timestamp_input_outliving(lambda: pyarrow.array(numbers().view("M8[ms]")), 10_000, 0) == expected
        )


@needs_pyarrow
def test_a_series_of_pandas_whose_missing_times_are_nulls() -> None:
    """Arrow's nulls are records without a timestamp; a NaT is a mistake, in whatever column of pandas."""

    class Series:
        def __init__(self, *times: int | None) -> None:
            self.times = pyarrow.chunked_array([pyarrow.array(times, pyarrow.timestamp("ms", "UTC"))])
            self.__arrow_c_stream__ = self.times.__arrow_c_stream__

        def isna(self) -> Any:
            return self.times.is_null().to_numpy()

        def __len__(self) -> int:
            return len(self.times)

    assert timestamp_input_list(Series(1, 2).times, 2, 0) == [1, 2]
    assert timestamp_input_list(Series(1, None).times, 2, 0) == [1, -1]
    assert timestamp_input_list(Series(1, 2), 2, 0) == [1, 2]
    with pytest.raises(kstore.InvalidTimestampError, match=r"record 1: not a time \(NaT\)"):
        timestamp_input_list(Series(1, None), 2, 0)
