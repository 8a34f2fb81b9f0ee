"""UnifiedLogTest: what of it writes. kstore's high watermark is the log end offset.

The file is long because it has the tests of one class of Kafka in one place.
"""

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidRecordError,
    OffsetOutOfRangeError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    RecordTooLargeError,
    TransactionCoordinatorFencedError,
    UnexpectedAppendOffsetError,
)
from kstore.log.producers.states import read_snapshot
from tests.conformance import forge
from tests.conformance.forge import ABORT, COMMIT, MAX32, T0, Rec
from tests.conformance.writing import (
    DATA_AND_INDEXES,
    SIZE,
    Clock,
    Producer,
    bases,
    end,
    entries,
    epochs_on_disk,
    files,
    follow,
    idempotent,
    offsets,
    opened,
    put,
    rec,
    recs,
)

# ---- rolling ------------------------------------------------------------------------------------


def test_time_based_log_roll(tmp_path: Path, clock: Clock) -> None:
    """segment.ms 3600: by the wall clock without timestamps, by the data with them."""
    log = opened(tmp_path, clock, segment_ms=3600)
    clock.sleep(3601)
    put(log, rec())
    assert len(log.segments) == 1
    put(log, rec())
    assert len(log.segments) == 2
    for expected in (3, 4):
        clock.sleep(3601)
        put(log, rec())
        assert len(log.segments) == expected
    put(log, rec(timestamp=clock.now + 3601))  # the segment began without timestamps: the wall clock counts
    assert len(log.segments) == 4
    clock.sleep(3601)
    put(log, rec(timestamp=clock.now))
    assert len(log.segments) == 5
    clock.sleep(3601)
    put(log, rec(timestamp=clock.now - 3601))  # it began with a timestamp: that counts
    assert len(log.segments) == 5
    put(log, rec(timestamp=clock.now))
    assert len(log.segments) == 6
    clock.sleep(3601)
    log.append_batches(b"")
    assert len(log.segments) == 6


def test_time_based_log_roll_jitter(tmp_path: Path, clock: Clock) -> None:
    """segment.ms 3600, jitter 1200: never before 2400, always after 3600."""
    log = opened(tmp_path, clock, segment_ms=3600, segment_jitter_ms=1200)
    put(log, rec())
    clock.sleep(2400)
    put(log, rec())
    assert len(log.segments) == 1
    clock.sleep(1201)
    put(log, rec())
    assert len(log.segments) == 2


@pytest.mark.parametrize(
    ("limit", "count", "expected"),
    [(10 * (SIZE - 1), 11, [0, 9]), (10 * SIZE, 22, [0, 10, 20]), (10 * SIZE, 20, [0, 10])],
)
def test_size_based_log_roll(tmp_path: Path, limit: int, count: int, expected: list[int]) -> None:
    """A segment that is exactly full is allowed, not a byte more."""
    log = opened(tmp_path, segment_bytes=limit)
    put(log, *[rec()] * count)
    assert bases(log) == expected
    assert files(tmp_path, ".log") == expected


def test_max_compaction_lag_rolls(tmp_path: Path, clock: Clock) -> None:
    """Spec 5.1: max.compaction.lag.ms stands in for segment.ms where it is smaller, if the topic is compacted."""
    for policy, expected in (("compact", 2), ("delete", 1)):
        log = opened(tmp_path / policy, clock, cleanup_policy=policy, max_compaction_lag_ms=100)
        put(log, rec(key=b"k", timestamp=T0), rec(key=b"k", timestamp=T0 + 100))
        assert len(log.segments) == 1
        put(log, rec(key=b"k", timestamp=T0 + 101))
        assert len(log.segments) == expected


def test_roll_by_the_first_batch(tmp_path: Path) -> None:
    """Spec 5.1: segment.ms 5000, the first call ends at 9000, but its first batch at 1000: 6001 rolls, 6000 does not."""
    log = opened(tmp_path, segment_ms=5000)
    follow(log, rec(timestamp=1000), rec(timestamp=9000, base=1))
    put(log, rec(timestamp=6000))
    assert len(log.segments) == 1
    put(log, rec(timestamp=6001))
    assert len(log.segments) == 2


def test_roll_segment_that_already_exists(tmp_path: Path) -> None:
    """roll() of an empty log leaves one segment; after a record it begins another, once."""
    log = opened(tmp_path)
    assert log.roll() == 0
    assert bases(log) == [0]
    put(log, rec())
    assert (log.roll(), log.roll()) == (1, 1)
    assert bases(log) == [0, 1]
    put(log, rec())
    assert offsets(log) == [0, 1]


def test_roll_removes_what_lies_in_its_place(tmp_path: Path) -> None:
    """Spec 5.3: files of the new base that were left over are deleted."""
    log = opened(tmp_path)
    put(log, rec())
    for kind in (*DATA_AND_INDEXES, ".txnindex"):
        (tmp_path / "topic-0" / f"{forge.stem(1)}{kind}").write_bytes(b"garbage")
    log.roll()
    put(log, rec())
    assert offsets(log) == [0, 1]
    assert not (tmp_path / "topic-0" / f"{forge.stem(1)}.txnindex").exists()


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
@pytest.mark.parametrize("way", ["append", "extend", "append_batches", "follow"])
def test_indexes_without_room(tmp_path: Path, size: int, expected: list[int], way: str) -> None:
    """Spec 5.3: an index that has no room at all is always full: every append but the first rolls."""
    log = opened(tmp_path, segment_index_bytes=size, index_interval_bytes=0)
    if way == "append":
        for _ in range(3):
            log.append(b"test")
    elif way == "extend":
        log.extend([b"test"] * 3, batch_bytes=0)
    elif way == "append_batches":
        log.append_batches(b"".join(rec(timestamp=T0 + i) for i in range(3)))
    else:
        for i in range(3):
            follow(log, rec(base=i, timestamp=T0 + i))
    assert (bases(log), offsets(log)) == (expected, [0, 1, 2])
    log.close()
    log = opened(tmp_path, clean=False, recovery_point=0, segment_index_bytes=size)
    assert offsets(log) == [0, 1, 2]


@pytest.mark.parametrize(("last", "expected"), [(MAX32, [0]), (MAX32 + 1, [0, MAX32 + 1])])
def test_offsets_too_far_apart_roll(tmp_path: Path, last: int, expected: list[int]) -> None:
    """LogLoaderTest too: a follower's offsets 0, then above MAX32: a new segment, with its snapshot."""
    log = opened(tmp_path)
    follow(log, rec())
    follow(log, rec(base=last))
    assert bases(log) == expected
    assert files(tmp_path, ".snapshot") == expected[1:]
    assert offsets(log) == [0, last]


def test_over_compacted_log_recovery_multi_record_v1(tmp_path: Path) -> None:
    """LogLoaderTest: wrappers of magic 1 tell no first offset: bases 3 (last one less MAX32) and MAX32+4 (the end)."""
    log = opened(tmp_path)
    wanted = [[0], [MAX32 + 2, MAX32 + 3], [MAX32 + 20, MAX32 + 21, MAX32 + 22]]
    for some in wanted:
        inner = [forge.message(offset - some[0], b"v") for offset in some]
        follow(log, forge.wrapper(some[-1], inner))
    assert bases(log) == files(tmp_path, ".log") == [0, 3, MAX32 + 4]
    assert files(tmp_path, ".snapshot") == [3, MAX32 + 4]
    assert offsets(log) == [offset for some in wanted for offset in some]


# ---- sizes --------------------------------------------------------------------------------------


def test_message_set_size_check(tmp_path: Path) -> None:
    """A batch larger than segment.bytes: RecordBatchTooLarge."""
    log = opened(tmp_path, segment_bytes=SIZE - 1)
    for append in (put, follow):
        with pytest.raises(RecordTooLargeError):
            append(log, rec())
    assert log.log_end_offset == 0


def test_message_size_check(tmp_path: Path) -> None:
    """A batch larger than max.message.bytes: not from a producer, but as follower."""
    log = opened(tmp_path, max_message_bytes=SIZE - 1)
    with pytest.raises(RecordTooLargeError):
        put(log, rec())
    put(log, rec(b"tes"))
    follow(log, rec(base=1))
    assert log.log_end_offset == 2


def test_message_size_check_after_recompression(tmp_path: Path) -> None:
    """Spec 6.2: where sizes may have changed they are looked at again."""
    log = opened(tmp_path, max_message_bytes=500, compression_type="uncompressed")
    packed = recs(100, value=b"x" * 40, codec="gzip")
    assert len(packed) < 500
    with pytest.raises(RecordTooLargeError):
        put(log, packed)
    assert (log.log_end_offset, list(log)) == (0, [])


# ---- appending ----------------------------------------------------------------------------------


def test_append_and_read_with_sequential_offsets(tmp_path: Path) -> None:
    """100 values in 72-byte segments, read one by one."""
    log = opened(tmp_path, segment_bytes=SIZE)
    for i in range(0, 100, 2):
        put(log, rec(b"%4d" % i))
    assert len(log.segments) == 50
    assert [(r.offset, r.value) for r in log] == [(i, b"%4d" % (2 * i)) for i in range(50)]
    assert [log.get(i).value for i in range(50)] == [b"%4d" % (2 * i) for i in range(50)]


def test_append_with_non_sequential_offsets(tmp_path: Path) -> None:
    """As follower, offsets 0..49 then every seventh: reads give the next one."""
    wanted = [*range(50), *range(50, 200, 7)]
    log = opened(tmp_path, segment_bytes=SIZE)
    for offset in wanted:
        follow(log, rec(base=offset))
    assert offsets(log) == wanted
    assert [log.get(i).offset for i in range(194)] == [min(o for o in wanted if o >= i) for i in range(194)]


def test_append_message_with_null_payload(tmp_path: Path) -> None:
    """A record without key and value."""
    log = opened(tmp_path)
    log.append(None)
    assert [(r.offset, r.value) for r in log] == [(0, None)]


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


_FORMATS = [(m, c) for m in (0, 1, 2) for c in forge.CODECS if m == 2 or c != "zstd"]


@pytest.mark.parametrize(("magic", "codec"), _FORMATS)
def test_append_below_expected_offset(tmp_path: Path, magic: int, codec: str) -> None:
    """A follower's offsets below the log end: UnexpectedAppendOffset, for every magic and codec."""
    log = opened(tmp_path)
    follow(log, _three(magic, codec, 0))
    assert log.log_end_offset == 3
    for first in (0, 2) if magic == 2 or codec == "none" else (0,):
        with pytest.raises(UnexpectedAppendOffsetError):
            follow(log, _three(magic, codec, first))
    follow(log, _three(magic, codec, 3))
    assert offsets(log) == list(range(6))


@pytest.mark.parametrize(("magic", "codec"), _FORMATS)
def test_append_empty_log_below_log_start_offset(tmp_path: Path, magic: int, codec: str) -> None:
    """An empty log that starts at 7: offsets 4 to 6 do not fit, and the error tells them."""
    log = opened(tmp_path, log_start_offset=7)
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        follow(log, _three(magic, codec, 4))
    first = 4 if magic == 2 or codec == "none" else 6
    assert (caught.value.first_offset, caught.value.last_offset) == (first, 6)


def test_append_with_no_timestamp(tmp_path: Path) -> None:
    """A timestamp of -1 is taken."""
    log = opened(tmp_path)
    put(log, rec(timestamp=-1))
    log.append(b"v", timestamp=-1)
    assert [r.timestamp for r in log] == [-1, -1]


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
    put(log, forge.batch(with_key))
    put(log, forge.batch(with_key, with_key))
    assert log.log_end_offset == 3


def test_follower_keeps_batches_of_its_epoch(tmp_path: Path) -> None:
    """Two 10-record batches of epochs e and e+1 at leader epoch e: only the first is stored."""
    log = opened(tmp_path)
    done = follow(log, recs(10, epoch=3), recs(10, base=10, epoch=4), leader_epoch=3)
    assert (done, log.log_end_offset, log.leader_epochs) == ((0, 9, 1, False), 10, ((3, 0),))
    done = follow(
        log, recs(1, base=10, epoch=3), recs(1, base=11, epoch=5), recs(1, base=12, epoch=3), leader_epoch=4
    )
    assert (done.batch_count, log.log_end_offset) == (1, 11)


_NOT_BATCHES = [b"", bytes(11), bytes(16), recs(10)[:-13]]


@pytest.mark.parametrize("encoded", _NOT_BATCHES, ids=len)
def test_append_to_follower_of_cut_bytes(tmp_path: Path, encoded: bytes) -> None:
    """Bytes that end before the first batch does: no error, nothing appended."""
    log = opened(tmp_path)
    done = follow(log, encoded)
    assert (done.batch_count, log.log_end_offset, log.segments[0].size) == (0, 0, 0)


@pytest.mark.parametrize("fields", [{"length": 13}, {"magic": -1}, {"magic": 3}, {"crc": 1}])
@pytest.mark.parametrize("append", [put, follow])
def test_append_of_malformed_bytes(tmp_path: Path, fields: dict[str, int], append: Any) -> None:
    """Size field 13, magic -1, magic 3: CorruptRecord."""
    log = opened(tmp_path)
    with pytest.raises(CorruptRecordError):
        append(log, rec(**fields))
    assert (log.log_end_offset, log.segments[0].size) == (0, 0)


@pytest.mark.parametrize("size", range(1, 129, 3))
def test_append_to_follower_of_random_bytes(tmp_path: Path, size: int) -> None:
    """1 to 128 random bytes: CorruptRecord, or nothing is appended."""
    log = opened(tmp_path)
    for seed in range(10):
        try:
            done = follow(log, random.Random(1000 * size + seed).randbytes(size))
        except CorruptRecordError:
            continue
        assert done.batch_count == 0
    assert log.log_end_offset == 0


# ---- leader epochs ------------------------------------------------------------------------------


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


def _ten_six_four(log: kstore.LogWriter) -> None:
    for offset in range(20):
        follow(log, rec(base=offset, epoch=0 if offset < 10 else 1 if offset < 16 else 2))


def test_should_truncate_leader_epoch_file_when_truncating_log(tmp_path: Path) -> None:
    """Epochs 0@0, 1@10, 2@16: truncation to 20, 11, 10, 0 leaves 3, 2, 1, 0 of them."""
    log = opened(tmp_path, segment_bytes=10 * SIZE)
    _ten_six_four(log)
    wanted = [(0, 0), (1, 10), (2, 16)]
    for offset, count in ((20, 3), (11, 2), (10, 1), (0, 0)):
        log.truncate_to(offset)
        assert log.leader_epochs == tuple(wanted[:count])
        assert epochs_on_disk(tmp_path) == wanted[:count]


def test_truncation_at_the_end_drops_an_epoch_that_wrote_nothing(tmp_path: Path) -> None:
    """Leader of epoch 20 at the log end 29, then truncated there: the epoch is gone."""
    log = opened(tmp_path)
    follow(log, *[rec(base=i, epoch=19 if i >= 27 else 7) for i in range(29)])
    log.assign_leader_epoch(20)
    assert log.leader_epochs[-1] == (20, 29)
    assert log.truncate_to(29) is False
    assert log.leader_epochs[-1] == (19, 27)


def test_log_recovers_for_leader_epoch(tmp_path: Path) -> None:
    """LogLoaderTest: epochs (1,0), (2,1), (3,3) that the file has lost come back in recovery."""
    log = opened(tmp_path)
    follow(log, rec(epoch=1))
    follow(log, rec(base=1, epoch=2))
    follow(log, rec(base=3, epoch=3))
    assert log.leader_epochs == ((1, 0), (2, 1), (3, 3))
    log.abandon()
    (tmp_path / "topic-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    log = opened(tmp_path, clean=False)
    assert log.leader_epochs == ((1, 0), (2, 1), (3, 3))
    assert epochs_on_disk(tmp_path) == [(1, 0), (2, 1), (3, 3)]


# ---- truncating ---------------------------------------------------------------------------------


def test_truncate_to(tmp_path: Path) -> None:
    """10 records a segment: at and above the end nothing happens; 5; 0; from there on again."""
    log = opened(tmp_path, segment_bytes=10 * SIZE)
    put(log, *[rec()] * 10)
    size = sum(s.size for s in log.segments)
    for offset in (10, 11):
        assert log.truncate_to(offset) is False
        assert (log.log_end_offset, sum(s.size for s in log.segments)) == (10, size)
    assert log.truncate_to(5) is True
    assert (log.log_end_offset, sum(s.size for s in log.segments)) == (5, size // 2)
    assert log.truncate_to(0) is True
    assert (log.log_end_offset, log.segments[0].size) == (0, 0)
    put(log, *[rec()] * 10)
    assert (log.log_end_offset, sum(s.size for s in log.segments)) == (10, size)
    log.truncate_fully_and_start_at(1)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (1, 1, [1])
    put(log, *[rec()] * 10)
    log.truncate_to(0)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (0, 0, [0])
    put(log, *[rec()] * 10)
    assert offsets(log) == list(range(10))


def test_truncate_inside_a_batch(tmp_path: Path) -> None:
    """Spec 8.9: the batch goes as a whole, the next record gets the offset all the same."""
    log = opened(tmp_path)
    put(log, recs(3), recs(3))
    log.truncate_to(4)
    assert (log.log_end_offset, offsets(log)) == (4, [0, 1, 2])
    put(log, rec())
    assert offsets(log) == [0, 1, 2, 4]
    log.truncate_to(1)
    assert (log.log_end_offset, offsets(log)) == (1, [])


def test_index_resizing_at_truncation(tmp_path: Path) -> None:
    """Sealed indexes have 9 entries; after truncation the active one's are at their full size again."""
    log = opened(tmp_path, segment_bytes=10 * SIZE, index_interval_bytes=SIZE - 1, segment_index_bytes=1000)
    put(log, *[rec(timestamp=T0 + i) for i in range(20)])
    directory = tmp_path / "topic-0"

    def sizes() -> tuple[int, int]:
        return tuple(
            (directory / f"{forge.stem(0)}{kind}").stat().st_size for kind in (".index", ".timeindex")
        )

    assert bases(log) == [0, 10]
    assert sizes() == (9 * 8, 9 * 12)
    log.truncate_to(10)
    assert bases(log) == [0, 10]
    log.truncate_to(9)
    assert bases(log) == [0]
    assert sizes() == (1000 // 8 * 8, 1000 // 12 * 12)
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


# ---- deleting -----------------------------------------------------------------------------------


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
    log.retain()
    assert bases(log) == left
    assert (log.log_start_offset, offsets(log)) == (offset, list(range(offset, 15)))
    assert log.delete_records(0) == offset
    log.close()
    assert kstore.open(tmp_path / "topic-0").log_start_offset == offset


def test_records_below_the_log_start_are_still_in_the_file(tmp_path: Path, clock: Clock) -> None:
    """What DeleteRecords left behind in a segment that stays can be looked at, while it is written too."""
    log = _fifteen(tmp_path, clock)
    log.delete_records(3)
    assert offsets(log.from_file_start()) == list(range(15))
    assert log.from_file_start().last_stable_offset() == 15
    assert offsets(log) == list(range(3, 15))


@pytest.mark.parametrize("offset", [16, -2])
def test_delete_records_outside_the_log(tmp_path: Path, clock: Clock, offset: int) -> None:
    """Above the high watermark, or negative: OffsetOutOfRange."""
    log = _fifteen(tmp_path, clock)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(offset)
    assert log.delete_records(-1) == 15


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete", ""])
def test_delete_records_by_policy(tmp_path: Path, clock: Clock, policy: str) -> None:
    """Spec 9.4: only a topic that is compacted and nothing else refuses."""
    log = _fifteen(tmp_path, clock, cleanup_policy=policy)
    if policy == "compact":
        with pytest.raises(PolicyViolationError):
            log.delete_records(1)
    else:
        assert log.delete_records(1) == 1


def test_retention_idempotency(tmp_path: Path, clock: Clock) -> None:
    """retention 900 ms, segments stamped +100, 0, +100, then 901 ms: two go at once, then none."""
    log = opened(tmp_path, clock, segment_bytes=SIZE, retention_ms=900)
    put(log, *[rec(timestamp=T0 + ms) for ms in (100, 0, 100)])
    clock.sleep(901)
    assert log.delete_records(1) == 1
    assert sum(d.delete for d in log.retain()) == 2
    assert sum(d.delete for d in log.retain()) == 0
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
    log = opened(
        tmp_path,
        clock,
        segment_bytes=SIZE,
        index_interval_bytes=0,
        file_delete_delay_ms=1000,
        retention_ms=999,
    )
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


def test_open_deletes_obsolete_files(tmp_path: Path, clock: Clock) -> None:
    """LogLoaderTest: .deleted files that a crash left go at the next opening."""
    log = opened(tmp_path, clock, segment_bytes=SIZE, retention_ms=999)
    put(log, *[rec(timestamp=T0 - 1000)] * 3)
    log.retain()
    log.abandon()
    log = opened(tmp_path, clock)
    assert list((tmp_path / "topic-0").glob("*.deleted")) == []
    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_that_garbage_collecting_segments_doesnt_change_offset(tmp_path: Path, clock: Clock) -> None:
    """0, 1 or 25 records, all deleted: the log end stays, also after reopening, and the next record gets it."""
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


# ---- files --------------------------------------------------------------------------------------


def test_build_time_index_when_not_assigning_offsets(tmp_path: Path) -> None:
    """A follower's 100 records with interval 1: 99 entries, the last of the last record."""
    log = opened(tmp_path, index_interval_bytes=1)
    for i in range(100):
        follow(log, rec(timestamp=T0 + i, base=i))
    assert entries(log.segments[0])[1] == [(T0 + i, i) for i in range(1, 100)]
    assert log.segments[0].time_index.last_entry == (T0 + 99, 99)


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
        assert (tmp_path / "topic-0" / f"{forge.stem(1)}{kind}").stat().st_size == 0


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


def test_log_start_offset_of_an_empty_directory(tmp_path: Path) -> None:
    """Log start 500 on an empty directory: start and end are 500."""
    log = opened(tmp_path, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (500, 500, [500])
    assert put(log, rec()).first_offset == 500


def test_fetch_offset_by_timestamp_of_the_active_segment(tmp_path: Path) -> None:
    """Two records t, t+1 with epochs 0, 1; earliest, latest, largest."""
    log = opened(tmp_path)
    assert log.find(timestamp=0) is None
    put(log, rec(timestamp=T0), leader_epoch=0)
    put(log, rec(timestamp=T0 + 1), leader_epoch=1)
    assert log.find(timestamp=T0) == (0, T0, 0)
    assert log.find(timestamp=T0 + 1) == (1, T0 + 1, 1)
    assert log.find(timestamp="earliest") == (0, -1, 0)
    assert log.find(timestamp="latest") == (2, -1, 1)
    log.assign_leader_epoch(2)
    assert log.find(timestamp="latest") == (2, -1, 2)
    put(log, rec(timestamp=T0), leader_epoch=2)
    assert log.find(timestamp="max") == (1, T0 + 1, 1)


# ---- producers ----------------------------------------------------------------------------------


def test_duplicate_appends(tmp_path: Path) -> None:
    """Retries of the last five batches give the offsets of then; older ones, or other cuts, are out of order."""
    log = opened(tmp_path)
    put(log, *[idempotent(1, i) for i in range(6)])
    first = put(log, idempotent(1, 6, 3))
    again = put(log, idempotent(1, 6, 3))
    assert again == (first.first_offset, first.last_offset, 0, True)
    with pytest.raises(OutOfOrderSequenceError):
        put(log, idempotent(1, 7, 2))
    assert put(log, idempotent(1, 2))[:2] == (2, 2)
    with pytest.raises(OutOfOrderSequenceError):
        put(log, idempotent(1, 1))
    assert log.log_end_offset == 9


def test_duplicate_append_to_follower(tmp_path: Path) -> None:
    """A follower takes a sequence twice."""
    log = opened(tmp_path)
    follow(log, idempotent(1, 0))
    follow(log, idempotent(1, 0, base=1))
    assert log.log_end_offset == 2


def test_multiple_producers_with_duplicates_in_single_append(tmp_path: Path) -> None:
    """Several producers, with sequences twice, in one append of a follower."""
    log = opened(tmp_path)
    batches = [idempotent(1 + i % 2, i // 4, base=i) for i in range(8)]
    follow(log, *batches)
    assert offsets(log) == list(range(8))
    assert sorted(log.producers()) == [1, 2]


def test_old_producer_epoch(tmp_path: Path) -> None:
    """Epoch 2, then epoch 1: InvalidProducerEpoch."""
    log = opened(tmp_path)
    put(log, idempotent(1, 0, epoch=2))
    with pytest.raises(InvalidProducerEpochError):
        put(log, idempotent(1, 0, epoch=1))


def test_producer_id_map_truncate_to(tmp_path: Path) -> None:
    """Snapshots at the rolls; truncation takes those above, and the producers, back."""
    log = opened(tmp_path)
    for sequence in range(3):
        put(log, idempotent(1, sequence))
        log.roll()
    assert files(tmp_path, ".snapshot") == [1, 2, 3]
    for offset in (2, 1, 0):
        log.truncate_to(offset)
        assert files(tmp_path, ".snapshot") == list(range(1, offset + 1))
        assert {p: s.batches[-1].last_sequence for p, s in log.producers().items()} == (
            {1: offset - 1} if offset else {}
        )
    put(log, idempotent(1, 0))


def test_producer_id_map_truncate_to_with_no_snapshots(tmp_path: Path) -> None:
    """Snapshots lost: after truncation the log itself tells."""
    log = opened(tmp_path)
    put(log, idempotent(1, 0), idempotent(1, 1))
    for path in (tmp_path / "topic-0").glob("*.snapshot"):
        path.unlink()
    log.truncate_to(1)
    assert log.producers()[1].batches[-1].last_sequence == 0
    put(log, idempotent(1, 1))


def test_take_snapshot_on_roll(tmp_path: Path) -> None:
    """A snapshot for every roll, once."""
    log = opened(tmp_path)
    for wanted in ([1], [1, 2]):
        put(log, rec())
        for _ in range(2):
            log.roll()
            assert files(tmp_path, ".snapshot") == wanted


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
        (state,) = read_snapshot((tmp_path / "topic-0" / f"{forge.stem(offset)}.snapshot").read_bytes())
        assert state.batches[-1].last_sequence == offset - 1
    log.close()
    log = opened(tmp_path, segment_bytes=SIZE)
    put(log, idempotent(1, 3))


def test_duplicates_are_found_after_the_roll(tmp_path: Path) -> None:
    """Spec 6.2: a retry that finds the segment full leaves a new one, and its epoch, and nothing else."""
    log = opened(tmp_path, segment_bytes=SIZE)
    put(log, idempotent(1, 0))
    assert put(log, idempotent(1, 0)) == (0, 0, 0, True)
    assert (bases(log), log.log_end_offset, files(tmp_path, ".snapshot")) == ([0, 1], 1, [1])
    put(log, idempotent(1, 1))
    assert (bases(log), offsets(log)) == ([0, 1], [0, 1])


def test_multiple_producer_ids(tmp_path: Path) -> None:
    """Two producers in turn, each with its own sequence."""
    log = opened(tmp_path)
    put(log, *[idempotent(pid, sequence) for sequence in range(3) for pid in (1, 2)])
    assert {p: s.batches[-1].last_offset for p, s in log.producers().items()} == {1: 4, 2: 5}


def test_retention_deletes_producer_state_snapshots(tmp_path: Path, clock: Clock) -> None:
    """Snapshots go with their segments: renamed first, removed when the delay is over."""
    log = opened(
        tmp_path, clock, segment_bytes=SIZE, retention_bytes=0, retention_ms=-1, file_delete_delay_ms=0
    )
    for sequence in range(3):
        put(log, idempotent(1, sequence))
    assert files(tmp_path, ".snapshot") == [1, 2]
    log.delete_records(3)
    log.retain()
    assert bases(log) == [3]
    assert files(tmp_path, ".snapshot") == [3]


def test_log_start_offset_movement_deletes_snapshots(tmp_path: Path, clock: Clock) -> None:
    """DeleteRecords to 2 of 3 with retention: the snapshots below go."""
    log = opened(tmp_path, clock, segment_bytes=SIZE, file_delete_delay_ms=0)
    for sequence in range(3):
        put(log, idempotent(1, sequence))
    log.delete_records(2)
    log.retain()
    assert (bases(log), files(tmp_path, ".snapshot")) == ([2], [2])


def test_rebuild_producer_id_map_with_compacted_data(tmp_path: Path) -> None:
    """A batch of sequences 0..3 of which two records went: last sequence 3, after reloading and truncation too."""
    log = opened(tmp_path)
    kept = [Rec(delta=1, timestamp=T0), Rec(delta=3, timestamp=T0)]
    follow(log, forge.batch(*kept, base=23, pid=1, pid_epoch=0, sequence=0, last_delta=3))
    assert log.producers()[1].batches[-1].last_sequence == 3
    log.roll()
    follow(log, rec(base=27))
    log.truncate_to(27)
    assert log.producers()[1].batches[-1].last_sequence == 3
    log.abandon()
    log = opened(tmp_path, clean=False)
    assert log.producers()[1].batches[-1].last_sequence == 3


def test_rebuild_producer_state_with_empty_compacted_batch(tmp_path: Path) -> None:
    """A batch of two whose records both went: last sequence 1, after truncation too."""
    log = opened(tmp_path)
    follow(log, forge.batch(base=23, pid=1, pid_epoch=0, sequence=0, last_delta=1, count=0))
    follow(log, rec(base=25))
    assert log.producers()[1].batches[-1].last_sequence == 1
    log.truncate_to(25)
    assert log.producers()[1].batches[-1].last_sequence == 1
    assert log.log_end_offset == 25


@pytest.mark.parametrize(
    ("clean", "point", "expected"),
    [(True, 101, "last"), (False, 101, "last"), (False, 0, "all")],
)
def test_recover_after_upgrade_without_snapshots(
    tmp_path: Path, clean: bool, point: int, expected: str
) -> None:
    """LogLoaderTest: 101 records in 640-byte segments, all snapshots deleted."""
    log = opened(tmp_path, segment_bytes=640)
    put(log, *[rec()] * 101)
    known = bases(log)
    log.close()
    for path in (tmp_path / "topic-0").glob("*.snapshot"):
        path.unlink()
    log = opened(tmp_path, segment_bytes=640, clean=clean, recovery_point=point)
    assert files(tmp_path, ".snapshot") == [*(known[-2:] if expected == "last" else known[1:]), 101]


# ---- transactions -------------------------------------------------------------------------------


def test_fetch_up_to_last_stable_offset(tmp_path: Path) -> None:
    """Two open transactions between other data: the last stable offset follows their ends."""
    log = opened(tmp_path)
    one, two = Producer(1), Producer(2)
    put(log, one.data(5), recs(3), two.data(2), one.data(4), recs(2), one.data(10))
    assert log.last_stable_offset() == 0
    end(log, one.marker(COMMIT))
    assert log.last_stable_offset() == 8
    end(log, two.marker(ABORT))
    assert log.last_stable_offset() == log.log_end_offset == 28
    assert log.aborted_transactions(0, 28) == [(2, 8, 27, 28, 0)]


def _busy() -> list[bytes]:
    """Four producers, two of them aborting, and data of none, at their offsets."""
    one, two, three, four = (Producer(pid) for pid in (1, 2, 3, 4))
    batches: list[bytes] = []
    at = 0

    def add(make: Any, *args: Any) -> None:
        nonlocal at
        batches.append(make(*args, base=at))
        at += forge.last_offset(batches[-1]) - at + 1

    add(one.data, 5), add(recs, 3), add(two.data, 2), add(one.data, 4), add(three.data, 3), add(recs, 2)
    add(one.data, 10), add(one.marker, ABORT), add(two.data, 6), add(four.data, 3), add(recs, 10)
    add(three.data, 9), add(three.marker, COMMIT), add(four.data, 8), add(two.data, 7), add(two.marker, ABORT)
    add(recs, 10), add(four.data, 4), add(four.marker, COMMIT)
    return batches


@pytest.mark.parametrize("follower", [False, True])
@pytest.mark.parametrize("leave", ["close", "abandon"])
def test_transaction_index_updated(tmp_path: Path, follower: bool, leave: str) -> None:
    """As leader batch by batch, or through one append of a follower: the same index, also after reopening."""
    log = opened(tmp_path)
    batches = _busy()
    assert [forge.last_offset(b) for b in batches if b[22] & 32] == [29, 58, 74, 89]
    if follower:
        follow(log, *batches)
    else:
        for batch in batches:
            if batch[22] & 32:
                end(log, bytes(8) + batch[8:])
            else:
                put(log, bytes(8) + batch[8:])
    wanted = [(1, 0, 29, 8, 0), (2, 8, 74, 36, 0)]
    assert log.aborted_transactions(0, 90) == wanted
    assert log.last_stable_offset() == log.log_end_offset == 90
    getattr(log, leave)()
    index = (tmp_path / "topic-0" / f"{forge.stem(0)}.txnindex").read_bytes()
    assert index == forge.txn_index([w[:4] for w in wanted])
    log = opened(tmp_path)
    assert log.aborted_transactions(0, 90) == wanted
    assert (tmp_path / "topic-0" / f"{forge.stem(0)}.txnindex").read_bytes() == index


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
    assert list(log.records(0, isolation="read_committed")) == []


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
    plain = idempotent(137, 0, 3)
    one = Producer(983)
    follow(log, plain, one.data(2, 3))
    assert log.last_stable_offset() == 3
    end(log, one.marker(ABORT))
    assert log.last_stable_offset() == 6


def test_append_to_transaction_index_failure(tmp_path: Path) -> None:
    """The index cannot be written: Kafka has moved the end then, and the log is offline. Here the marker is not appended."""
    log = opened(tmp_path)
    producer = Producer(1)
    put(log, producer.data(10))
    index = tmp_path / "topic-0" / f"{forge.stem(0)}.txnindex"
    index.mkdir()
    with pytest.raises(OSError, match="txnindex"):
        end(log, producer.marker(ABORT))
    assert log.log_end_offset == 10
    assert log.last_stable_offset() == 0
    index.rmdir()
    end(log, producer.marker(ABORT))
    log.close()
    log = opened(tmp_path)
    assert log.recovery.clean
    assert log.aborted_transactions(0, 11) == [(1, 0, 10, 11, 0)]
    assert log.last_stable_offset() == 11


def test_marker_with_unknown_transaction_version(tmp_path: Path) -> None:
    """As leader refused; as follower taken, and its epoch with it."""
    log = opened(tmp_path)
    put(log, Producer(1, 5).data(1))
    with pytest.raises(ValueError, match="transaction_version"):
        log.append_batches(Producer(1, 6).marker(COMMIT), origin="coordinator")
    follow(log, Producer(1, 6).marker(COMMIT, 1, 1))
    state = log.producers()[1]
    assert (state.producer_epoch, state.coordinator_epoch, log.log_end_offset) == (6, 1, 2)


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


def test_periodic_producer_id_expiration(tmp_path: Path, clock: Clock) -> None:
    """Expiration after 200 ms: there after 100, gone after 200. Ours is asked by retain() and by later producers."""
    log = opened(tmp_path, clock, producer_id_expiration_ms=200)
    put(log, idempotent(23, 0))
    clock.sleep(100)
    log.retain()
    assert list(log.producers()) == [23]
    clock.sleep(100)
    log.retain()
    assert not log.producers()
    assert put(log, idempotent(23, 2))[:2] == (1, 1)


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
    log = opened(tmp_path, clock, producer_id_expiration_ms=200)
    assert list(log.producers()) == [1]


def test_expiration_is_positive(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="producer_id_expiration_ms"):
        opened(tmp_path, producer_id_expiration_ms=0)


def test_get_at_a_marker_that_ends_the_log(tmp_path: Path) -> None:
    """It is passed over, though find() gives it, as a broker does."""
    log = opened(tmp_path)
    one = Producer(1)
    put(log, one.data(2))
    end(log, one.marker(COMMIT))
    assert log.log_end_offset == 3
    found = log.find(offset=2)
    assert found is not None
    assert found.offset == 2
    with pytest.raises(kstore.OffsetOutOfRangeError, match="no record has offset 2 or a later one"):
        log.get(2)
    log.append(b"v")
    assert log.get(2).offset == 3
    with pytest.raises(kstore.OffsetOutOfRangeError, match=r"outside the log, which holds 0 to 4"):
        log.get(4)
