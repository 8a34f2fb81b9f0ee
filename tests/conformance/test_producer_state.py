"""ProducerStateManagerTest: what replaying a log and its snapshots gives. Producer 1, epoch 0."""

from pathlib import Path

import pytest

import kstore
from kstore import CorruptSnapshotError
from kstore.log.producers.snapshot_files import SnapshotFiles, SnapshotsInMemory
from kstore.log.producers.states import BatchMetadata, ProducerState, read_snapshot
from tests.conformance import forge
from tests.conformance.forge import ABORT, COMMIT, MAX32, TRANSACTIONAL, simple


def replayed(
    tmp_path: Path, *batches: bytes, base: int = 0, snapshot: bytes | None = None
) -> kstore.PartitionLog:
    snapshots = {} if snapshot is None else {base: snapshot}
    path = forge.partition(tmp_path, {0: [], base: batches}, snapshots=snapshots)
    return kstore.open(path, clean=True)


def data(offset: int, count: int, sequence: int, epoch: int = 0, flags: int = 0) -> bytes:
    return simple(offset, count, pid=1, pid_epoch=epoch, sequence=sequence, flags=flags)


def test_append_txn_marker_with_no_producer_state(tmp_path: Path) -> None:
    """A COMMIT of epoch 2 at 27 for an unknown producer: epoch 2, no batch."""
    marker = forge.marker(27, 1, COMMIT, pid_epoch=2, timestamp=5)
    state = replayed(tmp_path, marker, base=27).producers()[1]
    assert (state.producer_epoch, list(state.batches)) == (2, [])
    assert (state.last_timestamp, state.current_txn_first_offset) == (5, None)


def test_producer_sequence_wrap_around(tmp_path: Path) -> None:
    """Replicated sequence MAX32 at 735, then 0."""
    batches = [data(735, 1, MAX32), data(736, 1, 0)]
    state = replayed(tmp_path, *batches, base=735).producers()[1]
    assert [(b.first_sequence, b.last_sequence) for b in state.batches] == [(MAX32,) * 2, (0, 0)]


def test_producer_sequence_with_wrap_around_batch_record(tmp_path: Path) -> None:
    """One batch of sequences MAX32-10 to 9 at 2000 to 2020."""
    state = replayed(tmp_path, data(2000, 21, MAX32 - 10), base=2000).producers()[1]
    (batch,) = state.batches
    assert (batch.first_sequence, batch.last_sequence) == (MAX32 - 10, 9)
    assert (batch.first_offset, batch.last_offset) == (2000, 2020)


def test_any_first_sequence_is_replicated(tmp_path: Path) -> None:
    """A first sequence of 16; a bumped epoch forgets the batches before."""
    state = replayed(tmp_path / "a", data(0, 1, 16)).producers()[1]
    assert [b.last_sequence for b in state.batches] == [16]
    marker = forge.marker(1, 1, ABORT, pid_epoch=1)
    state = replayed(tmp_path / "b", data(0, 1, 16), marker).producers()[1]
    assert (state.producer_epoch, list(state.batches)) == (1, [])


def test_last_five_batches_are_remembered(tmp_path: Path) -> None:
    """UnifiedLogTest, duplicates: of six batches and one of three records the last five."""
    batches = [data(i, 1, i) for i in range(6)]
    state = replayed(tmp_path, *batches, data(6, 3, 6)).producers()[1]
    assert [b.first_sequence for b in state.batches] == [2, 3, 4, 5, 6]
    assert state.batches[-1] == BatchMetadata(8, 8, 2, -1)


def test_recover_from_snapshot_unfinished_transaction(tmp_path: Path) -> None:
    """An open transaction from 0, sequences 0 and 1: only the last batch is kept."""
    made = forge.snapshot([(1, 0, 1, 1, 0, 7, -1, 0)])
    log = replayed(tmp_path, base=2, snapshot=made)
    state = log.producers()[1]
    (batch,) = state.batches
    assert (batch.first_sequence, batch.last_sequence) == (1, 1)
    assert state.current_txn_first_offset == 0
    assert log.last_stable_offset() == 0


def test_snapshot_serde() -> None:
    """pid 1 with a transaction and a batch; pid 11 with neither."""
    raw = forge.snapshot([(1, 2, 1, 2, 3, -1, 3, 100), (11, 12, -1, -1, 0, 123456, 13, -1)])
    first, second = read_snapshot(raw)
    assert (first.producer_id, first.producer_epoch, first.coordinator_epoch) == (1, 2, 3)
    assert list(first.batches) == [BatchMetadata(1, 2, 3, -1)]
    assert (first.last_timestamp, first.current_txn_first_offset) == (-1, 100)
    assert second == ProducerState(11, 12, 13, 123456)


GOOD = forge.snapshot([(1, 2, 1, 2, 3, -1, 3, 100)])
DAMAGED = {
    "empty": b"",
    "halved": GOOD[: len(GOOD) // 2],
    "zeros": GOOD[:10] + bytes(37) + GOOD[47:],
    "version 0": forge.snapshot([], version=0),
    "version 2": forge.snapshot([], version=2),
    "longer": GOOD + b"\0",
}


@pytest.mark.parametrize("raw", DAMAGED.values(), ids=DAMAGED)
def test_load_from_corrupt_snapshot(raw: bytes) -> None:
    """Too short, another version, a wrong checksum."""
    with pytest.raises(CorruptSnapshotError):
        read_snapshot(raw)


@pytest.mark.parametrize(("base", "kept"), [(5, [42, 5]), (42, [42])])
def test_remove_stray_snapshots(tmp_path: Path, base: int, kept: list[int]) -> None:
    """Files 5, 2, 42: of segment 5 keep 5 and 42, of segment 42 only 42."""
    path = forge.partition(tmp_path, {}, snapshots=dict.fromkeys((5, 2, 42), GOOD))
    for kind in (SnapshotsInMemory, SnapshotFiles):
        snapshots = kind(str(path))
        snapshots.remove_strays([base])
        assert snapshots.offsets == kept[::-1]
        assert len(list(path.glob("*.snapshot"))) == (3 if kind is SnapshotsInMemory else len(kept))


def test_last_stable_offset_completed_txn(tmp_path: Path) -> None:
    """Three transactions at 992342, +25, +57, ended in the order first, third, second."""
    starts = [992342, 992342 + 25, 992342 + 57]
    batches = [
        simple(start, pid=pid, pid_epoch=0, sequence=0, flags=TRANSACTIONAL)
        for pid, start in enumerate(starts)
    ]
    stable = []
    for step, (pid, offset) in enumerate(((None, 0), (0, 15), (2, 20), (1, 78))):
        if pid is not None:
            batches.append(forge.marker(starts[2] + offset, pid, COMMIT))
        log = replayed(tmp_path / str(step), *batches, base=starts[0])
        stable.append(log.last_stable_offset())
    assert stable == [starts[0], starts[1], starts[1], starts[2] + 79]


def test_empty_transactions_are_no_transactions(tmp_path: Path) -> None:
    """Markers without data abort nothing: only 24 to 27, aborted at 28, is listed."""
    flags = TRANSACTIONAL
    batches = [data(16, 5, 0, flags=flags)]
    batches += [forge.marker(o, 1, k) for o, k in ((21, COMMIT), (22, COMMIT), (23, ABORT))]
    batches += [data(24, 4, 5, flags=flags)]
    batches += [forge.marker(28, 1, ABORT), forge.marker(29, 1, ABORT)]
    batches += [data(30, 2, 9, flags=flags)]
    path = forge.partition(tmp_path, {16: batches}, index=False)
    log = kstore.open(path, clean=False)
    assert log.last_stable_offset() == 30
    assert log.aborted_transactions(16, 32) == [(1, 24, 28, 29, 0)]
    committed = [r.offset for r in log.records(isolation="read_committed")]
    assert committed == [16, 17, 18, 19, 20]
