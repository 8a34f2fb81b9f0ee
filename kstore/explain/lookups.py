"""Why a lookup of an offset or a time returns what it does."""

from __future__ import annotations

from kstore.arguments import any_integer, instance
from kstore.engine.segment.index import OffsetPosition, TimestampOffset
from kstore.engine.segment.segment import OffsetAndTimestamp, start_of
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.partition import PartitionLog
from kstore.log.read.max_timestamp_index import MaxTimestampIndex
from kstore.log.read.offset_lookup import asked_for_time

if TYPE_CHECKING:
    from kstore.engine.segment.segment import Segment


class BatchRead(NamedTuple):
    """A batch that a lookup reads: its offsets, its place in the .log file in bytes, the largest timestamp in
    its header."""

    base_offset: int
    last_offset: int
    position: int
    size: int
    max_timestamp: int


class SegmentLookup(NamedTuple):
    """What a lookup does in one segment. `reason`: why this segment.

    `time_index_entry` is the entry that a lookup of a time uses, `offset_index_entry` the one that gives the
    byte where reading begins; None if the index has no entry at or below what is looked up, so that the
    search begins at the first record. `batches` are read in order from there on. `notes`: why an index was
    rebuilt in memory.
    """

    base_offset: int
    path: str
    reason: str
    time_index_entry: TimestampOffset | None
    offset_index_entry: OffsetPosition | None
    batches: tuple[BatchRead, ...]
    notes: tuple[str, ...]


class Lookup(NamedTuple):
    """The way of a lookup: the segments in which it looks, in order, and what it `found`, None for nothing.

    `offset` or `timestamp` is what was looked up. `reason` is a sentence.
    """

    path: str
    offset: int | None
    timestamp: int | None
    log_start_offset: int
    log_end_offset: int
    found: OffsetAndTimestamp | None
    reason: str
    segments: tuple[SegmentLookup, ...]


def lookup(log: PartitionLog, *, offset: int | None = None, timestamp: int | None = None) -> Lookup:
    """Explain `log.find(offset=…)` or `log.find(timestamp=…)`: which segment, index entry and batches it
    reads.

    timestamp: milliseconds since 1970. An offset outside the log is explained, too. TypeError unless one of
    both is given. CorruptRecordError, OSError.
    """
    instance("log", log, PartitionLog)
    if (offset is None) == (timestamp is None):
        raise TypeError("lookup() needs one argument: offset=… or timestamp=…")
    if offset is not None:
        return _of_offset(log, any_integer("offset", offset))
    assert timestamp is not None
    timestamp = any_integer("timestamp", timestamp)
    if timestamp < 0:
        raise ValueError(f"timestamp must not be negative, not {timestamp}")
    return _of_time(log, timestamp)


def _of_offset(log: PartitionLog, offset: int) -> Lookup:
    now = log.for_reading()
    start, end = now.log_start_offset, now.log_end_offset
    found, steps = None, list[SegmentLookup]()
    if offset < start:
        text = (
            f"offset {offset} is below the log start offset {start}: its record is not here, or was deleted"
        )
    elif offset >= end:
        text = f"offset {offset} is not below the log end offset {end}: the record is not written yet"
    else:
        found = log.find(offset=offset)
        until = end if found is None else found.offset
        at = start_of(now.segments, offset)
        for segment in now.segments[at:]:
            if segment.base_offset > until:
                break
            why = (
                f"it has the largest base offset at or below {offset}"
                if not steps
                else f"the segment before has no record from offset {offset} on"
            )
            steps.append(_step(segment, why, offset, until, None))
        if found is None:
            text = f"no record has offset {offset} or a later one"
        elif found.offset == offset:
            text = f"the record at offset {offset} is there"
        else:
            text = (
                f"no record has offset {offset}: a compaction or a transaction left none, so the next one, "
                f"at offset {found.offset}, is returned"
            )
    return Lookup(log.path, offset, None, start, end, found, text, tuple(steps))


def _of_time(log: PartitionLog, timestamp: int) -> Lookup:
    now = log.for_reading()
    found = log.find(timestamp=timestamp)
    steps: list[SegmentLookup] = []
    for segment, answer in asked_for_time(now, MaxTimestampIndex(now.segments), timestamp):
        what = (
            "timestamp"
            if segment.max_timestamp_so_far.timestamp >= 0
            else "time of its file, as it has none,"
        )
        why = (
            f"it is the {'next' if steps else 'first'} segment whose largest {what} "
            f"{segment.largest_timestamp} reaches {timestamp}"
        )
        slot = segment.time_index.lookup(timestamp)
        entry = TimestampOffset(*slot) if slot[0] >= 0 else None
        first = max(slot[1], now.log_start_offset)
        steps.append(
            _step(segment, why, first, segment.end_offset if answer is None else answer.offset, entry)
        )
    if found is not None:
        text = (
            f"offset {found.offset} is the first record with timestamp {timestamp} or later in that segment"
        )
    elif steps:
        text = f"the segment has no record with timestamp {timestamp} or later that was not deleted"
    else:
        text = f"no segment has timestamp {timestamp} or a later one"
    return Lookup(
        log.path, None, timestamp, now.log_start_offset, now.log_end_offset, found, text, tuple(steps)
    )


def _step(segment: Segment, why: str, first: int, until: int, entry: TimestampOffset | None) -> SegmentLookup:
    """The way in a segment from the index entry of offset `first` to the batch that holds `until`."""
    offset, position = segment.offset_index.lookup(first)
    has_entry = (offset, position) != (segment.base_offset, 0) and offset <= first
    batches, at = [], position
    size = segment.size
    while at < size:
        batch = segment.batch_at(at)
        batches.append(BatchRead(batch.base_offset, batch.last_offset, at, batch.size, batch.max_timestamp))
        at += batch.size
        if batch.last_offset >= until:
            break
    return SegmentLookup(
        segment.base_offset,
        segment.path,
        why,
        entry,
        OffsetPosition(offset, position) if has_entry else None,
        tuple(batches),
        tuple(str(note) for note in segment.notes),
    )
