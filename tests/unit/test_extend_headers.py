"""The headers that `extend` takes: in every form, or an error that names what is wrong."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore

Pairs = list[tuple[str, bytes | None]]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)
PAIRS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=90)), max_size=5)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kstore.LogWriter]:
    with kstore.open(tmp_path_factory.mktemp("headers") / "t-0", "a") as made:
        yield made


def appended(log: kstore.LogWriter, headers: Any, count: int) -> list[tuple[tuple[str, bytes | None], ...]]:
    """The headers of so many records that are appended."""
    offsets = log.extend([b"v"] * count, headers=headers)
    return [record.headers for record in log.records(offsets.start)] if offsets else []


@given(lists=st.lists(PAIRS | st.none(), min_size=1, max_size=20))
def test_headers_of_each(log: kstore.LogWriter, lists: list[Pairs | None]) -> None:
    expected = [tuple(pairs or ()) for pairs in lists]
    for form in (
        lists,
        tuple(lists),
        (None if pairs is None else iter(pairs) for pairs in lists),
        [pairs if pairs is None else [list(pair) for pair in pairs] for pairs in lists],
    ):
        assert appended(log, form, len(lists)) == expected


@given(pairs=PAIRS, count=st.integers(0, 3))
def test_headers_for_all(log: kstore.LogWriter, pairs: Pairs, count: int) -> None:
    assert appended(log, pairs, count) == appended(log, iter(pairs), count) == [tuple(pairs)] * count
    mapping = dict(pairs)
    assert appended(log, mapping, count) == [tuple(mapping.items())] * count
    assert appended(log, [mapping] * count, count) == [tuple(mapping.items())] * count


def test_no_headers(log: kstore.LogWriter) -> None:
    for none in (None, [], {}, [None] * 3, [[], (), {}]):
        assert appended(log, none, 3) == [()] * 3
    assert appended(log, None, 0) == appended(log, [], 0) == []


def test_values(log: kstore.LogWriter) -> None:
    values: list[Any] = [bytearray(b"abc"), memoryview(b"-a-b-c")[1::2], memoryview(b"abc")]
    assert appended(log, [("n", value) for value in values], 1) == [(("n", b"abc"),) * 3]
    assert appended(log, [("n", b""), ("", None)], 1) == [(("n", b""), ("", None))]


def test_headers_that_only_their_iterator_holds(log: kstore.LogWriter) -> None:
    many: list[Pairs] = [[(f"name{i}", b"%d" % i * 100)] for i in range(1000)]
    expected = [tuple(pairs) for pairs in many]
    made = appended(log, (many.pop(0) for _ in range(1000)), 1000)
    gc.collect()
    assert many == []
    assert made == expected


WRONG: list[tuple[Any, str]] = [
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
]


def test_no_headers_at_all(log: kstore.LogWriter) -> None:
    end = log.log_end_offset
    for headers, words in WRONG:
        with pytest.raises(TypeError, match=words):
            appended(log, headers, 2)
    for found in (1, 3):
        with pytest.raises(ValueError, match=f"headers: {found} for 2 records"):
            appended(log, [None] * found, 2)
    assert log.log_end_offset == end


def test_names_without_utf8(log: kstore.LogWriter) -> None:
    end = log.log_end_offset
    calls = [
        lambda: appended(log, [("a\udc80", b"")], 1),
        lambda: appended(log, [None, {"\ud800": b""}], 2),
        lambda: log.append(b"v", headers=[("\ud800", b"")]),
        lambda: kstore.encode_batch([(-1, None, b"v", {"\ud800": b""})]),
        lambda: log.scan(header="\ud800"),
        lambda: log.scan(header={"\ud800": b""}),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"headers?( of record 1)?: the name .* has no UTF-8") as caught:
            call()
        assert type(caught.value) is ValueError
    assert log.log_end_offset == end
