"""A segment whose offsets span more than an index can name, as Kafka before 2.0 could make it, in parts that
do not."""

from __future__ import annotations

from kstore.arguments import MAX32
from kstore.engine.io.directory import sync_directory
from kstore.engine.segment.index import TransactionIndex
from kstore.engine.segment.segment import Segment
from kstore.light_typing import TYPE_CHECKING
from kstore.log.segments.cleaned import complete, new_log

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.engine.segment.index import AbortedTxn
    from kstore.log.segments.cleaned import Cleaned

CHUNK = 1 << 20  # bytes that are copied at once


class OverflowedError(Exception):
    """Offsets of this segment lie too far from its base offset for it to be written anew as one."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.path)
        self.segment = segment


def parts_of(segment: Segment) -> list[Segment]:
    """Segments over parts of its file. The first has its base offset; that of another is that of its first
    batch.

    One part only: splitting does not help. CorruptRecordError, OSError."""
    headers = segment.read_headers()
    starts = [(segment.base_offset, 0)]
    for last, position in zip(headers["last_offset"].tolist(), headers["position"].tolist(), strict=True):
        if last - starts[-1][0] > MAX32:
            if position == 0:
                return [segment]
            starts.append((segment.batch_at(position).first_offset(), position))
    ends = [*starts[1:], (segment.end_offset, segment.size)]
    parts = []
    for (base, position), (end_offset, end) in zip(starts, ends, strict=True):
        part = Segment(
            segment.directory,
            segment.stem,
            base,
            end_offset,
            segment.suffixes,
            segment.origin + position,
            segment.index_interval_bytes,
            segment.max_decompressed_bytes,
        )
        part.limit_to(end - position)
        found = part.recovery_walk(verify=False)
        own = [txn for txn in segment.transaction_index if base <= txn.last_offset < end_offset]
        part.use_indexes(found.offset_index, found.time_index, _index_of(base, own))
        part.set_max_timestamp(found.max_timestamp)
        parts.append(part)
    return parts


def _index_of(base_offset: int, transactions: Sequence[AbortedTxn]) -> TransactionIndex:
    index = TransactionIndex(base_offset)
    for txn in transactions:
        index.append(txn)
    return index


def copied(parts: Sequence[Segment], mtime_ms: int) -> list[Cleaned]:
    """New segments with equal batches. OSError."""
    made = []
    for part in parts:
        log = new_log(part.directory, part.base_offset, part.path)
        file, at = part.file(), 0
        while at < part.size:
            chunk = file.read(part.origin + at, min(CHUNK, part.size - at))
            log.write(at, chunk)
            at += len(chunk)
        indexes = part.offset_index, part.time_index, part.transaction_index
        made.append(
            complete(part.directory, part.base_offset, log, mtime_ms, indexes, part.max_timestamp_so_far)
        )
    sync_directory(parts[0].directory)
    return made
