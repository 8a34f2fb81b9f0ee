"""LogSegmentTest: base 40, index interval 10; messages of magic 1 with timestamp = offset*10."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kstore
from tests.conformance import forge
from tests.conformance.forge import ABORT, COMMIT, TRANSACTIONAL, Rec, simple

BASE = 40


def old(offset: int, value: bytes = b"hello") -> bytes:
    """A message of magic 1, 39 bytes."""
    return forge.message(offset, value, timestamp=offset * 10)


def opened(
    tmp_path: Path,
    *batches: bytes,
    base: int = BASE,
    interval: int = 10,
    closed: bool = True,
    clean: bool = True,
) -> kstore.Segment:
    path = forge.partition(tmp_path, {base: batches}, interval=interval, closed=closed)
    return kstore.open(path, clean=clean, index_interval_bytes=interval).segments[0]


def offset_of(record: kstore.Record | None) -> int | None:
    return None if record is None else record.offset


def recovered(tmp_path: Path, *batches: bytes, base: int = 0, interval: int = 1) -> kstore.Segment:
    """The segment without its indexes, as an unclean start makes them."""
    path = forge.partition(tmp_path, {base: batches}, index=False)
    return kstore.open(path, clean=False, index_interval_bytes=interval).segments[0]


def test_read_on_empty_segment(tmp_path: Path) -> None:
    """Offset 40 of an empty segment: nothing."""
    segment = opened(tmp_path)
    assert segment.translate(40) is None
    assert segment.get(40) is None


def test_read_before_first_offset(tmp_path: Path) -> None:
    """Messages 50 to 53: offset 41 gives 50."""
    batches = [old(offset) for offset in range(50, 54)]
    log = kstore.open(forge.partition(tmp_path, {BASE: batches}), clean=True)
    assert [record.offset for record in log.read(41, 300)] == [50, 51, 52, 53]
    assert bytes(log.read(41, 300)) == b"".join(batches)


def test_read_after_last(tmp_path: Path) -> None:
    """Messages 50 and 51: offset 52 gives nothing."""
    segment = opened(tmp_path, old(50), old(51))
    assert segment.translate(52) is None
    assert segment.get(52) is None


def test_read_from_gap(tmp_path: Path) -> None:
    """Messages 50, 51, 60, 61: offset 55 gives 60."""
    segment = opened(tmp_path, old(50), old(51), old(60), old(61))
    assert segment.translate(55) == (60, 78, 39)
    assert offset_of(segment.get(55)) == 60


def test_read_with_no_max_position(tmp_path: Path) -> None:
    """Where a read begins: 50 at 0, 51 at 39, nothing at 52 and 53; below the first, 50."""
    segment = opened(tmp_path, old(50), old(51))
    assert segment.translate(50) == (50, 0, 39)
    assert segment.translate(51) == (51, 39, 39)
    assert segment.translate(52) is None
    assert segment.translate(53) is None
    assert segment.translate(48) == (50, 0, 39)


def test_read_returns_base_offset_of_the_batch(tmp_path: Path) -> None:
    """One v2 batch with records 50 to 53: offset 52 names the batch at 50."""
    log = kstore.open(forge.partition(tmp_path, {BASE: [simple(50, 4)]}), clean=True)
    assert log.translate(52) == (50, 0, len(simple(50, 4)))
    part = log.read(52, 300)
    assert [record.offset for record in part] == [52, 53]
    assert [batch.base_offset for batch in part.batches()] == [50]


def test_reload_largest_timestamp_and_next_offset(tmp_path: Path) -> None:
    """An entry every second of 30 messages: 14 time entries, next offset 70."""
    batches = [old(offset) for offset in range(40, 70)]
    segment = opened(tmp_path, *batches, interval=2 * 39 - 1, closed=False)
    assert len(segment.time_index) == 14
    assert segment.read_next_offset() == 70
    after_close = recovered(tmp_path / "again", *batches, base=BASE, interval=2 * 39 - 1)
    assert list(after_close.time_index)[:14] == list(segment.time_index)
    assert after_close.max_timestamp_so_far == (690, 69)
    one = opened(tmp_path / "one", old(40), interval=2 * 39 - 1)
    assert (one.largest_timestamp, one.read_next_offset()) == (400, 41)


FIND = {420: 42, 421: 43, 430: 43, 431: 44, 491: None, 401: 41, 399: 40}


@pytest.mark.parametrize(("timestamp", "offset"), FIND.items())
def test_find_offset_by_timestamp(tmp_path: Path, timestamp: int, offset: int | None) -> None:
    """Offsets 40 to 49, an entry every second message."""
    segment = opened(tmp_path, *[old(o) for o in range(40, 50)], interval=2 * 39 - 1)
    assert segment.largest_timestamp == 490
    found = segment.find_timestamp(timestamp)
    assert found == (None if offset is None else (offset, offset * 10, None))


def test_next_offset_calculation(tmp_path: Path) -> None:
    """An empty segment: 40; after 50 to 52: 53."""
    assert opened(tmp_path / "empty").read_next_offset() == 40
    assert opened(tmp_path, *[old(o) for o in (50, 51, 52)]).read_next_offset() == 53


def test_reading_creates_no_files(tmp_path: Path) -> None:
    """A fresh segment has no index files, and reading makes none."""
    path = forge.partition(tmp_path, {BASE: [old(40)]}, index=False)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    for clean in (True, False):
        log = kstore.open(path, clean=clean)
        assert [record.offset for record in log] == [40]
        assert log.find(timestamp=400) == (40, 400, None)
        assert log.last_stable_offset() == 41
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def garble(file: Path, at: int) -> None:
    """Kafka's writeNonsenseToFile: random bytes from `at` to the end."""
    data = file.read_bytes()
    file.write_bytes(data[:at] + random.Random(at).randbytes(len(data) - at))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_recovery_fixes_corrupt_index(tmp_path: Path, kind: str, clean: bool) -> None:
    """100 messages, an index of garbage from byte 5 on: every offset and timestamp is found."""
    batches = [old(offset) for offset in range(100)]
    path = forge.partition(tmp_path, {0: batches}, interval=10)
    garble(path / f"{forge.stem(0)}{kind}", 5)
    log = kstore.open(path, clean=clean, index_interval_bytes=10)
    (segment,) = log.segments
    for offset in range(100):
        assert offset_of(segment.get(offset)) == offset
        assert [r.offset for r in log.read(offset, 1)] == [offset]
        assert log.find(timestamp=offset * 10) == (offset, offset * 10, None)
        if offset < 99:
            assert log.find(timestamp=offset * 10 + 1) == (offset + 1, offset * 10 + 10, None)
    assert [record.offset for record in log] == list(range(100))


def data(offset: int, pid: int, sequence: int) -> bytes:
    return simple(offset, 2, pid=pid, pid_epoch=0, sequence=sequence, flags=TRANSACTIONAL)


TRANSACTIONS = (
    data(100, 5, 0),
    data(102, 10, 0),
    simple(104, 2),
    forge.marker(106, 10, ABORT),
    forge.marker(107, 5, COMMIT),
)


def aborted(log: kstore.PartitionLog) -> list[tuple[int, ...]]:
    log.last_stable_offset()
    return [tuple(txn[:4]) for segment in log.segments for txn in segment.transaction_index]


def test_recover_transaction_index(tmp_path: Path) -> None:
    """Two transactions from base 100, one aborted: one entry (10, 102, 106, 100)."""
    log = kstore.open(forge.partition(tmp_path, {100: TRANSACTIONS}, index=False), clean=False)
    assert log.log_end_offset == 108
    assert log.last_stable_offset() == 108
    assert aborted(log) == [(10, 102, 106, 100)]
    assert log.aborted_transactions(100, 108) == [(10, 102, 106, 100, 0)]
    committed = [record.offset for record in log.records(isolation="read_committed")]
    assert committed == [100, 101, 104, 105]


def test_recover_transaction_index_with_producer_state(tmp_path: Path) -> None:
    """With a state in which producer 10's transaction is open since 75: (10, 75, 106, 100)."""
    open_since_75 = forge.snapshot([(10, 0, 1, 76, 1, -1, 0, 75)])
    path = forge.partition(tmp_path, {0: [simple(0, 100)], 100: TRANSACTIONS}, snapshots={100: open_since_75})
    log = kstore.open(path, clean=False, recovery_point=100)
    assert aborted(log) == [(10, 75, 106, 100)]


def test_recovery_rebuilds_epoch_cache(tmp_path: Path) -> None:
    """Batches (104, e0), (106, e1), (108, e1), (110, e2): cache (0,104), (1,106), (2,110)."""
    spans = [(104, 0), (106, 1), (108, 1), (110, 2)]
    batches = [simple(offset, 2, epoch=epoch) for offset, epoch in spans]
    log = kstore.open(forge.partition(tmp_path, {100: batches}, index=False), clean=False)
    assert log.leader_epochs == ((0, 104), (1, 106), (2, 110))


@pytest.mark.parametrize("k", range(20))
@pytest.mark.parametrize("magic", [1, 2])
def test_recovery_with_corrupt_message(tmp_path: Path, magic: int, k: int) -> None:
    """Garbage from within the first 15 bytes of message k on: 0 to k-1 are left."""
    batches = [old(i) if magic == 1 else simple(i, timestamp=i * 10) for i in range(20)]
    path = forge.partition(tmp_path, {0: batches}, interval=10)
    garble(path / f"{forge.stem(0)}.log", sum(map(len, batches[:k])) + random.Random(k).randrange(15))
    log = kstore.open(path, clean=False, index_interval_bytes=10)
    assert [record.offset for record in log] == list(range(k))
    assert log.log_end_offset == k
    assert log.recovery.truncated_bytes == sum(map(len, batches[k:]))
    assert log.recovery.findings[0].kind in ("corrupt_batch", "torn_tail")


@pytest.mark.parametrize("clean", [True, False])
def test_preallocated_file(tmp_path: Path, clean: bool) -> None:
    """A file preallocated and never trimmed: the zeros behind the batches are no records."""
    path = forge.partition(tmp_path, {0: [simple(0), simple(1)]})
    with (path / f"{forge.stem(0)}.log").open("ab") as file:
        file.truncate(1 << 20)
    log = kstore.open(path, clean=clean)
    assert log.log_end_offset == 2
    assert log.get(1).value == b"1"
    if not clean:
        assert [record.offset for record in log] == [0, 1]


def test_index_for_multiple_batches_in_records(tmp_path: Path) -> None:
    """Interval 1, (offset, timestamp) (0,0), (1,1), (2,2): offsets 1, 2; times (1,1), (2,2)."""
    segment = recovered(tmp_path, *[forge.batch(Rec(timestamp=i), base=i) for i in range(3)])
    assert [entry.offset for entry in segment.offset_index] == [1, 2]
    assert list(segment.time_index) == [(1, 1), (2, 2)]


def test_non_monotonic_timestamp_for_multiple_batches_in_records(tmp_path: Path) -> None:
    """(0,1), (1,0), (2,2): offset index 1, 2; time index (1,0), (2,2)."""
    batches = [forge.batch(Rec(timestamp=t), base=i) for i, t in enumerate((1, 0, 2))]
    segment = recovered(tmp_path, *batches)
    assert [entry.offset for entry in segment.offset_index] == [1, 2]
    assert list(segment.time_index) == [(1, 0), (2, 2)]


def test_index_written_once_per_append_call(tmp_path: Path) -> None:
    """Spec 3.2, old brokers: an entry has the last offset and the first position of a call."""
    batches = [old(offset) for offset in range(12)]
    path = forge.partition(tmp_path, {0: batches})
    entries = [(last, 39 * (last - 2)) for last in (5, 8, 11)]
    (path / f"{forge.stem(0)}.index").write_bytes(forge.offset_index(0, entries))
    times = [(last * 10, last) for last in (5, 8, 11)]
    (path / f"{forge.stem(0)}.timeindex").write_bytes(forge.time_index(0, times))
    log = kstore.open(path, clean=True)
    for offset in range(1, 12):
        assert log.translate(offset) == (offset, 39 * offset, 39)
        assert log.find(timestamp=offset * 10 - 1) == (offset, offset * 10, None)
    assert log.find(timestamp="max") == (11, 110, None)
    assert not log.segments[0].notes


def test_concurrent_access_to_max_timestamp(tmp_path: Path) -> None:
    """Several threads that ask a fresh segment for its largest timestamp get the same."""
    segment = opened(tmp_path, *[old(offset) for offset in range(40, 240)])
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: tuple(segment.max_timestamp_so_far), range(64)))
    assert set(found) == {(2390, 239)}


def test_get_first_batch_timestamp(tmp_path: Path) -> None:
    """One record stamped 1000: the first batch says so; an empty segment has none."""
    assert len(opened(tmp_path / "empty").read_headers()) == 0
    segment = opened(tmp_path, simple(40, timestamp=1000))
    assert segment.batch_at(0).max_timestamp == 1000
    assert segment.read_headers()["max_timestamp"].tolist() == [1000]
