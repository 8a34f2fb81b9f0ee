"""UnifiedLogTest: what of it reads. kstore's high watermark is the log end offset.

The file is long because it has the tests of one class of Kafka in one place.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import OffsetOutOfRangeError
from tests.conformance import forge
from tests.conformance.forge import ABORT, COMMIT, MAX32, TRANSACTIONAL, Rec, simple

COMMITTED = "read_committed"


def offsets(records: Iterable[kstore.Record]) -> list[int]:
    return [record.offset for record in records]


# ---- reads --------------------------------------------------------------------------------------


def test_read_out_of_range(tmp_path: Path) -> None:
    """Base 1024, one record: 1025 is empty, 0 and 1026 are outside."""
    log = kstore.open(forge.partition(tmp_path, {1024: [simple(1024)]}), clean=True)
    assert log.read(1025, 1000).size == 0
    for offset in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.read(offset, 1000)
        assert (caught.value.first, caught.value.end) == (1024, 1025)
        with pytest.raises(OffsetOutOfRangeError):
            log.find(offset=offset)
    assert log.find(offset=1025) is None


NON_SEQUENTIAL = (*range(50), *range(50, 200, 7))


@pytest.fixture
def sparse(tmp_path: Path) -> kstore.PartitionLog:
    """Offsets 0 to 49, then every seventh, each in a segment of its own."""
    segments = {offset: [forge.batch(Rec(), base=offset)] for offset in NON_SEQUENTIAL}
    return kstore.open(forge.partition(tmp_path, segments), clean=True)


def test_append_and_read_with_non_sequential_offsets(sparse: kstore.PartitionLog) -> None:
    """Every read begins with the first offset that is not below the one asked."""
    for offset in range(NON_SEQUENTIAL[-1]):
        expected = next(o for o in NON_SEQUENTIAL if o >= offset)
        assert offsets(sparse.read(offset, 100)) == [expected]
        assert sparse.get(offset).offset == expected
        assert sparse.find(offset=offset) == (expected, -1, 0)


def test_read_with_min_message(sparse: kstore.PartitionLog) -> None:
    """A maximum of 1 byte, or of none: the batch comes whole."""
    for offset in range(50, NON_SEQUENTIAL[-1]):
        for most in (1, 0):
            part = sparse.read(offset, most, min_one_message=True)
            assert offsets(part) == [next(o for o in NON_SEQUENTIAL if o >= offset)]
            assert (part.size, part.first_entry_incomplete) == (72, False)


def test_read_with_too_small_max_length(sparse: kstore.PartitionLog) -> None:
    """Without the minimum of one message: 0 bytes are empty, 1 byte is an incomplete batch."""
    for offset in range(50, NON_SEQUENTIAL[-1]):
        assert bytes(sparse.read(offset, 0, min_one_message=False)) == b""
        part = sparse.read(offset, 1, min_one_message=False)
        assert (part.size, part.first_entry_incomplete, list(part)) == (1, True, [])
    with pytest.raises(ValueError, match="max_bytes is from 0"):
        sparse.read(50, -1)


def test_read_at_log_gap(tmp_path: Path) -> None:
    """A gap at the end of a segment: the next segment's record."""
    path = forge.partition(tmp_path, {0: [simple(i) for i in range(9)], 10: [simple(10)]})
    log = kstore.open(path, clean=True)
    assert offsets(log.read(9, 200)) == [10]
    assert log.translate(9) is None
    assert log.get(9).offset == 10


@pytest.mark.parametrize("codec", forge.CODECS)
def test_compressed_messages(tmp_path: Path, codec: str) -> None:
    """Pairs (0, 1), (2, 3): a read of 1 begins at 0, of 3 at 2."""
    pairs = [forge.batch(Rec(b"a"), Rec(b"b"), base=base, codec=codec) for base in (0, 2)]
    log = kstore.open(forge.partition(tmp_path, {0: pairs}), clean=True)
    for offset, base in ((0, 0), (1, 0), (2, 2), (3, 2)):
        part = log.read(offset, 100)
        assert next(part.batches()).base_offset == base
        assert next(part.records()).offset == offset


def test_reads_do_not_cross_segments(tmp_path: Path) -> None:
    """Spec 7.1: one read gives bytes of one segment only."""
    path = forge.partition(tmp_path, {0: [simple(0), simple(1)], 2: [simple(2)]})
    log = kstore.open(path, clean=True)
    assert offsets(log.read(0, 1 << 20)) == [0, 1]
    assert offsets(log) == [0, 1, 2]


def test_log_recovers_to_offset_and_starts_inside_a_batch(tmp_path: Path) -> None:
    """A log start offset in the middle of a batch: nothing below it is read."""
    path = forge.partition(tmp_path, {0: [simple(0, 5), simple(5, 5)]})
    log = kstore.open(path, clean=True, log_start_offset=3)
    assert offsets(log) == [3, 4, 5, 6, 7, 8, 9]
    assert next(log.read(3, 1).batches()).base_offset == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(2)


# ---- transactions -------------------------------------------------------------------------------


class Writer:
    """Batches of a log to be, one after the other."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.sequences: dict[int, int] = {}

    def data(self, count: int, pid: int | None = None) -> None:
        if pid is None:
            self.batches.append(simple(self.end, count))
        else:
            sequence = self.sequences.get(pid, 0)
            flags = TRANSACTIONAL
            self.batches.append(simple(self.end, count, pid=pid, pid_epoch=0, sequence=sequence, flags=flags))
            self.sequences[pid] = sequence + count
        self.end += count

    def marker(self, kind: int, pid: int) -> int:
        self.batches.append(forge.marker(self.end, pid, kind))
        self.end += 1
        return self.end - 1

    def open(self, root: Path, **options: Any) -> kstore.PartitionLog:
        """Opened after an unclean stop, under a name of its own."""
        path = forge.partition(root, {0: self.batches}, name=f"topic-{self.end}", index=False)
        return kstore.open(path, clean=False, **options)


def test_fetch_up_to_last_stable_offset(tmp_path: Path) -> None:
    """pid1 5, plain 3, pid2 2, pid1 4, plain 2, pid1 10; COMMIT pid1: 8; ABORT pid2: the end."""
    log = Writer()
    for pid, count in ((1, 5), (None, 3), (2, 2), (1, 4), (None, 2), (1, 10)):
        log.data(count, pid)
    opened = log.open(tmp_path)
    assert opened.last_stable_offset() == 0
    assert offsets(opened.records(isolation=COMMITTED)) == []
    assert bytes(opened.read(0, 1 << 20, COMMITTED)) == b""
    log.marker(COMMIT, 1)
    opened = log.open(tmp_path)
    assert opened.last_stable_offset() == 8
    assert offsets(opened.records(isolation=COMMITTED)) == list(range(8))
    part = opened.read(0, 1 << 20, COMMITTED)
    assert bytes(part) == b"".join(log.batches[:2])
    assert part.aborted == []
    log.marker(ABORT, 2)
    opened = log.open(tmp_path)
    assert opened.last_stable_offset() == log.end == 28
    committed = [*range(8), *range(10, 26)]
    assert offsets(opened.records(isolation=COMMITTED)) == committed
    part = opened.read(0, 1 << 20, COMMITTED)
    assert part.aborted == [(2, 8)]
    assert offsets(part) == committed
    assert bytes(part) == b"".join(log.batches)


@pytest.mark.parametrize("offset", range(0, 29, 4))
def test_read_committed_beyond_the_last_stable_offset(tmp_path: Path, offset: int) -> None:
    """Spec 7.1: at and above the bound a read is empty, with an empty list of aborted ones."""
    log = Writer()
    log.data(8)
    log.data(20, 1)
    part = log.open(tmp_path).read(offset, 1 << 20, COMMITTED)
    assert part.aborted == []
    assert offsets(part) == list(range(offset, 8))


def test_transaction_index_updated_through_replication(tmp_path: Path) -> None:
    """Four producers, three markers: [(1,0,29,8), (2,8,74,36)]; the unstable offset goes 8, 36."""
    log = Writer()
    for pid, count in ((1, 5), (None, 3), (2, 2), (1, 4), (3, 3), (None, 2), (1, 10)):
        log.data(count, pid)
    assert log.open(tmp_path).last_stable_offset() == 0
    assert log.marker(ABORT, 1) == 29
    assert log.open(tmp_path).last_stable_offset() == 8
    for pid, count in ((2, 6), (4, 3), (None, 10), (3, 9)):
        log.data(count, pid)
    assert log.marker(COMMIT, 3) == 58
    for pid, count in ((4, 8), (2, 7)):
        log.data(count, pid)
    assert log.marker(ABORT, 2) == 74
    assert log.open(tmp_path).last_stable_offset() == 36
    log.data(10)
    log.data(4, 4)
    assert log.marker(COMMIT, 4) == 89
    opened = log.open(tmp_path)
    assert opened.last_stable_offset() == 90
    assert opened.aborted_transactions(0, 90) == [(1, 0, 29, 8, 0), (2, 8, 74, 36, 0)]
    assert [tuple(t) for t in opened.segments[0].transaction_index] == [
        (1, 0, 29, 8, 0),
        (2, 8, 74, 36, 0),
    ]


def test_aborted_transactions_of_a_clean_log(tmp_path: Path) -> None:
    """Spec 7.2: the list comes from the files, from the offset's segment on, until complete."""
    segments = {base: [simple(base + i) for i in range(10)] for base in (0, 10, 20)}
    aborted = {0: [(1, 0, 9, 3)], 10: [(2, 3, 15, 12)], 20: [(3, 12, 25, 20)]}
    log = kstore.open(forge.partition(tmp_path, segments, aborted=aborted), clean=True)
    assert log.read(0, 1, COMMITTED).aborted == [
        (1, 0),
        (2, 3),
    ]  # upper bound 10: complete at lso 12
    assert log.read(12, 1, COMMITTED).aborted == [(2, 3), (3, 12)]
    assert log.read(16, 1, COMMITTED).aborted == [(3, 12)]
    assert log.read(29, 1, COMMITTED).aborted == []
    assert log.aborted_transactions(0, 3) == [(1, 0, 9, 3, 0)]
    assert log.aborted_transactions(0, 30) == [
        (1, 0, 9, 3, 0),
        (2, 3, 15, 12, 0),
        (3, 12, 25, 20, 0),
    ]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("start", range(6))
def test_read_committed_from_behind_an_abort(tmp_path: Path, clean: bool, start: int) -> None:
    """Spec 7.2: a transaction aborted before `start` takes nothing from the producer's next one."""
    log = Writer()
    log.data(2, 1)
    log.marker(ABORT, 1)
    log.data(2, 1)
    log.marker(COMMIT, 1)
    path = forge.partition(tmp_path, {0: log.batches}, aborted={0: [(1, 0, 2, 3)]})
    opened = kstore.open(path, clean=clean)
    expected = [offset for offset in (3, 4) if offset >= start]
    assert offsets(opened.read(start, 1 << 20, COMMITTED)) == expected
    assert offsets(opened.records(start, isolation=COMMITTED)) == expected
    firsts = [batch.base_offset for batch in opened.batches(start, isolation=COMMITTED)]
    assert firsts == [base for base in (2, 3, 5) if base >= (3 if start == 4 else start)]


@pytest.mark.parametrize("start", [5, 8])
def test_first_unstable_offset_does_not_exceed_log_start_offset(tmp_path: Path, start: int) -> None:
    """A transaction open since 0 and a log that begins at 5 or 8: the bound is the log start."""
    flags = TRANSACTIONAL
    first = [simple(0, 5, pid=1, pid_epoch=0, sequence=0, flags=flags), simple(5, 3)]
    second = [simple(8, 5, pid=1, pid_epoch=0, sequence=5, flags=flags)]
    segments = {0: first, 8: second} if start == 5 else {8: second}
    open_since_0 = forge.snapshot([(1, 0, 4, 4, 4, -1, -1, 0)])
    path = forge.partition(tmp_path, segments, snapshots={8: open_since_0})
    for clean in (True, False):
        log = kstore.open(path, clean=clean, log_start_offset=start, recovery_point=8)
        assert log.last_stable_offset() == start
        assert offsets(log.records(isolation=COMMITTED)) == []


def test_aborted_transaction_without_index_entry(tmp_path: Path) -> None:
    """The index could not be written: an unclean start finds the one aborted transaction."""
    log = Writer()
    log.data(10, 1)
    log.marker(ABORT, 1)
    opened = log.open(tmp_path)
    assert (opened.log_end_offset, opened.last_stable_offset()) == (11, 11)
    assert opened.aborted_transactions(0, 11) == [(1, 0, 10, 11, 0)]
    assert offsets(opened.records(isolation=COMMITTED)) == []


# ---- producers ----------------------------------------------------------------------------------


def test_retained_batches_of_a_compacted_log(tmp_path: Path) -> None:
    """A batch at 23 of 4 records, 2 of them dropped: last sequence 3, last offset 26."""
    raw = forge.batch(
        Rec(b"v", b"a", delta=2), Rec(b"v", b"b", delta=3), base=23, pid=1, pid_epoch=0, sequence=0
    )
    log = kstore.open(forge.partition(tmp_path, {0: [raw]}), clean=False)
    state = log.producers()[1]
    assert (state.batches[-1].last_sequence, state.batches[-1].first_offset) == (3, 23)
    assert log.log_end_offset == 27
    assert offsets(log) == [25, 26]


def test_rebuild_of_an_emptied_batch(tmp_path: Path) -> None:
    """A batch of 2 records that was emptied: last sequence 1."""
    raw = forge.batch(base=27, last_delta=1, pid=1, pid_epoch=0, sequence=0)
    log = kstore.open(forge.partition(tmp_path, {0: [simple(0), raw]}), clean=False)
    state = log.producers()[1]
    assert (state.batches[-1].first_sequence, state.batches[-1].last_sequence) == (0, 1)
    assert (log.log_end_offset, offsets(log)) == (29, [0])


def test_marker_with_a_bumped_epoch(tmp_path: Path) -> None:
    """Data of epoch 5, a marker of epoch 6: producer epoch 6, coordinator epoch 1, end 2."""
    data = simple(0, pid=1, pid_epoch=5, sequence=0, flags=TRANSACTIONAL)
    end = forge.marker(1, 1, COMMIT, pid_epoch=6, coordinator=1)
    log = kstore.open(forge.partition(tmp_path, {0: [data, end]}), clean=False)
    state = log.producers()[1]
    assert (state.producer_epoch, state.coordinator_epoch) == (6, 1)
    assert (list(state.batches), state.current_txn_first_offset) == ([], None)
    assert log.log_end_offset == log.last_stable_offset() == 2


def test_rebuild_producer_state_from_a_snapshot(tmp_path: Path) -> None:
    """The newest sound snapshot serves; a broken one (empty, halved, zeroed) gives way."""
    pid = {"pid_epoch": 0, "flags": 0}
    segments = {
        0: [simple(0, 2, pid=1, sequence=0, **pid)],
        2: [simple(2, 2, pid=2, sequence=0, **pid)],
        4: [simple(4, 2, pid=3, sequence=0, **pid)],
    }
    one, two = (1, 0, 41, 1, 1, -1, -1, -1), (2, 0, 42, 3, 1, -1, -1, -1)
    older, newer = forge.snapshot([one]), forge.snapshot([one, two])
    for i, broken in enumerate((newer, b"", newer[:40], newer[:10] + bytes(37) + newer[47:])):
        path = forge.partition(tmp_path, segments, snapshots={2: older, 4: broken}, name=f"topic-{i}")
        log = kstore.open(path, clean=True)
        last = {p: state.batches[-1].last_sequence for p, state in log.producers().items()}
        assert last == {1: 41, 2: 42 if i == 0 else 1, 3: 1}


# ---- indexes, epochs, timestamps ----------------------------------------------------------------


def test_index_resizing_at_truncation(tmp_path: Path) -> None:
    """10 messages, interval size-1: 9 entries in each index."""
    batches = [forge.batch(Rec(timestamp=10 + i), base=i) for i in range(10)]
    path = forge.partition(tmp_path, {0: batches}, index=False)
    log = kstore.open(path, clean=False, index_interval_bytes=len(batches[0]) - 1)
    assert len(log.segments[0].offset_index) == 9
    assert len(log.segments[0].time_index) == 9


def test_build_time_index_when_not_assigning_offsets(tmp_path: Path) -> None:
    """100 batches, interval 1: 99 time entries, the last of the last record."""
    batches = [forge.batch(Rec(timestamp=1000 + i), base=i) for i in range(100)]
    path = forge.partition(tmp_path, {0: batches}, index=False)
    index = kstore.open(path, clean=False, index_interval_bytes=1).segments[0].time_index
    assert len(index) == 99
    assert index.last_entry == (1099, 99)


@pytest.mark.parametrize(("end", "left"), [(20, 3), (11, 2), (10, 1), (0, 0)])
def test_log_truncation_drops_epochs(tmp_path: Path, end: int, left: int) -> None:
    """Epochs (0,0), (1,10), (2,16) of a log that ends at 20, 11, 10 or 0."""
    entries = [(0, 0), (1, 10), (2, 16)]
    path = forge.partition(tmp_path, {0: [simple(i) for i in range(end)]}, epochs=entries)
    log = kstore.open(path, clean=True)
    assert log.leader_epochs == tuple(entries[:left])


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([(0, 0), (1, 5), (2, 10)], ((1, 5), (2, 10))),
        ([(0, 0), (1, 7), (2, 10)], ((0, 5), (1, 7), (2, 10))),
    ],
)
def test_log_deletion_drops_epochs(
    tmp_path: Path, entries: list[tuple[int, int]], left: tuple[tuple[int, int], ...]
) -> None:
    """Deleting 5 of 15: the epochs below the log start go or begin there."""
    segments = {base: [simple(base + i) for i in range(5)] for base in (5, 10)}
    path = forge.partition(tmp_path, segments, epochs=entries)
    assert kstore.open(path, clean=True, log_start_offset=5).leader_epochs == left


@pytest.mark.parametrize("clean", [True, False])
def test_fetch_offset_by_timestamp_includes_leader_epoch(tmp_path: Path, clean: bool) -> None:
    """Two records t, t+1 of epochs 0, 1: by time, and earliest, latest."""
    t = forge.T0
    batches = [forge.batch(Rec(timestamp=t + i), base=i, epoch=i) for i in range(2)]
    path = forge.partition(tmp_path, {0: batches}, epochs=[(0, 0), (1, 1)])
    log = kstore.open(path, clean=clean)
    assert log.find(timestamp=t) == (0, t, 0)
    assert log.find(timestamp=t + 1) == (1, t + 1, 1)
    assert log.find(timestamp=t + 2) is None
    assert log.find(timestamp=kstore.EARLIEST) == log.find(timestamp="earliest") == (0, -1, 0)
    assert log.find(timestamp=kstore.EARLIEST_LOCAL) == (0, -1, 0)
    assert log.find(timestamp=kstore.LATEST) == log.find(timestamp="latest") == (2, -1, 1)


def test_latest_has_the_latest_epoch_known(tmp_path: Path) -> None:
    """Without an epoch there is none; (2, 1) is known: epoch 2."""
    batches = [forge.batch(Rec(timestamp=5), base=i, epoch=-1) for i in range(2)]
    log = kstore.open(forge.partition(tmp_path / "none", {0: batches}), clean=True)
    assert log.find(timestamp="latest") == (2, -1, None)
    assert log.find(timestamp="earliest") == (0, -1, None)
    assert log.find(timestamp=5) == (0, 5, None)
    path = forge.partition(tmp_path, {0: batches}, epochs=[(0, 0), (2, 1)])
    assert kstore.open(path, clean=True).find(timestamp="latest") == (2, -1, 2)


def test_fetch_offset_by_timestamp_with_max_timestamp(tmp_path: Path) -> None:
    """t, t+1, t: the largest is (t+1, offset 1, epoch 1); nothing in an empty log."""
    t = forge.T0
    stamps = ((t, 0), (t + 1, 1), (t, 2))
    batches = [forge.batch(Rec(timestamp=s), base=i, epoch=e) for i, (s, e) in enumerate(stamps)]
    log = kstore.open(forge.partition(tmp_path, {0: batches}), clean=True)
    assert log.find(timestamp="max") == log.find(timestamp=kstore.MAX_TIMESTAMP) == (1, t + 1, 1)
    empty = kstore.open(forge.partition(tmp_path / "empty", {0: []}), clean=True)
    assert empty.find(timestamp="max") is None
    assert empty.find(timestamp=t) is None


def test_max_timestamp_over_segments(tmp_path: Path) -> None:
    """Spec 7.5: the first segment with the largest, the first record in it."""
    stamps = {0: (5, 9), 2: (9, 3), 4: (7, 7)}
    segments = {
        base: [forge.batch(*[Rec(timestamp=t) for t in times], base=base)] for base, times in stamps.items()
    }
    log = kstore.open(forge.partition(tmp_path, segments), clean=True)
    assert log.find(timestamp="max") == (1, 9, 0)
    assert log.find(timestamp=6) == (1, 9, 0)
    assert log.find(timestamp=9) == (1, 9, 0)


@pytest.mark.parametrize("batches", [[], [simple(0, timestamp=5)]])
@pytest.mark.parametrize("name", [kstore.EARLIEST_PENDING_UPLOAD, kstore.LATEST_TIERED])
def test_fetch_without_remote_storage(tmp_path: Path, batches: list[bytes], name: int) -> None:
    """Earliest pending upload and latest tiered: (-1, -1, epoch -1), on an empty log too."""
    log = kstore.open(forge.partition(tmp_path, {0: batches}), clean=True)
    assert log.find(timestamp=name) == (-1, -1, -1)


def test_find_below_the_log_start(tmp_path: Path) -> None:
    """Spec 7.6: records below the log start offset are no answer, later ones of the segment are."""
    stamped = [Rec(timestamp=t) for t in (10, 20, 15, 30)]
    path = forge.partition(tmp_path, {0: [forge.batch(*stamped)]})
    assert kstore.open(path, clean=True, log_start_offset=1).find(timestamp=5) == (1, 20, 0)
    assert kstore.open(path, clean=True, log_start_offset=2).find(timestamp=16) == (3, 30, 0)


def test_find_stays_in_the_segment_it_chose(tmp_path: Path) -> None:
    """Spec 7.6, step 4: no fall-through, where the only match lies below the log start offset."""
    segments = {
        0: [forge.batch(Rec(timestamp=50), Rec(timestamp=10))],
        2: [forge.batch(Rec(timestamp=60), base=2)],
    }
    log = kstore.open(forge.partition(tmp_path, segments), clean=True, log_start_offset=1)
    assert log.find(timestamp=20) is None
    assert log.find(timestamp=51) == (2, 60, 0)


# ---- loading ------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_log_start_offset_of_an_empty_directory(tmp_path: Path, clean: bool) -> None:
    """Log start 500 on an empty directory: start and end are 500."""
    path = forge.partition(tmp_path, {})
    log = kstore.open(path, clean=clean, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, list(log)) == (500, 500, [])
    assert log.read(500).size == 0
    assert log.find(timestamp="earliest") == (500, -1, None)


def test_delete_directory_without_files(tmp_path: Path) -> None:
    """A `-delete` directory without files loads as an empty log."""
    path = forge.partition(tmp_path, {}, name=f"foo-1.{'0' * 32}-delete")
    log = kstore.open(path)
    assert (log.log_start_offset, log.log_end_offset, list(log)) == (0, 0, [])
    assert log.topic_partition == ("foo", 1)


@pytest.mark.parametrize(("index", "clean"), [(True, False), (False, False), (False, True)])
def test_segments_with_overflow(tmp_path: Path, index: bool, clean: bool) -> None:
    """Three segments, the middle one spans more than 2^31-1: four segments, the same records.

    Spec 8.2: a segment without an index is recovered, and split, after a clean shutdown too."""
    far = MAX32 + 11
    segments = {
        0: [simple(0), simple(1)],
        10: [simple(10), simple(11), simple(far + 10), simple(far + 12)],
        far + 20: [simple(far + 20)],
    }
    path = forge.partition(tmp_path, segments, index=False)
    if index:
        for base in segments:
            (path / f"{forge.stem(base)}.index").write_bytes(b"")
            (path / f"{forge.stem(base)}.timeindex").write_bytes(b"")
    log = kstore.open(path, clean=clean)
    expected = [0, 1, 10, 11, far + 10, far + 12, far + 20]
    assert offsets(log) == expected
    assert [s.base_offset for s in log.segments] == [0, 10, far + 10, far + 20]
    for offset in expected:
        assert log.get(offset).offset == offset
        assert offsets(log.read(offset, 1)) == [offset]


def test_segment_with_only_far_batches(tmp_path: Path) -> None:
    """A segment whose only batches lie above MAX32: one segment with their base."""
    far = MAX32 + 1
    path = forge.partition(tmp_path, {0: [simple(far), simple(far + 1)]}, index=False)
    log = kstore.open(path, clean=False)
    assert [s.base_offset for s in log.segments] == [far]
    assert offsets(log.records(0)) == [far, far + 1]
    assert log.log_end_offset == far + 2


@pytest.mark.parametrize("point", [0, 10, 99, 100])
def test_recovery_point(tmp_path: Path, point: int) -> None:
    """LogLoaderTest: 100 messages, unclean, any recovery point: the same end, index, last entry."""
    batches = [simple(i, timestamp=1000 + i) for i in range(100)]
    segments = {base: batches[base : base + 7] for base in range(0, 100, 7)}
    path = forge.partition(tmp_path, segments, interval=300)
    log = kstore.open(path, clean=False, recovery_point=point, index_interval_bytes=300)
    assert (log.log_end_offset, len(log.segments)) == (100, len(segments))
    for segment in log.segments:
        times = forge.indexes(segment.base_offset, segments[segment.base_offset], 300)
        assert [list(map(tuple, i)) for i in (segment.offset_index, segment.time_index)] == [*times]
    assert log.segments[-1].max_timestamp_so_far == (1099, 99)


@pytest.mark.parametrize("garbage", [1, 16, 17, 61, 300, 1024])
def test_reopen_then_truncate(tmp_path: Path, garbage: int) -> None:
    """LogLoaderTest: 50 messages, garbage behind the last log and index: all come back."""
    batches = [simple(i, timestamp=1000 + i) for i in range(50)]
    path = forge.partition(tmp_path, {0: batches[:25], 25: batches[25:]}, interval=1)
    for kind in (".log", ".index"):
        with (path / f"{forge.stem(25)}{kind}").open("ab") as file:
            file.write(bytes(i * 7 % 251 + 1 for i in range(garbage)))
    log = kstore.open(path, clean=False, recovery_point=0, index_interval_bytes=1)
    assert [record.value for record in log] == [b"%d" % i for i in range(50)]
    assert log.recovery.truncated_bytes == garbage


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_log_start_above_the_end(tmp_path: Path) -> None:
    """LogLoaderTest: 5 segments, log start 4, garbage in segment 1: everything goes, end 4."""
    path = forge.partition(tmp_path, {base: [simple(base)] for base in range(5)}, epochs=[(0, 0)])
    log_file = path / f"{forge.stem(1)}.log"
    log_file.write_bytes(b"\xff" * 72)
    log = kstore.open(path, clean=False, log_start_offset=4, recovery_point=0)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert (list(log), log.leader_epochs) == ([], ())


def test_corrupt_transaction_index_is_recovered(tmp_path: Path) -> None:
    """LogLoaderTest, spec 8.2: a txn index that fails its check has its segment recovered."""
    log = Writer()
    log.data(10, 1)
    log.marker(ABORT, 1)
    wrong = {0: [(1, -20, -10, -5)]}
    path = forge.partition(tmp_path, {0: log.batches}, aborted=wrong)
    opened = kstore.open(path, clean=True)
    assert opened.aborted_transactions(0, 11) == [(1, 0, 10, 11, 0)]


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_recovery_for_a_transaction_index_checks_the_log(tmp_path: Path) -> None:
    """Spec 8.2, 8.4: that recovery cuts the segment where a batch is corrupt, although clean."""
    batches = [simple(i) for i in range(4)]
    batches[2] = batches[2][:-1] + b"!"
    wrong = {0: [(1, -20, -10, -5)]}
    log = kstore.open(forge.partition(tmp_path, {0: batches}, aborted=wrong), clean=True)
    assert log.log_end_offset == 2
    assert offsets(log) == [0, 1]
