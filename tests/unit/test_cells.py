"""What `extend` takes as columns: every container gives the cells that were put in, or says what is wrong with it.

The file is long because it has a test for each kind of container, and for each way in which one can be wrong.
"""

import array
import itertools
import threading
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.engine.columns.binary_input import binary_input_list, binary_input_outliving, binary_input_summary
from tests.unit.capsules import ARRAY, STREAM, Source, Streaming, capsule, i32, i64, view

try:
    import pyarrow
except ImportError:
    pyarrow = None

needs_pyarrow = pytest.mark.skipif(pyarrow is None, reason="pyarrow is not installed")

CELLS = st.lists(st.none() | st.binary(max_size=40), max_size=50)
MIXED = [b"one", None, b"", b"twelve bytes", b"thirteen byte", b"x" * 300, None]


# ---- Python's own --------------------------------------------------------------------------------------------------


@given(CELLS)
def test_sequences(cells: list[bytes | None]) -> None:
    assert binary_input_list(cells) == cells
    assert binary_input_list(tuple(cells), len(cells)) == cells
    assert binary_input_list(iter(cells)) == cells
    assert binary_input_list([c if c is None else bytearray(c) for c in cells]) == cells
    assert binary_input_list([c if c is None else memoryview(c) for c in cells]) == cells
    total = sum(len(c) for c in cells if c is not None)
    assert binary_input_summary(cells) == ("pointers", len(cells), cells.count(None), total)


def test_other_bytes() -> None:
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
    assert binary_input_list(cells) == [b"own", b"numpy's", b"fdb", numbers.tobytes(), b""]


def test_nothing() -> None:
    assert binary_input_list(None, 3) == [None, None, None]
    assert binary_input_list(None, 0) == binary_input_list([]) == binary_input_list((), 0) == []
    with pytest.raises(TypeError, match="not None"):
        binary_input_list(None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
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
    ],
)
def test_no_column(values: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        binary_input_list(values)


@pytest.mark.parametrize(
    "make", [list, tuple, iter, lambda v: numpy.array(v, "S1"), lambda v: numpy.array(v, object)]
)
@pytest.mark.parametrize("found", [0, 1, 3])
def test_another_count(make: Any, found: int) -> None:
    with pytest.raises(ValueError, match=r"values: .* for 2 records"):
        binary_input_list(make([b"x"] * found), 2)


def test_endless() -> None:
    with pytest.raises(ValueError, match="more for 3 records"):
        binary_input_list(itertools.repeat(b"x"), 3)


def test_failing_iterables() -> None:
    def failing() -> Any:
        yield b"x"
        raise KeyError("mine")

    released = memoryview(b"x")
    released.release()
    with pytest.raises(KeyError, match="mine"):
        binary_input_list(failing())
    with pytest.raises(ValueError, match="released"):
        binary_input_list([b"y", released])


def test_cells_outlive_their_source() -> None:
    def fresh(n: int) -> bytes:
        return b"%06d" % n * 20

    expected = [fresh(n) for n in range(1000)]
    assert binary_input_outliving(lambda: [fresh(n) for n in range(1000)]) == expected
    assert binary_input_outliving(lambda: (bytearray(fresh(n)) for n in range(1000))) == expected
    assert binary_input_outliving(lambda: [memoryview(bytearray(fresh(n))) for n in range(1000)]) == expected
    assert binary_input_outliving(lambda: [memoryview(fresh(n)[::-1])[::-1] for n in range(1000)]) == expected
    assert binary_input_outliving(lambda: numpy.array(expected)) == expected
    assert binary_input_outliving(lambda: numpy.array(expected, object)) == expected
    assert binary_input_outliving(lambda: numpy.array(expected)[::-1].copy()[::-1].astype("V120")) == expected


def test_bytearrays_are_free_again() -> None:
    cell = bytearray(b"x" * 1000)
    assert binary_input_outliving(lambda: iter([cell])) == [b"x" * 1000]
    cell.extend(b"could not grow while it was pinned")


def test_a_pinned_bytearray_cannot_be_resized() -> None:
    cell = bytearray(b"x" * 1000)

    class Prying(type):
        @property
        def __name__(cls) -> Any:
            """Asked for when a cell behind the bytearray is refused."""
            return cell.clear()

    with pytest.raises(BufferError):
        binary_input_list([cell, Prying("odd", (), {})()])
    assert len(cell) == 1000


def test_a_list_that_another_thread_changes() -> None:
    values = [b"a" * 100] * 1000
    done = threading.Event()

    def change() -> None:
        while not done.is_set():
            values.clear()
            values.extend(b"%0100d" % i for i in range(1000))

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            assert all(len(c or b"") == 100 for c in binary_input_list(values))
    finally:
        done.set()
        thread.join()


# ---- numpy ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.binary(max_size=12), max_size=30), st.sampled_from([1, 2, -1]))
def test_numpy_strings(cells: list[bytes], step: int) -> None:
    column = numpy.array(cells, "S12")[::step]
    assert binary_input_list(column) == list(column)
    wide = numpy.array([c.ljust(12, b"\0") for c in cells], "S12").astype("V12")[::step]
    assert binary_input_list(wide) == [bytes(c) for c in wide] == [c.ljust(12, b"\0") for c in cells[::step]]


@given(st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_numpy_rows(rows: int, width: int, fortran: bool) -> None:
    column = numpy.arange(rows * width, dtype="u1").reshape(rows, width)
    column = numpy.asfortranarray(column) if fortran else column
    assert binary_input_list(column) == [row.tobytes() for row in column]
    assert binary_input_list(column[:, ::-1]) == [row.tobytes()[::-1] for row in column]


def test_numpy_widths_of_nothing() -> None:
    assert binary_input_list(numpy.zeros(2, "S0")) == [b"", b""]
    assert binary_input_list(numpy.zeros(2, "V0")) == [b"", b""]
    assert binary_input_list(numpy.zeros(0, "S5")) == []


def test_numpy_in_place() -> None:
    rows = numpy.zeros((3, 5), "u1")
    rows.flags.writeable = False
    assert binary_input_summary(rows) == ("fixed", 3, 0, 15)
    assert binary_input_summary(numpy.zeros(3, "V5")) == ("fixed", 3, 0, 15)
    assert binary_input_summary(numpy.array(MIXED, object)) == binary_input_summary(MIXED)


@pytest.mark.parametrize(
    "column",
    [
        numpy.array(["text"]),
        numpy.arange(3),
        numpy.arange(3, dtype="u1"),
        numpy.zeros((2, 2), "i1"),
        numpy.zeros((2, 2), "S1"),
        numpy.array(b"scalar"),
        numpy.zeros(2, [("a", "i4"), ("b", "O")]),
        numpy.array([b"x", 5], object),
        numpy.array([b"x", float("nan")], object),
        numpy.ma.masked_array([b"x", b"y"], [True, False]),
        numpy.array(["text"], numpy.dtypes.StringDType()),
    ],
    ids=str,
)
def test_numpy_no_cells(column: Any) -> None:
    with pytest.raises(TypeError, match="values:"):
        binary_input_list(column)


# ---- Arrow ---------------------------------------------------------------------------------------------------------


def arrow_types() -> list[Any]:
    return [
        pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view(),
        pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(),
        pyarrow.dictionary(pyarrow.int8(), pyarrow.binary()),
        pyarrow.dictionary(pyarrow.uint64(), pyarrow.large_string()),
    ]  # fmt: skip


def arrow_array(cells: list[bytes | None], kind: Any) -> Any:
    value = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    if "string" in str(value):
        return pyarrow.array([c if c is None else c.decode("latin-1") for c in cells], value).cast(kind)
    return pyarrow.array(cells, value).cast(kind)


ASCII = st.lists(
    st.none() | st.binary(max_size=40).map(lambda b: bytes(c & 0x7F for c in b)),
    max_size=40,
)  # text and bytes alike


@needs_pyarrow
@given(ASCII, st.integers(0, 40), st.integers(0, 40))
def test_arrow_arrays(cells: list[bytes | None], start: int, cut: int) -> None:
    for kind in arrow_types():
        column = arrow_array(cells, kind)
        assert binary_input_list(column) == cells
        assert binary_input_list(column[start:], max(len(cells) - start, 0)) == cells[start:]
        assert binary_input_list(column[start : start + cut]) == cells[start : start + cut]
        chunks = pyarrow.chunked_array([column[:cut], column[cut:], column[:0], column[start:]], type=kind)
        assert binary_input_list(chunks) == cells + cells[start:]


@needs_pyarrow
@given(st.lists(st.none() | st.binary(min_size=5, max_size=5), max_size=20), st.integers(0, 20))
def test_arrow_fixed_width(cells: list[bytes | None], start: int) -> None:
    column = pyarrow.array(cells, pyarrow.binary(5))
    assert binary_input_list(column[start:]) == cells[start:]
    assert binary_input_list(pyarrow.chunked_array([column, column])) == cells + cells
    assert binary_input_list(column.dictionary_encode()) == cells


@needs_pyarrow
def test_arrow_in_place() -> None:
    kinds = {
        pyarrow.binary(): "offsets32",
        pyarrow.large_string(): "offsets64",
        pyarrow.binary_view(): "pointers",
        pyarrow.dictionary(pyarrow.int32(), pyarrow.string()): "pointers",
    }
    for kind, name in kinds.items():
        column = arrow_array(MIXED, kind)
        assert binary_input_summary(column) == (name, 7, 2, 328)
        assert binary_input_summary(pyarrow.chunked_array([column])) == (name, 7, 2, 328)
        assert binary_input_summary(pyarrow.chunked_array([column[:1], column[1:]])) == (
            "pointers",
            7,
            2,
            328,
        )
    assert binary_input_summary(pyarrow.array([b"ab", None], pyarrow.binary(2))) == ("fixed", 2, 1, 2)
    assert binary_input_summary(pyarrow.nulls(1 << 20)) == ("null", 1 << 20, 1 << 20, 0)


@needs_pyarrow
def test_arrow_odd_arrays() -> None:
    assert binary_input_list(pyarrow.chunked_array([], pyarrow.binary())) == []
    assert binary_input_list(pyarrow.array([], pyarrow.string_view())) == []
    assert binary_input_list(pyarrow.array([b"", b""], pyarrow.binary(0))) == [b"", b""]
    assert binary_input_list(pyarrow.chunked_array([pyarrow.nulls(2), pyarrow.nulls(1)])) == [None] * 3
    words = pyarrow.array([b"a", None, b"c"])
    indexes = pyarrow.array([2, 1, None, 0], pyarrow.int16())
    assert binary_input_list(pyarrow.DictionaryArray.from_arrays(indexes, words)) == [b"c", None, None, b"a"]
    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([]), [])
    with pytest.raises(TypeError, match=r"values: .*'\+s'"):
        binary_input_list(reader)


@needs_pyarrow
def test_arrow_cells_outlive_their_source() -> None:
    for kind in arrow_types():
        assert binary_input_outliving(lambda kind=kind: arrow_array(MIXED, kind)) == MIXED
        assert (
            binary_input_outliving(lambda kind=kind: pyarrow.chunked_array([arrow_array(MIXED, kind)] * 2))
            == MIXED * 2
        )


@needs_pyarrow
def test_arrow_no_cells() -> None:
    for column in (
        pyarrow.array([1, 2]),
        pyarrow.array([[b"x"]]),
        pyarrow.array([1.5]).dictionary_encode(),
        pyarrow.table({"a": [b"x"]}),
        pyarrow.record_batch({"a": [b"x"]}),
        pyarrow.chunked_array([], pyarrow.int32()),
    ):
        with pytest.raises(TypeError, match="values: an Arrow array"):
            binary_input_list(column)
    with pytest.raises(ValueError, match="2 for 3 records"):
        binary_input_list(pyarrow.array([b"x", b"y"]), 3)
    with pytest.raises(ValueError, match="more for 1 records"):
        binary_input_list(pyarrow.chunked_array([[b"x"], [b"y"]]), 1)


# ---- Arrow by hand -------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize(("source", "expected"), SOUND, ids=itertools.count())
def test_hand_made(source: Source, expected: list[bytes | None]) -> None:
    assert binary_input_list(source) == expected
    assert sorted(source.released) == ["array", "schema"]
    with pytest.raises(ValueError, match="released, or given"):
        binary_input_list(source)
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
WRONG_TYPES: list[dict[str, Any]] = [
    {"format": format}
    for format in (b"", b"l", b"+s", b"+w:3", b"w:", b"w:-1", b"w:x", b"w:9999999999", b"v", b"\xff")
] + [
    {"format": b"f", "dictionary": WORDS},
    {"format": b"z", "dictionary": WORDS},
    {"format": b"c", "dictionary": {**WORDS, "format": b"l"}},
    {"format": b"c", "dictionary": {**WORDS, "format": None}},
    {
        "format": b"c",
        "dictionary": {"format": b"c", "length": 1, "buffers": [None, b"\0"], "dictionary": WORDS},
    },
]


def forged(forgery: dict[str, Any]) -> Source:
    facts = {"format": b"z", "length": 2, "buffers": [None, i32(0, 1, 2), b"ab"], **forgery}
    if "dictionary" in facts:
        facts["dictionary"] = forged(facts["dictionary"])
    return Source(**facts)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("forgery", "message"), HOSTILE, ids=str)
def test_hostile_arrays(forgery: dict[str, Any], message: str, streamed: bool) -> None:
    source = forged(forgery)
    with pytest.raises(ValueError, match=f"values: .*{message}"):
        binary_input_list(Streaming(source, [source]) if streamed else source)
    assert sorted(source.released) == ["array", "schema"]


@pytest.mark.parametrize("forgery", WRONG_TYPES, ids=str)
def test_wrong_types(forgery: dict[str, Any]) -> None:
    source = forged(forgery)
    with pytest.raises(TypeError, match="values: an Arrow array"):
        binary_input_list(source)
    assert sorted(source.released) == ["array", "schema"]


def test_dictionary_that_only_its_schema_has() -> None:
    source = Source(b"c", 1, [None, b"\0"], dictionary=forged(WORDS))
    source.array.dictionary = None
    with pytest.raises(ValueError, match="without its dictionary"):
        binary_input_list(source)


class Exporter:
    """Gives what it is told to, where Arrow's capsules belong."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.given


def test_wrong_capsules() -> None:
    source = forged({})
    schema, column = source.__arrow_c_array__()
    for what in (None, (), (schema,), (schema, column, column), [schema, column]):
        with pytest.raises(ValueError, match="gives two capsules"):
            binary_input_list(Exporter(what))
    for what in ((column, schema), (schema, schema), (None, None), (schema, capsule(source.array, STREAM))):
        with pytest.raises(ValueError, match="a capsule named arrow"):
            binary_input_list(Exporter(what))
    assert source.released == []
    assert binary_input_list(Exporter((schema, column))) == [b"a", b"b"]

    class NoStream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return capsule(source.array, ARRAY)

    with pytest.raises(ValueError, match="a capsule named arrow_array_stream"):
        binary_input_list(NoStream())


def test_half_released() -> None:
    source = forged({})
    source.array.release = type(source.array.release)(0)
    with pytest.raises(ValueError, match="released"):
        binary_input_list(source)
    assert source.released == []


def test_streams_by_hand() -> None:
    first, second, third = forged({}), forged({"length": 0}), forged({"offset": 1, "length": 1})
    stream = Streaming(first, [first, second, third])
    assert binary_input_list(stream) == [b"a", b"b", b"b"]
    assert stream.released == ["stream"]
    assert sorted(first.released) == ["array", "schema"]
    assert second.released == third.released == ["array"]
    with pytest.raises(ValueError, match="stream was released"):
        binary_input_list(stream)
    assert stream.released == ["stream"]


@pytest.mark.parametrize("reason", [None, b"no disk", b"\xff"])
@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_failing_streams(fails_at: int, reason: bytes | None) -> None:
    first, second = forged({}), forged({})
    stream = Streaming(first, [first, second], fails_at=fails_at, reason=reason)
    text = (
        "no reason given"
        if reason is None
        else "no disk"
        if reason == b"no disk"
        else "\N{REPLACEMENT CHARACTER}"
    )
    with pytest.raises(ValueError, match=f"values: the Arrow stream failed with errno 5: {text}"):
        binary_input_list(stream)
    assert stream.released == ["stream"]
    assert sorted(first.released) == [[], ["schema"], ["array", "schema"]][fails_at]


def test_long_stream_for_few_records() -> None:
    sources = [forged({}) for _ in range(10)]
    stream = Streaming(forged({}), sources)
    with pytest.raises(ValueError, match="more for 3 records"):
        binary_input_list(stream, 3)
    assert [s.released for s in sources] == [["array"]] * 2 + [[]] * 8


def test_misaligned() -> None:
    """Arrow asks for aligned buffers and does not insist."""
    for format, offsets in ((b"z", i32(0, 1, 3)), (b"Z", i64(0, 1, 3))):
        source = forged({"format": format, "buffers": [None, b"." + offsets, b"abb"]})
        source.pointers[1] += 1
        assert binary_input_list(source) == [b"a", b"bb"]
