"""LogSegmentTest, OffsetIndexTest, TimeIndexTest, LogSegmentsTest: what of them writes, through a log."""

import random
from pathlib import Path

import pytest

import kstore
from kstore import CorruptRecordError, OffsetsOutOfOrderError, UnexpectedAppendOffsetError
from tests.conformance import forge
from tests.conformance.forge import ABORT, COMMIT, MAX32, T0, Rec
from tests.conformance.writing import (
    DATA_AND_INDEXES,
    SIZE,
    Clock,
    Producer,
    bases,
    entries,
    epochs_on_disk,
    files,
    follow,
    offsets,
    opened,
    put,
    rec,
    recs,
)


def file(path: Path, kind: str, base: int = 0) -> Path:
    return path / "topic-0" / f"{forge.stem(base)}{kind}"


# ---- appending ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "last"),
    [(0, -(2**31)), (100, 10), (1, 0), (-(2**31), 0), (2**31, 2), (10, 2**31 + 9), (0, 2**31 - 1)],
)
def test_append_for_log_segment_offset_overflow(tmp_path: Path, base: int, last: int) -> None:
    """Offsets that do not fit their segment never get into it: refused below, in a new segment above."""
    log = opened(tmp_path, log_start_offset=max(base, 0))
    if last < base or base < 0:
        with pytest.raises((UnexpectedAppendOffsetError, CorruptRecordError)):
            follow(log, rec(base=min(base, last)))
    else:
        follow(log, rec(base=base))
        follow(log, rec(base=last))
        assert bases(log) == [base]
        assert offsets(log) == [base, last]


def test_append_spanning_too_much(tmp_path: Path) -> None:
    """One append whose offsets span more than MAX32 fits no segment: refused whole."""
    log = opened(tmp_path)
    with pytest.raises(OffsetsOutOfOrderError):
        follow(log, rec(), rec(base=2**31))
    assert (log.log_end_offset, log.segments[0].size, log.leader_epochs) == (0, 0, ((0, 0),))
    put(log, rec())


@pytest.mark.parametrize("follower", [False, True])
@pytest.mark.parametrize(
    ("timestamps", "times"), [((0, 1, 2), [(1, 1), (2, 2)]), ((1, 0, 2), [(1, 0), (2, 2)])]
)
def test_index_for_multiple_batches_in_records(
    tmp_path: Path, timestamps: tuple[int, ...], times: list[tuple[int, int]], follower: bool
) -> None:
    """Interval 1: (0,0), (1,1), (2,2) -> offsets 1, 2, times (1,1), (2,2); (0,1), (1,0), (2,2) -> (1,0), (2,2)."""
    log = opened(tmp_path, index_interval_bytes=1)
    if follower:
        follow(log, *[rec(timestamp=t, base=i) for i, t in enumerate(timestamps)])
    else:
        log.append_batches(b"".join(rec(timestamp=t) for t in timestamps))
    assert entries(log.segments[0]) == ([(1, SIZE), (2, 2 * SIZE)], times)


@pytest.mark.parametrize("calls", [1, 2, 10])
def test_index_entries_do_not_depend_on_calls(tmp_path: Path, calls: int) -> None:
    """Spec 4.1: ten 1500-byte batches from timestamp 100, interval 4096, in any number of calls."""
    log = opened(tmp_path)
    value = b"x" * (1500 - len(rec(b"x" * 200)) + 200)
    batches = [rec(value, timestamp=100 + i) for i in range(10)]
    assert {len(b) for b in batches} == {1500}
    for at in range(0, 10, 10 // calls):
        log.append_batches(b"".join(batches[at : at + 10 // calls]))
    wanted = [(3, 4500), (6, 9000), (9, 13500)], [(103, 3), (106, 6), (109, 9)]
    assert entries(log.segments[0]) == wanted
    log.abandon()
    log = opened(tmp_path)  # recovery makes the same
    assert entries(log.segments[0]) == wanted


def test_index_entries_of_falling_timestamps(tmp_path: Path) -> None:
    """Spec 4.1: 4096-byte batches, timestamps falling from 500: offsets (2,8192), (4,16384), times (500,0) alone."""
    log = opened(tmp_path)
    value = b"x" * (4096 - len(rec(b"x" * 4000)) + 4000)
    batches = [rec(value, timestamp=500 - i) for i in range(6)]
    assert {len(b) for b in batches} == {4096}
    for at in (0, 3):
        log.append_batches(b"".join(batches[at : at + 3]))
    assert entries(log.segments[0]) == ([(2, 8192), (4, 16384)], [(500, 0)])


def test_index_entries_of_batches_of_two(tmp_path: Path) -> None:
    """Spec 4.1: 82-byte batches of two, interval 100, the fourth stamped ahead."""
    log = opened(tmp_path, index_interval_bytes=100)
    batches = [forge.batch(*[Rec(b"tes", timestamp=1500 if i == 3 else 1000 + i)] * 2) for i in range(8)]
    size = len(batches[0])
    log.append_batches(b"".join(batches))
    assert entries(log.segments[0]) == (
        [(5, 2 * size), (9, 4 * size), (13, 6 * size)],
        [(1002, 5), (1500, 7)],
    )


def test_create_segments_without_index_files(tmp_path: Path) -> None:
    """A segment begun by a roll has no index files until the first append; then at their full size."""
    log = opened(tmp_path, segment_index_bytes=1000)
    put(log, rec())
    log.roll()
    assert not file(tmp_path, ".index", 1).exists()
    assert not file(tmp_path, ".timeindex", 1).exists()
    put(log, rec())
    sizes = [file(tmp_path, kind, 1).stat().st_size for kind in (".index", ".timeindex")]
    assert sizes == [1000, 996]


def test_create_with_init_file_size_append_message(tmp_path: Path) -> None:
    """preallocate: the file is as long as segment.bytes while it is written, as its batches once closed."""
    log = opened(tmp_path, segment_bytes=1 << 20, preallocate=True)
    assert file(tmp_path, ".log").stat().st_size == 1 << 20
    put(log, rec(), rec())
    assert (file(tmp_path, ".log").stat().st_size, log.segments[0].size) == (1 << 20, 2 * SIZE)
    log.roll()
    assert file(tmp_path, ".log").stat().st_size == 2 * SIZE
    assert file(tmp_path, ".log", 2).stat().st_size == 1 << 20
    put(log, rec())
    log.close()
    assert file(tmp_path, ".log", 2).stat().st_size == SIZE
    log = opened(tmp_path, segment_bytes=1 << 20, preallocate=True)
    assert file(tmp_path, ".log", 2).stat().st_size == SIZE
    assert put(log, rec()).first_offset == 3
    log.close()
    assert offsets(kstore.open(tmp_path / "topic-0")) == [0, 1, 2, 3]


def test_create_with_init_file_size_crash(tmp_path: Path) -> None:
    """Spec 4.3: after a crash a preallocated file has a tail of zeros; recovery cuts it off."""
    log = opened(tmp_path, segment_bytes=1 << 20, preallocate=True)
    put(log, rec(), rec())
    log.abandon()
    assert file(tmp_path, ".log").stat().st_size == 1 << 20
    log = opened(tmp_path, segment_bytes=1 << 20, preallocate=True)
    assert (file(tmp_path, ".log").stat().st_size, log.log_end_offset) == (2 * SIZE, 2)


# ---- truncating ---------------------------------------------------------------------------------


def test_truncate(tmp_path: Path) -> None:
    """30 times an append of two, of which truncation leaves the first."""
    log = opened(tmp_path)
    for offset in range(30):
        put(log, rec(b"hello"), rec(b"hello"))
        assert log.truncate_to(offset + 1) is True
        assert log.log_end_offset == offset + 1
        assert (log.get(offset).offset, log.segments[0].size) == (offset, (offset + 1) * (SIZE + 1))


def test_reload_largest_timestamp_and_next_offset_after_truncation(tmp_path: Path) -> None:
    """30 messages, an entry every second: 14 time entries; truncated to 41: none, and the largest timestamp is 400."""
    log = opened(tmp_path, index_interval_bytes=2 * SIZE - 1, log_start_offset=40)
    put(log, *[rec(timestamp=offset * 10) for offset in range(40, 70)])
    assert (len(log.segments[0].time_index), log.log_end_offset) == (14, 70)
    log.truncate_to(41)
    (segment,) = log.segments
    assert (len(segment.time_index), segment.max_timestamp_so_far) == (0, (400, 40))
    assert (segment.read_next_offset(), log.log_end_offset) == (41, 41)


def test_truncate_full(tmp_path: Path, clock: Clock) -> None:
    """An emptied segment can be written again, and forgets when it was begun and its first timestamp."""
    log = opened(tmp_path, clock, segment_ms=300_000)
    put(log, rec(timestamp=T0))
    clock.sleep(200_000)
    log.truncate_to(0)
    assert (log.log_end_offset, log.segments[0].size) == (0, 0)
    put(log, rec())
    clock.sleep(200_000)
    put(log, rec(timestamp=T0 + 300_001))
    assert len(log.segments) == 1
    clock.sleep(100_001)
    put(log, rec())
    assert len(log.segments) == 2


def test_append_and_truncate_gap(tmp_path: Path) -> None:
    """Batches at 40 and 43: truncation to 41 leaves 40."""
    log = opened(tmp_path, log_start_offset=40)
    follow(log, rec(base=40))
    follow(log, rec(base=43))
    log.truncate_to(41)
    assert (offsets(log), log.log_end_offset) == ([40], 41)


def test_truncate_indexes(tmp_path: Path) -> None:
    """OffsetIndexTest: entries at and above the offset go, on disk too, and the next come after what is left."""
    log = opened(tmp_path, index_interval_bytes=0)
    put(log, *[rec(timestamp=T0 + i) for i in range(10)])
    for offset, last in ((12, 9), (10, 9), (9, 8), (5, 4), (0, 0)):
        log.truncate_to(offset)
        wanted = [(i, i * SIZE) for i in range(1, last + 1)]
        assert entries(log.segments[0]) == (wanted, [(T0 + i, i) for i in range(1, last + 1)])
    put(log, rec(), rec())
    assert entries(log.segments[0])[0] == [(1, SIZE)]


def test_truncate_transaction_index(tmp_path: Path) -> None:
    """TransactionIndexTest: an aborted transaction goes with its marker, and only then."""
    log = opened(tmp_path)
    producer = Producer(1)
    for _ in range(2):
        put(log, producer.data(2))
        log.append_batches(producer.marker(ABORT), origin="coordinator", transaction_version=0)
    index = file(tmp_path, ".txnindex")
    assert [t.last_offset for t in log.segments[0].transaction_index] == [2, 5]
    for offset, count in ((6, 2), (5, 1), (3, 1), (2, 0)):
        log.truncate_to(offset)
        assert len(log.segments[0].transaction_index) == count
        assert index.stat().st_size == 34 * count


# ---- recovery -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_recovery_fixes_corrupt_index(tmp_path: Path, kind: str) -> None:
    """100 messages, an index of garbage from byte 5 on: the files are as they were before."""
    log = opened(tmp_path, index_interval_bytes=10)
    put(log, *[rec(timestamp=offset * 10) for offset in range(100)])
    log.close()
    sound = file(tmp_path, kind).read_bytes()
    file(tmp_path, kind).write_bytes(sound[:5] + random.Random(5).randbytes(len(sound) - 5))
    log = opened(tmp_path, clean=False, index_interval_bytes=10)
    for offset in range(100):
        assert log.get(offset).offset == offset
        assert log.find(timestamp=offset * 10) == (offset, offset * 10, 0)
    log.close()
    assert file(tmp_path, kind).read_bytes() == sound


@pytest.mark.parametrize("open_since", [None, 75])
def test_recover_transaction_index(tmp_path: Path, open_since: int | None) -> None:
    """Base 100, two transactions, one aborted: one entry; where a snapshot has it open since 75, from there."""
    one, two = Producer(5), Producer(10)
    batches = [
        one.data(2, 100),
        two.data(2, 102),
        recs(2, base=104),
        two.marker(ABORT, 106),
        one.marker(COMMIT, 107),
    ]
    segments = {100: batches} if open_since is None else {0: [recs(100)], 100: batches}
    snapshots = {100: forge.snapshot([(10, 0, 1, 76, 1, -1, 0, 75)])} if open_since else {}
    forge.partition(tmp_path, segments, index=False, snapshots=snapshots)
    for base in segments:
        file(tmp_path, ".index", base).touch()
        file(tmp_path, ".timeindex", base).touch()
    log = opened(tmp_path, clean=False, recovery_point=100)
    wanted = (10, open_since or 102, 106, 100)
    assert [tuple(t)[:4] for t in log.segments[-1].transaction_index] == [wanted]
    assert file(tmp_path, ".txnindex", 100).read_bytes() == forge.txn_index([wanted])
    assert log.log_end_offset == 108


def test_recovery_rebuilds_epoch_cache(tmp_path: Path) -> None:
    """Batches (104, e0), (106, e1), (108, e1), (110, e2): the file has (0,104), (1,106), (2,110)."""
    batches = [
        recs(2, base=offset, epoch=epoch) for offset, epoch in ((104, 0), (106, 1), (108, 1), (110, 2))
    ]
    forge.partition(tmp_path, {100: batches}, index=False)
    log = opened(tmp_path, clean=False)
    assert log.leader_epochs == ((0, 104), (1, 106), (2, 110))
    assert epochs_on_disk(tmp_path) == [(0, 104), (1, 106), (2, 110)]


@pytest.mark.parametrize("k", range(20))
def test_recovery_with_corrupt_message(tmp_path: Path, k: int) -> None:
    """Garbage from within the first 15 bytes of message k on: 0 to k-1 are left, and the file ends there."""
    log = opened(tmp_path, index_interval_bytes=10)
    put(log, *[rec() for _ in range(20)])
    log.abandon()
    random_ = random.Random(k)
    at = k * SIZE + random_.randrange(15)
    data = file(tmp_path, ".log").read_bytes()
    file(tmp_path, ".log").write_bytes(data[:at] + random_.randbytes(len(data) - at))
    log = opened(tmp_path, index_interval_bytes=10)
    assert (offsets(log), log.log_end_offset) == (list(range(k)), k)
    assert file(tmp_path, ".log").stat().st_size == k * SIZE
    assert put(log, rec()).first_offset == k


def test_append_from_file(tmp_path: Path) -> None:
    """Batches at 0, 500 (more than 1 MiB) and MAX32+5 in one file: the first two stay, the third gets its own."""
    big = rec(b"x" * (1 << 20), base=500)
    forge.partition(tmp_path, {0: [rec(b"y" * 1000), big, rec(base=MAX32 + 5)]}, index=False)
    log = opened(tmp_path, clean=False)
    assert bases(log) == files(tmp_path, ".log") == [0, MAX32 + 5]
    assert offsets(log) == [0, 500, MAX32 + 5]
    assert [
        p.name for p in (tmp_path / "topic-0").iterdir() if p.suffix in (".cleaned", ".swap", ".deleted")
    ] == []
    log.close()
    assert offsets(kstore.open(tmp_path / "topic-0")) == [0, 500, MAX32 + 5]


# ---- indexes over reopening ---------------------------------------------------------------------


def test_reopen(tmp_path: Path) -> None:
    """OffsetIndexTest: closed, index files are as long as their entries; reopened, at full size, and grow on."""
    log = opened(tmp_path, index_interval_bytes=0, segment_index_bytes=100)
    put(log, *[rec(timestamp=T0 + i) for i in range(3)])
    log.close()
    assert [file(tmp_path, kind).stat().st_size for kind in (".index", ".timeindex")] == [2 * 8, 2 * 12]
    log = opened(tmp_path, index_interval_bytes=0, segment_index_bytes=100)
    assert [file(tmp_path, kind).stat().st_size for kind in (".index", ".timeindex")] == [96, 96]
    assert entries(log.segments[0])[0] == [(1, SIZE), (2, 2 * SIZE)]
    put(log, rec(), rec())  # the count of bytes begins anew: the first one makes no entry
    assert entries(log.segments[0])[0] == [(1, SIZE), (2, 2 * SIZE), (4, 4 * SIZE)]


def test_close_adds_the_last_time_entry(tmp_path: Path) -> None:
    """Spec 4.2: becoming inactive stores the largest timestamp, once."""
    log = opened(tmp_path)
    put(log, rec(timestamp=T0 + 5), rec(timestamp=T0 + 1))
    assert entries(log.segments[0]) == ([], [])
    log.roll()
    assert entries(log.segments[0]) == ([], [(T0 + 5, 0)])
    put(log, rec(timestamp=T0 + 2))
    for _ in range(2):
        log.close()
        read = kstore.open(tmp_path / "topic-0")
        assert [entries(s)[1] for s in read.segments] == [[(T0 + 5, 0)], [(T0 + 2, 2)]]
        log = opened(tmp_path)


# ---- closing ------------------------------------------------------------------------------------


class _Broken:
    """A file that the disk does not take."""

    def sync(self) -> None:
        raise OSError(5, "no luck")


def test_close_when_a_segment_cannot_be_closed(tmp_path: Path) -> None:
    """LogSegmentsTest: the error comes out, everything is let go, and the stop was not a clean one."""
    log = opened(tmp_path)
    put(log, rec())
    log._owe_sync([_Broken()], False)
    with pytest.raises(OSError, match="no luck"):
        log.close()
    assert not (tmp_path / "topic-0" / ".lock").exists()
    log = opened(tmp_path)
    assert log.recovery.clean is False
    assert offsets(log) == [0]


def test_all_files_of_a_segment(tmp_path: Path) -> None:
    """What a closed log leaves beside its checkpoints."""
    log = opened(tmp_path)
    put(log, rec(timestamp=T0))
    log.roll()
    put(log, rec(timestamp=T0))
    log.close()
    for kind in DATA_AND_INDEXES:
        assert files(tmp_path, kind) == [0, 1]
    assert files(tmp_path, ".snapshot") == [1, 2]
