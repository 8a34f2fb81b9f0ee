"""Whether a log that was looked at anew goes on from what it was: somebody may have put an older copy in its
place, which has grown since."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from kstore.engine.record.batch import RecordBatch
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, RecordTooLargeError
from kstore.log.recovery.last_batch import last_batch_of

Mark = tuple[int, int]  # the last offset and the checksum of the batch before a position, as it was read
_FEW = 64  # offsets that are compared first, from the last one on


class _Trace(Enum):
    """What is known of the segments above one."""

    NONE = "nothing"
    EMPTY = "an empty one is gone: the log was cut before it, or a compaction made one of several"
    GONE = "nothing is left of them that tells"
    CUT = "they were cut off, or written over"


class Shown(Protocol):
    """What a view shows of a log."""

    @property
    def segments(self) -> Sequence[Segment]: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


def kept_until(
    before: Sequence[Segment], end: int, position: int, now: Sequence[Segment], mark: Mark | None = None
) -> int:
    """Up to which offset, `position` or `end` at the most, the records that segments had up to `end` are
    those that the segments of now have; what is not known counts as kept. OSError.

    mark: tells the batch that holds the record before the position, if it was read. A compaction or an
    erasure leaves records out, or values, and is no other log."""
    position = whole = min(position, end)
    if mark is not None and mark[0] < position - 1:
        mark = None
    trace, above = _Trace.NONE, None
    for old in reversed(before):
        if old.base_offset < position:
            if trace is _Trace.NONE and mark is None and position == end:
                mark = _last_mark(old, position)
            kept = _kept_in(old, position == end, position, now, mark, trace, above)
            if kept is None:  # nothing is left of it that tells
                trace = _Trace.GONE
            elif kept == position and trace is _Trace.GONE:
                return whole
            elif kept > old.base_offset or _is_here(
                old, now
            ):  # those before a file that was cut are as they were
                return kept
            else:
                trace = _Trace.CUT
            position, mark = old.base_offset, None
        elif all(segment.base_offset != old.base_offset for segment in now):
            trace = _Trace.EMPTY
        end, above = old.base_offset, old
    return whole if trace is _Trace.GONE else position


def kept_before(position: int, before: Sequence[Segment], end: int, now: Shown, mark: Mark | None) -> int:
    """Up to which offset a log is what segments had up to `end`, if it is not up to a position that was read
    up to; -1 if it is. OSError.

    mark: of the batch before the position, as it was read."""
    most = min(position, end)
    reached = min(most, now.log_end_offset)
    if reached < position:
        # if no file tells how far a log that was cut is the same, nothing of a segment counts as kept
        mark = (reached - 1, -1) if reached < most else None
    kept = kept_until(before, end, reached, now.segments, mark)
    return kept if kept < most else -1


def mark_before(segments: Sequence[Segment], position: int) -> Mark | None:
    """What tells the batch that holds the record before a position; None if there is none, or it cannot be
    read."""
    at = _holding(segments, position)
    return _mark_of(segments[at], position) if at >= 0 else None


def mark_as_compacted(mark: Mark, before: Sequence[Segment], now: Sequence[Segment], position: int) -> Mark:
    """The same of a log whose records up to the position are what they were, though a compaction may have put
    another file in the place of theirs."""
    at = _holding(now, position)
    if at < 0 or at == len(now) - 1 or any(segment is now[at] for segment in before):
        return mark
    return _mark_of(now[at], position) or mark


def _mark_of(segment: Segment, position: int) -> Mark | None:
    try:
        batch = _batch_before(segment, position)
    except (FileNotFoundError, CorruptFileError, RecordTooLargeError):  # who reads it is told
        return None
    return None if batch is None else (batch.last_offset, batch.crc)


def mark_sought(shown: Shown, position: int) -> Mark | None:
    """The same of a position that nobody has read up to."""
    is_within = shown.log_start_offset <= position <= shown.log_end_offset
    return mark_before(shown.segments, position) if is_within else None


def _last_mark(segment: Segment, position: int) -> Mark | None:
    """What the last batch of a segment is told by, if it ends at a position."""
    last = last_batch_of(segment)
    return (
        (last.last_offset, last.checksum) if last is not None and last.last_offset == position - 1 else None
    )


def _is_here(old: Segment, now: Sequence[Segment]) -> bool:
    """Whether a segment's file still has its name, and is part of the log."""
    at = bisect_left(now, old.base_offset, key=lambda segment: segment.base_offset)
    if at == len(now) or now[at].base_offset != old.base_offset:
        return False
    try:
        return now[at] is old or old.is_file_of_its_name()
    except FileNotFoundError:
        return False


def _kept_in(
    old: Segment,
    at_end: bool,
    position: int,
    now: Sequence[Segment],
    mark: Mark | None,
    trace: _Trace,
    above: Segment | None,
) -> int | None:
    """The same, of one segment; None if nothing is left of it that tells."""
    at = _holding(now, position)
    changed = trace is not _Trace.NONE
    if at < 0 or (now[at] is old and not changed):  # it was deleted; nothing has changed
        return position
    try:
        here = _is_here(old, now)
        if _was_cut(old, at_end, position):  # and perhaps written over: nobody knows from where on
            return old.base_offset
        if here and at_end and old._last_header is not None:
            return position
        found = _batch_before(now[at], position)
        if mark is not None and found is not None and (found.last_offset, found.crc) == mark:
            return position
        is_as_shown = _is_as_shown(old, above)
        if here and trace is _Trace.GONE and is_as_shown:
            return position
        if here and (changed or now[at].base_offset != old.base_offset):
            return old.base_offset  # it was cut: others begin where its batches were
        if here:
            return position if mark is None or is_as_shown else old.base_offset
        try:
            is_doubtful = trace is _Trace.GONE or (mark is not None and _mark_of(old, position) != mark)
            is_cut = trace is _Trace.CUT or (is_doubtful and is_as_shown is False)
            same = False if is_cut else _last_is_same(old, now, position)
            if same is not False:
                return position if same else None
            return _end_of_same(old, now, position) if is_as_shown else old.base_offset
        except FileNotFoundError:
            # of the last segment no compaction has made another batch
            is_kept = mark is None or found is None or at < len(now) - 1
            return position if is_kept and trace is not _Trace.CUT else old.base_offset
    except (FileNotFoundError, CorruptFileError, RecordTooLargeError):  # who reads on is told
        return old.base_offset if trace is _Trace.CUT else position


def _is_as_shown(old: Segment, above: Segment | None) -> bool | None:
    """Whether a file has what its segment showed: its last batch; or it was written last before the one of
    the segment above it was, which is not so of a file that was cut, and written over. None if nobody
    knows."""
    try:
        if old._last_header is not None:
            return old.has_its_last_batch()
        if above is None:
            return None
        own, later = old.mtime_ms(), above.mtime_ms()
    except FileNotFoundError:
        return None
    return None if own == later else own < later


def _was_cut(old: Segment, at_end: bool, position: int) -> bool:
    """Whether the file that a segment showed, be it still there under its name or not, has lost what it had
    up to a position. False also if nobody knows."""
    try:
        if at_end and old._last_header is not None:
            return not old.has_its_last_batch()
        is_shorter = old.file().size() < old.origin + old.size
    except FileNotFoundError:
        return False
    return is_shorter and _mark_of(old, position) is None


def _holding(segments: Sequence[Segment], position: int) -> int:
    """Which segment holds the record before a position, or would."""
    return bisect_right(segments, position - 1, key=lambda segment: segment.base_offset) - 1


def _batch_before(segment: Segment, position: int) -> RecordBatch | None:
    """The batch that holds the record before a position, or would."""
    batch = next(BatchReader((segment,), position - 1, position), None)
    return batch if batch is not None and batch.base_offset < position else None


def _last_is_same(old: Segment, now: Sequence[Segment], position: int) -> bool | None:
    """Whether the last of the records before a position that both have is the same; None if they have
    none."""
    start, step = position, _FEW
    while start > old.base_offset:
        stop, start = start, max(start - step, old.base_offset)
        step *= 4
        last = None
        for batch in BatchReader(tuple(now), start, stop):  # a compaction leaves few of many, and empty ones
            if batch.records_count:
                for own in BatchReader((old,), max(batch.base_offset, start), min(batch.next_offset, stop)):
                    same = _is_same(own, batch)
                    last = last if same is None else same
        if last is not None:
            return last
    return None


def _end_of_same(old: Segment, now: Sequence[Segment], position: int) -> int:
    """Where the last batch ends that both have."""
    end = old.base_offset
    for batch in BatchReader((old,), old.base_offset, position):
        same = _is_same(batch, _found_in(now, batch.next_offset))
        if same is False:
            break
        if same:
            end = batch.next_offset
    return min(end, position)


def _found_in(segments: Sequence[Segment], position: int) -> RecordBatch | None:
    at = _holding(segments, position)
    return _batch_before(segments[at], position) if at >= 0 else None


def _is_same(old: RecordBatch, new: RecordBatch | None) -> bool | None:
    """Whether one may be what is left of the other; None if no record tells."""
    if new is None:
        return None
    if old.crc == new.crc:
        return True
    there = {record.offset: record for record in new.records(verify=False)}
    same = None
    for record in old.records(verify=False):
        found = there.get(record.offset)
        if found is None:
            continue
        if (found.timestamp, found.key) != (record.timestamp, record.key) or (
            found.value not in (None, record.value)
        ):
            return False
        same = True
    return same
