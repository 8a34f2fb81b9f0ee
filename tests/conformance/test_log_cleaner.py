"""LogCleanerTest and LogCleanerManagerTest (spec 13.12, 13.13). Keys are numbers as text."""

import contextlib
from pathlib import Path
from typing import Self

import pytest

import kstore
from tests.conformance.writing import Clock, aborted, bases, end, rec
from tests.helpers import forge
from tests.helpers.forge import ABORT, COMMIT, MAX32, MAX64, T0

DAY = 86_400_000
SLOTS = 43690  # of the map of keys
OPTIONS = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": 1024,
    "min_cleanable_dirty_ratio": 0,
    "file_delete_delay_ms": 0,
    "log_cleaner_dedupe_buffer_size": (1 << 20) + 1,
}


class OnePassError(Exception):
    """Ends a compaction after its first pass."""


class Cleaned:
    """A log under a cleaner that is told what to clean, as Kafka's tests do it."""

    def __init__(self, path: Path, **options: object) -> None:
        self.clock = Clock()
        self.path = path / "topic-0"
        self.checkpoint = path / "cleaner-offset-checkpoint"
        (path / "meta.properties").touch()  # makes it a log directory
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

    def txn(self, pid: int, *keys: int) -> Self:
        self.put(*keys, pid=pid, transactional=True)
        return self

    def end(self, pid: int, kind: int) -> Self:
        end(self.log, forge.marker(0, pid, kind, timestamp=self.clock.now))
        return self

    def cleaned_to(self) -> int:
        return forge.read_checkpoint(self.checkpoint)["topic", 0]

    def dirty_from(self, offset: int) -> None:
        self.checkpoint.write_text(forge.checkpoint([("topic", 0, offset)]))

    def clean(self, *, dirty: int = 0, entries: int = SLOTS, later: int = 0, roll: bool = True) -> int:
        """One pass from this offset on, with room for so many keys, so much later; where it ends."""
        if roll:
            self.log.roll()
        self.log.configure(log_cleaner_io_buffer_load_factor=min((entries + 0.5) / SLOTS, 1))
        self.dirty_from(dirty)

        def stop(*_: int) -> None:
            if self.cleaned_to() != dirty:
                raise OnePassError

        now = self.clock.now
        self.clock.now = min(now + later, MAX64)
        with contextlib.suppress(OnePassError):
            self.log.compact(progress=stop)
        self.clock.now = now
        return self.cleaned_to()

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
        return aborted(self.log)


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
    log.txn(1, 1, 2).txn(2, 2, 3).txn(1, 3, 4).end(1, COMMIT).end(2, COMMIT).txn(1, 2, 3).end(1, ABORT)
    log.txn(2, 4, 5).txn(1, 5, 6).end(1, COMMIT).end(2, ABORT).txn(2, 6, 7).end(2, COMMIT)
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
    log.txn(1, 1, 2).txn(2, 2, 3).txn(1, 3, 4).end(1, ABORT).end(2, COMMIT).txn(1, 2).end(1, COMMIT)
    aborted = log.aborted
    assert len(aborted) == 1
    log.clean()
    assert log.keys == [3, 2]
    assert log.offsets == [3, 6, 7, 8, 9]
    assert log.aborted == aborted


def test_commit_marker_removal(log: Cleaned) -> None:
    log.txn(1, 1).txn(1, 2, 3).end(1, COMMIT).txn(1, 2).end(1, COMMIT)
    log.clean()
    assert log.offsets == [0, 2, 3, 4, 5]
    log.txn(1, 1, 3).end(1, COMMIT)
    log.clean(later=1)
    assert log.offsets == [3, 4, 5, 6, 7, 8]
    log.clean(later=1)
    assert log.offsets == [3, 4, 5, 6, 7, 8]
    log.clean(later=MAX64)
    assert log.offsets == [4, 5, 6, 7, 8]


def test_abort_marker_removal(log: Cleaned) -> None:
    log.txn(1, 1).txn(1, 2, 3).end(1, ABORT).txn(1, 3).end(1, COMMIT)
    log.clean()
    assert log.offsets == [3, 4, 5]
    log.twice()
    assert log.offsets == [4, 5]


def test_abort_marker_retention_with_empty_batch(log: Cleaned) -> None:
    log.txn(1, 2, 3).end(1, ABORT)
    for _ in range(2):
        log.clean(later=DAY + 1)
        assert (log.offsets, log.batches) == ([2], [1, 2])
    log.txn(1, 1).end(1, COMMIT)
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
    log.end(1, COMMIT)
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


def grouped(root: Path, segments: dict[int, int], end: int, **limits: int) -> list[list[int]]:
    """How a compaction would group segments of so many batches, if the active one begins at `end`."""
    batches = {base: [rec(base=base + i, timestamp=T0) for i in range(n)] for base, n in segments.items()}
    path = forge.partition(root, {**batches, end: []}, interval=1)
    (root / "meta.properties").touch()
    (root / "cleaner-offset-checkpoint").write_text("0\n1\ntopic 0 0\n")
    options = {**OPTIONS, "internal_segment_bytes": None, **limits}
    groups: dict[int, list[int]] = {}
    with kstore.open(path, "a", clean=True, **options) as log:
        for segment in log.compact(dry_run=True).segments:
            groups.setdefault(segment.into, []).append(segment.base_offset)
    return list(groups.values())


def test_segment_grouping(tmp_path: Path) -> None:
    """By size, and by the size of indexes: of two batches there is one entry of 8 and one of 12 bytes."""
    segments, one = dict.fromkeys(range(0, 90, 10), 2), 2 * 72
    for number, (limits, sizes) in enumerate(
        [
            ({}, [9]),
            ({"internal_segment_bytes": 1}, [1] * 9),
            ({"segment_index_bytes": 4}, [1] * 9),
            ({"internal_segment_bytes": 3 * one + 1}, [3, 3, 3]),
            ({"segment_index_bytes": 3 * 12 + 1}, [3, 3, 3]),
        ]
    ):
        made = grouped(tmp_path / str(number), segments, 90, **limits)
        assert [len(group) for group in made] == sizes
        assert [base for group in made for base in group] == [*segments]


def test_segment_grouping_with_sparse_offsets(tmp_path: Path) -> None:
    """Offsets of a group span no more than MAX32; an empty segment goes with any."""
    for number, (segments, wanted) in enumerate(
        [
            ({0: 1, MAX32 - 1: 1, MAX32: 1}, [[0, MAX32 - 1, MAX32]]),
            ({0: 1, MAX32 - 1: 1, MAX32 + 1: 1}, [[0, MAX32 - 1], [MAX32 + 1]]),
            ({0: 1, MAX32: 1, MAX32 + 2: 1}, [[0], [MAX32, MAX32 + 2]]),
            ({0: 1, MAX32: 0, MAX32 + 2: 0}, [[0, MAX32, MAX32 + 2]]),
        ]
    ):
        assert grouped(tmp_path / str(number), segments, max(segments) + 1) == wanted


def test_log_to_clean(log: Cleaned) -> None:
    """The dirty ratio: of four equal segments one; of none."""
    assert log.log.compact().dirty_ratio == 0
    for key in range(4):
        log.put(key)
        log.log.roll()
    log.dirty_from(3)
    assert log.log.compact(dry_run=True).dirty_ratio == 0.25


def test_build_offset_map_fake_large(log: Cleaned) -> None:
    """Offsets far apart in one segment."""
    for offset in (0, 7206178):
        batch = kstore.encode_batch([(T0, b"%d" % offset, b"v", None)], base_offset=offset)
        log.log.append_batches(batch, keep_offsets=True)
    assert log.clean() == 7206179
    assert log.offsets == [0, 7206178]


# ---- LogCleanerManagerTest -----------------------------------------------------------------------


def test_checkpoint_above_the_end(log: Cleaned) -> None:
    log.put(1)
    log.log.roll()
    log.dirty_from(200)
    assert log.log.compact().first_dirty_offset == 0


def test_checkpoint_below_the_start(tmp_path: Path) -> None:
    log = Cleaned(tmp_path, cleanup_policy="compact,delete")
    for key in range(20):
        log.put(key)
    log.log.roll()
    log.dirty_from(0)
    log.log.delete_records(10)
    done = log.log.compact()
    assert (done.first_dirty_offset, done.end_offset) == (10, 20)
    assert log.cleaned_to() == 20


def test_checkpoint_in_the_active_segment(log: Cleaned) -> None:
    for key in range(8):
        log.put(key)
    log.dirty_from(3)
    done = log.log.compact()
    assert done.segments == ()
    assert done.first_uncleanable_offset == bases(log.log)[-1]


def test_undecided_transactions_and_lag(tmp_path: Path) -> None:
    log = Cleaned(tmp_path, min_compaction_lag_ms=3_600_000)
    log.txn(1, 1, 2, 3)
    log.log.roll()
    log.put(4)
    log.log.roll()
    log.clock.sleep(3_600_001)
    log.log.roll()
    assert log.log.compact().first_uncleanable_offset == 0
    log.end(1, ABORT)
    log.log.roll()
    done = log.log.compact()
    assert done.first_uncleanable_offset == 4  # the marker is young
    log.clock.sleep(3_600_001)
    assert log.log.compact().first_uncleanable_offset == 5
