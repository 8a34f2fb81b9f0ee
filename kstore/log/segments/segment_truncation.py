"""A segment that ends at an offset, made of one that goes on (spec 8.9)."""

from __future__ import annotations

import os

from kstore.engine.io.directory import new_draft, rename, sync_directory, write_whole
from kstore.engine.record.batch_builder import encode_batch
from kstore.engine.segment.index import TransactionIndex
from kstore.errors import CorruptFileError, RecordTooLargeError
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kstore.engine.record.batch import Record, RecordBatch
    from kstore.engine.segment.segment import Segment

_DRAFT = ".truncated.log.cleaned"  # behind the number: an opening, of Kafka too, deletes it


def truncate_segment(segment: Segment, offset: int, make: Callable[[str, int], Segment]) -> Segment:
    """Replaces the .log of a segment by one that ends at `offset`, durably, and returns the segment of that.

    The old file is not changed, so readers that have it open can read on. Records before `offset` stay, also
    those of a batch that holds it. If compaction has left none there, an empty batch fills the offsets up to
    `offset`. So the log tells by itself where it ends. The offset and time index are in memory only. OSError.
    """
    located = segment.translate(offset)
    position = located.position if located is not None else segment.size
    rest = _before(segment, position, offset, make)
    end = rest.read_next_offset()
    tail = b""
    if located is not None and located.base_offset < offset:
        tail = first_records(segment.batch_at(position), offset)
    if not tail and end < offset:
        tail = encode_batch((), base_offset=end, last_offset_delta=offset - 1 - end)
    segment.files.keep_open()
    path = segment.path_of(".log")
    draft = new_draft(f"{segment.directory}/{segment.stem}{_DRAFT}", path)
    draft.begin_as(segment.file(), position)
    draft.write(position, tail)
    draft.sync()
    rename(draft.path, path)
    _replace_transactions(rest)
    sync_directory(segment.directory)
    rest = _before(segment, position + len(tail), offset, make)
    rest.set_max_timestamp(rest.recovery_walk(verify=False).max_timestamp)
    return rest


def _before(segment: Segment, size: int, offset: int, make: Callable[[str, int], Segment]) -> Segment:
    """The first bytes of a segment, with the entries of its indexes below `offset`."""
    offsets, times = segment.offset_index.copy(), segment.time_index.copy()
    transactions = TransactionIndex(segment.base_offset, segment.transaction_index.to_bytes())
    offsets.truncate_to(offset)
    times.truncate_to(offset)
    transactions.truncate_to(offset)
    rest = make(segment.stem, segment.base_offset)
    rest.limit_to(size)
    rest.use_indexes(offsets, times, transactions)
    return rest


def first_records(batch: RecordBatch, offset: int) -> bytes:
    """The records of a batch below `offset`, as a batch that ends there; b"" if the batch is damaged."""
    try:
        kept = [record for record in batch.records() if record.offset < offset]
    except (CorruptFileError, RecordTooLargeError):
        return b""
    return encoded_again(batch, kept, offset - 1, batch.codec)


def encoded_again(batch: RecordBatch, records: Sequence[Record], last_offset: int, codec: str) -> bytes:
    """A batch with these records of another one and everything else that it has, up to a last offset."""
    base = batch.base_offset
    return encode_batch(
        [(record.timestamp, record.key, record.value, record.headers) for record in records],
        base_offset=base,
        codec=codec,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.is_transactional,
        control=batch.is_control,
        log_append_time=batch.max_timestamp if batch.timestamp_type == "LogAppendTime" else None,
        offset_deltas=[record.offset - base for record in records],
        last_offset_delta=last_offset - base,
        delete_horizon=batch.delete_horizon_ms,
    )


def _replace_transactions(rest: Segment) -> None:
    """Puts the entries of a segment in the place of its .txnindex: else records that are appended at these
    offsets would be called aborted. OSError."""
    path = rest.path_of(".txnindex")
    if os.path.exists(path):
        write_whole(path, rest.transaction_index.to_bytes())
