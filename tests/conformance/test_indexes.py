"""OffsetIndexTest and TimeIndexTest: base offset 45, room for 30 entries. TransactionIndexTest."""

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from kstore import AbortedTxn, CorruptIndexError
from kstore.engine.segment.index import OffsetIndex, OffsetPosition, TimeIndex, TransactionIndex
from tests.helpers import forge
from tests.helpers.examples import examples
from tests.helpers.forge import MAX32

BASE, ROOM = 45, 30
Entries = list[tuple[int, int]]


# ---- OffsetIndexTest -----------------------------------------------------------------------------


def index_of(*entries: tuple[int, int], base: int = BASE, room: int = ROOM) -> OffsetIndex:
    index = OffsetIndex(base, max_entries=room)
    for entry in entries:
        index.append(*entry)
    return index


FULL = [(BASE + i + 1, i) for i in range(ROOM)]


def test_offset_entries() -> None:
    """Extreme lookups; entries by slot; a full index, a missing slot and falling offsets are refused."""
    index = index_of(*FULL)
    assert index_of().lookup(BASE) == index.lookup(BASE) == (BASE, 0)
    assert index.lookup(BASE + ROOM) == (BASE + ROOM, ROOM - 1)
    assert [index.entry(i) for i in range(ROOM)] == FULL
    with pytest.raises(ValueError, match="slot 0"):
        index_of().entry(0)
    assert index.is_full
    with pytest.raises(ValueError, match="full"):
        index.append(BASE + ROOM + 1, ROOM)
    index = index_of((51, 0))
    with pytest.raises(ValueError, match="not above"):
        index.append(50, 1)
    assert list(index) == [(51, 0)]


def test_fetch_upper_bound_offset() -> None:
    """The smallest entry whose position is not below position + size, a sum of 32 bits (spec 7.2)."""
    entries = [(45, 0), (46, 10), (47, 23), (48, 37)]
    assert index_of(entries[0]).fetch_upper_bound(0, 5) is None
    for position, size, found in (
        (0, 5, 1), (0, 10, 1), (0, 22, 2), (0, 23, 2), (10, 24, 3),
        (37, 1, None), (0, 200, None), (10, 200, None),
    ):  # fmt: skip
        wanted = None if found is None else entries[found]
        assert index_of(*entries).fetch_upper_bound(position, size) == wanted
    # Kafka's search never compares with the first entry for equality, and takes the next (tests/kafka)
    assert index_of((46, 10), (47, 23)).fetch_upper_bound(0, 9) == (46, 10)
    assert index_of((46, 10), (47, 23)).fetch_upper_bound(0, 10) == (47, 23)
    assert index_of((46, 10)).fetch_upper_bound(0, 10) is None
    assert index_of((45, 0), (46, 10)).fetch_upper_bound(MAX32, 1) == (45, 0)
    assert index_of((45, 0), (46, 10)).fetch_upper_bound(MAX32 - 1, 1) is None


def test_offset_sanity() -> None:
    """An entry at the base is sane, reopened too; one below it and a length of 9 bytes are not."""
    index = index_of((BASE, 0))
    index.sanity_check()
    again = OffsetIndex(BASE, index.to_bytes())
    again.sanity_check()
    again.check()
    with pytest.raises(CorruptIndexError):
        OffsetIndex(BASE, forge.offset_index(BASE, [(44, 0)])).sanity_check()
    with pytest.raises(CorruptIndexError):
        OffsetIndex(BASE, bytes(9))


def test_offset_overflow() -> None:
    """LogSegmentTest: offsets that cannot be told relative to the base are refused."""
    wrong = [(0, -(2**31)), (0, 2**31), (1, 0), (100, 10), (2**31, 0), (-(2**31), 0), (2**31, 2**32)]
    for base, largest in wrong:
        with pytest.raises(OverflowError):
            OffsetIndex(base).append(largest, 0)
    assert index_of((MAX32, 0), base=0).last_offset == MAX32


# ---- TimeIndexTest: (i*10 -> base + i*10) for i = 1..n -------------------------------------------


def filled(count: int) -> TimeIndex:
    index = TimeIndex(BASE, max_entries=ROOM)
    for i in range(1, count + 1):
        index.maybe_append(i * 10, BASE + i * 10)
    return index


def test_time_lookup() -> None:
    """Empty: (-1, 45); then the floor of a timestamp. Entries by slot; truncation removes every entry."""
    assert filled(0).lookup(100) == filled(0).last_entry == (-1, BASE)
    index = filled(29)
    assert [index.lookup(t) for t in (9, 25, 30)] == [(-1, BASE), (20, 65), (30, 75)]
    assert [index.entry(i) for i in range(4)] == [(10, 55), (20, 65), (30, 75), (40, 85)]
    with pytest.raises(ValueError, match="slot 0"):
        filled(0).entry(0)
    index.truncate_to(BASE)
    assert (len(index), index.last_entry) == (0, (-1, BASE))


def test_time_append() -> None:
    """One slot is kept for the entry of a roll; a lower offset is always refused. Spec 3.3: a lower timestamp
    is refused; an equal one, and -1, are not stored."""
    assert [filled(count).is_full for count in (0, 28, 29)] == [False, False, True]
    index = filled(29)
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(10000, 1000)
    with pytest.raises(ValueError, match="not above"):
        index.maybe_append(10000, 280, skip_full_check=True)
    index.maybe_append(10000, 1000, skip_full_check=True)
    assert index.last_entry == (10000, 1000)
    index = filled(2)
    with pytest.raises(ValueError, match="not above"):
        index.maybe_append(19, 100)
    index.maybe_append(20, 100)
    assert len(index) == 2
    empty = filled(0)
    empty.maybe_append(-1, 100)
    assert len(empty) == 0


def test_time_sanity() -> None:
    """A last offset below the base, a last timestamp below the first, a length not of 12s."""
    filled(29).sanity_check()
    for entries in ([(10, 44)], [(10, 45), (9, 46)]):
        with pytest.raises(CorruptIndexError):
            TimeIndex(BASE, forge.time_index(BASE, entries)).sanity_check()
    with pytest.raises(CorruptIndexError):
        TimeIndex(BASE, bytes(13))


# ---- any index -----------------------------------------------------------------------------------


@st.composite
def any_index(draw: st.DrawFn, *, times: bool = False, least: int = 0) -> tuple[int, Entries]:
    """A base, and entries that rise in both numbers, relative to it; of times offsets may be equal."""
    base = draw(st.integers(0, 2**62))
    firsts = sorted(draw(st.sets(st.integers(0, 2**62 if times else MAX32), min_size=least, max_size=60)))
    size, some = len(firsts), st.lists if times else st.sets
    seconds = sorted(draw(some(st.integers(0, MAX32), min_size=size, max_size=size)))
    return base, list(zip(firsts, seconds, strict=True))


@examples(50)
@given(any_index(), st.data())
def test_offset_index_is_a_floor_search(made: tuple[int, Entries], data: st.DataObject) -> None:
    """Any index: lookup, upper bounds and truncation equal those of a plain list."""
    base, entries = made[0], [(made[0] + offset, position) for offset, position in made[1]]
    raw = forge.offset_index(base, entries)
    index = OffsetIndex(base, raw)
    assert index.to_bytes() == index_of(*entries, base=base, room=MAX32).to_bytes() == raw
    assert list(index) == entries
    index.check()
    near = [o + d for o, _ in entries for d in (-1, 0, 1)] or [base]
    targets = [*data.draw(st.lists(st.sampled_from(near))), base - 1, 2**63 - 1]
    expected = [([(base, 0)] + [e for e in entries if e[0] <= t])[-1] for t in targets]
    assert [index.lookup(t) for t in targets] == expected
    position, size = data.draw(st.integers(0, 2**30 - 1)), data.draw(st.integers(0, 2**30 - 1))
    above = [OffsetPosition(*e) for i, e in enumerate(entries) if e[1] >= position + size + (i == 0)]
    assert index.fetch_upper_bound(position, size) == (above[0] if above else None)
    index.truncate_to(targets[0])
    assert list(index) == [e for e in entries if e[0] < targets[0]]


@examples(50)
@given(any_index(times=True), st.data())
def test_time_index_is_a_floor_search(made: tuple[int, Entries], data: st.DataObject) -> None:
    """Any index: lookup and truncation equal those of a plain list."""
    base, entries = made[0], [(timestamp, made[0] + offset) for timestamp, offset in made[1]]
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
        assert index.lookup(target) == ([(-1, base)] + [e for e in entries if e[0] <= target])[-1]
    offset = data.draw(st.sampled_from([o for _, o in entries] or [base])) + data.draw(st.integers(-1, 1))
    index.truncate_to(offset)
    assert list(index) == [e for e in entries if e[1] < offset]


@examples(30)
@given(any_index(least=2))
def test_check_finds_disorder(made: tuple[int, Entries]) -> None:
    """Swapped neighbours are told."""
    base, (one, two, *more) = made
    with pytest.raises(CorruptIndexError):
        OffsetIndex(base, forge.offset_index(0, [two, one, *more])).check()
    with pytest.raises(CorruptIndexError):
        TimeIndex(base, forge.time_index(0, [two, one, *more])).check()


# ---- TransactionIndexTest: AbortedTxn(pid, first, last, lso) -------------------------------------

FOUR = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]


def transactions(*entries: tuple[int, ...]) -> TransactionIndex:
    index = TransactionIndex(0)
    for entry in entries:
        index.append(AbortedTxn(*entry))
    return index


def plain(txns: Any) -> list[tuple[int, ...]]:
    return [tuple(txn[:4]) for txn in txns]


@pytest.mark.parametrize(
    ("fetch", "upper", "first", "last", "complete"),
    [(0, 100, 0, 4, False), (0, 32, 0, 3, True), (0, 35, 0, 4, True),
     (10, 35, 0, 4, True), (11, 35, 1, 4, True), (20, 41, 2, 4, False)],
)  # fmt: skip
def test_collect_aborted_transactions(fetch: int, upper: int, first: int, last: int, complete: bool) -> None:
    """What overlaps the range, and whether later segments need not be asked."""
    found, done = transactions(*FOUR).collect(fetch, upper)
    assert (plain(found), done) == (FOUR[first:last], complete)


def test_transaction_index(tmp_path: Path) -> None:
    """truncateTo(51) keeps 4, 50 keeps 3, a reset none; last offsets rise; appends continue after reopening;
    a new index is empty, and one without a file."""
    for offset, left in ((51, 4), (50, 3), (0, 0)):
        index = transactions(*FOUR)
        index.truncate_to(offset)
        assert plain(index) == FOUR[:left]
        assert index.is_empty is (left == 0)
    for last in (10, 9):
        with pytest.raises(ValueError, match="not above"):
            transactions((1, 5, 10, 13), (0, 0, last, 11))
    again = TransactionIndex(0, transactions(*FOUR).to_bytes())
    again.append(AbortedTxn(3, 32, 60, 55))
    assert plain(again) == [*FOUR, (3, 32, 60, 55)]
    assert again.to_bytes() == forge.txn_index([*FOUR, (3, 32, 60, 55)])
    (segment,) = kstore.open(forge.partition(tmp_path, {0: []})).segments
    assert segment.transaction_index.is_empty


def test_transaction_index_bytes() -> None:
    """pid 983493, first 137, last 299, lso 200 round-trips; markers below the base are damage. Spec 3.4:
    a partial last entry is ignored; a version is the single byte at 0."""
    index = transactions((983493, 137, 299, 200))
    assert index.to_bytes() == forge.txn_index([(983493, 137, 299, 200)])
    assert list(TransactionIndex(0, index.to_bytes())) == [AbortedTxn(983493, 137, 299, 200, 0)]
    raw = forge.txn_index(FOUR)
    TransactionIndex(0, raw).sanity_check()
    with pytest.raises(CorruptIndexError):
        TransactionIndex(100, raw).sanity_check()
    assert plain(TransactionIndex(0, raw + raw[:33])) == FOUR
    assert plain(TransactionIndex(0, raw[:33])) == []
    assert plain(TransactionIndex(0, forge.txn_index(FOUR, version=255))) == FOUR
    with pytest.raises(CorruptIndexError):
        TransactionIndex(0, struct.pack(">h", 256) + raw[2:])
