"""Where a time lies in a log: Kafka's answers (spec 7.4 to 7.6)."""

from __future__ import annotations

from kstore.engine.scan.batch_reader import change_of
from kstore.engine.segment.segment import OffsetAndTimestamp, floor_of
from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

    from kstore.engine.segment.segment import Segment
    from kstore.errors import CorruptFileError
    from kstore.log.read.max_timestamp_index import MaxTimestampIndex
    from kstore.log.recovery.loader import Loaded

EARLIEST = -2
LATEST = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
SPECIAL = range(EARLIEST_PENDING_UPLOAD, 0)
_NAMED = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max": MAX_TIMESTAMP,
    "max_timestamp": MAX_TIMESTAMP,
    "earliest_local": EARLIEST_LOCAL,
}


def time_called(name: str) -> int:
    """The value that Kafka has for a name. ValueError."""
    if name not in _NAMED:
        raise ValueError(
            f"timestamp must be milliseconds since 1970, a datetime, or one of {', '.join(_NAMED)}, not "
            f"{name!r}"
        )
    return _NAMED[name]


def find_special(now: Loaded, timestamp: int) -> OffsetAndTimestamp | None:
    """The answer to one of the negative values that stand for something, those in SPECIAL."""
    epochs = now.leader_epochs
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        known = epochs.entries[:1]
        epoch = known[0][0] if known and known[0][1] <= now.log_start_offset else None
        return OffsetAndTimestamp(now.log_start_offset, -1, epoch)
    if timestamp == LATEST:
        return OffsetAndTimestamp(now.log_end_offset, -1, epochs.latest)
    if timestamp == MAX_TIMESTAMP:
        if not now.segments:
            return None
        best = max(now.segments, key=lambda segment: segment.max_timestamp_so_far.timestamp)
        for segment in now.segments:
            if segment.damage is not None:
                raise segment.damage.with_traceback(None)
        check_complete(now)
        found = best.find_max_timestamp()
        if found is not None:
            check_inside(now, best, found.offset)
        return found
    return OffsetAndTimestamp(-1, -1, -1)  # there is no tier


def raise_told(segments: Sequence[Segment], error: CorruptFileError, offset: int = -1) -> NoReturn:
    """Raises an error that a lookup from an offset on met in one of these segments; LogChangedError if its
    file has changed since."""
    for segment in segments:
        if error.file.startswith(f"{segment.directory}/{segment.stem}."):
            change = change_of(segment, offset)
            if change is not None:
                raise change from error
    raise error


def check_inside(now: Loaded, segment: Segment, offset: int) -> None:
    """CorruptRecordError for an offset that was found behind the end of the segment, or of the log: its batch
    is damaged."""
    end = min(segment.end_offset, now.log_end_offset)
    if offset >= end:
        what = "the end of the log" if end == now.log_end_offset else "where the next segment begins"
        raise CorruptRecordError(
            "offset of a batch",
            file=segment.path,
            offset=offset,
            expected=f"below {end}, {what}",
            found=offset,
        )


def check_complete(now: Loaded) -> None:
    """CorruptRecordError where the last segment ends before the log does because of damage. For lookups that
    have found nothing."""
    if not now.segments:
        return
    last = now.segments[-1]
    end = last.read_end()
    if end.next_offset >= now.log_end_offset:
        return
    if end.tail_bytes:
        raise CorruptRecordError(
            "a batch that ends behind the log",
            file=last.path,
            position=end.position,
            offset=end.next_offset,
            expected=f"batches up to offset {now.log_end_offset}",
            found=f"{end.tail_bytes} bytes that are none",
        )
    last.check_end()  # the log may end behind its last batch; but is that one as it was written?


def find_time(now: Loaded, reached: MaxTimestampIndex, timestamp: int) -> OffsetAndTimestamp | None:
    """The first record with at least this timestamp in the segment that Kafka asks for it: the first whose
    largest timestamp reaches it; of one without records it is the time of its file. None if that has none.
    `reached` is of the log's segments.

    Kafka asks that segment even if all its records were deleted, and finds nothing then. Here segments below
    the log start do not count, and if the segment that holds it has no such record left, the next one is
    asked.
    """
    for segment, found in asked_for_time(now, reached, timestamp):
        if found is not None:
            check_inside(now, segment, found.offset)
            return found
    check_complete(now)
    return None


def asked_for_time(
    now: Loaded, reached: MaxTimestampIndex, timestamp: int
) -> Iterator[tuple[Segment, OffsetAndTimestamp | None]]:
    """The segments that a lookup of a time asks, in order, with the answer of each; the last one has the
    answer of the lookup."""
    segments = now.segments
    reaching = reached.first(timestamp)
    for at in range(max(reaching, floor_of(segments, now.log_start_offset, 0)), len(segments)):
        segment = segments[at]
        if at > reaching and segment.largest_timestamp < timestamp:
            continue
        found = segment.find_timestamp(timestamp, now.log_start_offset)
        yield segment, found
        # If the time index is lost, the file's time stood in for it: that would make a guess into an answer.
        is_guess = segment.base_offset in now.lost_time_indexes
        if found is not None or (segment.base_offset >= now.log_start_offset and not is_guess):
            return
