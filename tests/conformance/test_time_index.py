"""TimeIndexTest: base offset 45, room for 30 entries, (i*10 -> base + i*10) for i = 1..n."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import CorruptIndexError
from kstore.engine.segment.index import TimeIndex
from tests.conformance import forge

BASE, ROOM = 45, 30


def filled(count: int) -> TimeIndex:
    index = TimeIndex(BASE, max_entries=ROOM)
    for i in range(1, count + 1):
        index.maybe_append(i * 10, BASE + i * 10)
    return index


def test_lookup() -> None:
    """Empty: (-1, 45); then the floor of a timestamp."""
    assert filled(0).lookup(100) == (-1, BASE)
    assert filled(0).last_entry == (-1, BASE)
    index = filled(29)
    assert index.lookup(9) == (-1, BASE)
    assert index.lookup(25) == (20, 65)
    assert index.lookup(30) == (30, 75)


def test_entry() -> None:
    """Entries by slot."""
    index = filled(29)
    assert [index.entry(i) for i in range(4)] == [(10, 55), (20, 65), (30, 75), (40, 85)]


def test_entry_overflow() -> None:
    """Slot 0 of an empty index is refused."""
    with pytest.raises(ValueError, match="slot 0"):
        filled(0).entry(0)


def test_truncate() -> None:
    """truncate removes every entry."""
    index = filled(29)
    index.truncate_to(BASE)
    assert len(index) == 0
    assert index.last_entry == (-1, BASE)


def test_append() -> None:
    """Full: refused, but for the entry of a roll; a lower offset never."""
    index = filled(29)
    assert index.is_full
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(10000, 1000)
    with pytest.raises(ValueError, match="not above"):
        index.maybe_append(10000, 280, skip_full_check=True)
    index.maybe_append(10000, 1000, skip_full_check=True)
    assert index.last_entry == (10000, 1000)


def test_append_of_lower_timestamps() -> None:
    """Spec 3.3: a lower timestamp is refused; an equal one, and -1, are not stored."""
    index = filled(2)
    with pytest.raises(ValueError, match="not above"):
        index.maybe_append(19, 100)
    index.maybe_append(20, 100)
    assert len(index) == 2
    empty = filled(0)
    empty.maybe_append(-1, 100)
    assert len(empty) == 0


def test_is_full() -> None:
    """One slot is kept: 29 of 30 are full."""
    assert not filled(0).is_full
    assert not filled(28).is_full
    assert filled(29).is_full


def test_sanity_check() -> None:
    """A last offset below the base, a last timestamp below the first, a length not of 12s."""
    filled(29).sanity_check()
    for entries in ([(10, 44)], [(10, 45), (9, 46)]):
        with pytest.raises(CorruptIndexError):
            TimeIndex(BASE, forge.time_index(BASE, entries)).sanity_check()
    with pytest.raises(CorruptIndexError):
        TimeIndex(BASE, bytes(13))


@st.composite
def any_index(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    base = draw(st.integers(0, 2**62))
    timestamps = sorted(draw(st.sets(st.integers(0, 2**62), max_size=60)))
    size = len(timestamps)
    offsets = sorted(draw(st.lists(st.integers(0, 2**31 - 1), min_size=size, max_size=size)))
    return base, [(t, base + o) for t, o in zip(timestamps, offsets, strict=True)]


@given(any_index(), st.data())
def test_index_is_a_floor_search(made: tuple[int, list[tuple[int, int]]], data: st.DataObject) -> None:
    """Any index: lookup and truncation equal those of a plain list."""
    base, entries = made
    raw = forge.time_index(base, entries)
    index = TimeIndex(base, raw)
    appended = TimeIndex(base)
    for entry in entries:
        appended.maybe_append(*entry)
    assert index.to_bytes() == appended.to_bytes() == raw
    assert list(index) == entries
    index.check()
    near = [t + d for t, _ in entries for d in (-1, 0, 1)] or [0]
    for target in [*data.draw(st.lists(st.sampled_from(near))), -1, 2**63 - 1]:
        below = [e for e in entries if e[0] <= target]
        assert index.lookup(target) == (below[-1] if below else (-1, base))
    offset = data.draw(st.sampled_from([o for _, o in entries] or [base])) + data.draw(st.integers(-1, 1))
    index.truncate_to(offset)
    assert list(index) == [e for e in entries if e[1] < offset]


@given(any_index().filter(lambda made: len(made[1]) > 1))
def test_check_finds_disorder(made: tuple[int, list[tuple[int, int]]]) -> None:
    """Swapped neighbours are told."""
    base, entries = made
    with pytest.raises(CorruptIndexError):
        TimeIndex(base, forge.time_index(base, [entries[1], entries[0], *entries[2:]])).check()
