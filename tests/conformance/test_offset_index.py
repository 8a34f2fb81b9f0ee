"""OffsetIndexTest: base offset 45, room for 30 entries."""

import random
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import CorruptIndexError
from kstore.engine.segment.index import OffsetIndex, OffsetPosition
from tests.conformance import forge
from tests.conformance.forge import MAX32

BASE, ROOM = 45, 30


def index_of(*entries: tuple[int, int], base: int = BASE, room: int = ROOM) -> OffsetIndex:
    index = OffsetIndex(base, max_entries=room)
    for entry in entries:
        index.append(*entry)
    return index


def test_random_lookup() -> None:
    """Random rising pairs: each is found, what lies between gets the floor, below is (45, 0)."""
    index = index_of()
    assert index.lookup(92) == (BASE, 0)
    draw = random.Random(1)
    offsets = sorted(draw.sample(range(BASE + 1, 1000), ROOM))
    positions = sorted(draw.sample(range(10000), ROOM))
    entries = list(zip(offsets, positions, strict=True))
    for entry in entries:
        index.append(*entry)
    for offset in range(BASE, 1010):
        below = [entry for entry in entries if entry[0] <= offset]
        assert index.lookup(offset) == (below[-1] if below else (BASE, 0))
    assert index.lookup(BASE - 1) == (BASE, 0)


def test_lookup_extreme_cases() -> None:
    """base+i+1 -> i: the base gives (45, 0), the last offset the last entry."""
    assert index_of().lookup(BASE) == (BASE, 0)
    index = index_of(*[(BASE + i + 1, i) for i in range(ROOM)])
    assert index.lookup(BASE) == (BASE, 0)
    assert index.lookup(BASE + ROOM) == (BASE + ROOM, ROOM - 1)


def test_entry() -> None:
    """Entries (base+i, i) come back by slot."""
    index = index_of(*[(BASE + i, i) for i in range(5)])
    assert [index.entry(i) for i in range(5)] == [(BASE + i, i) for i in range(5)]


def test_entry_overflow() -> None:
    """Slot 0 of an empty index is refused."""
    with pytest.raises(ValueError, match="slot 0"):
        index_of().entry(0)


def test_append_too_many() -> None:
    """A full index refuses more."""
    index = index_of(*[(BASE + i + 1, i) for i in range(ROOM)])
    assert index.is_full
    with pytest.raises(ValueError, match="full"):
        index.append(BASE + ROOM + 1, ROOM)


def test_append_out_of_order() -> None:
    """(51, 0), then (50, 1): refused."""
    index = index_of((51, 0))
    with pytest.raises(ValueError, match="not above"):
        index.append(50, 1)
    assert list(index) == [(51, 0)]


def test_fetch_upper_bound_offset() -> None:
    """The smallest entry whose position is not below position + size."""
    first, second, third, fourth = entries = [(45, 0), (46, 10), (47, 23), (48, 37)]
    assert index_of(first).fetch_upper_bound(0, 5) is None
    index = index_of(*entries)
    assert index.fetch_upper_bound(first[1], 5) == second
    assert index.fetch_upper_bound(first[1], 10) == second
    assert index.fetch_upper_bound(first[1], 22) == third
    assert index.fetch_upper_bound(first[1], 23) == third
    assert index.fetch_upper_bound(second[1], 24) == fourth
    for entry, size in ((fourth, 1), (first, 200), (second, 200)):
        assert index.fetch_upper_bound(entry[1], size) is None


def test_fetch_upper_bound_at_the_first_entry() -> None:
    """Kafka's search never compares with the first entry for equality, and takes the next (found by tests/kafka)."""
    assert index_of((46, 10), (47, 23)).fetch_upper_bound(0, 9) == (46, 10)
    assert index_of((46, 10), (47, 23)).fetch_upper_bound(0, 10) == (47, 23)
    assert index_of((46, 10)).fetch_upper_bound(0, 10) is None


def test_fetch_upper_bound_wraps_as_java_does() -> None:
    """Spec 7.2: position + size is a 32-bit sum."""
    index = index_of((45, 0), (46, 10))
    assert index.fetch_upper_bound(MAX32, 1) == (45, 0)
    assert index.fetch_upper_bound(MAX32 - 1, 1) is None


def test_reopen() -> None:
    """After a close the length is the content: the same lookups, and the index is full."""
    index = index_of((51, 0), (52, 1))
    again = OffsetIndex(BASE, index.to_bytes(), max_entries=len(index.to_bytes()) // 8)
    assert (len(again), again.last_offset) == (2, 52)
    assert again.lookup(51) == (51, 0)
    assert again.lookup(52) == (52, 1)
    with pytest.raises(ValueError, match="full"):
        again.append(53, 2)


@pytest.mark.parametrize(("offset", "left"), [(12, 9), (10, 9), (9, 8), (5, 4), (0, 0)], ids=lambda n: str(n))
def test_truncate(offset: int, left: int) -> None:
    """Base 0, entries 1 to 9: truncateTo removes what is at or above the offset."""
    index = index_of(*[(i, i) for i in range(1, 10)], base=0)
    index.truncate_to(offset)
    assert len(index) == left
    assert index.last_offset == left
    assert index.lookup(10) == (left, left)
    index.append(max(left, offset) + 1, 100)
    assert index.last_offset == max(left, offset) + 1


def test_sanity_last_offset_equal_to_base_offset() -> None:
    """One entry at the base offset is sane, also reopened with a length of 8."""
    index = index_of((BASE, 0))
    index.sanity_check()
    again = OffsetIndex(BASE, index.to_bytes())
    again.sanity_check()
    again.check()


def test_sanity_check() -> None:
    """Spec 3.2: a last offset below the base, and a length that is no multiple of 8."""
    with pytest.raises(CorruptIndexError):
        OffsetIndex(BASE, forge.offset_index(BASE, [(44, 0)])).sanity_check()
    with pytest.raises(CorruptIndexError):
        OffsetIndex(BASE, bytes(9))


@pytest.mark.parametrize(
    ("base", "largest"),
    [
        (0, -(2**31)),
        (0, 2**31),
        (1, 0),
        (100, 10),
        (2**31, 0),
        (-(2**31), 0),
        (2**31, 2**32),
    ],
)
def test_offset_overflow(base: int, largest: int) -> None:
    """LogSegmentTest: offsets that cannot be told relative to the base are refused."""
    with pytest.raises(OverflowError):
        OffsetIndex(base).append(largest, 0)
    index = OffsetIndex(0)
    index.append(MAX32, 0)
    assert index.last_offset == MAX32


@st.composite
def any_index(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    base = draw(st.integers(0, 2**62))
    offsets = sorted(draw(st.sets(st.integers(0, MAX32), max_size=60)))
    size = len(offsets)
    positions = sorted(draw(st.sets(st.integers(0, MAX32), min_size=size, max_size=size)))
    return base, [(base + o, p) for o, p in zip(offsets, positions, strict=True)]


@given(any_index(), st.data())
def test_index_is_a_floor_search(made: tuple[int, list[tuple[int, int]]], data: st.DataObject) -> None:
    """Any index: lookup, lookup_many, upper bounds and truncation equal those of a plain list."""
    base, entries = made
    raw = forge.offset_index(base, entries)
    index = OffsetIndex(base, raw)
    appended = index_of(*entries, base=base, room=MAX32)
    assert index.to_bytes() == appended.to_bytes() == raw
    assert list(index) == entries
    index.check()
    near = [o + d for o, _ in entries for d in (-1, 0, 1)]
    drawn = data.draw(st.lists(st.sampled_from(near) if near else st.just(base)))
    targets = [*drawn, base - 1, 2**63 - 1]
    expected = [([(base, 0)] + [e for e in entries if e[0] <= t])[-1] for t in targets]
    assert [index.lookup(t) for t in targets] == expected
    many = index.lookup_many(numpy.array(targets, dtype=numpy.int64))
    assert many.tolist() == [position for _, position in expected]
    position = data.draw(st.integers(0, 2**30 - 1))
    size = data.draw(st.integers(0, 2**30 - 1))
    above = [OffsetPosition(*e) for i, e in enumerate(entries) if e[1] >= position + size + (i == 0)]
    assert index.fetch_upper_bound(position, size) == (above[0] if above else None)
    index.truncate_to(targets[0])
    assert list(index) == [e for e in entries if e[0] < targets[0]]


@given(any_index().filter(lambda made: len(made[1]) > 1))
def test_check_finds_disorder(made: tuple[int, list[tuple[int, int]]]) -> None:
    """Swapped neighbours are told."""
    base, entries = made
    with pytest.raises(CorruptIndexError):
        OffsetIndex(base, forge.offset_index(base, [entries[1], entries[0], *entries[2:]])).check()


@pytest.mark.parametrize(
    "targets", [numpy.zeros(1, "i4"), numpy.zeros(1, "f8"), numpy.zeros((1, 1), "i8"), bytes(8)]
)
def test_lookup_many_takes_int64_only(targets: Any) -> None:
    with pytest.raises(ValueError, match="one-dimensional array of int64"):
        OffsetIndex(0).lookup_many(targets)
