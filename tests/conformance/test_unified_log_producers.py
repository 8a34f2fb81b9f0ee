"""UnifiedLogTest: what a log knows of producers and transactions, and what it refuses them."""

from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import InvalidProducerEpochError, OutOfOrderSequenceError, TransactionCoordinatorFencedError
from tests.conformance.writing import (
    SIZE,
    Clock,
    Producer,
    bases,
    drop,
    end,
    file,
    files,
    follow,
    idempotent,
    offsets,
    opened,
    put,
    rec,
    recs,
)
from tests.helpers import forge
from tests.helpers.forge import ABORT, COMMIT, MAX64, T0, Rec, read_snapshot, simple

COMMITTED = "read_committed"


def last_sequences(log: kstore.PartitionLog) -> dict[int, int]:
    return {pid: state.batches[-1].last_sequence for pid, state in log.producers().items()}


# ---- sequences -----------------------------------------------------------------------------------


def test_duplicate_appends(tmp_path: Path) -> None:
    """Retries of the last five batches return their offsets; older ones, or others, are out of order."""
    log = opened(tmp_path)
    put(log, *[idempotent(1, i) for i in range(6)])
    first = put(log, idempotent(1, 6, 3))
    assert put(log, idempotent(1, 6, 3)) == (first.first_offset, first.last_offset, 0, True)
    with pytest.raises(OutOfOrderSequenceError):
        put(log, idempotent(1, 7, 2))
    assert put(log, idempotent(1, 2))[:2] == (2, 2)
    with pytest.raises(OutOfOrderSequenceError):
        put(log, idempotent(1, 1))
    assert log.log_end_offset == 9


def test_duplicate_append_to_follower(tmp_path: Path) -> None:
    """A follower takes a sequence twice; of several producers in one append too."""
    log = opened(tmp_path)
    follow(log, idempotent(1, 0))
    follow(log, idempotent(1, 0, base=1))
    follow(log, *[idempotent(1 + i % 2, i // 4, base=2 + i) for i in range(8)])
    assert offsets(log) == list(range(10))
    assert last_sequences(log) == {1: 1, 2: 1}


def test_multiple_producer_ids(tmp_path: Path) -> None:
    """Two producers in turn, each with its own sequence; epoch 2, then epoch 1: InvalidProducerEpoch."""
    log = opened(tmp_path)
    put(log, *[idempotent(pid, sequence) for sequence in range(3) for pid in (1, 2)])
    assert {p: s.batches[-1].last_offset for p, s in log.producers().items()} == {1: 4, 2: 5}
    put(log, idempotent(1, 0, epoch=2))
    with pytest.raises(InvalidProducerEpochError):
        put(log, idempotent(1, 0, epoch=1))


def test_duplicates_are_found_after_the_roll(tmp_path: Path) -> None:
    """Spec 6.2: a retry that finds the segment full leaves a new one, and its epoch, and nothing else."""
    log = opened(tmp_path, segment_bytes=SIZE)
    put(log, idempotent(1, 0))
    assert put(log, idempotent(1, 0)) == (0, 0, 0, True)
    assert (bases(log), log.log_end_offset, files(tmp_path, ".snapshot")) == ([0, 1], 1, [1])
    put(log, idempotent(1, 1))
    assert (bases(log), offsets(log)) == ([0, 1], [0, 1])


# ---- snapshots -----------------------------------------------------------------------------------


def test_producer_id_map_truncate_to(tmp_path: Path) -> None:
    """A snapshot for every roll, once; truncation takes those above, and the producers, back."""
    log = opened(tmp_path)
    for sequence in range(3):
        put(log, idempotent(1, sequence))
        for _ in range(2):
            log.roll()
            assert files(tmp_path, ".snapshot") == list(range(1, sequence + 2))
    for offset in (2, 1, 0):
        log.truncate_to(offset)
        assert files(tmp_path, ".snapshot") == list(range(1, offset + 1))
        assert last_sequences(log) == ({1: offset - 1} if offset else {})
    put(log, idempotent(1, 0))


def test_producer_id_map_truncate_to_with_no_snapshots(tmp_path: Path) -> None:
    """Snapshots lost: after truncation the log itself tells."""
    log = opened(tmp_path)
    put(log, idempotent(1, 0), idempotent(1, 1))
    drop(tmp_path, "*.snapshot")
    log.truncate_to(1)
    assert last_sequences(log) == {1: 0}
    put(log, idempotent(1, 1))


def test_producer_snapshot_after_segment_roll_on_append(tmp_path: Path) -> None:
    """A batch that rolls is not yet in the snapshot of that roll, whether it is taken or not."""
    log = opened(tmp_path, segment_bytes=SIZE)
    put(log, idempotent(1, 0))
    with pytest.raises(OutOfOrderSequenceError):
        put(log, idempotent(1, 5))
    assert (bases(log), files(tmp_path, ".snapshot")) == ([0, 1], [1])
    for sequence in (1, 2):
        put(log, idempotent(1, sequence))
    for offset in (1, 2):
        ((pid, _, last_sequence, *_),) = read_snapshot(file(tmp_path, ".snapshot", offset).read_bytes())
        assert (pid, last_sequence) == (1, offset - 1)
    log.close()
    put(opened(tmp_path, segment_bytes=SIZE), idempotent(1, 3))


def test_retention_deletes_producer_state_snapshots(tmp_path: Path, clock: Clock) -> None:
    """Snapshots go with their segments, also by retention after DeleteRecords."""
    log = opened(tmp_path, clock, segment_bytes=SIZE, file_delete_delay_ms=0)
    for sequence in range(3):
        put(log, idempotent(1, sequence))
    assert files(tmp_path, ".snapshot") == [1, 2]
    for offset, most in ((2, -1), (3, 0)):
        log.configure(retention_bytes=most)
        log.delete_records(offset)
        log.retain()
        assert (bases(log), files(tmp_path, ".snapshot")) == ([offset], [offset])


def test_rebuild_producer_id_map_with_compacted_data(tmp_path: Path) -> None:
    """A batch of sequences 0..3 without two records: last sequence 3, after reloading and truncation too."""
    log = opened(tmp_path)
    kept = [Rec(delta=1, timestamp=T0), Rec(delta=3, timestamp=T0)]
    follow(log, forge.batch(*kept, base=23, pid=1, pid_epoch=0, sequence=0, last_delta=3))
    assert last_sequences(log) == {1: 3}
    log.roll()
    follow(log, rec(base=27))
    log.truncate_to(27)
    assert last_sequences(log) == {1: 3}
    log.abandon()
    for each in (kstore.open(log.path, clean=False), opened(tmp_path, clean=False)):
        assert last_sequences(each) == {1: 3}
        assert each.producers()[1].batches[-1].first_offset == 23
        assert (each.log_end_offset, offsets(each)) == (27, [24, 26])


def test_rebuild_producer_state_with_empty_compacted_batch(tmp_path: Path) -> None:
    """A batch of two whose records both went: last sequence 1, after reloading and truncation too."""
    log = opened(tmp_path)
    follow(log, forge.batch(base=23, pid=1, pid_epoch=0, sequence=0, last_delta=1, count=0))
    follow(log, rec(base=25))
    assert last_sequences(log) == {1: 1}
    log.truncate_to(25)
    assert last_sequences(log) == last_sequences(kstore.open(log.path, clean=False)) == {1: 1}
    assert log.log_end_offset == 25


def test_rebuild_producer_state_from_a_snapshot(tmp_path: Path) -> None:
    """ProducerStateManagerTest too: the newest sound snapshot is used; empty, halved, zeroed ones are not."""
    segments = {2 * i: [simple(2 * i, 2, pid=i + 1, sequence=0, pid_epoch=0)] for i in range(3)}
    one, two = (1, 0, 41, 1, 1, T0, -1, -1), (2, 0, 42, 3, 1, T0, -1, -1)
    older, newer = forge.snapshot([one]), forge.snapshot([one, two])
    for i, broken in enumerate((newer, b"", newer[:40], newer[:10] + bytes(37) + newer[47:])):
        path = forge.partition(tmp_path / str(i), segments, snapshots={2: older, 4: broken})
        wanted = {1: 41, 2: 42 if i == 0 else 1, 3: 1}
        assert last_sequences(kstore.open(path, clean=True)) == wanted
        log = kstore.open(path, "a", clean=True, clock=Clock(), producer_id_expiration_ms=MAX64)
        assert last_sequences(log) == wanted
        put(log, idempotent(1, 42))


# ---- expiration ----------------------------------------------------------------------------------


def test_periodic_producer_id_expiration(tmp_path: Path, clock: Clock) -> None:
    """Expiration after 200 ms: there after 100, gone after 200. Checked by retain() and appends."""
    log = opened(tmp_path, clock, producer_id_expiration_ms=200)
    put(log, idempotent(23, 0))
    for left in ([23], []):
        clock.sleep(100)
        log.retain()
        assert list(log.producers()) == left
    assert put(log, idempotent(23, 2))[:2] == (1, 1)
    with pytest.raises(ValueError, match="producer_id_expiration_ms"):
        opened(tmp_path / "other", producer_id_expiration_ms=0)


def test_producers_expire_when_others_write(tmp_path: Path, clock: Clock) -> None:
    """Kafka looks every ten minutes (producer.id.expiration.check.interval.ms)."""
    log = opened(tmp_path, clock, producer_id_expiration_ms=200)
    put(log, idempotent(23, 0))
    clock.sleep(599_999)
    put(log, idempotent(24, 0, timestamp=clock.now))
    assert list(log.producers()) == [23, 24]
    clock.sleep(1)
    put(log, idempotent(24, 1, timestamp=clock.now))
    assert list(log.producers()) == [24]


@pytest.mark.parametrize("age", [86_399_999, 86_400_000])
def test_producers_expire_on_reload(tmp_path: Path, clock: Clock, age: int) -> None:
    """A producer of the snapshot that is a day old is left out, and any sequence of it taken."""
    log = opened(tmp_path, clock)
    put(log, idempotent(1, 0), idempotent(1, 1))
    log.close()
    clock.sleep(age)
    log = opened(tmp_path, clock)
    assert list(log.producers()) == ([1] if age < 86_400_000 else [])
    if age < 86_400_000:
        with pytest.raises(OutOfOrderSequenceError):
            put(log, idempotent(1, 9))
    else:
        assert put(log, idempotent(1, 9)).first_offset == 2


def test_open_transactions_do_not_expire(tmp_path: Path, clock: Clock) -> None:
    log = opened(tmp_path, clock, producer_id_expiration_ms=200)
    put(log, Producer(1).data(1))
    clock.sleep(1000)
    log.retain()
    log.close()
    assert list(opened(tmp_path, clock, producer_id_expiration_ms=200).producers()) == [1]


# ---- transactions --------------------------------------------------------------------------------


def test_fetch_up_to_last_stable_offset(tmp_path: Path) -> None:
    """pid1 5, plain 3, pid2 2, pid1 4, plain 2, pid1 10; COMMIT pid1: 8; ABORT pid2: the end."""
    log = opened(tmp_path)
    one, two = Producer(1), Producer(2)
    put(log, one.data(5), recs(3), two.data(2), one.data(4), recs(2), one.data(10))
    kept = [*range(8), *range(10, 26)]
    steps: list[tuple[bytes | None, int, list[int], list[tuple[int, int]]]] = [
        (None, 0, [], []),
        (one.marker(COMMIT), 8, [*range(8)], []),
        (two.marker(ABORT), 28, kept, [(2, 8)]),
    ]
    for marker, stable, committed, aborted in steps:
        if marker is not None:
            end(log, marker)
        for each in (log, kstore.open(log.path, clean=False)):
            assert each.last_stable_offset() == stable
            assert offsets(each.records(isolation=COMMITTED)) == committed
            part = each.read(0, 1 << 20, COMMITTED)
            assert (part.aborted, offsets(part)) == (aborted, committed)
            assert part.size == sum(batch.size for batch in each.batches() if batch.base_offset < stable)
    assert log.aborted_transactions(0, 28) == [(2, 8, 27, 28, 0)]


def _busy() -> list[bytes]:
    """Four producers, two of them aborting, and data of none, at their offsets."""
    one, two, three, four = (Producer(pid) for pid in (1, 2, 3, 4))
    batches: list[bytes] = []
    at = 0

    def add(make: Any, *args: Any) -> None:
        nonlocal at
        batches.append(make(*args, base=at))
        at = forge.last_offset(batches[-1]) + 1

    add(one.data, 5), add(recs, 3), add(two.data, 2), add(one.data, 4), add(three.data, 3), add(recs, 2)
    add(one.data, 10), add(one.marker, ABORT), add(two.data, 6), add(four.data, 3), add(recs, 10)
    add(three.data, 9), add(three.marker, COMMIT), add(four.data, 8), add(two.data, 7), add(two.marker, ABORT)
    add(recs, 10), add(four.data, 4), add(four.marker, COMMIT)
    return batches


@pytest.mark.parametrize(("follower", "leave"), [(False, "close"), (True, "close"), (False, "abandon")])
def test_transaction_index_updated(tmp_path: Path, follower: bool, leave: str) -> None:
    """As leader batch by batch, or in one append of a follower: the same index, also after reopening; the
    last stable offset at each marker."""
    log = opened(tmp_path)
    batches = _busy()
    if follower:
        follow(log, *batches)
    else:
        stable = []
        for batch in batches:
            sent = bytes(8) + batch[8:]
            if batch[22] & 32:
                end(log, sent)
                stable.append((log.log_end_offset - 1, log.last_stable_offset()))
            else:
                put(log, sent)
        assert stable == [(29, 8), (58, 8), (74, 36), (89, 90)]
    wanted = [(1, 0, 29, 8, 0), (2, 8, 74, 36, 0)]
    assert log.aborted_transactions(0, 90) == wanted
    assert log.last_stable_offset() == log.log_end_offset == 90
    reader = kstore.open(log.path, clean=False)  # of the batches alone
    assert [*reader.segments[0].transaction_index] == reader.aborted_transactions(0, 90) == wanted
    getattr(log, leave)()
    index = file(tmp_path, ".txnindex").read_bytes()
    assert index == forge.txn_index([w[:4] for w in wanted])
    assert opened(tmp_path).aborted_transactions(0, 90) == wanted
    assert file(tmp_path, ".txnindex").read_bytes() == index


def test_aborted_transaction_spanning_multiple_segments(tmp_path: Path) -> None:
    """The entry goes to the segment that holds the marker."""
    log = opened(tmp_path, segment_bytes=5 * SIZE)
    producer = Producer(1)
    put(log, *[producer.data(1) for _ in range(10)])
    end(log, producer.marker(ABORT))
    assert len(log.segments) > 2
    assert [list(s.transaction_index) for s in log.segments[:-1]] == [[]] * (len(log.segments) - 1)
    assert list(log.segments[-1].transaction_index) == [(1, 0, 10, 11, 0)]
    assert log.aborted_transactions(0, 5) == [(1, 0, 10, 11, 0)]
    assert list(log.records(0, isolation=COMMITTED)) == []


@pytest.mark.parametrize("boundary", [False, True])
def test_last_stable_offset_does_not_exceed_log_start_offset(tmp_path: Path, boundary: bool) -> None:
    """An open transaction from 0, log start at 5, or at the boundary 8: that is what is stable."""
    log = opened(tmp_path, retention_ms=-1)
    put(log, Producer(1).data(5), recs(3))
    if boundary:
        log.roll()
    put(log, recs(10))
    assert log.last_stable_offset() == 0
    start = 8 if boundary else 5
    log.delete_records(start)
    assert log.last_stable_offset() == start
    log.retain()
    assert (bases(log), log.last_stable_offset()) == ([start] if boundary else [0], start)


def test_last_stable_offset_with_mixed_producer_data(tmp_path: Path) -> None:
    """Several producers' first batches in one append, some transactional."""
    log = opened(tmp_path)
    one = Producer(983)
    follow(log, idempotent(137, 0, 3), one.data(2, 3))
    assert log.last_stable_offset() == 3
    end(log, one.marker(ABORT))
    assert log.last_stable_offset() == 6


def test_append_to_transaction_index_failure(tmp_path: Path) -> None:
    """The index cannot be written: Kafka's log is offline then. Here the marker is not appended."""
    log = opened(tmp_path)
    producer = Producer(1)
    put(log, producer.data(10))
    index = file(tmp_path, ".txnindex")
    index.mkdir()
    with pytest.raises(OSError, match="txnindex"):
        end(log, producer.marker(ABORT))
    assert (log.log_end_offset, log.last_stable_offset()) == (10, 0)
    index.rmdir()
    end(log, producer.marker(ABORT))
    log.close()
    log = opened(tmp_path)
    assert log.recovery.clean
    assert log.aborted_transactions(0, 11) == [(1, 0, 10, 11, 0)]
    assert log.last_stable_offset() == 11


# ---- markers -------------------------------------------------------------------------------------


def test_zombie_coordinator_fenced(tmp_path: Path) -> None:
    """Coordinator epochs 1, 2, then 1: fenced; also where the transaction is empty."""
    log = opened(tmp_path)
    producer = Producer(1)
    put(log, producer.data(1))
    end(log, producer.marker(ABORT, coordinator=1))
    put(log, producer.data(1))
    end(log, producer.marker(COMMIT, coordinator=2))
    with pytest.raises(TransactionCoordinatorFencedError):
        end(log, producer.marker(ABORT, coordinator=1))
    assert log.log_end_offset == 4


def test_end_txn_with_fenced_producer_epoch(tmp_path: Path) -> None:
    """A marker of the epoch before: InvalidProducerEpoch."""
    log = opened(tmp_path)
    end(log, Producer(1, 5).marker(ABORT, coordinator=1))
    with pytest.raises(InvalidProducerEpochError):
        end(log, Producer(1, 4).marker(ABORT, coordinator=1))


def test_marker_with_unknown_transaction_version(tmp_path: Path) -> None:
    """As leader refused; as follower, and by recovery, taken, and its epoch with it."""
    log = opened(tmp_path)
    put(log, Producer(1, 5).data(1))
    with pytest.raises(ValueError, match="transaction_version"):
        log.append_batches(Producer(1, 6).marker(COMMIT), origin="coordinator")
    follow(log, Producer(1, 6).marker(COMMIT, 1, 1))
    for each in (log, kstore.open(log.path, clean=False)):
        state = each.producers()[1]
        assert (state.producer_epoch, state.coordinator_epoch) == (6, 1)
        assert (list(state.batches), state.current_txn_first_offset) == ([], None)
        assert each.log_end_offset == each.last_stable_offset() == 2


def test_marker_of_transaction_version_2(tmp_path: Path) -> None:
    """Spec 6.6: the marker must raise the epoch; a retry of it is taken; data goes on at sequence 0."""
    log = opened(tmp_path)
    put(log, Producer(1, 5).data(1))
    with pytest.raises(InvalidProducerEpochError):
        end(log, Producer(1, 5).marker(COMMIT), 2)
    for _ in range(2):
        end(log, Producer(1, 6).marker(COMMIT), 2)
    with pytest.raises(InvalidProducerEpochError):
        put(log, Producer(1, 5, 1).data(1))
    with pytest.raises(OutOfOrderSequenceError):
        put(log, Producer(1, 6, 1).data(1))
    put(log, Producer(1, 6).data(1))
    assert log.log_end_offset == 4
