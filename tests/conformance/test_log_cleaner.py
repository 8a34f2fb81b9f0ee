"""LogCleanerTest and LogCleanerManagerTest (spec 13.12, 13.13). Keys are numbers as text."""

import struct
from pathlib import Path

import pytest

import kstore
from kstore.config import MAX64
from kstore.engine.compact.cleaner import OffsetMap
from kstore.log.compact.cleanable import Cleanable, groups
from kstore.log.compact.compactor import _look, _Pass
from kstore.log.read.progress import Meter
from tests.conformance.writing import Clock

DAY = 86_400_000
SLOTS = 43690
OPTIONS = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": 1024,
    "min_cleanable_dirty_ratio": 0,
    "file_delete_delay_ms": 0,
    "log_cleaner_dedupe_buffer_size": (1 << 20) + 1,
}


class Cleaned:
    """A log under a cleaner that is told what to clean, as Kafka's tests do it."""

    def __init__(self, path: Path, **options: object) -> None:
        self.clock = Clock()
        self.path = path / "topic-0"
        self.options = {**OPTIONS, **options}
        self.log = self.open()
        self.sequences: dict[int, int] = {}

    def open(self) -> kstore.LogWriter:
        # no producer expires, as in Kafka's tests, which tell the cleaner alone what time it is
        return kstore.open(self.path, "a", clock=self.clock, producer_id_expiration_ms=MAX64, **self.options)

    def reopen(self) -> None:
        self.log.close()
        self.log = self.open()

    def put(
        self, *keys: object, pid: int = -1, transactional: bool = False, sequence: int | None = None
    ) -> kstore.Appended:
        """A batch of these keys; a key that is a pair has its value with it."""
        if pid >= 0 and sequence is None:
            sequence = self.sequences.get(pid, 0)
            self.sequences[pid] = sequence + len(keys)
        pairs = [key if isinstance(key, tuple) else (key, b"v") for key in keys]
        batch = kstore.encode_batch(
            [(self.clock.now, None if k is None else b"%d" % k, v, None) for k, v in pairs],
            producer_id=pid,
            producer_epoch=0 if pid >= 0 else -1,
            base_sequence=-1 if sequence is None else sequence,
            transactional=transactional,
        )
        return self.log.append_batches(batch)

    def txn(self, pid: int, *keys: int) -> None:
        self.put(*keys, pid=pid, transactional=True)

    def end(self, pid: int, kind: str) -> None:
        record = (self.clock.now, struct.pack(">hh", 0, ("A", "C").index(kind)), bytes(6), None)
        marker = kstore.encode_batch(
            [record], producer_id=pid, producer_epoch=0, transactional=True, control=True
        )
        self.log.append_batches(marker, origin="coordinator", transaction_version=0)

    def clean(self, *, dirty: int = 0, entries: int = SLOTS, later: int = 0, roll: bool = True) -> int:
        """One pass from this offset on, with room for so many keys, so much later; where it ends."""
        if roll:
            self.log.roll()
        self.log.configure(log_cleaner_io_buffer_load_factor=min((entries + 0.5) / SLOTS, 1))
        now = self.clock.now
        self.clock.now = now + later if later < MAX64 else MAX64
        state = self.log._compaction_state()
        found = _look(state)
        bound = state.segments[-1].base_offset
        end = _Pass(
            self.log, state, found._replace(first_dirty=dirty, first_uncleanable=bound), Meter(None), False
        ).run()
        self.clock.now = now
        return end

    def twice(self) -> None:
        """A pass that sets delete horizons, and one when they are over."""
        self.clean()
        self.clean(later=DAY + 1)

    @property
    def offsets(self) -> list[int]:
        return [r.offset for batch in self.log.batches() for r in batch.records()]

    @property
    def keys(self) -> list[int]:
        return [int(r.key or b"-1") for r in self.log]

    @property
    def batches(self) -> list[int]:
        return [batch.last_offset for batch in self.log.batches()]

    @property
    def aborted(self) -> list[tuple[int, ...]]:
        return [tuple(txn)[:4] for s in self.log.segments for txn in s.transaction_index]


@pytest.fixture
def log(tmp_path: Path) -> Cleaned:
    return Cleaned(tmp_path)


def test_clean_segments(tmp_path: Path) -> None:
    log = Cleaned(tmp_path)
    while len(log.log.segments) < 4:
        log.put(log.log.log_end_offset)
    last = log.log.log_end_offset
    for key in (1, 3, 5, 7, 9):
        log.put(key)
    log.clean()
    assert log.keys == [k for k in range(last) if k not in (1, 3, 5, 7, 9)] + [1, 3, 5, 7, 9]


def test_duplicate_check_after_cleaning(log: Cleaned) -> None:
    for pid, keys in ((1, (1, 2, 3)), (2, (3, 1, 4)), (3, (1, 4))):
        log.put(*keys, pid=pid)
    log.clean()
    assert (log.batches, log.offsets, log.keys) == ([2, 5, 7], [1, 3, 6, 7], [2, 3, 1, 4])
    log.reopen()
    for pid, keys, offsets in ((1, (1, 2, 3), (0, 2)), (3, (1, 4), (6, 7)), (2, (3, 1, 4), (3, 5))):
        done = log.put(*keys, pid=pid, sequence=0)
        assert done.duplicate
        assert (done.first_offset, done.last_offset) == offsets
    log.put(2, pid=4)
    log.clean()
    assert (log.batches, log.offsets) == ([2, 5, 7, 8], [3, 6, 7, 8])


@pytest.mark.parametrize(
    ("dirty", "entries", "end", "left"),
    [
        (2, 1, 3, [1, 2, 3, 4]),
        (3, 1, 4, [2, 3, 4]),
        (4, 1, 5, [3, 4]),
        (2, 3, 5, [3, 4]),
        (2, 2, 4, [2, 3, 4]),
    ],
)
def test_partial_segment_clean(log: Cleaned, dirty: int, entries: int, end: int, left: list[int]) -> None:
    for i in range(5):
        log.put(i % 2)
    if dirty > 2:
        log.clean(dirty=2, entries=1)
    if dirty > 3:
        log.clean(dirty=3, entries=1)
    assert log.clean(dirty=dirty, entries=entries) == end
    assert log.offsets == left


def test_multi_pass_segment_cleaning_with_aborted_transactions(tmp_path: Path) -> None:
    log = Cleaned(tmp_path, delete_retention_ms=50_000)
    log.txn(1, 1, 2)
    log.txn(2, 2, 3)
    log.txn(1, 3, 4)
    log.end(1, "C")
    log.end(2, "C")
    log.txn(1, 2, 3)
    log.end(1, "A")
    log.txn(2, 4, 5)
    log.txn(1, 5, 6)
    log.end(1, "C")
    log.end(2, "A")
    log.txn(2, 6, 7)
    log.end(2, "C")
    aborted = [(1, 8, 10, 11), (2, 11, 16, 17)]
    assert log.aborted == aborted
    assert (dirty := log.clean(entries=3)) == 4
    assert [b.base_offset for b in log.log.batches()] == [0, 2, 4, 6, 7, 10, 13, 15, 16, 17, 19]
    assert log.offsets == [0, *range(2, 8), 10, *range(13, 20)]
    assert log.aborted == aborted
    assert (dirty := log.clean(dirty=dirty, entries=3)) == 14
    assert log.offsets == [0, 2, *range(4, 8), 10, *range(13, 20)]
    assert log.aborted == []
    assert log.clean(dirty=dirty, entries=3, later=50_000) == 20
    assert 10 not in log.offsets
    assert 16 not in log.offsets


def test_basic_transaction_aware_cleaning(log: Cleaned) -> None:
    log.txn(1, 1, 2)
    log.txn(2, 2, 3)
    log.txn(1, 3, 4)
    log.end(1, "A")
    log.end(2, "C")
    log.txn(1, 2)
    log.end(1, "C")
    aborted = log.aborted
    assert len(aborted) == 1
    log.clean()
    assert log.keys == [3, 2]
    assert log.offsets == [3, 6, 7, 8, 9]
    assert log.aborted == aborted


def test_commit_marker_removal(log: Cleaned) -> None:
    log.txn(1, 1)
    log.txn(1, 2, 3)
    log.end(1, "C")
    log.txn(1, 2)
    log.end(1, "C")
    log.clean()
    assert log.offsets == [0, 2, 3, 4, 5]
    log.txn(1, 1, 3)
    log.end(1, "C")
    log.clean(later=1)
    assert log.offsets == [3, 4, 5, 6, 7, 8]
    log.clean(later=1)
    assert log.offsets == [3, 4, 5, 6, 7, 8]
    log.clean(later=MAX64)
    assert log.offsets == [4, 5, 6, 7, 8]


def test_abort_marker_removal(log: Cleaned) -> None:
    log.txn(1, 1)
    log.txn(1, 2, 3)
    log.end(1, "A")
    log.txn(1, 3)
    log.end(1, "C")
    log.clean()
    assert log.offsets == [3, 4, 5]
    log.twice()
    assert log.offsets == [4, 5]


def test_abort_marker_retention_with_empty_batch(log: Cleaned) -> None:
    log.txn(1, 2, 3)
    log.end(1, "A")
    for _ in range(2):
        log.clean(later=DAY + 1)
        assert (log.offsets, log.batches) == ([2], [1, 2])
    log.txn(1, 1)
    log.end(1, "C")
    log.clean()
    assert log.offsets == [2, 3, 4]
    assert log.batches == [2, 3, 4]
    log.twice()
    assert log.offsets == [3, 4]


def test_empty_batch_removal_with_sequence_reuse(log: Cleaned) -> None:
    """A producer that wrote again lets its empty batch go; the last one of another producer stays."""
    log.put(0)
    for pid in (1, 2, 3):
        log.put(0, pid=pid)
    log.put(1, pid=2)
    log.clean()
    assert (log.batches, log.offsets) == ([1, 3, 4], [3, 4])


def test_clean_empty_control_batch(log: Cleaned) -> None:
    log.end(1, "C")
    log.put(2)
    log.put(3)
    log.twice()
    assert (log.offsets, log.batches) == ([1, 2], [0, 1, 2])
    log.twice()
    assert (log.offsets, log.batches) == ([1, 2], [0, 1, 2])


def test_tombstones_go_by_the_time_of_cleaning(log: Cleaned) -> None:
    """Not by the timestamps of records, which may be far off."""
    far = kstore.encode_batch([(MAX64 // 2, b"1", b"v", None)])
    log.log.configure(message_timestamp_after_max_ms=MAX64)
    log.log.append_batches(far)
    log.log.append_batches(kstore.encode_batch([(1, b"1", None, None)]))
    for later in (0, DAY - 1):
        log.clean(later=later)
        assert log.offsets == [1]
    log.clean(later=DAY)
    assert log.offsets == []
    assert log.batches == [1]  # the end of what was cleaned stays visible


def test_all_keys_deleted(tmp_path: Path) -> None:
    log = Cleaned(tmp_path)
    for _ in range(3):
        for key in range(10):
            log.put((key, b"v" * 10))
        log.log.roll()
    for key in range(10):
        log.put((key, None))
    log.clean()
    assert {r.value for r in log.log} == {None}
    log.clean(later=DAY + 1)
    assert log.offsets == []
    (batch,) = log.log.batches()
    assert batch.records_count == 0
    assert batch.last_offset == log.log.segments[-1].base_offset - 1


def test_invalid_messages_are_removed(log: Cleaned) -> None:
    log.log.configure(cleanup_policy="delete")
    log.put(None, 1, None)
    log.put(2)
    log.log.configure(cleanup_policy="compact")
    log.clean()
    assert log.keys == [1, 2]


def test_cleaning_beyond_missing_offsets(log: Cleaned) -> None:
    log.put(1)
    gap = kstore.encode_batch([(log.clock.now, b"2", b"v", None)], base_offset=20)
    log.log.append_batches(gap, keep_offsets=True)
    end = kstore.encode_batch([(log.clock.now, b"1", b"v", None)], base_offset=40)
    log.log.roll()
    log.log.append_batches(end, keep_offsets=True)
    assert log.clean(roll=False) == log.log.segments[-1].base_offset
    log.log.roll()
    assert log.clean(roll=False) == 41
    assert log.offsets == [20, 40]


def test_large_message(tmp_path: Path) -> None:
    log = Cleaned(tmp_path, internal_segment_bytes=4 << 20)
    log.put((1, b"x" * 1_000_000))
    log.put((2, b"y" * 1_000_000))
    log.put((1, b"x" * (1 << 19)))
    log.log.configure(max_message_bytes=1000)
    log.clean()
    assert log.offsets == [1, 2]


class Shape:
    """What grouping asks of a segment."""

    def __init__(self, base_offset: int, size: int = 100, entries: int = 1) -> None:
        self.base_offset, self.size = base_offset, size
        self.offset_index = self.time_index = range(entries)


def grouped(segments: list[Shape], *, size: int = 2**31 - 1, index: int = 2**31 - 1) -> list[list[int]]:
    end = segments[-1].base_offset + 1
    made = groups(segments, segment_bytes=size, segment_index_bytes=index, first_uncleanable=end)  # type: ignore[arg-type]
    return [[segment.base_offset for segment in group] for group in made]


def test_segment_grouping() -> None:
    segments = [Shape(10 * i) for i in range(9)]
    assert len(grouped(segments)) == 1
    assert grouped(segments, size=1) == [[10 * i] for i in range(9)]
    assert grouped(segments, index=1) == [[10 * i] for i in range(9)]
    assert [len(g) for g in grouped(segments, size=301)] == [3, 3, 3]
    assert [len(g) for g in grouped(segments, index=3 * 12 + 1)] == [3, 3, 3]


def test_segment_grouping_with_sparse_offsets() -> None:
    most = 2**31 - 1
    assert grouped([Shape(0), Shape(most - 1), Shape(most)]) == [[0, most - 1, most]]
    assert grouped([Shape(0), Shape(most - 1), Shape(most + 1)]) == [[0, most - 1], [most + 1]]
    assert grouped([Shape(0), Shape(most), Shape(most + 2)]) == [[0], [most, most + 2]]
    # an empty segment goes with any
    assert grouped([Shape(0), Shape(most, 0, 0), Shape(most + 2, 0, 0)]) == [[0, most, most + 2]]


def test_log_to_clean() -> None:
    assert Cleanable(0, 10, 300, 100, 0).ratio == 0.25
    assert Cleanable(0, 0, 0, 0, 0).ratio == 0


def test_build_offset_map_fake_large() -> None:
    """Offsets far apart in one segment."""
    offsets = OffsetMap(1000)
    offsets.put(b"0", 0)
    offsets.put(b"7206178", 7206178)
    assert offsets.latest_offset == 7206178
    assert [offsets.get(key) for key in (b"0", b"7206178", b"1")] == [0, 7206178, -1]


# ---- LogCleanerManagerTest --------------------------------------------------------------------------------------


def checkpoint(log: Cleaned, offset: int) -> None:
    log.log._log_dir.store_cleaner_offset(offset)


def test_checkpoint_above_the_end(log: Cleaned) -> None:
    log.put(1)
    log.log.roll()
    checkpoint(log, 200)
    assert log.log.compact().first_dirty_offset == 0


def test_checkpoint_below_the_start(tmp_path: Path) -> None:
    log = Cleaned(tmp_path, cleanup_policy="compact,delete")
    for key in range(20):
        log.put(key)
    log.log.roll()
    checkpoint(log, 0)
    log.log.delete_records(10)
    done = log.log.compact()
    assert (done.first_dirty_offset, done.end_offset) == (10, 20)
    assert log.log._log_dir.cleaner_offset() == 20


def test_checkpoint_in_the_active_segment(log: Cleaned) -> None:
    for key in range(8):
        log.put(key)
    checkpoint(log, 3)
    done = log.log.compact()
    assert done.segments == ()
    assert done.first_uncleanable_offset == log.log.segments[-1].base_offset


def test_undecided_transactions_and_lag(tmp_path: Path) -> None:
    log = Cleaned(tmp_path, min_compaction_lag_ms=3_600_000)
    log.txn(1, 1, 2, 3)
    log.log.roll()
    log.put(4)
    log.log.roll()
    log.clock.sleep(3_600_001)
    log.log.roll()
    assert log.log.compact().first_uncleanable_offset == 0
    log.end(1, "A")
    log.log.roll()
    done = log.log.compact()
    assert done.first_uncleanable_offset == 4  # the marker is young
    log.clock.sleep(3_600_001)
    assert log.log.compact().first_uncleanable_offset == 5
