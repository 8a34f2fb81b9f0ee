"""LogSegmentTest and LogSegmentsTest: segments of a log that is read, written, truncated, recovered.

As there, those with messages of magic 1 begin at 40, and timestamps are ten times the offsets.
"""

import random
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import CorruptRecordError, OffsetsOutOfOrderError, UnexpectedAppendOffsetError
from kstore.testing import count_calls, failing
from tests.conformance.writing import (
    DATA_AND_INDEXES,
    SIZE,
    Clock,
    Producer,
    aborted,
    bases,
    end,
    entries,
    epochs_on_disk,
    file,
    files,
    follow,
    offsets,
    opened,
    put,
    rec,
    recs,
)
from tests.helpers import forge
from tests.helpers.forge import ABORT, COMMIT, MAX32, T0, simple

BASE = 40
MODES = pytest.mark.parametrize("mode", ["r", "a"])


def old(offset: int, value: bytes = b"hello") -> bytes:
    """A message of magic 1, 39 bytes."""
    return forge.message(offset, value, timestamp=offset * 10)


def segment_of(
    root: Path, *batches: bytes, base: int = BASE, interval: int = 10, closed: bool = True
) -> kstore.Segment:
    path = forge.partition(root, {base: batches}, interval=interval, closed=closed)
    return kstore.open(path, clean=True, index_interval_bytes=interval).segments[0]


def recovered(root: Path, *batches: bytes, base: int = 0, interval: int = 1) -> kstore.Segment:
    """The segment without its indexes, as an unclean start makes them."""
    path = forge.partition(root, {base: batches}, index=False)
    return kstore.open(path, clean=False, index_interval_bytes=interval).segments[0]


# ---- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "located", "next_offset"),
    [
        ([], {40: None}, 40),
        ([50, 51], {48: (50, 0), 50: (50, 0), 51: (51, 39), 52: None, 53: None}, 52),
        ([50, 51, 60, 61], {55: (60, 78)}, 62),
    ],
)
def test_read(
    tmp_path: Path, messages: list[int], located: dict[int, tuple[int, int] | None], next_offset: int
) -> None:
    """An empty segment, before the first offset, after the last, from a gap; where the next record goes."""
    segment = segment_of(tmp_path, *map(old, messages))
    for offset, found in located.items():
        assert segment.translate(offset) == (found and (*found, 39))
        record = segment.get(offset)
        assert (record and record.offset) == (found and found[0])
    assert segment.read_next_offset() == next_offset
    assert segment.read_headers()["max_timestamp"].tolist() == [10 * offset for offset in messages]


def test_read_returns_base_offset_of_the_batch(tmp_path: Path) -> None:
    """Messages 50 to 53: offset 41 gives 50. One v2 batch of them: offset 52 names the batch at 50."""
    batches = [old(offset) for offset in range(50, 54)]
    log = kstore.open(forge.partition(tmp_path / "old", {BASE: batches}), clean=True)
    assert offsets(log.read(41, 300)) == [50, 51, 52, 53]
    assert bytes(log.read(41, 300)) == b"".join(batches)
    log = kstore.open(forge.partition(tmp_path, {BASE: [simple(50, 4)]}), clean=True)
    assert log.translate(52) == (50, 0, len(simple(50, 4)))
    part = log.read(52, 300)
    assert offsets(part) == [52, 53]
    assert [batch.base_offset for batch in part.batches()] == [50]


def test_reload_largest_timestamp_and_next_offset(tmp_path: Path) -> None:
    """An entry every second of 30 messages: 14 time entries, next offset 70."""
    batches = [old(offset) for offset in range(40, 70)]
    segment = segment_of(tmp_path, *batches, interval=2 * 39 - 1, closed=False)
    assert (len(segment.time_index), segment.read_next_offset()) == (14, 70)
    after_close = recovered(tmp_path / "again", *batches, base=BASE, interval=2 * 39 - 1)
    assert list(after_close.time_index)[:14] == list(segment.time_index)
    assert after_close.max_timestamp_so_far == (690, 69)
    one = segment_of(tmp_path / "one", old(40), interval=2 * 39 - 1)
    assert (one.largest_timestamp, one.read_next_offset()) == (400, 41)


def test_find_offset_by_timestamp(tmp_path: Path) -> None:
    """Offsets 40 to 49, an entry every second message."""
    segment = segment_of(tmp_path, *[old(o) for o in range(40, 50)], interval=2 * 39 - 1)
    assert segment.largest_timestamp == 490
    for timestamp, offset in {420: 42, 421: 43, 430: 43, 431: 44, 401: 41, 399: 40}.items():
        assert segment.find_timestamp(timestamp) == (offset, offset * 10, None)
    assert segment.find_timestamp(491) is None


def test_reading_creates_no_files(tmp_path: Path) -> None:
    """A fresh segment has no index files, and reading makes none."""
    path = forge.partition(tmp_path, {BASE: [old(40)]}, index=False)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    for clean in (True, False):
        log = kstore.open(path, clean=clean)
        assert offsets(log) == [40]
        assert log.find(timestamp=400) == (40, 400, None)
        assert log.last_stable_offset() == 41
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_index_written_once_per_append_call(tmp_path: Path) -> None:
    """Spec 3.2, old brokers: an entry has the last offset and the first position of a call."""
    path = forge.partition(tmp_path, {0: [old(offset) for offset in range(12)]})
    lasts = (5, 8, 11)
    file(tmp_path, ".index").write_bytes(forge.offset_index(0, [(last, 39 * (last - 2)) for last in lasts]))
    file(tmp_path, ".timeindex").write_bytes(forge.time_index(0, [(last * 10, last) for last in lasts]))
    log = kstore.open(path, clean=True)
    for offset in range(1, 12):
        assert log.translate(offset) == (offset, 39 * offset, 39)
        assert log.find(timestamp=offset * 10 - 1) == (offset, offset * 10, None)
    assert log.find(timestamp="max") == (11, 110, None)
    assert not log.segments[0].notes


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # of offsets between the segments
def test_segments(tmp_path: Path) -> None:
    """Segments are in the order of their bases, and end at the next one; the floor of an offset."""
    wanted = [1, 2, 3, 4, 10, 2**40]
    path = forge.partition(tmp_path, {base: [simple(base)] for base in (4, 2, 1, 3, 10, 2**40)})
    log = kstore.open(path, clean=True)
    assert bases(log) == wanted
    assert [s.end_offset for s in log.segments] == [2, 3, 4, 10, 2**40, 2**63 - 1]
    for offset, at in ((0, -1), (1, 0), (2, 1), (4, 3), (9, 3), (10, 4), (2**40 - 1, 4), (2**62, 5)):
        assert log.floor_segment(offset) == at


# ---- recovery ------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_recovery_fixes_corrupt_index(tmp_path: Path, kind: str, clean: bool, mode: Any) -> None:
    """100 messages, an index of garbage from byte 5 on: all is found; an unclean start restores the file."""
    path = forge.partition(tmp_path, {0: [old(offset) for offset in range(100)]}, interval=10)
    sound = file(tmp_path, kind).read_bytes()
    file(tmp_path, kind).write_bytes(sound[:5] + random.Random(5).randbytes(len(sound) - 5))
    with kstore.open(path, mode, clean=clean, index_interval_bytes=10) as log:
        for offset in range(100):
            assert log.segments[0].get(offset).offset == offset
            assert offsets(log.read(offset, 1)) == [offset]
            assert log.find(timestamp=offset * 10) == (offset, offset * 10, None)
            assert log.find(timestamp=max(offset * 10 - 9, 0)) == (offset, offset * 10, None)
        assert offsets(log) == list(range(100))
    assert mode == "r" or clean or file(tmp_path, kind).read_bytes() == sound


@MODES
@pytest.mark.parametrize("open_since", [None, 75])
def test_recover_transaction_index(tmp_path: Path, open_since: int | None, mode: Any) -> None:
    """Base 100, two transactions, one aborted: one entry; if a snapshot has it open since 75, from there."""
    one, two = Producer(5), Producer(10)
    batches = [one.data(2, 100), two.data(2, 102), recs(2, base=104)]
    batches += [two.marker(ABORT, 106), one.marker(COMMIT, 107)]
    segments = {100: batches} if open_since is None else {0: [simple(0, 100)], 100: batches}
    snapshots = {100: forge.snapshot([(10, 0, 1, 76, 1, -1, 0, 75)])} if open_since else {}
    path = forge.partition(tmp_path, segments, index=False, snapshots=snapshots)
    for base in segments:
        file(tmp_path, ".index", base).touch()
        file(tmp_path, ".timeindex", base).touch()
    log = kstore.open(path, mode, clean=False, recovery_point=100)
    wanted = (10, open_since or 102, 106, 100)
    assert aborted(log) == [wanted]
    assert log.log_end_offset == log.last_stable_offset() == 108
    assert [tuple(txn) for txn in log.aborted_transactions(100, 108)] == [(*wanted, 0)]
    if open_since is None:
        assert offsets(log.records(isolation="read_committed")) == [100, 101, 104, 105]
    if mode == "a":
        assert file(tmp_path, ".txnindex", 100).read_bytes() == forge.txn_index([wanted])


@MODES
def test_recovery_rebuilds_epoch_cache(tmp_path: Path, mode: Any) -> None:
    """Batches (104, e0), (106, e1), (108, e1), (110, e2): cache, and file, (0,104), (1,106), (2,110)."""
    spans = [(104, 0), (106, 1), (108, 1), (110, 2)]
    batches = [simple(offset, 2, epoch=epoch) for offset, epoch in spans]
    log = kstore.open(forge.partition(tmp_path, {100: batches}, index=False, epochs=()), mode, clean=False)
    assert log.leader_epochs == ((0, 104), (1, 106), (2, 110))
    assert mode == "r" or epochs_on_disk(tmp_path) == [(0, 104), (1, 106), (2, 110)]


@MODES
@pytest.mark.parametrize("magic", [1, 2])
def test_recovery_with_corrupt_message(tmp_path: Path, magic: int, mode: Any) -> None:
    """Garbage from within the first 15 bytes of message k on: 0 to k-1 are left, also in a writer's file."""
    batches = [old(i) if magic == 1 else simple(i, timestamp=i * 10) for i in range(20)]
    for k in range(20):
        root = tmp_path / str(k)
        path = forge.partition(root, {0: batches}, interval=10)
        chance, whole, kept = random.Random(k), b"".join(batches), b"".join(batches[:k])
        at = len(kept) + chance.randrange(15)
        file(root, ".log").write_bytes(whole[:at] + chance.randbytes(len(whole) - at))
        log = kstore.open(path, mode, clean=False, index_interval_bytes=10)
        assert (offsets(log), log.log_end_offset) == (list(range(k)), k)
        assert log.recovery.truncated_bytes == len(whole) - len(kept)
        assert log.recovery.findings[0].kind in ("corrupt_batch", "torn_tail")
        if mode == "a":
            assert file(root, ".log").read_bytes() == kept
            assert put(log, rec()).first_offset == k


@pytest.mark.parametrize("clean", [True, False])
def test_preallocated_file(tmp_path: Path, clean: bool) -> None:
    """A file preallocated and never trimmed: the zeros behind the batches are no records."""
    path = forge.partition(tmp_path, {0: [simple(0), simple(1)]})
    with file(tmp_path, ".log").open("ab") as f:
        f.truncate(1 << 20)
    log = kstore.open(path, clean=clean)
    assert (log.log_end_offset, log.get(1).value) == (2, b"1")
    assert clean or offsets(log) == [0, 1]


def test_append_from_file(tmp_path: Path) -> None:
    """Batches at 0, 500 (more than 1 MiB) and MAX32+5 in one file: the third gets a segment of its own."""
    big = rec(b"x" * (1 << 20), base=500)
    forge.partition(tmp_path, {0: [rec(b"y" * 1000), big, rec(base=MAX32 + 5)]}, index=False)
    log = opened(tmp_path, clean=False)
    assert bases(log) == files(tmp_path, ".log") == [0, MAX32 + 5]
    left = {path.suffix for path in (tmp_path / "topic-0").iterdir()}
    assert not left & {".cleaned", ".swap", ".deleted"}
    log.close()
    assert offsets(kstore.open(tmp_path / "topic-0")) == [0, 500, MAX32 + 5]


# ---- appending -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("timestamps", "times"), [((0, 1, 2), [(1, 1), (2, 2)]), ((1, 0, 2), [(1, 0), (2, 2)])]
)
@pytest.mark.parametrize("way", ["leader", "follower", "recovery"])
def test_index_for_multiple_batches_in_records(
    tmp_path: Path, timestamps: tuple[int, ...], times: list[tuple[int, int]], way: str
) -> None:
    """Interval 1: the entries of timestamps 0, 1, 2 and of 1, 0, 2."""
    batches = [rec(timestamp=t, base=i) for i, t in enumerate(timestamps)]
    if way == "recovery":
        segment = recovered(tmp_path, *batches)
    else:
        log = opened(tmp_path, index_interval_bytes=1)
        if way == "follower":
            follow(log, *batches)
        else:
            log.append_batches(b"".join(rec(timestamp=t) for t in timestamps))
        (segment,) = log.segments
    assert entries(segment) == ([(1, SIZE), (2, 2 * SIZE)], times)


def sized(size: int, timestamp: int) -> bytes:
    made = rec(b"x" * (size - len(rec(b"x" * 1000)) + 1000), timestamp=timestamp)
    assert len(made) == size
    return made


@pytest.mark.parametrize(
    ("calls", "interval", "batches", "wanted"),
    [
        *(
            # ten batches from timestamp 100, in any number of calls
            (calls, 4096, [sized(1500, 100 + i) for i in range(10)],
             ([(3, 4500), (6, 9000), (9, 13500)], [(103, 3), (106, 6), (109, 9)]))
            for calls in (1, 2, 10)
        ),
        # timestamps that fall from 500
        (2, 4096, [sized(4096, 500 - i) for i in range(6)], ([(2, 8192), (4, 16384)], [(500, 0)])),
        # batches of two, the fourth stamped ahead
        (1, 100, [recs(2, 1500 if i == 3 else 1000 + i, b"tes") for i in range(8)],
         ([(5, 162), (9, 324), (13, 486)], [(1002, 5), (1500, 7)])),
    ],
)  # fmt: skip
def test_index_entries_per_batch(
    tmp_path: Path, calls: int, interval: int, batches: list[bytes], wanted: tuple[Any, Any]
) -> None:
    """Spec 4.1: entries do not depend on the calls, and recovery makes the same."""
    log = opened(tmp_path, index_interval_bytes=interval)
    step = len(batches) // calls
    for at in range(0, len(batches), step):
        log.append_batches(b"".join(batches[at : at + step]))
    assert entries(log.segments[0]) == wanted
    log.abandon()
    assert entries(opened(tmp_path, index_interval_bytes=interval).segments[0]) == wanted


def test_create_segments_without_index_files(tmp_path: Path) -> None:
    """A segment begun by a roll has no index files until the first append; then at their full size."""
    log = opened(tmp_path, segment_index_bytes=1000)
    put(log, rec())
    log.roll()
    assert files(tmp_path, ".index") == files(tmp_path, ".timeindex") == [0]
    put(log, rec())
    assert [file(tmp_path, kind, 1).stat().st_size for kind in (".index", ".timeindex")] == [1000, 996]


def test_create_with_init_file_size(tmp_path: Path) -> None:
    """preallocate: the file has segment.bytes while it is written, and the size of its batches afterwards."""
    log = opened(tmp_path, segment_bytes=1 << 20, preallocate=True)

    def size(base: int) -> int:
        return file(tmp_path, ".log", base).stat().st_size

    assert size(0) == 1 << 20
    put(log, rec(), rec())
    assert (size(0), log.segments[0].size) == (1 << 20, 2 * SIZE)
    log.roll()
    assert (size(0), size(2)) == (2 * SIZE, 1 << 20)
    put(log, rec())
    log.close()
    assert size(2) == SIZE
    log = opened(tmp_path, segment_bytes=1 << 20, preallocate=True)
    assert size(2) == SIZE
    put(log, rec())
    log.roll()
    put(log, rec())
    log.abandon()
    assert size(4) == 1 << 20  # spec 4.3: a tail of zeros, which recovery cuts off
    log = opened(tmp_path, segment_bytes=1 << 20, preallocate=True)
    assert (size(4), offsets(log)) == (SIZE, [0, 1, 2, 3, 4])


# ---- truncating ----------------------------------------------------------------------------------


def test_truncate(tmp_path: Path) -> None:
    """30 times an append of two, of which truncation leaves the first."""
    log = opened(tmp_path)
    for offset in range(30):
        put(log, rec(b"hello"), rec(b"hello"))
        assert log.truncate_to(offset + 1) is True
        assert log.log_end_offset == offset + 1
        assert (log.get(offset).offset, log.segments[0].size) == (offset, (offset + 1) * (SIZE + 1))


def test_reload_largest_timestamp_and_next_offset_after_truncation(tmp_path: Path) -> None:
    """30 messages, an entry every second: 14 time entries; truncated to 41: none, largest timestamp 400."""
    log = opened(tmp_path, index_interval_bytes=2 * SIZE - 1, log_start_offset=40)
    put(log, *[rec(timestamp=offset * 10) for offset in range(40, 70)])
    assert (len(log.segments[0].time_index), log.log_end_offset) == (14, 70)
    log.truncate_to(41)
    (segment,) = log.segments
    assert (len(segment.time_index), segment.max_timestamp_so_far) == (0, (400, 40))
    assert (segment.read_next_offset(), log.log_end_offset) == (41, 41)
    follow(log, rec(base=43))  # test_append_and_truncate_gap
    log.truncate_to(41)
    assert (offsets(log), log.log_end_offset) == ([40], 41)


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


def test_truncate_indexes(tmp_path: Path) -> None:
    """OffsetIndexTest: entries at and above the offset are removed, on disk too; new ones follow the rest."""
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
        end(log, producer.marker(ABORT))
    assert [txn[2] for txn in aborted(log)] == [2, 5]
    for offset, count in ((6, 2), (5, 1), (3, 1), (2, 0)):
        log.truncate_to(offset)
        assert len(log.segments[0].transaction_index) == count
        assert file(tmp_path, ".txnindex").stat().st_size == 34 * count


# ---- closing and reopening -----------------------------------------------------------------------


def test_reopen(tmp_path: Path) -> None:
    """OffsetIndexTest: closed, index files have the size of their entries; reopened, they grow on."""
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
        for kind in (*DATA_AND_INDEXES, ".log"):
            assert files(tmp_path, kind) == [0, 2]
        assert files(tmp_path, ".snapshot") == [2, 3]
        read = kstore.open(tmp_path / "topic-0")
        assert [entries(s)[1] for s in read.segments] == [[(T0 + 5, 0)], [(T0 + 2, 2)]]
        log = opened(tmp_path)


def test_close_when_a_segment_cannot_be_closed(tmp_path: Path) -> None:
    """LogSegmentsTest: the error comes out, everything is let go, and the stop was not a clean one."""
    log = opened(tmp_path / "whole")
    put(log, rec())
    unclean = 0
    for nth in range(1, count_calls(log.close) + 1):
        root = tmp_path / str(nth)
        log = opened(root)
        put(log, rec())
        try:
            with failing(nth):
                log.close()
        except OSError:
            assert not (root / "topic-0" / ".lock").exists()
            marked = (root / "topic-0" / ".kafka_cleanshutdown").exists()  # by the very last calls
            log = opened(root)
            assert (log.recovery.clean, offsets(log)) == (marked, [0])
            unclean += not marked
    assert unclean > 10
