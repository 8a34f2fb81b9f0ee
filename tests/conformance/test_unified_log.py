"""UnifiedLogTest: rolls, sizes, appends, leader epochs, truncation, deletion and files."""

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import (
    CorruptRecordError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    OffsetsOutOfOrderError,
    PolicyViolationError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
)
from tests.conformance.writing import (
    DATA_AND_INDEXES,
    SIZE,
    Clock,
    bases,
    epochs_on_disk,
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
from tests.helpers.effort import SEED, times
from tests.helpers.forge import T0, Rec

# ---- rolling -------------------------------------------------------------------------------------


def test_time_based_log_roll(tmp_path: Path, clock: Clock) -> None:
    """segment.ms 3600: by the wall clock without timestamps, by the data with them."""
    log = opened(tmp_path, clock, segment_ms=3600)
    steps: list[tuple[int, int | None, int]] = [  # time passes, the record's timestamp after now, segments
        (3601, None, 1),
        (0, None, 2),
        (3601, None, 3),
        (3601, None, 4),
        (0, 3601, 4),  # the segment began without timestamps: the wall clock counts
        (3601, 0, 5),
        (3601, -3601, 5),  # it began with a timestamp: that counts
        (0, 0, 6),
    ]
    for ms, stamp, segments in steps:
        clock.sleep(ms)
        put(log, rec(timestamp=-1 if stamp is None else clock.now + stamp))
        assert len(log.segments) == segments
    clock.sleep(3601)
    log.append_batches(b"")
    assert len(log.segments) == 6


def test_time_based_log_roll_jitter(tmp_path: Path, clock: Clock) -> None:
    """segment.ms 3600, jitter 1200: never before 2400, always after 3600."""
    log = opened(tmp_path, clock, segment_ms=3600, segment_jitter_ms=1200)
    put(log, rec())
    for ms, expected in ((2400, 1), (1201, 2)):
        clock.sleep(ms)
        put(log, rec())
        assert len(log.segments) == expected


def test_size_based_log_roll(tmp_path: Path) -> None:
    """A segment that is exactly full is allowed, not a byte more."""
    for limit, count, expected in (
        (10 * (SIZE - 1), 11, [0, 9]),
        (10 * SIZE, 22, [0, 10, 20]),
        (10 * SIZE, 20, [0, 10]),
    ):
        log = opened(tmp_path / str(count), segment_bytes=limit)
        put(log, *[rec()] * count)
        assert bases(log) == files(tmp_path / str(count), ".log") == expected


def test_max_compaction_lag_rolls(tmp_path: Path, clock: Clock) -> None:
    """Spec 5.1: a smaller max.compaction.lag.ms replaces segment.ms, if the topic is compacted."""
    for policy, expected in (("compact", 2), ("delete", 1)):
        log = opened(tmp_path / policy, clock, cleanup_policy=policy, max_compaction_lag_ms=100)
        put(log, rec(key=b"k", timestamp=T0), rec(key=b"k", timestamp=T0 + 100))
        assert len(log.segments) == 1
        put(log, rec(key=b"k", timestamp=T0 + 101))
        assert len(log.segments) == expected


def test_roll_by_the_first_batch(tmp_path: Path) -> None:
    """Spec 5.1: segment.ms 5000; the first call ends at 9000, its first batch at 1000: 6001 rolls."""
    log = opened(tmp_path, segment_ms=5000)
    follow(log, rec(timestamp=1000), rec(timestamp=9000, base=1))
    put(log, rec(timestamp=6000))
    assert len(log.segments) == 1
    put(log, rec(timestamp=6001))
    assert len(log.segments) == 2


def test_roll_segment_that_already_exists(tmp_path: Path) -> None:
    """roll() of an empty log leaves one segment, with nothing set aside; after a record it begins one, once.
    Spec 5.3: files of the new base that were left over are deleted."""
    log = opened(tmp_path)
    assert (log.roll(), bases(log)) == (0, [0])
    assert files(tmp_path, ".log.deleted") == []
    put(log, rec())
    for kind in (*DATA_AND_INDEXES, ".txnindex"):
        file(tmp_path, kind, 1).write_bytes(b"garbage")
    assert (log.roll(), log.roll(), bases(log)) == (1, 1, [0, 1])
    put(log, rec())
    assert offsets(log) == [0, 1]
    assert files(tmp_path, ".txnindex") == []


def test_full_index_rolls(tmp_path: Path) -> None:
    """Spec 5.1: a full offset or time index; of 12 * 3 bytes the time index takes 2 entries before."""
    log = opened(tmp_path, segment_index_bytes=36, index_interval_bytes=0)
    put(log, *[rec(timestamp=T0 + i) for i in range(8)])
    assert bases(log) == [0, 3, 6]
    assert [len(s.offset_index) for s in log.segments] == [2, 2, 1]
    log.close()
    log = kstore.open(tmp_path / "topic-0")
    assert [len(s.time_index) for s in log.segments] == [2, 2, 1]
    assert offsets(log) == list(range(8))


@pytest.mark.parametrize(
    ("size", "expected"), [(4, [0, 1, 2]), (12, [0, 1, 2]), (23, [0, 1, 2]), (24, [0, 2])]
)
def test_indexes_without_room(tmp_path: Path, size: int, expected: list[int]) -> None:
    """Spec 5.3: an index that has no room at all is always full: every append but the first rolls."""
    ways: dict[str, Any] = {
        "append": lambda log: [log.append(b"test") for _ in range(3)],
        "extend": lambda log: log.extend([b"test"] * 3, batch_bytes=0),
        "batches": lambda log: log.append_batches(b"".join(rec(timestamp=T0 + i) for i in range(3))),
        "follow": lambda log: [follow(log, rec(base=i, timestamp=T0 + i)) for i in range(3)],
    }
    for name, way in ways.items():
        log = opened(tmp_path / name, segment_index_bytes=size, index_interval_bytes=0)
        way(log)
        assert (bases(log), offsets(log)) == (expected, [0, 1, 2])
        log.close()
        log = opened(tmp_path / name, clean=False, recovery_point=0, segment_index_bytes=size)
        assert offsets(log) == [0, 1, 2]


# ---- sizes ---------------------------------------------------------------------------------------


def test_message_set_size_check(tmp_path: Path) -> None:
    """A batch larger than segment.bytes: RecordBatchTooLarge."""
    log = opened(tmp_path, segment_bytes=SIZE - 1)
    for append in (put, follow):
        with pytest.raises(RecordTooLargeError):
            append(log, rec())
    assert log.log_end_offset == 0


def test_message_size_check(tmp_path: Path) -> None:
    """A batch larger than max.message.bytes: refused from a producer, not as follower. Spec 6.2: sizes are
    checked again after recompression."""
    log = opened(tmp_path, max_message_bytes=SIZE - 1)
    with pytest.raises(RecordTooLargeError):
        put(log, rec())
    put(log, rec(b"tes"))
    follow(log, rec(base=1))
    assert log.log_end_offset == 2
    log = opened(tmp_path / "recompressed", max_message_bytes=500, compression_type="uncompressed")
    packed = recs(100, value=b"x" * 40, codec="gzip")
    assert len(packed) < 500
    with pytest.raises(RecordTooLargeError):
        put(log, packed)
    assert (log.log_end_offset, list(log)) == (0, [])


# ---- appending -----------------------------------------------------------------------------------


def test_append_message_with_null_payload(tmp_path: Path) -> None:
    """A record without key and value; test_append_with_no_timestamp: a timestamp of -1 is taken."""
    log = opened(tmp_path)
    log.append(None, timestamp=-1)
    put(log, rec(timestamp=-1))
    assert [(r.key, r.value, r.timestamp) for r in log] == [(None, None, -1), (None, b"test", -1)]


@pytest.mark.parametrize("order", [(0, 1, 3, 2, 4), (0, 1, 2, 2), (5, 4)])
def test_append_with_out_of_order_offsets(tmp_path: Path, order: tuple[int, ...]) -> None:
    """A follower's offsets 0,1,3,2,4: OffsetsOutOfOrder, and nothing is appended."""
    log = opened(tmp_path)
    with pytest.raises(OffsetsOutOfOrderError):
        follow(log, *[rec(base=offset) for offset in order])
    assert log.log_end_offset == 0


def _three(magic: int, codec: str, first: int) -> bytes:
    if magic == 2:
        return recs(3, base=first, codec=codec)
    inner = [
        forge.message(i if magic == 0 or codec == "none" else i - first, b"v", magic=magic)
        for i in range(first, first + 3)
    ]
    return b"".join(inner) if codec == "none" else forge.wrapper(first + 2, inner, magic=magic, codec=codec)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_append_below_expected_offset(tmp_path: Path, magic: int) -> None:
    """A follower's offsets below the log end, for every magic and codec, are refused; so are 4 to 6 of an
    empty log that starts at 7. The error has them."""
    for codec in forge.CODECS if magic == 2 else forge.CODECS[:-1]:
        log = opened(tmp_path / codec)
        exact = magic == 2 or codec == "none"  # the first offset is told
        follow(log, _three(magic, codec, 0))
        for first in (0, 2) if exact else (0,):
            with pytest.raises(UnexpectedAppendOffsetError):
                follow(log, _three(magic, codec, first))
        follow(log, _three(magic, codec, 3))
        assert offsets(log) == list(range(6))
        log = opened(tmp_path / f"empty {codec}", log_start_offset=7)
        with pytest.raises(UnexpectedAppendOffsetError) as caught:
            follow(log, _three(magic, codec, 4))
        assert (caught.value.first_offset, caught.value.last_offset) == (4 if exact else 6, 6)


def test_compacted_topic_constraints(tmp_path: Path) -> None:
    """Records without a key: one in a batch is enough to refuse it, and the log stays as it was."""
    log = opened(tmp_path, cleanup_policy="compact")
    with_key, without = Rec(key=b"k"), Rec()
    for batch in ([without], [without, with_key], [with_key, without]):
        with pytest.raises(InvalidRecordError) as caught:
            put(log, forge.batch(*batch))
        assert [slot for slot, _ in caught.value.errors] == [i for i, r in enumerate(batch) if r is without]
    with pytest.raises(InvalidRecordError):
        log.append(b"v")
    with pytest.raises(InvalidRecordError):
        log.extend([b"v", b"w"], keys=[b"k", None])
    assert log.log_end_offset == 0
    put(log, forge.batch(with_key), forge.batch(with_key, with_key))
    assert log.log_end_offset == 3


def test_follower_keeps_batches_of_its_epoch(tmp_path: Path) -> None:
    """Two 10-record batches of epochs e and e+1 at leader epoch e: only the first is stored."""
    log = opened(tmp_path)
    done = follow(log, recs(10, epoch=3), recs(10, base=10, epoch=4), leader_epoch=3)
    assert (done, log.log_end_offset, log.leader_epochs) == ((0, 9, 1, False), 10, ((3, 0),))
    later = [rec(base=base, epoch=epoch) for base, epoch in ((10, 3), (11, 5), (12, 3))]
    done = follow(log, *later, leader_epoch=4)
    assert (done.batch_count, log.log_end_offset) == (1, 11)


def test_append_to_follower_of_cut_bytes(tmp_path: Path) -> None:
    """Bytes that end before the first batch does: no error, nothing appended."""
    log = opened(tmp_path)
    for encoded in (b"", bytes(11), bytes(16), recs(10)[:-13]):
        done = follow(log, encoded)
        assert (done.batch_count, log.log_end_offset, log.segments[0].size) == (0, 0, 0)


@pytest.mark.parametrize("append", [put, follow])
def test_append_of_malformed_bytes(tmp_path: Path, append: Any) -> None:
    """Size field 13, magic -1, magic 3, a wrong checksum: CorruptRecord."""
    log = opened(tmp_path)
    wrong: list[dict[str, int]] = [{"length": 13}, {"magic": -1}, {"magic": 3}, {"crc": 1}]
    for fields in wrong:
        with pytest.raises(CorruptRecordError):
            append(log, rec(**fields))
        assert (log.log_end_offset, log.segments[0].size) == (0, 0)


def test_append_to_follower_of_random_bytes(tmp_path: Path) -> None:
    """1 to 128 random bytes: CorruptRecord, or nothing is appended."""
    log = opened(tmp_path)
    chance = random.Random(SEED)
    for _ in range(times(400)):
        try:
            done = follow(log, chance.randbytes(chance.randrange(1, 129)))
        except CorruptRecordError:
            continue
        assert done.batch_count == 0, SEED
    assert log.log_end_offset == 0


# ---- leader epochs -------------------------------------------------------------------------------


def test_should_apply_epoch_to_message_on_append_if_leader(tmp_path: Path) -> None:
    """Epoch 72 of the leader, whatever the producer wrote."""
    log = opened(tmp_path)
    for offset in range(5):
        put(log, rec(epoch=9), leader_epoch=72)
        assert next(log.batches(offset)).leader_epoch == 72
    assert log.leader_epochs == ((72, 0),)
    assert epochs_on_disk(tmp_path) == [(72, 0)]


def test_follower_should_save_epoch_information(tmp_path: Path) -> None:
    """Epochs in replicated batches go into the cache, and into its file."""
    log = opened(tmp_path)
    for offset in range(3):
        follow(log, rec(base=offset, epoch=42))
    follow(log, rec(base=3, epoch=43), rec(base=4, epoch=43), rec(base=5, epoch=44))
    assert log.leader_epochs == ((42, 0), (43, 3), (44, 5))
    assert epochs_on_disk(tmp_path) == [(42, 0), (43, 3), (44, 5)]


def test_leader_epoch_cache_cleared_after_downgrade(tmp_path: Path) -> None:
    """A message of magic 1 from the leader: what was known of epochs goes; a v2 batch begins anew."""
    log = opened(tmp_path)
    follow(log, rec(epoch=5))
    assert log.leader_epochs == ((5, 0),)
    follow(log, forge.message(1, b"foo"))
    assert (log.leader_epochs, epochs_on_disk(tmp_path)) == ((), [])
    follow(log, rec(base=2, epoch=5))
    assert log.leader_epochs == ((5, 2),)


def test_should_truncate_leader_epoch_file_when_truncating_log(tmp_path: Path) -> None:
    """Epochs 0@0, 1@10, 2@16: truncation to 20, 11, 10, 0 leaves 3, 2, 1, 0 of them, and no empty one."""
    log = opened(tmp_path, segment_bytes=10 * SIZE)
    for offset in range(20):
        follow(log, rec(base=offset, epoch=(offset >= 10) + (offset >= 16)))
    wanted = [(0, 0), (1, 10), (2, 16)]
    log.assign_leader_epoch(20)
    assert log.leader_epochs == (*wanted, (20, 20))
    for offset, count in ((20, 3), (11, 2), (10, 1), (0, 0)):
        assert log.truncate_to(offset) is (offset < 20)
        assert log.leader_epochs == tuple(wanted[:count])
        assert epochs_on_disk(tmp_path) == wanted[:count]


# ---- truncating ----------------------------------------------------------------------------------


def test_truncate_to(tmp_path: Path) -> None:
    """10 records a segment: at and above the end nothing happens; 5; 0; from there on again."""
    log = opened(tmp_path, segment_bytes=10 * SIZE)

    def state() -> tuple[int, int, list[int], int]:
        return log.log_start_offset, log.log_end_offset, bases(log), sum(s.size for s in log.segments)

    put(log, *[rec()] * 10)
    for offset in (10, 11):
        assert log.truncate_to(offset) is False
        assert state() == (0, 10, [0], 10 * SIZE)
    assert log.truncate_to(5) is True
    assert state() == (0, 5, [0], 5 * SIZE)
    assert log.truncate_to(0) is True
    assert state() == (0, 0, [0], 0)
    put(log, *[rec()] * 10)
    assert state() == (0, 10, [0], 10 * SIZE)
    log.truncate_fully_and_start_at(1)
    assert state() == (1, 1, [1], 0)
    put(log, *[rec()] * 10)
    log.truncate_to(0)
    assert state() == (0, 0, [0], 0)
    put(log, *[rec()] * 10)
    assert offsets(log) == list(range(10))


def test_truncate_inside_a_batch(tmp_path: Path) -> None:
    """Beyond Kafka (spec 8.9): the records before the offset stay."""
    log = opened(tmp_path)
    put(log, recs(3), recs(3))
    log.truncate_to(4)
    assert (log.log_end_offset, offsets(log)) == (4, [0, 1, 2, 3])
    put(log, rec())
    assert offsets(log) == [0, 1, 2, 3, 4]
    log.truncate_to(1)
    assert (log.log_end_offset, offsets(log)) == (1, [0])


def test_index_resizing_at_truncation(tmp_path: Path) -> None:
    """Sealed indexes have 9 entries; after truncation the active one's are at their full size again."""
    log = opened(tmp_path, segment_bytes=10 * SIZE, index_interval_bytes=SIZE - 1, segment_index_bytes=1000)
    put(log, *[rec(timestamp=T0 + i) for i in range(20)])

    def sizes() -> list[int]:
        return [file(tmp_path, kind).stat().st_size for kind in (".index", ".timeindex")]

    assert (bases(log), sizes()) == ([0, 10], [9 * 8, 9 * 12])
    log.truncate_to(10)
    assert bases(log) == [0, 10]
    log.truncate_to(9)
    assert (bases(log), sizes()) == ([0], [1000 // 8 * 8, 1000 // 12 * 12])
    put(log, *[rec(timestamp=T0 + 20 + i) for i in range(2)])
    assert bases(log) == [0, 10]


def test_truncate_fully_and_start_at(tmp_path: Path) -> None:
    """Everything goes, epochs and snapshots too; the directory holds one segment."""
    log = opened(tmp_path, segment_bytes=SIZE)
    put(log, *[idempotent(1, i) for i in range(3)])
    assert files(tmp_path, ".snapshot") == [1, 2]
    log.truncate_fully_and_start_at(29)
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs) == (29, 29, ())
    assert (files(tmp_path, ".log"), files(tmp_path, ".snapshot"), log.producers()) == ([29], [], {})
    put(log, rec())
    assert offsets(log) == [29]


# ---- deleting ------------------------------------------------------------------------------------


def _fifteen(path: Path, clock: Clock, timestamp: int = -1, **config: Any) -> kstore.LogWriter:
    """15 records, 5 a segment."""
    size = SIZE + 2 if config.get("cleanup_policy", "delete") != "delete" else SIZE
    log = opened(path, clock, segment_bytes=5 * size, **config)
    put(log, *[rec(key=b"ke" if size > SIZE else None, timestamp=timestamp)] * 15)
    assert bases(log) == [0, 5, 10]
    return log


@pytest.mark.parametrize(
    ("config", "timestamp", "left"),
    [
        ({"retention_bytes": 10 * SIZE}, -1, [5, 10]),
        ({"retention_bytes": 15 * SIZE}, -1, [0, 5, 10]),
        ({"retention_ms": 10000}, 10, [15]),
        ({"retention_ms": 10000_000}, T0, [0, 5, 10]),
        ({"retention_ms": 10000, "cleanup_policy": "compact"}, 10, [0, 5, 10]),
        ({"retention_ms": 10000, "cleanup_policy": "compact,delete"}, 10, [15]),
        ({"retention_ms": 10000, "cleanup_policy": ""}, 10, [0, 5, 10]),
        ({"retention_bytes": 0, "cleanup_policy": "compact"}, 10, [0, 5, 10]),
    ],
)
def test_should_delete_segments(
    tmp_path: Path, clock: Clock, config: dict[str, Any], timestamp: int, left: list[int]
) -> None:
    """15 records, 5 a segment: what retention.bytes and retention.ms leave under which cleanup.policy."""
    log = _fifteen(tmp_path, clock, timestamp, **config)
    decisions = log.retain()
    assert bases(log) == left
    assert sum(d.delete for d in decisions) == (3 - len(left) if left != [15] else 3)
    assert (log.log_start_offset, log.log_end_offset) == (left[0], 15)
    assert sum(d.delete for d in log.retain()) == 0


def test_should_delete_start_offset_breached_segments_when_compacted(tmp_path: Path, clock: Clock) -> None:
    """compact only, log start 5: the first segment goes all the same."""
    _fifteen(tmp_path, clock, cleanup_policy="compact").close()
    log = opened(tmp_path, clock, cleanup_policy="compact", log_start_offset=5)
    log.retain()
    assert bases(log) == [5, 10]


@pytest.mark.parametrize(("offset", "left"), [(1, [0, 5, 10]), (6, [5, 10]), (15, [10])])
def test_log_deletion_after_delete_records(
    tmp_path: Path, clock: Clock, offset: int, left: list[int]
) -> None:
    """DeleteRecords to 1, 6, 15 of 15: 3, 2, 1 segments after the next run of retention."""
    log = _fifteen(tmp_path, clock, retention_ms=-1)
    assert log.delete_records(offset) == offset
    assert (log.log_start_offset, bases(log)) == (offset, [0, 5, 10])
    # what was left behind can be looked at, while it is written too
    assert offsets(log.from_file_start()) == list(range(15))
    assert log.from_file_start().last_stable_offset() == 15
    log.retain()
    assert bases(log) == left
    assert (log.log_start_offset, offsets(log)) == (offset, list(range(offset, 15)))
    assert log.delete_records(0) == offset
    log.close()
    assert kstore.open(tmp_path / "topic-0").log_start_offset == offset


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete", ""])
def test_delete_records_by_policy(tmp_path: Path, clock: Clock, policy: str) -> None:
    """Spec 9.4: only a compacted topic refuses. Above the log end, or negative: OffsetOutOfRange."""
    log = _fifteen(tmp_path, clock, cleanup_policy=policy)
    if policy == "compact":
        with pytest.raises(PolicyViolationError):
            log.delete_records(1)
        return
    for outside in (16, -2):
        with pytest.raises(OffsetOutOfRangeError):
            log.delete_records(outside)
    assert (log.delete_records(1), log.delete_records(-1)) == (1, 15)


def test_retention_idempotency(tmp_path: Path, clock: Clock) -> None:
    """retention 900 ms, segments stamped +100, 0, +100, then 901 ms: two go at once, then none."""
    log = opened(tmp_path, clock, segment_bytes=SIZE, retention_ms=900)
    put(log, *[rec(timestamp=T0 + ms) for ms in (100, 0, 100)])
    clock.sleep(901)
    assert log.delete_records(1) == 1
    assert [sum(d.delete for d in log.retain()) for _ in range(2)] == [2, 0]
    assert bases(log) == [2]


def test_delete_old_segments(tmp_path: Path, clock: Clock) -> None:
    """100 old records, epochs (0,40), (1,90): all go, one empty segment, and only the last epoch stays."""
    log = opened(tmp_path, clock, segment_bytes=5 * SIZE, index_interval_bytes=1, retention_ms=999)
    for i in range(100):
        put(log, rec(timestamp=T0 - 1000), leader_epoch=int(i >= 90))
    assert log.leader_epochs == ((0, 0), (1, 90))
    log.retain()
    assert (bases(log), log.segments[0].size) == ([100], 0)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert log.leader_epochs == ((1, 100),)
    assert epochs_on_disk(tmp_path) == [(1, 100)]
    put(log, rec(timestamp=clock.now))
    assert log.log_end_offset == 101


@pytest.mark.parametrize("starts", [(0, 5, 10), (0, 7, 10)])
def test_should_truncate_leader_epochs_when_deleting_segments(
    tmp_path: Path, clock: Clock, starts: tuple[int, ...]
) -> None:
    """5 of 15 go: (0,0),(1,5),(2,10) -> (1,5),(2,10); (0,0),(1,7),(2,10) -> (0,5),(1,7),(2,10)."""
    log = opened(tmp_path, clock, segment_bytes=5 * SIZE, retention_bytes=10 * SIZE)
    for i in range(15):
        put(log, rec(), leader_epoch=sum(i >= start for start in starts) - 1)
    assert log.leader_epochs == tuple(enumerate(starts))
    log.retain()
    expected = [(1, 5), (2, 10)] if starts[1] == 5 else [(0, 5), (1, 7), (2, 10)]
    assert log.leader_epochs == tuple(expected)
    assert epochs_on_disk(tmp_path) == expected


def test_async_delete(tmp_path: Path, clock: Clock) -> None:
    """Files are called .deleted until file.delete.delay.ms is over; readers go on reading."""
    config = {"index_interval_bytes": 0, "file_delete_delay_ms": 1000, "retention_ms": 999}
    log = opened(tmp_path, clock, segment_bytes=SIZE, **config)
    put(log, *[rec(timestamp=T0 - 1000)] * 3)
    reader = iter(log.segments[0].batch_at(0).records())
    log.retain()
    assert bases(log) == [3]
    for kind in DATA_AND_INDEXES:
        assert files(tmp_path, kind) == ([3] if kind == ".log" else [])
        assert files(tmp_path, f"{kind}.deleted") == [0, 1, 2]
    assert next(reader).value == b"test"
    clock.sleep(999)
    log.retain()
    assert files(tmp_path, ".log.deleted") == [0, 1, 2]
    clock.sleep(1)
    log.retain()
    assert [p.name for p in (tmp_path / "topic-0").glob("*.deleted")] == []


def test_that_garbage_collecting_segments_doesnt_change_offset(tmp_path: Path, clock: Clock) -> None:
    """0, 1 or 25 records, all deleted: the log end stays, also after reopening; the next record gets it."""
    for count in (0, 1, 25):
        path = tmp_path / str(count)
        log = opened(path, clock, segment_bytes=5 * SIZE, retention_bytes=0, retention_ms=-1)
        put(log, *[rec()] * count, b"")
        log.retain()
        assert (log.log_end_offset, list(log)) == (count, [])
        log.close()
        log = opened(path, clock, retention_bytes=0)
        assert (log.log_start_offset, log.log_end_offset) == (count, count)
        assert put(log, rec()).first_offset == count
        log.truncate_to(count)
        assert log.log_end_offset == count


def test_log_deletion_after_close(tmp_path: Path) -> None:
    """A closed log deletes nothing."""
    log = opened(tmp_path, retention_ms=999)
    put(log, rec(timestamp=T0 - 1000))
    log.close()
    for call in (log.retain, log.roll, lambda: log.truncate_to(0), lambda: log.append(b""), log.flush):
        with pytest.raises(kstore.LogClosedError):
            call()


# ---- files ---------------------------------------------------------------------------------------


def test_flushing_empty_active_segments(tmp_path: Path) -> None:
    """A segment begun by a roll has no index files; the flush of a shutdown makes them, empty."""
    log = opened(tmp_path)
    put(log, rec(timestamp=T0))
    log.roll()
    assert (files(tmp_path, ".log"), files(tmp_path, ".index")) == ([0, 1], [0])
    log.flush()
    assert files(tmp_path, ".index") == [0]
    log.close()
    for kind in (".index", ".timeindex"):
        assert files(tmp_path, kind) == [0, 1]
        assert file(tmp_path, kind, 1).stat().st_size == 0


def test_log_flushes_partition_metadata(tmp_path: Path) -> None:
    """The topic id is written once; another one is refused."""
    known = uuid.UUID(int=5)
    opened(tmp_path, topic_id=known).close()
    assert kstore.open(tmp_path / "topic-0").topic_id() == known
    opened(tmp_path, topic_id=known).close()
    opened(tmp_path).close()
    with pytest.raises(ValueError, match=r"does not match: .* has the topic id"):
        opened(tmp_path, topic_id=uuid.UUID(int=6))
    opened(tmp_path).close()
