"""Columns of bytes for `extend`: every container gives its cells, or an error names what is wrong.

An array of Arrow comes from any library through the C data interface: it may be damaged, and it must be
released exactly once.
"""

import array
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.helpers.waiting import threads_doing
from tests.unit.capsules import Source, Streaming, i32, i64, view

try:
    import pyarrow
except ImportError:
    pyarrow = None

needs_pyarrow = pytest.mark.skipif(pyarrow is None, reason="pyarrow is not installed")

Cells = list[bytes | None]
CELLS = st.lists(st.none() | st.binary(max_size=40), max_size=50)
MIXED = [b"one", None, b"", b"twelve bytes", b"thirteen byte", b"x" * 300, None]


class Column:
    """Appends columns to a log, and reads back what is there then."""

    def __init__(self, log: kstore.LogWriter) -> None:
        self._log = log

    def values(self, column: Any) -> Cells:
        return [record.value for record in self._appended(self._log.extend(column))]

    def keys(self, column: Any, count: int) -> Cells:
        """The column as the keys of so many records."""
        return [record.key for record in self._appended(self._log.extend([b""] * count, column))]

    def refused(self, column: Any, error: type[Exception], words: str, count: int | None = None) -> None:
        """Nothing is appended."""
        end = self._log.log_end_offset
        with pytest.raises(error, match=words):
            self.values(column) if count is None else self.keys(column, count)
        assert self._log.log_end_offset == end

    def _appended(self, offsets: range) -> Iterator[kstore.Record]:
        return iter(self._log.records(offsets.start) if offsets else ())


@pytest.fixture(scope="module")
def column(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Column]:
    path: Path = tmp_path_factory.mktemp("columns") / "t-0"
    with kstore.open(path, "a") as log:
        yield Column(log)


# ---- Python's own --------------------------------------------------------------------------------


@given(cells=CELLS)
def test_sequences(column: Column, cells: Cells) -> None:
    assert column.values(cells) == cells
    assert column.keys(tuple(cells), len(cells)) == cells
    assert column.values(iter(cells)) == cells
    assert column.values([c if c is None else bytearray(c) for c in cells]) == cells
    assert column.values([c if c is None else memoryview(c) for c in cells]) == cells


def test_other_bytes(column: Column) -> None:
    class Own(bytes):
        pass

    numbers = array.array("i", [1, 2, 3])
    cells = [
        Own(b"own"),
        numpy.bytes_(b"numpy's"),
        memoryview(b"abcdef")[::-2],
        memoryview(numbers),
        memoryview(b""),
    ]
    assert column.values(cells) == [b"own", b"numpy's", b"fdb", numbers.tobytes(), b""]


def test_nothing(column: Column) -> None:
    assert column.keys(None, 3) == [None, None, None]
    assert column.keys(None, 0) == column.values([]) == column.keys((), 0) == []
    column.refused(None, TypeError, "not None")


def test_no_column(column: Column) -> None:
    several: list[tuple[Any, str]] = [
        ("text", "encode"),
        (["text"], "cell 0 is a str"),
        ([b"", None, 5], "cell 2 is bytes, bytearray, memoryview or None, not int"),
        ([numpy.int64(5)], "not int64"),
        ([float("nan")], "not float"),
        ([[b"nested"]], "not list"),
        (b"bytes", "not bytes"),
        (bytearray(b"bytes"), "not bytearray"),
        (memoryview(b"bytes"), "not memoryview"),
        ({b"key": b"value"}, "not dict"),
        ({b"unordered"}, "not set"),
        (5, "not int"),
    ]
    for values, words in several:
        column.refused(values, TypeError, words)


def test_another_count(column: Column) -> None:
    for found, make in itertools.product(
        (0, 1, 3), (list, tuple, iter, lambda v: numpy.array(v, "S1"), lambda v: numpy.array(v, object))
    ):
        column.refused(make([b"x"] * found), ValueError, r"keys: .* for 2 records", 2)
    column.refused(itertools.repeat(b"x"), ValueError, "more for 3 records", 3)


def test_an_iterable_that_fails(column: Column) -> None:
    def failing() -> Any:
        yield b"x"
        raise KeyError("mine")

    released = memoryview(b"x")
    released.release()
    column.refused(failing(), KeyError, "mine")
    column.refused([b"y", released], ValueError, "released")


def test_cells_that_only_their_iterator_holds(column: Column) -> None:
    def fresh(n: int) -> bytes:
        return b"%06d" % n * 20

    expected = [fresh(n) for n in range(1000)]
    assert column.values(fresh(n) for n in range(1000)) == expected
    assert column.values(bytearray(fresh(n)) for n in range(1000)) == expected
    assert column.values(memoryview(bytearray(fresh(n))) for n in range(1000)) == expected
    assert column.values(memoryview(fresh(n)[::-1])[::-1] for n in range(1000)) == expected
    assert column.values(numpy.array(expected)[::-1].copy()[::-1].astype("V120")) == expected


def test_a_bytearray_cannot_be_resized_meanwhile(column: Column) -> None:
    cell = bytearray(b"x" * 1000)

    class Prying(type):
        @property
        def __name__(cls) -> Any:
            """Read when a cell behind the bytearray is refused."""
            return cell.clear()

    column.refused([cell, Prying("odd", (), {})()], BufferError, "re-sized")
    assert len(cell) == 1000
    assert column.values(iter([cell])) == [b"x" * 1000]
    cell.extend(b"could not grow while it was pinned")


def test_a_list_that_another_thread_changes(column: Column) -> None:
    values = [b"a" * 100] * 1000
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            values.clear()
            values.extend(b"%0100d" % i for i in range(1000))

    with threads_doing(change, ended=done):
        for _ in range(100):
            assert all(len(c or b"") == 100 for c in column.values(values))


# ---- numpy ---------------------------------------------------------------------------------------


@given(cells=st.lists(st.binary(max_size=12), max_size=30), step=st.sampled_from([1, 2, -1]))
def test_numpy_strings(column: Column, cells: list[bytes], step: int) -> None:
    strings = numpy.array(cells, "S12")[::step]
    assert column.values(strings) == list(strings)
    wide = numpy.array([c.ljust(12, b"\0") for c in cells], "S12").astype("V12")[::step]
    assert column.values(wide) == [bytes(c) for c in wide] == [c.ljust(12, b"\0") for c in cells[::step]]
    assert column.values(numpy.array(cells, object)) == cells


@given(rows=st.integers(0, 5), width=st.integers(0, 5), order=st.sampled_from("CF"))
def test_numpy_rows(column: Column, rows: int, width: int, order: Any) -> None:
    table = numpy.asarray(numpy.arange(rows * width, dtype="u1").reshape(rows, width), order=order)
    table.flags.writeable = False
    assert column.values(table) == [row.tobytes() for row in table]
    assert column.values(table[:, ::-1]) == [row.tobytes()[::-1] for row in table]


def test_numpy_widths_of_nothing(column: Column) -> None:
    assert column.values(numpy.zeros(2, "S0")) == [b"", b""]
    assert column.values(numpy.zeros(2, "V0")) == [b"", b""]
    assert column.values(numpy.zeros(0, "S5")) == []
    assert column.values(numpy.array(MIXED, object)) == MIXED


def test_numpy_no_cells(column: Column) -> None:
    for cells in (
        numpy.array(["text"]), numpy.arange(3), numpy.arange(3, dtype="u1"), numpy.zeros((2, 2), "i1"),
        numpy.zeros((2, 2), "S1"), numpy.array(b"scalar"), numpy.zeros(2, [("a", "i4"), ("b", "O")]),
        numpy.array([b"x", 5], object), numpy.array([b"x", float("nan")], object),
        numpy.ma.masked_array([b"x", b"y"], [True, False]), numpy.array(["text"], numpy.dtypes.StringDType()),
    ):  # fmt: skip
        column.refused(cells, TypeError, "values:")


# ---- Arrow ---------------------------------------------------------------------------------------


def arrow_types() -> list[Any]:
    return [
        pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view(),
        pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(),
        pyarrow.dictionary(pyarrow.int8(), pyarrow.binary()),
        pyarrow.dictionary(pyarrow.uint64(), pyarrow.large_string()),
    ]  # fmt: skip


def arrow_array(cells: Cells, kind: Any) -> Any:
    value = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    if "string" in str(value):
        return pyarrow.array([c if c is None else c.decode("latin-1") for c in cells], value).cast(kind)
    return pyarrow.array(cells, value).cast(kind)


# text and bytes alike
ASCII = st.lists(st.none() | st.binary(max_size=40).map(lambda b: bytes(c & 0x7F for c in b)), max_size=40)


@needs_pyarrow
@given(cells=ASCII, start=st.integers(0, 40), cut=st.integers(0, 40), at=st.integers(0, 7))
def test_arrow_arrays(column: Column, cells: Cells, start: int, cut: int, at: int) -> None:
    kind = arrow_types()[at]
    whole = arrow_array(cells, kind)
    assert column.values(whole) == cells
    assert column.keys(whole[start:], max(len(cells) - start, 0)) == cells[start:]
    assert column.values(whole[start : start + cut]) == cells[start : start + cut]
    chunks = pyarrow.chunked_array([whole[:cut], whole[cut:], whole[:0], whole[start:]], type=kind)
    assert column.values(chunks) == cells + cells[start:]


@needs_pyarrow
@given(cells=st.lists(st.none() | st.binary(min_size=5, max_size=5), max_size=20), start=st.integers(0, 20))
def test_arrow_fixed_width(column: Column, cells: Cells, start: int) -> None:
    fixed = pyarrow.array(cells, pyarrow.binary(5))
    assert column.values(fixed[start:]) == cells[start:]
    assert column.values(pyarrow.chunked_array([fixed, fixed])) == cells + cells
    assert column.values(fixed.dictionary_encode()) == cells


@needs_pyarrow
def test_arrow_odd_arrays(column: Column) -> None:
    assert column.values(pyarrow.chunked_array([], pyarrow.binary())) == []
    assert column.values(pyarrow.array([], pyarrow.string_view())) == []
    assert column.values(pyarrow.array([b"", b""], pyarrow.binary(0))) == [b"", b""]
    assert column.values(pyarrow.chunked_array([pyarrow.nulls(2), pyarrow.nulls(1)])) == [None] * 3
    for kind in arrow_types():
        assert column.values(arrow_array(MIXED, kind)) == MIXED
    words = pyarrow.array([b"a", None, b"c"])
    indexes = pyarrow.array([2, 1, None, 0], pyarrow.int16())
    assert column.values(pyarrow.DictionaryArray.from_arrays(indexes, words)) == [b"c", None, None, b"a"]
    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([]), [])
    column.refused(reader, TypeError, r"values: .*'\+s'")


@needs_pyarrow
def test_arrow_no_cells(column: Column) -> None:
    for no_cells in (
        pyarrow.array([1, 2]), pyarrow.array([[b"x"]]), pyarrow.array([1.5]).dictionary_encode(),
        pyarrow.record_batch({"a": [b"x"]}), pyarrow.chunked_array([], pyarrow.int32()),
    ):  # fmt: skip
        column.refused(no_cells, TypeError, "values: an Arrow array")
    column.refused(pyarrow.array([b"x", b"y"]), ValueError, "2 for 3 records", 3)
    column.refused(pyarrow.chunked_array([[b"x"], [b"y"]]), ValueError, "more for 1 records", 1)


@needs_pyarrow
def test_an_error_says_what_to_give_instead(column: Column) -> None:
    column.refused(numpy.array(["a", "b"]), TypeError, r"numpy\.char\.encode\(array\) encodes text")
    assert column.values(numpy.char.encode(numpy.array(["a", "b"]))) == [b"a", b"b"]
    column.refused(pyarrow.table({"value": ["c"]}), TypeError, "give one column of the table")
    assert column.values(pyarrow.table({"value": ["c"]})["value"]) == [b"c"]


# ---- Arrow by hand -------------------------------------------------------------------------------

SOUND = [
    (Source(b"z", 2, [None, i32(0, 1, 3), b"abb"]), [b"a", b"bb"]),
    (Source(b"Z", 2, [b"\x02", i64(5, 5, 7), b".....bb"]), [None, b"bb"]),
    (Source(b"z", 2, [b"\x0a", i32(9, 9, 0, 1, 2), b"ab"], offset=2), [None, b"b"]),
    (Source(b"z", 2, [b"\x00", i32(0, 1, 2), b"ab"], null_count=0), [b"a", b"b"]),
    (Source(b"z", 2, [None, i32(7, 7, 7), None]), [b"", b""]),
    (Source(b"u", 0, [None, None, None]), []),
    (Source(b"u", 0, None), []),
    (Source(b"n", 3, None), [None, None, None]),
    (Source(b"w:0", 2, [b"\x01", None]), [b"", None]),
    (Source(b"w:3", 2, [None, b"...abcdef"], offset=1), [b"abc", b"def"]),
    (Source(b"vz", 2, [None, view(3) + view(13, 0, 1), b"." + b"x" * 13, i64(14)]), [b"\0\0\0", b"x" * 13]),
    (Source(b"vu", 2, [b"\x01", view(0) + view(-5, 9, 9), None]), [b"", None]),
    (Source(b"C", 2, [None, b"\x00\x01"], dictionary=Source(b"w:1", 2, [None, b"ab"])), [b"a", b"b"]),
    (Source(b"c", 2, [b"\x01", b"\x00\xff"], dictionary=Source(b"w:1", 2, [None, b"ab"])), [b"a", None]),
    (Source(b"c", 1, [None, b"\x00"], dictionary=Source(b"n", 2, None)), [None]),
]


def test_hand_made(column: Column) -> None:
    for source, expected in SOUND:
        assert column.values(source) == expected
        assert sorted(source.released) == ["array", "schema"]
        column.refused(source, ValueError, "released, or given")
        assert sorted(source.released) == ["array", "schema"]


WORDS = {"format": b"w:1", "length": 2, "buffers": [None, b"ab"]}
HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"length": -1}, "length -1"),
    ({"length": 1 << 62}, "length"),
    ({"offset": -1}, "offset -1"),
    ({"offset": (1 << 63) - 1}, "offset"),
    ({"offset": 1 << 57, "length": 1 << 57}, "offset"),
    ({"buffers": None}, "buffers"),
    ({"n_buffers": 2}, "2 buffers where 3 belong"),
    ({"n_buffers": -3}, "buffers"),
    ({"buffers": [None, None, b"x"]}, "without a buffer"),
    ({"buffers": [None, i32(0, 1, 2), None]}, "without a buffer for their bytes"),
    ({"null_count": 1}, "does not say which"),
    ({"buffers": [None, i32(-1, 1, 2), b"ab"]}, "cell 0"),
    ({"buffers": [None, i32(0, 2, 1), b"ab"]}, "cell 1 .* from 2 to 1"),
    ({"buffers": [None, i32(0, 2**31 - 1, -(2**31)), b"ab"]}, "cell 1"),
    ({"format": b"Z", "buffers": [None, i64(0, 2**31, 2**31), b"ab"]}, "cell 0"),
    ({"format": b"Z", "buffers": [None, i64(2**63 - 1, -(2**63), 1), b"ab"]}, "cell 0"),
    ({"format": b"Z", "buffers": [None, i64(0, 1, -1), b"ab"]}, "cell 1"),
    ({"format": b"w:2147483647", "length": 1 << 40, "buffers": [None, b"ab"]}, "bytes"),
    ({"format": b"w:2", "buffers": [None, None]}, "without a buffer"),
    ({"format": b"w:0", "buffers": None}, "0 buffers"),
    ({"format": b"vz", "buffers": [None, view(-1) * 2, i64()]}, "cell 0"),
    ({"format": b"vz", "buffers": [None, view(0) + view(13), i64()]}, "cell 1"),
    ({"format": b"vz", "buffers": [None, view(13, 1) * 2, b"x" * 13, i64(13)]}, "cell 0"),
    ({"format": b"vz", "buffers": [None, view(13, -1) * 2, b"x" * 13, i64(13)]}, "cell 0"),
    ({"format": b"vz", "buffers": [None, view(13, 0, 1) * 2, b"x" * 13, i64(13)]}, "cell 0"),
    ({"format": b"vz", "buffers": [None, view(13, 0, -1) * 2, b"x" * 13, i64(13)]}, "cell 0"),
    ({"format": b"vz", "buffers": [None, view(2**31 - 1, 0, 2**31 - 1) * 2, b"x", i64(1)]}, "cell 0"),
    ({"format": b"vz", "buffers": [None, view(13) * 2, None, i64(13)]}, "cell 0"),
    ({"format": b"vz", "buffers": [None, view(13) * 2, b"x" * 13, None]}, "cell 0"),
    ({"format": b"vz", "buffers": [None, view(13) * 2, b"x" * 13, i64(-1)]}, "cell 0"),
    ({"format": b"c", "buffers": [None, b"\x00\x02"], "dictionary": WORDS}, "cell 1 .* dictionary of 2"),
    ({"format": b"c", "buffers": [None, b"\xff\x00"], "dictionary": WORDS}, "cell 0"),
    ({"format": b"L", "buffers": [None, i64(0, -1)], "dictionary": WORDS}, "cell 1"),
    ({"format": b"s", "buffers": [None, None], "dictionary": WORDS}, "without a buffer"),
    ({"format": b"c", "buffers": [None, b"\0\0"], "dictionary": {**WORDS, "length": -1}}, "length -1"),
    ({"format": b"c", "buffers": [None, b"\0\0"], "dictionary": {**WORDS, "offset": -1}}, "offset -1"),
    ({"format": b"c", "buffers": [None, b"\0\0"], "dictionary": {**WORDS, "buffers": None}}, "buffers"),
    ({"format": None}, "without a format"),
]  # fmt: skip


def forged(forgery: dict[str, Any]) -> Source:
    facts = {"format": b"z", "length": 2, "buffers": [None, i32(0, 1, 2), b"ab"], **forgery}
    if "dictionary" in facts:
        facts["dictionary"] = forged(facts["dictionary"])
    return Source(**facts)


@pytest.mark.parametrize("streamed", [False, True])
def test_hostile_arrays(column: Column, streamed: bool) -> None:
    for forgery, words in HOSTILE:
        source = forged(forgery)
        given = Streaming(source, [source]) if streamed else source
        column.refused(given, ValueError, f"values: .*{words}")
        assert sorted(source.released) == ["array", "schema"], forgery


def test_streams_by_hand(column: Column) -> None:
    first, second, third = forged({}), forged({"length": 0}), forged({"offset": 1, "length": 1})
    stream = Streaming(first, [first, second, third])
    assert column.values(stream) == [b"a", b"b", b"b"]
    assert stream.released == ["stream"]
    assert sorted(first.released) == ["array", "schema"]
    assert second.released == third.released == ["array"]
    column.refused(stream, ValueError, "stream was released")
    assert stream.released == ["stream"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [(None, "no reason given"), (b"no disk", "no disk"), (b"\xff", "\N{REPLACEMENT CHARACTER}")],
)
def test_failing_streams(column: Column, reason: bytes | None, words: str) -> None:
    for fails_at, released in enumerate(([], ["schema"], ["array", "schema"])):
        first, second = forged({}), forged({})
        stream = Streaming(first, [first, second], fails_at=fails_at, reason=reason)
        column.refused(stream, ValueError, f"values: the Arrow stream failed with errno 5: {words}")
        assert stream.released == ["stream"]
        assert sorted(first.released) == released


def test_buffers_that_are_not_aligned(column: Column) -> None:
    """Arrow asks for aligned buffers and does not insist."""
    for format, offsets in ((b"z", i32(0, 1, 3)), (b"Z", i64(0, 1, 3))):
        source = forged({"format": format, "buffers": [None, b"." + offsets, b"abb"]})
        source.pointers[1] += 1
        assert column.values(source) == [b"a", b"bb"]
