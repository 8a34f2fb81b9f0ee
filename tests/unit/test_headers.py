"""The headers that `extend` takes, as bytes of a record."""

import gc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore.engine.columns.column_input import header_input_list
from tests.helpers.varint import varint

Pairs = list[tuple[str, bytes | None]]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)
PAIRS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=90)), max_size=5)


def encoded(pairs: Pairs) -> bytes:
    """Spec 2.3, in Python."""
    out = varint(len(pairs))
    for name, value in pairs:
        raw = name.encode()
        out += varint(len(raw)) + raw + (varint(-1) if value is None else varint(len(value)) + value)
    return out


@given(st.lists(PAIRS | st.none(), min_size=1, max_size=20))
def test_headers_of_each(lists: list[Pairs | None]) -> None:
    expected = [encoded(pairs or []) for pairs in lists]
    assert header_input_list(lists, len(lists)) == expected
    assert header_input_list(tuple(lists), len(lists)) == expected
    assert header_input_list((None if p is None else iter(p) for p in lists), len(lists)) == expected
    assert (
        header_input_list([p if p is None else [list(pair) for pair in p] for p in lists], len(lists))
        == expected
    )


@given(PAIRS, st.integers(0, 3))
def test_headers_for_all(pairs: Pairs, count: int) -> None:
    assert header_input_list(pairs, count) == [encoded(pairs)] * count
    assert header_input_list(iter(pairs), count) == [encoded(pairs)] * count
    assert header_input_list(dict(pairs), count) == [encoded(list(dict(pairs).items()))] * count
    assert header_input_list([dict(pairs)] * count, count) == [encoded(list(dict(pairs).items()))] * count


def test_no_headers() -> None:
    assert (
        header_input_list(None, 3)
        == header_input_list([], 3)
        == header_input_list({}, 3)
        == header_input_list([None] * 3, 3)
        == [b"\0"] * 3
    )
    assert header_input_list([[], (), {}], 3) == [b"\0"] * 3
    assert header_input_list(None, 0) == header_input_list([], 0) == []


def test_the_spec_example() -> None:
    assert header_input_list([("h", b"x")], 1) == [bytes.fromhex("0202680278")]


def test_values() -> None:
    values: list[Any] = [bytearray(b"abc"), memoryview(b"-a-b-c")[1::2], memoryview(b"abc")]
    assert header_input_list([("n", v) for v in values], 1) == [encoded([("n", b"abc")] * 3)]
    assert header_input_list([("n", b"")], 1) == [b"\x02\x02n\0"]
    assert header_input_list([("", None)], 1) == [b"\x02\0\x01"]


def test_they_outlive_their_source() -> None:
    many: list[Pairs] = [[(f"name{i}", b"%d" % i * 100)] for i in range(1000)]
    expected = [encoded(pairs) for pairs in many]
    made = header_input_list((many.pop(0) for _ in range(1000)), 1000)
    gc.collect()
    assert many == []
    assert made == expected


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ("text", "headers: a sequence"),
        (b"bytes", "headers: a sequence"),
        (5, "headers: a sequence"),
        ([5, 5], "headers of record 0: a sequence"),
        ([None, "no"], "headers of record 1: a sequence"),
        ([None, [("a", b""), ("b",)]], "headers of record 1: pairs"),
        ([None, [(b"a", b"")]], "headers of record 1: pairs"),
        ([None, [("a", b"", 5)]], "headers of record 1: pairs"),
        ([("a", b""), None], "headers: pairs"),
        ([None, ("a", b"")], "headers of record 1: pairs"),
        ([("a", "text")], "headers: the value of 'a' is bytes-like or None, not str"),
        ([None, {"a": 5}], "headers of record 1: the value of 'a'"),
        ({5: b""}, "headers: pairs"),
    ],
)
def test_no_headers_at_all(headers: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        header_input_list(headers, 2)


def test_names_without_utf8() -> None:
    with pytest.raises(ValueError, match=r"headers: the name 'a\\udc80' has no UTF-8") as caught:
        header_input_list([("a\udc80", b"")], 1)
    assert type(caught.value) is ValueError
    with pytest.raises(ValueError, match="headers of record 1: the name"):
        header_input_list([None, {"\ud800": b""}], 2)


def test_names_without_utf8_elsewhere(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for call in (
            lambda: log.append(b"v", headers=[("\ud800", b"")]),
            lambda: kstore.encode_batch([(-1, None, b"v", {"\ud800": b""})]),
            lambda: log.scan(header="\ud800"),
            lambda: log.scan(header={"\ud800": b""}),
        ):
            with pytest.raises(ValueError, match=r"headers?: the name .* has no UTF-8") as caught:
                call()
            assert type(caught.value) is ValueError
        assert log.append(b"v") == 0


@pytest.mark.parametrize("found", [1, 3])
def test_another_count(found: int) -> None:
    with pytest.raises(ValueError, match=f"headers: {found} for 2 records"):
        header_input_list([None] * found, 2)
