"""When an append begins a new segment (spec 5.1). Pure: facts in, a reason out."""

from typing import Literal, NamedTuple

from kstore.config import MAX32, LogConfig


class ActiveFacts(NamedTuple):
    """The active segment before the append: offsets, bytes, milliseconds since 1970.

    `first_batch_timestamp` is the largest timestamp of the first batch in the file; negative or None where that batch
    has none, or the file is empty. `created_ms` is when the segment was made or opened, or last truncated to empty, by
    the wall clock. `roll_jitter_ms` was drawn for this segment, see `roll_jitter_ms`.
    """

    base_offset: int
    size: int
    first_batch_timestamp: int | None
    created_ms: int
    roll_jitter_ms: int = 0
    offset_index_is_full: bool = False
    time_index_is_full: bool = False


class AppendFacts(NamedTuple):
    """What is to be appended: its bytes in all, its last offset, its largest timestamp (-1: none)."""

    size: int
    last_offset: int
    largest_timestamp: int


def should_roll(
    active: ActiveFacts, append: AppendFacts, config: LogConfig, *, now_ms: int
) -> Literal["size", "time", "offset_index", "time_index", "offset_range"] | None:
    """Why a new segment must begin before the append, the first reason in Kafka's order; None if none need (spec 5.1).

    "size": together they would be larger than segment.bytes. "time": the segment is not empty, and segment.ms less
    its jitter has gone by, between timestamps where its first batch has one, by the wall clock where not.
    "offset_index", "time_index": that index is full. "offset_range": the last offset is 2^31 or more from the base.
    """
    if active.size + append.size > config.effective_segment_bytes:
        return "size"
    if active.size > 0 and waited_ms(active, append, now_ms) > max_segment_ms(config) - active.roll_jitter_ms:
        return "time"
    if active.offset_index_is_full:
        return "offset_index"
    if active.time_index_is_full:
        return "time_index"
    if not 0 <= append.last_offset - active.base_offset <= MAX32:
        return "offset_range"
    return None


def waited_ms(active: ActiveFacts, append: AppendFacts, now_ms: int) -> int:
    """How long the segment has lasted when the append comes; negative where the append is stamped earlier (spec 5.1)."""
    first = active.first_batch_timestamp
    if active.size == 0 or first is None or first < 0:
        return now_ms - active.created_ms
    return append.largest_timestamp - first


def max_segment_ms(config: LogConfig) -> int:
    """How long a segment may last: segment.ms, for a compacted log at most max.compaction.lag.ms (spec 5.1)."""
    if config.compacts:
        return min(config.max_compaction_lag_ms, config.segment_ms)
    return config.segment_ms


def roll_jitter_ms(config: LogConfig, random_int32: int) -> int:
    """How much earlier than that a segment may end: from 0 to below segment.jitter.ms and segment.ms (spec 5.1).

    `random_int32` is any signed 32-bit integer, drawn once for a segment.
    """
    if not -MAX32 - 1 <= random_int32 <= MAX32:
        raise ValueError(f"{random_int32} is no signed 32-bit integer")
    if config.segment_jitter_ms == 0:
        return 0
    magnitude = 0 if random_int32 == -MAX32 - 1 else abs(random_int32)  # as Kafka's own abs has it
    return magnitude % min(config.segment_jitter_ms, config.segment_ms)
