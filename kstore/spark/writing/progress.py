"""How far a transaction under way has come in one log, told from the log itself."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kstore.engine.record.batch import crc32c
from kstore.engine.segment.segment import Segment
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.position import diverged_at
from kstore.log.partition import PartitionLog
from kstore.spark.errors import SparkSourceError, failure
from kstore.spark.paths import mapped_root
from kstore.spark.writing.journal import Body, Pending
from kstore.spark.writing.staging import Staged, StagedFile


class Progress(NamedTuple):
    """What of a transaction is in a log: so many records as copied batches, and the moved files, by their
    paths."""

    copied: int
    moved: frozenset[str]
    record_count: int


NOTHING = Progress(0, frozenset(), 0)


def body_of(segment: Segment) -> Body:
    """What a .log file is known by, wherever it lies and whatever offsets it has. CorruptRecordError."""
    return _body(segment.read_headers()["crc"])


def progress(log: PartitionLog, tp: TopicPartition, pending: Pending, producer: int, epoch: int) -> Progress:
    """What of a transaction is in a log that was opened anew. KSTORE_LOG_CHANGED if that cannot be told.

    Copied batches have the transaction's producer and count their records from 0; a moved file is a segment
    that begins with its batches. Both lie behind the log's end of then, in their order; batches of others may
    lie between.
    """
    mark = pending.marks[str(tp)]
    start, end = log.log_start_offset, log.log_end_offset
    was = f"the log was truncated: it ended at offset {mark.offset} when the transaction began, and now"
    if end < mark.offset:
        raise _changed(tp, f"{was} ends at {end}")
    cut = diverged_at(log.snapshot, mark, "read_uncommitted")
    if cut >= 0:
        raise _changed(tp, f"{was} has other records from offset {cut} on")
    trimmed = start > mark.offset  # retention took the oldest of what lies behind the mark
    copied, seen = 0, False
    segments: list[Segment] = []
    for segment, headers in _behind(log, mark.offset):
        if segment.base_offset >= mark.offset:
            segments.append(segment)
        own = headers[(headers["producer_id"] == producer) & (headers["producer_epoch"] == epoch)]
        firsts, deltas = own["base_sequence"].tolist(), own["last_offset_delta"].tolist()
        for first, delta in zip(firsts, deltas, strict=True):
            if first != copied and (seen or not trimmed):
                raise _changed(tp, f"of its copied records, number {first} follows on number {copied - 1}")
            copied, seen = first + delta + 1, True
    staged = [one for one in pending.staged if one.tp == tp]
    wanted = sum(file.record_count for one, file, body in parts(staged, pending) if body is None)
    if copied > wanted:
        raise _changed(tp, f"{copied} records where {wanted} are copied")
    if trimmed and wanted and not seen:
        raise _changed(
            tp, f"offsets {mark.offset} to {start} (exclusive) were deleted, so what was there is unknown"
        )
    moved: set[str] = set()
    count = copied
    for one, file, body in parts(staged, pending):
        path = f"{one.path}/{file.name}"
        if body is None or Path(mapped_root(path)).exists():
            continue
        if not trimmed and not any(_begins_with(segment, body) for segment in segments):
            continue  # lost: cut off here, or removed there
        moved.add(path)
        count += file.record_count
    return Progress(copied, frozenset(moved), count)


def parts(staged: Sequence[Staged], pending: Pending) -> Iterator[tuple[Staged, StagedFile, Body | None]]:
    """The staged files in the order in which they are published; with what it is known by if it is moved,
    else None."""
    for one in staged:
        moved = pending.moved.get(one.path, {})
        for file in one.files:
            yield one, file, moved.get(file.name)


def _behind(log: PartitionLog, offset: int) -> Iterator[tuple[Segment, Any]]:
    """The segments with batches from an offset on, and the headers of these batches."""
    for segment in log.segments[max(log.floor_segment(offset), 0) :]:
        first = segment.translate(offset)
        if first is not None:
            yield segment, segment.read_headers(first.position)


def _begins_with(segment: Segment, body: Body) -> bool:
    crcs = segment.read_headers()["crc"]
    return len(crcs) >= body.batch_count and _body(crcs[: body.batch_count]) == body


def _body(crcs: Any) -> Body:
    return Body(len(crcs), crc32c(crcs.astype(">u4").tobytes()))


def _changed(tp: TopicPartition, why: str) -> SparkSourceError:
    return failure("KSTORE_LOG_CHANGED", why, tp)
