"""UnifiedLogTest: reads and lookups, of records and of transactions."""

from pathlib import Path

import pytest

import kstore
from kstore import OffsetOutOfRangeError
from tests.conformance.writing import SIZE, Producer, end, entries, follow, offsets, opened, put, rec, recs
from tests.helpers import forge
from tests.helpers.forge import ABORT, COMMIT, T0, Rec, simple

COMMITTED = "read_committed"
WHOLE = 1 << 20


def log_of(root: Path, *batches: bytes, **options: object) -> kstore.PartitionLog:
    """These batches, from 0 on, after a clean stop."""
    return kstore.open(forge.partition(root, {0: batches}), clean=True, **options)


# ---- records -------------------------------------------------------------------------------------


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


@pytest.fixture(params=["forged", "followed"])
def sparse(request: pytest.FixtureRequest, tmp_path: Path) -> kstore.PartitionLog:
    """Offsets 0 to 49, then every seventh, each in a segment of its own."""
    if request.param == "forged":
        segments = {offset: [rec(base=offset)] for offset in NON_SEQUENTIAL}
        return kstore.open(forge.partition(tmp_path, segments), clean=True)
    log = opened(tmp_path, segment_bytes=SIZE)
    for offset in NON_SEQUENTIAL:
        follow(log, rec(base=offset))
    return log


def test_append_and_read_with_non_sequential_offsets(sparse: kstore.PartitionLog) -> None:
    """Every read begins with the first offset that is not below the one asked."""
    assert offsets(sparse) == [*NON_SEQUENTIAL]
    for offset in range(NON_SEQUENTIAL[-1]):
        expected = next(o for o in NON_SEQUENTIAL if o >= offset)
        assert offsets(sparse.read(offset, 100)) == [expected]
        assert sparse.get(offset).offset == expected
        assert sparse.find(offset=offset) == (expected, -1, 0)


def test_read_with_small_max_length(sparse: kstore.PartitionLog) -> None:
    """test_read_with_min_message: of 1 byte or none, the batch comes whole; without the minimum 0 bytes
    are empty, 1 byte is an incomplete batch."""
    for offset in range(50, NON_SEQUENTIAL[-1]):
        for most in (1, 0):
            part = sparse.read(offset, most, min_one_message=True)
            assert offsets(part) == [next(o for o in NON_SEQUENTIAL if o >= offset)]
            assert (part.size, part.first_entry_incomplete) == (72, False)
        assert bytes(sparse.read(offset, 0, min_one_message=False)) == b""
        part = sparse.read(offset, 1, min_one_message=False)
        assert (part.size, part.first_entry_incomplete, list(part)) == (1, True, [])
    with pytest.raises(ValueError, match="max_bytes is from 0"):
        sparse.read(50, -1)


def test_read_at_log_gap(tmp_path: Path) -> None:
    """Spec 7.1: one read gives bytes of one segment only; in a gap at its end, of the next one."""
    path = forge.partition(tmp_path, {0: [simple(i) for i in range(9)], 10: [simple(10)]})
    log = kstore.open(path, clean=True)
    assert offsets(log.read(7, WHOLE)) == [7, 8]
    assert offsets(log.read(9, 200)) == [10]
    assert log.translate(9) is None
    assert log.get(9).offset == 10
    assert offsets(log.records(7)) == [7, 8, 10]


@pytest.mark.parametrize("codec", forge.CODECS)
def test_compressed_messages(tmp_path: Path, codec: str) -> None:
    """Pairs (0, 1), (2, 3): a read of 1 begins at 0, of 3 at 2."""
    log = log_of(tmp_path, *(recs(2, base=base, codec=codec) for base in (0, 2)))
    for offset, base in ((0, 0), (1, 0), (2, 2), (3, 2)):
        part = log.read(offset, 100)
        assert next(part.batches()).base_offset == base
        assert next(part.records()).offset == offset


def test_log_starts_inside_a_batch(tmp_path: Path) -> None:
    """Nothing below a log start offset in the middle of a batch is read."""
    log = log_of(tmp_path, simple(0, 5), simple(5, 5), log_start_offset=3)
    assert offsets(log) == [3, 4, 5, 6, 7, 8, 9]
    assert next(log.read(3, 1).batches()).base_offset == 0
    with pytest.raises(OffsetOutOfRangeError):
        log.read(2)


def test_append_and_read_with_sequential_offsets(tmp_path: Path) -> None:
    """50 values in 72-byte segments, read one by one."""
    log = opened(tmp_path, segment_bytes=SIZE)
    for i in range(0, 100, 2):
        put(log, rec(b"%4d" % i))
    assert len(log.segments) == 50
    assert [(r.offset, r.value) for r in log] == [(i, b"%4d" % (2 * i)) for i in range(50)]
    assert [log.get(i).value for i in range(50)] == [b"%4d" % (2 * i) for i in range(50)]


def test_get_at_a_marker_that_ends_the_log(tmp_path: Path) -> None:
    """It is passed over, though find() gives it, as a broker does."""
    log = opened(tmp_path)
    one = Producer(1)
    put(log, one.data(2))
    end(log, one.marker(COMMIT))
    assert log.log_end_offset == 3
    assert log.find(offset=2).offset == 2
    with pytest.raises(OffsetOutOfRangeError, match="no record has offset 2 or a later one"):
        log.get(2)
    log.append(b"v")
    assert log.get(2).offset == 3
    with pytest.raises(OffsetOutOfRangeError, match=r"outside the log, which holds 0 to 4"):
        log.get(4)


# ---- transactions --------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(0, 29, 4))
def test_read_committed_beyond_the_last_stable_offset(tmp_path: Path, offset: int) -> None:
    """Spec 7.1: at and above the bound a read is empty, with an empty list of aborted ones."""
    path = forge.partition(tmp_path, {0: [simple(0, 8), Producer(1).data(20, 8)]}, index=False)
    part = kstore.open(path, clean=False).read(offset, WHOLE, COMMITTED)
    assert part.aborted == []
    assert offsets(part) == list(range(offset, 8))


def test_aborted_transactions_of_a_clean_log(tmp_path: Path) -> None:
    """Spec 7.2: the list comes from the files, from the offset's segment on, until complete."""
    segments = {base: [simple(base + i) for i in range(10)] for base in (0, 10, 20)}
    txns = [(1, 0, 9, 3), (2, 3, 15, 12), (3, 12, 25, 20)]
    path = forge.partition(
        tmp_path, segments, aborted=dict(zip(segments, ([txn] for txn in txns), strict=True))
    )
    log = kstore.open(path, clean=True)
    # of the first the upper bound is 10: complete at lso 12
    for offset, found in ((0, [(1, 0), (2, 3)]), (12, [(2, 3), (3, 12)]), (16, [(3, 12)]), (29, [])):
        assert log.read(offset, 1, COMMITTED).aborted == found
    assert log.aborted_transactions(0, 3) == [(*txns[0], 0)]
    assert log.aborted_transactions(0, 30) == [(*txn, 0) for txn in txns]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("start", range(6))
def test_read_committed_from_behind_an_abort(tmp_path: Path, clean: bool, start: int) -> None:
    """Spec 7.2: a transaction aborted before `start` takes nothing from the producer's next one."""
    one = Producer(1)
    batches = [one.data(2), one.marker(ABORT, 2), one.data(2, 3), one.marker(COMMIT, 5)]
    path = forge.partition(tmp_path, {0: batches}, aborted={0: [(1, 0, 2, 3)]})
    log = kstore.open(path, clean=clean)
    expected = [offset for offset in (3, 4) if offset >= start]
    assert offsets(log.read(start, WHOLE, COMMITTED)) == expected
    assert offsets(log.records(start, isolation=COMMITTED)) == expected
    firsts = [batch.base_offset for batch in log.batches(start, isolation=COMMITTED)]
    assert firsts == [base for base in (2, 3, 5) if base >= (3 if start == 4 else start)]


@pytest.mark.parametrize("start", [5, 8])
def test_first_unstable_offset_does_not_exceed_log_start_offset(tmp_path: Path, start: int) -> None:
    """A transaction open since 0 and a log that begins at 5 or 8: the bound is the log start."""
    one = Producer(1)
    first, second = [one.data(5), simple(5, 3)], [one.data(5, 8)]
    open_since_0 = forge.snapshot([(1, 0, 4, 4, 4, -1, -1, 0)])
    segments = {0: first, 8: second} if start == 5 else {8: second}
    path = forge.partition(tmp_path, segments, snapshots={8: open_since_0})
    for clean in (True, False):
        log = kstore.open(path, clean=clean, log_start_offset=start, recovery_point=8)
        assert log.last_stable_offset() == start
        assert offsets(log.records(isolation=COMMITTED)) == []


# ---- lookups by timestamp ------------------------------------------------------------------------


def test_fetch_offset_by_timestamp_includes_leader_epoch(tmp_path: Path) -> None:
    """Two records t, t+1 of epochs 0, 1: by time, earliest, latest with a later epoch, the largest."""
    log = opened(tmp_path)
    assert log.find(timestamp=0) is log.find(timestamp="max") is None
    put(log, rec(timestamp=T0), leader_epoch=0)
    put(log, rec(timestamp=T0 + 1), leader_epoch=1)
    for each in (log, kstore.open(log.path, clean=True), kstore.open(log.path, clean=False)):
        assert each.find(timestamp=0) == each.find(timestamp=T0) == (0, T0, 0)
        assert each.find(timestamp=T0 + 1) == (1, T0 + 1, 1)
        assert each.find(timestamp=T0 + 2) is None
        assert each.find(timestamp=kstore.EARLIEST) == each.find(timestamp="earliest") == (0, -1, 0)
        assert each.find(timestamp=kstore.EARLIEST_LOCAL) == (0, -1, 0)
        assert each.find(timestamp=kstore.LATEST) == each.find(timestamp="latest") == (2, -1, 1)
    log.assign_leader_epoch(2)
    assert log.find(timestamp="latest") == (2, -1, 2)
    put(log, rec(timestamp=T0), leader_epoch=2)
    assert log.find(timestamp="max") == log.find(timestamp=kstore.MAX_TIMESTAMP) == (1, T0 + 1, 1)


def test_latest_has_the_latest_epoch_known(tmp_path: Path) -> None:
    """Without an epoch there is none; (2, 1) is known: epoch 2."""
    batches = [rec(timestamp=5, base=i, epoch=-1) for i in range(2)]
    log = log_of(tmp_path, *batches)
    assert log.find(timestamp="latest") == (2, -1, None)
    assert log.find(timestamp="earliest") == (0, -1, None)
    assert log.find(timestamp=5) == (0, 5, None)
    path = forge.partition(tmp_path, {0: batches}, epochs=[(0, 0), (2, 1)])
    assert kstore.open(path, clean=True).find(timestamp="latest") == (2, -1, 2)


def test_max_timestamp_over_segments(tmp_path: Path) -> None:
    """Spec 7.5: the first segment with the largest, the first record in it."""
    stamps = {0: (5, 9), 2: (9, 3), 4: (7, 7)}
    segments = {
        base: [forge.batch(*[Rec(timestamp=t) for t in times], base=base)] for base, times in stamps.items()
    }
    log = kstore.open(forge.partition(tmp_path, segments), clean=True)
    assert log.find(timestamp="max") == log.find(timestamp=6) == log.find(timestamp=9) == (1, 9, 0)


def test_fetch_without_remote_storage(tmp_path: Path) -> None:
    """Earliest pending upload and latest tiered: (-1, -1, epoch -1), on an empty log too."""
    for batches in ([], [simple(0, timestamp=5)]):
        for name in (kstore.EARLIEST_PENDING_UPLOAD, kstore.LATEST_TIERED):
            assert log_of(tmp_path, *batches).find(timestamp=name) == (-1, -1, -1)


def test_find_below_the_log_start(tmp_path: Path) -> None:
    """Spec 7.6: records below the log start offset are no answer, later ones of the segment are. If the only
    match of the segment lies below, the next segment is asked, unlike step 4."""
    batch = forge.batch(*(Rec(timestamp=t) for t in (10, 20, 15, 30)))
    assert log_of(tmp_path, batch, log_start_offset=1).find(timestamp=5) == (1, 20, 0)
    assert log_of(tmp_path, batch, log_start_offset=2).find(timestamp=16) == (3, 30, 0)
    segments = {0: [forge.batch(Rec(timestamp=50), Rec(timestamp=10))], 2: [rec(timestamp=60, base=2)]}
    path = forge.partition(tmp_path, segments, name="other-0")
    log = kstore.open(path, clean=True, log_start_offset=1)
    assert log.find(timestamp=20) == log.find(timestamp=51) == (2, 60, 0)


def test_build_time_index_when_not_assigning_offsets(tmp_path: Path) -> None:
    """A follower's 100 records with interval 1: 99 entries; recovered, the same."""
    log = opened(tmp_path, index_interval_bytes=1)
    for i in range(100):
        follow(log, rec(timestamp=T0 + i, base=i))
    for each in (log, kstore.open(log.path, clean=False, index_interval_bytes=1)):
        assert entries(each.segments[0])[1] == [(T0 + i, i) for i in range(1, 100)]
        assert each.segments[0].time_index.last_entry == (T0 + 99, 99)
