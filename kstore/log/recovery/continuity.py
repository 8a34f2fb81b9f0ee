"""Whether a log that was looked at anew goes on from what it was: somebody may have put an older copy in its place, which
has grown since."""

from bisect import bisect_right
from collections.abc import Sequence

from kstore.engine.record.batch import RecordBatch
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, RecordTooLargeError


def kept_until(before: Sequence[Segment], end: int, position: int, now: Sequence[Segment]) -> int:
    """Up to which offset, `position` or `end` at the most, the records that segments had up to `end` are those that the
    segments of now have; what is not known counts as kept. OSError.

    A compaction or an erasure leaves records out, or values, and is no other log."""
    position = min(position, end)
    for old in reversed(before):
        if old.base_offset < position:
            kept = _kept_in(old, end, position, now)
            if kept > old.base_offset:
                return kept
            position = old.base_offset
        end = old.base_offset
    return position


def _kept_in(old: Segment, end: int, position: int, now: Sequence[Segment]) -> int:
    at = bisect_right(now, position - 1, key=lambda segment: segment.base_offset) - 1
    if at < 0 or now[at] is old:  # it was deleted; nothing has changed
        return position
    try:
        if now[at].base_offset == old.base_offset and not old.is_replaced():
            if position < end or old.has_its_last_batch():
                return position
            return old.base_offset  # it was written over: nobody knows from where on
        if _is_same(_batch_before(old, position), _batch_before(now[at], position)):
            return position
        return _end_of_same(old, now[at], position)
    except (FileNotFoundError, CorruptFileError, RecordTooLargeError):  # who reads on is told
        return position


def _batch_before(segment: Segment, position: int) -> RecordBatch | None:
    """The batch that holds the record before a position, or would."""
    batch = next(BatchReader((segment,), position - 1, position), None)
    return batch if batch is not None and batch.base_offset < position else None


def _end_of_same(old: Segment, new: Segment, position: int) -> int:
    """Where the last batch ends that both have."""
    end = old.base_offset
    for batch in BatchReader((old,), old.base_offset, position):
        if not _is_same(batch, _batch_before(new, batch.next_offset)):
            break
        end = batch.next_offset
    return min(end, position)


def _is_same(old: RecordBatch | None, new: RecordBatch | None) -> bool:
    """Whether one may be what is left of the other."""
    if old is None or new is None or old.crc == new.crc:
        return True
    there = {record.offset: record for record in new.records(verify=False)}
    for record in old.records(verify=False):
        found = there.get(record.offset)
        if found is None:
            continue
        if (found.timestamp, found.key) != (record.timestamp, record.key) or (
            found.value not in (None, record.value)
        ):
            return False
    return True
