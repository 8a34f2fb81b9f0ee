"""ProducerStateManagerTest: what a log and its snapshots say of producers, to readers and writers."""

import shutil
from pathlib import Path

import pytest

import kstore
from tests.conformance.writing import Producer, drop, end, files, offsets
from tests.helpers import forge
from tests.helpers.forge import ABORT, COMMIT, MAX32, TRANSACTIONAL, marker, simple

# pid, epoch, last sequence, last offset, delta, timestamp, coordinator, transaction
Snapshot = tuple[int, ...]


def replayed(
    root: Path, *batches: bytes, base: int = 0, snapshot: Snapshot | None = None
) -> kstore.PartitionLog:
    snapshots = {} if snapshot is None else {base: forge.snapshot([snapshot])}
    return kstore.open(forge.partition(root, {0: [], base: batches}, snapshots=snapshots), clean=True)


def data(offset: int, count: int, sequence: int, flags: int = 0) -> bytes:
    return simple(offset, count, pid=1, pid_epoch=0, sequence=sequence, flags=flags)


def sequences(log: kstore.PartitionLog) -> list[tuple[int, int]]:
    return [(batch.first_sequence, batch.last_sequence) for batch in log.producers()[1].batches]


def test_append_txn_marker_with_no_producer_state(tmp_path: Path) -> None:
    """A COMMIT of epoch 2 at 27 for an unknown producer: epoch 2, no batch."""
    state = replayed(tmp_path, marker(27, 1, COMMIT, pid_epoch=2, timestamp=5), base=27).producers()[1]
    assert (state.producer_epoch, list(state.batches)) == (2, [])
    assert (state.last_timestamp, state.current_txn_first_offset) == (5, None)


@pytest.mark.parametrize(
    ("batches", "wanted"),
    [
        ([data(735, 1, MAX32), data(736, 1, 0)], [(MAX32, MAX32), (0, 0)]),
        ([data(2000, 21, MAX32 - 10)], [(MAX32 - 10, 9)]),
        ([data(0, 1, 16)], [(16, 16)]),
        ([data(0, 1, 16), marker(1, 1, ABORT, pid_epoch=1)], []),
        ([data(i, 1, i) for i in range(6)] + [data(6, 3, 6)], [(2, 2), (3, 3), (4, 4), (5, 5), (6, 8)]),
    ],
    ids=[
        "wrap_around",
        "wrap_around_batch_record",
        "any_first_sequence",
        "bumped epoch",
        "last five batches",
    ],
)
def test_producer_sequence(tmp_path: Path, batches: list[bytes], wanted: list[tuple[int, int]]) -> None:
    """Any first sequence is replicated; 0 follows MAX32; a bumped epoch forgets; five batches are kept."""
    base = int.from_bytes(batches[0][:8], "big")
    log = replayed(tmp_path, *batches, base=base)
    assert sequences(log) == wanted
    if wanted:
        last = log.producers()[1].batches[-1]
        assert (last.last_offset, last.offset_delta) == (
            log.log_end_offset - 1,
            last.last_offset - last.first_offset,
        )


def test_recover_from_snapshot(tmp_path: Path) -> None:
    """An open transaction from 0, sequences 0 and 1: the last batch is kept. dec(5,5)=0, dec(0,1)=MAX32."""
    log = replayed(tmp_path, base=2, snapshot=(1, 0, 1, 1, 0, 7, -1, 0))
    assert sequences(log) == [(1, 1)]
    assert (log.producers()[1].current_txn_first_offset, log.last_stable_offset()) == (0, 0)
    for last, delta, first in ((5, 5, 0), (0, 1, MAX32)):
        log = replayed(tmp_path, base=100, snapshot=(1, 0, last, 99, delta, -1, -1, -1))
        assert sequences(log) == [(first, last)]


def test_snapshot_serde(tmp_path: Path) -> None:
    """pid 1 with a transaction and a batch; pid 11 with neither."""
    raw = forge.snapshot([(1, 2, 1, 2, 3, -1, 3, 100), (11, 12, -1, -1, 0, 123456, 13, -1)])
    log = kstore.open(forge.partition(tmp_path, {0: [], 200: []}, snapshots={200: raw}), clean=True)
    first, second = log.producers().values()
    assert (first.producer_id, first.producer_epoch, first.coordinator_epoch) == (1, 2, 3)
    assert [tuple(batch) for batch in first.batches] == [(1, 2, 3, -1)]
    assert (first.last_timestamp, first.current_txn_first_offset) == (-1, 100)
    assert (second.producer_id, second.producer_epoch, second.coordinator_epoch) == (11, 12, 13)
    assert (second.last_timestamp, second.current_txn_first_offset) == (123456, None)
    assert list(second.batches) == []


GOOD = forge.snapshot([(1, 2, 1, 2, 3, -1, 3, -1)])
DAMAGED = {
    "empty": b"",
    "halved": GOOD[: len(GOOD) // 2],
    "zeros": GOOD[:10] + bytes(37) + GOOD[47:],
    "version 0": forge.snapshot([], version=0),
    "version 2": forge.snapshot([], version=2),
    "longer": GOOD + b"\0",
}


@pytest.mark.parametrize("raw", DAMAGED.values(), ids=DAMAGED)
def test_load_from_corrupt_snapshot(tmp_path: Path, raw: bytes) -> None:
    """Too short, another version, a wrong checksum: it gives way to the older one, which is sound."""
    path = forge.partition(tmp_path, {0: [], 5: [], 9: []}, snapshots={5: GOOD, 9: raw})
    assert sequences(kstore.open(path, clean=True)) == [(MAX32 - 1, 1)]
    assert sequences(kstore.open(path, "a", clean=True, clock=lambda: 0)) == [(MAX32 - 1, 1)]


@pytest.mark.parametrize(("base", "kept"), [(5, [5, 42]), (42, [42])])
def test_remove_stray_snapshots(tmp_path: Path, base: int, kept: list[int]) -> None:
    """Files 5, 2, 42: of segment 5 keep 5 and 42, of segment 42 only 42; a reader leaves all."""
    segments = {0: [simple(0, base)], base: [simple(base, 42 - base)] if base < 42 else []}
    path = forge.partition(tmp_path, segments, snapshots=dict.fromkeys((5, 2, 42), GOOD))
    assert sequences(kstore.open(path, clean=True)) == [(MAX32 - 1, 1)]
    assert files(tmp_path, ".snapshot") == [2, 5, 42]
    kstore.open(path, "a", clean=True).abandon()
    assert files(tmp_path, ".snapshot") == kept


def test_last_stable_offset_completed_txn(tmp_path: Path) -> None:
    """Three transactions at 992342, +25, +57, ended in the order first, third, second."""
    starts = [992342, 992342 + 25, 992342 + 57]
    batches = [Producer(pid).data(1, start) for pid, start in enumerate(starts)]
    stable = []
    for pid, offset in ((None, 0), (0, 15), (2, 20), (1, 78)):
        if pid is not None:
            batches.append(marker(starts[2] + offset, pid, COMMIT))
        stable.append(replayed(tmp_path / str(offset), *batches, base=starts[0]).last_stable_offset())
    assert stable == [starts[0], starts[1], starts[1], starts[2] + 79]


def test_empty_transactions_are_no_transactions(tmp_path: Path) -> None:
    """Markers without data abort nothing: only 24 to 27, aborted at 28, is listed."""
    batches = [data(16, 5, 0, TRANSACTIONAL)]
    batches += [marker(offset, 1, kind) for offset, kind in ((21, COMMIT), (22, COMMIT), (23, ABORT))]
    batches += [data(24, 4, 5, TRANSACTIONAL), marker(28, 1, ABORT), marker(29, 1, ABORT)]
    batches += [data(30, 2, 9, TRANSACTIONAL)]
    log = kstore.open(forge.partition(tmp_path, {16: batches}, index=False), clean=False)
    assert log.last_stable_offset() == 30
    assert log.aborted_transactions(16, 32) == [(1, 24, 28, 29, 0)]
    assert offsets(log.records(isolation="read_committed")) == [16, 17, 18, 19, 20]


# ---- a reader and a writer that open the same directory ------------------------------------------


def filled(path: Path, segment_bytes: int = 1 << 20) -> kstore.LogWriter:
    """A transaction of producer 7 that is open from offset 0 on, and plain records behind it."""
    log = kstore.open(path, "a", internal_segment_bytes=segment_bytes)
    log.append_batches(Producer(7).data(3))
    for _ in range(20):
        log.append(b"x" * 50)
    return log


def seen(path: Path) -> tuple[int, int, list[int], list[int]]:
    """What a reader of a copy knows, and a writer too."""
    found = []
    for mode in ("r", "a"):
        copy = path.parent / mode / path.name
        shutil.copytree(path, copy)
        with kstore.open(copy, mode) as log:
            committed = offsets(log.records(isolation="read_committed"))
            found.append((log.log_start_offset, log.last_stable_offset(), sorted(log.producers()), committed))
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("segment_bytes", [1 << 20, 1000, 500])
@pytest.mark.parametrize("start", [0, 1, 10, 23])
def test_a_transaction_below_the_log_start_after_a_crash(
    tmp_path: Path, start: int, segment_bytes: int
) -> None:
    """Recovery reads its segment from the first byte on, below the log start too (spec 8.4)."""
    log = filled(tmp_path / "topic-0", segment_bytes)
    if start:
        log.delete_records(start)
    log.abandon()
    found = seen(tmp_path / "topic-0")
    # where several segments are recovered, Kafka drops what is below the log start
    assert segment_bytes < 1 << 20 or found[:2] == (start, start)


def test_a_transaction_below_the_log_start_whose_marker_was_truncated(tmp_path: Path) -> None:
    """As with Kafka: the leader that truncates reads from the log start on and drops the transaction; a start
    after a crash, and so a reader, reads the segment from its first byte on, and finds it open."""
    path = tmp_path / "topic-0"
    log = kstore.open(path, "a")
    log.extend([b"v"] * 12)
    producer = Producer(7)
    log.append_batches(producer.data(1))
    end(log, producer.marker(COMMIT), 1)
    log.append(b"v")
    log.delete_records(13)
    log.truncate_to(13)
    log.extend([b"v"] * 5)
    assert log.last_stable_offset() == 18
    assert kstore.open(path).last_stable_offset() == 13
    log.abandon()
    assert seen(path)[1] == 13


def test_a_clean_log_whose_snapshots_were_lost(tmp_path: Path) -> None:
    filled(tmp_path / "topic-0").close()
    drop(tmp_path, "*.snapshot")
    assert seen(tmp_path / "topic-0") == (0, 0, [7], [])


def test_a_view_that_is_refreshed_learns_of_producers(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"plain")
        reader = kstore.open(log.path)
        assert reader.last_stable_offset() == 1
        producer = Producer(7)
        log.append_batches(producer.data(2))
        reader.refresh()
        assert reader.last_stable_offset() == log.last_stable_offset() == 1
        end(log, producer.marker(COMMIT), 0)
        reader.refresh()
        assert reader.last_stable_offset() == log.last_stable_offset() == 4
