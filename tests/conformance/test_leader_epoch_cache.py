"""LeaderEpochFileCacheTest, spec 7.8."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.log.files.leader_epochs import LeaderEpochs

Entries = tuple[tuple[int, int], ...]
THREE = ((2, 6), (3, 8), (4, 11))


def test_add_epoch_and_message_offset() -> None:
    """One entry: the latest epoch, its end is the log's."""
    cache = LeaderEpochs()
    assert cache.assign(2, 10)
    assert (cache.latest, cache.entries) == (2, ((2, 10),))
    assert cache.end_offset_for(2, 11) == (2, 11)


def test_unknown_epochs() -> None:
    """An empty cache, epoch -1, an epoch above all: undefined."""
    assert LeaderEpochs().end_offset_for(0, 73) == (-1, -1)
    assert LeaderEpochs().latest is None
    cache = LeaderEpochs([(2, 11)])
    assert cache.end_offset_for(-1, 73) == (-1, -1)
    assert cache.end_offset_for(3, 73) == (-1, -1)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ([(2, 11), (2, 12)], ((2, 11),)),
        ([(2, 9), (3, 9)], ((3, 9),)),
        ([(2, 6), (3, 5)], ((3, 5),)),
        ([(1, 5), (2, 6), (1, 7)], ((1, 7),)),
        ([(2, 6), (3, 7), (2, 5)], ((2, 5),)),
    ],
)
def test_assign(given: list[tuple[int, int]], left: Entries) -> None:
    """Equal epochs keep their first start; entries that contradict a new one go."""
    assert LeaderEpochs(given).entries == left


def test_epochs_that_fall() -> None:
    """(1,5), (2,6), (1,7) with log end 8: epoch 1 ends at 8, epoch 2 is unknown."""
    cache = LeaderEpochs([(1, 5), (2, 6), (1, 7)])
    assert cache.end_offset_for(1, 8) == (1, 8)
    assert cache.end_offset_for(2, 8) == (-1, -1)


def test_negative_entries() -> None:
    """Neither an epoch nor a start offset may be negative."""
    for epoch, start in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            LeaderEpochs().assign(epoch, start)


def test_first_epoch_above_the_one_requested() -> None:
    """(5,11), (6,12), (7,13): epoch 4 ends where 5 begins."""
    assert LeaderEpochs([(5, 11), (6, 12), (7, 13)]).end_offset_for(4, 20) == (4, 11)


def test_requests_between_epochs() -> None:
    """(0,10), (2,13), (4,17): 1 -> (0,13), 2 -> (2,17), 3 -> (2,17)."""
    cache = LeaderEpochs([(0, 10), (2, 13), (4, 17)])
    assert [cache.end_offset_for(e, 20) for e in (0, 1, 2, 3, 4)] == [
        (0, 13),
        (0, 13),
        (2, 17),
        (2, 17),
        (4, 20),
    ]


@pytest.mark.parametrize(
    ("end", "left"), [(8, THREE[:1]), (9, THREE[:2]), (11, THREE[:2]), (12, THREE), (0, ())]
)
def test_truncate_from_end(end: int, left: Entries) -> None:
    """Entries that begin at the offset or above go."""
    cache = LeaderEpochs(THREE)
    cache.truncate_from_end(end)
    assert cache.entries == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (8, ((3, 8), (4, 11))),
        (9, ((3, 9), (4, 11))),
        (11, ((4, 11),)),
        (20, ((4, 20),)),
        (6, THREE),
        (1, THREE),
    ],
)
def test_truncate_from_start(start: int, left: Entries) -> None:
    """Entries that begin at the offset or below go; the last of them begins there."""
    cache = LeaderEpochs(THREE)
    cache.truncate_from_start(start)
    assert cache.entries == left


def test_epoch_for_offset() -> None:
    """Spec 7.8: the epoch in which an offset was written."""
    cache = LeaderEpochs(THREE)
    assert [cache.epoch_for(o) for o in (5, 6, 7, 8, 10, 11, 99)] == [None, 2, 2, 3, 3, 4, 4]
    assert LeaderEpochs().epoch_for(0) is None


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)), max_size=12), st.integers(0, 20))
def test_any_assignments(entries: list[tuple[int, int]], offset: int) -> None:
    """Whatever is assigned, epochs and start offsets rise, and lookups are floor searches."""
    cache = LeaderEpochs(entries)
    left = cache.entries
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(left))
    assert set(left) <= set(entries)
    below = [epoch for epoch, start in left if start <= offset]
    assert cache.epoch_for(offset) == (below[-1] if below else None)
    cache.truncate_from_end(offset)
    assert cache.entries == tuple(entry for entry in left if entry[1] < offset)
