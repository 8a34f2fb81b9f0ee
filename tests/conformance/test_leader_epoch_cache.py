"""LeaderEpochFileCacheTest (spec 7.8): the leader epochs of a log, from its file and from what is written."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstore
from tests.conformance.writing import epochs_on_disk, opened, put, rec
from tests.helpers import forge
from tests.helpers.examples import examples
from tests.helpers.forge import simple

Entries = list[tuple[int, int]]
THREE = [(2, 6), (3, 8), (4, 11)]


def loaded(root: Path, entries: Entries, end: int = 20, **options: Any) -> kstore.PartitionLog:
    """A log that ends at `end`; its file has these entries, which are assigned in their order."""
    batches = [simple(0, end, epoch=-1)] if end else []
    return kstore.open(forge.partition(root, {0: batches}, epochs=entries), clean=True, **options)


def epoch_of(root: Path, entries: Entries, offset: int) -> int | None:
    """The epoch in which an offset was written: told of the earliest one."""
    return loaded(root, entries, 100, log_start_offset=offset).find(timestamp="earliest").leader_epoch


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ([(2, 10)], [(2, 10)]),
        ([(2, 11), (2, 12)], [(2, 11)]),
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
        ([(2, 6), (3, 7), (2, 5)], [(2, 5)]),
    ],
)
def test_assign(tmp_path: Path, given: Entries, left: Entries) -> None:
    """Equal epochs keep their first start; entries that contradict a new one go."""
    assert loaded(tmp_path, given).leader_epochs == tuple(left)


@pytest.mark.parametrize(
    ("entries", "end", "wanted"),
    [
        ([], 73, {0: (-1, -1)}),
        ([(2, 11)], 73, {-1: (-1, -1), 2: (2, 73), 3: (-1, -1)}),
        ([(1, 5), (2, 6), (1, 7)], 8, {1: (1, 8), 2: (-1, -1)}),
        ([(5, 11), (6, 12), (7, 13)], 20, {4: (4, 11)}),
        ([(0, 10), (2, 13), (4, 17)], 20, {0: (0, 13), 1: (0, 13), 2: (2, 17), 3: (2, 17), 4: (4, 20)}),
    ],
)
def test_end_offset_for_epoch(
    tmp_path: Path, entries: Entries, end: int, wanted: dict[int, tuple[int, int]]
) -> None:
    """The end of the largest epoch that is not above; undefined for -1, above all, and without entries."""
    log = loaded(tmp_path, entries, end)
    assert {epoch: log.end_offset_for_epoch(epoch) for epoch in wanted} == wanted


def test_negative_epoch(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="epoch"):
        opened(tmp_path).assign_leader_epoch(-1)


@pytest.mark.parametrize(("end", "left"), [(8, 1), (9, 2), (11, 2), (12, 3), (0, 0)])
def test_truncate_from_end(tmp_path: Path, end: int, left: int) -> None:
    """Entries that begin at the end of the log or above go."""
    assert loaded(tmp_path, THREE, end).leader_epochs == tuple(THREE[:left])


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (11, [(4, 11)]),
        (20, [(4, 20)]),
        (6, THREE),
        (1, THREE),
    ],
)
def test_truncate_from_start(tmp_path: Path, start: int, left: Entries) -> None:
    """Entries that begin at the start of the log or below go; the last of them begins there."""
    assert loaded(tmp_path, THREE, 21, log_start_offset=start).leader_epochs == tuple(left)


def test_epoch_for_offset(tmp_path: Path) -> None:
    found = [epoch_of(tmp_path, THREE, offset) for offset in (5, 6, 7, 8, 10, 11, 99)]
    assert found == [None, 2, 2, 3, 3, 4, 4]
    assert epoch_of(tmp_path, [], 0) is None


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 19)), max_size=12), st.integers(0, 20))
def test_any_assignments(tmp_path_factory: pytest.TempPathFactory, entries: Entries, offset: int) -> None:
    """Epochs and start offsets rise, whatever is assigned, and lookups are floor searches."""
    root = tmp_path_factory.mktemp("epochs")
    left: Entries = []
    for epoch, start in entries:
        if not left or epoch != left[-1][0] or start < left[-1][1]:
            left = [(e, s) for e, s in left if e < epoch and s < start] + [(epoch, start)]
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(left))
    assert loaded(root, entries).leader_epochs == tuple(left)
    below = [epoch for epoch, start in left if start <= offset]
    assert epoch_of(root, entries, offset) == (below[-1] if below else None)
    assert loaded(root, entries, offset).leader_epochs == tuple(e for e in left if e[1] < offset)


def test_should_persist_epochs_between_instances(tmp_path: Path) -> None:
    """What was assigned is there after reopening, but for epochs that wrote nothing."""
    log = opened(tmp_path, leader_epoch=2)
    put(log, rec())
    log.assign_leader_epoch(5)
    put(log, rec())
    log.assign_leader_epoch(6)
    assert log.leader_epochs == ((2, 0), (5, 1), (6, 2))
    assert epochs_on_disk(tmp_path) == [(2, 0), (5, 1), (6, 2)]
    log.close()
    log = opened(tmp_path)
    assert log.leader_epochs == ((2, 0), (5, 1))
    assert (log.leader_epoch, epochs_on_disk(tmp_path)) == (5, [(2, 0), (5, 1)])


def test_should_not_overwrite_offset_for_a_leader_epoch(tmp_path: Path) -> None:
    """The same epoch again keeps its beginning; a lower one takes those above it away."""
    log = opened(tmp_path, leader_epoch=2)
    put(log, rec())
    log.assign_leader_epoch(2)
    assert log.leader_epochs == ((2, 0),)
    put(log, rec(), leader_epoch=3)
    put(log, rec(), leader_epoch=2)
    assert log.leader_epochs == ((2, 2),)
