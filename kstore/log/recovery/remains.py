"""What can still be read of bytes that recovery cuts off."""

import errno
import os
from typing import NamedTuple

from kstore.config import MAX64
from kstore.engine.io.file import File
from kstore.engine.record.batch import RecordBatch
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptRecordError, RecordTooLargeError

_LEAST_PIECE, _PIECE = 4 << 10, 1 << 20  # bytes that are read at a time: what is no spare room soon shows it


class Remains(NamedTuple):
    """Sound batches behind damage: how many, the offsets of the first and the last, and the byte behind the
    last."""

    batch_count: int
    first_offset: int
    last_offset: int
    end: int

    def __str__(self) -> str:
        batches = "1 sound batch" if self.batch_count == 1 else f"{self.batch_count} sound batches"
        return f"{batches}, offsets {self.first_offset} to {self.last_offset}"


def _first_offset(batch: RecordBatch) -> int:
    """Its base offset, or, of a compressed message that cannot be unpacked, what is known: its last one."""
    try:
        return batch.base_offset
    except (CorruptRecordError, RecordTooLargeError):
        return batch.last_offset


def remains_of(segment: Segment, position: int) -> Remains | None:
    """The sound batches in a segment's file from a byte on, whatever lies between them, and whatever offsets
    they have: the file may be misnamed. None if there are none. OSError."""
    count, first, last, end = 0, -1, -1, 0
    for batch in _batches(segment, position):
        first = _first_offset(batch) if count == 0 else first
        last, end = batch.last_offset, batch.position + batch.size
        count += 1
    return Remains(count, first, last, end) if count else None


def is_spare_room(segment: Segment, position: int) -> bool:
    """Whether a segment's file has zeros only from a byte on. Holes are not read: they may be larger than the
    disk. OSError."""
    if segment.size <= position:  # a link that leads nowhere is an error of the segment, which names it
        return True
    file, size = File(segment.path), _LEAST_PIECE
    try:
        while True:
            position = os.lseek(file.fd, position, os.SEEK_DATA)
            piece = file.read(position, size)
            if piece.count(0) < len(piece):
                return False
            position += len(piece)
            size = min(2 * size, _PIECE)
    except OSError as e:
        if e.errno == errno.ENXIO:  # nothing but a hole, or the end
            return True
        raise


def has_sound_batch(segment: Segment) -> bool:
    """Whether a segment has a sound batch, whatever lies before it. OSError."""
    return next(_batches(segment, 0), None) is not None


def _batches(segment: Segment, position: int) -> BatchReader:
    limits = segment.index_interval_bytes, segment.max_decompressed_bytes
    whole = Segment(segment.directory, segment.stem, 0, MAX64, segment.suffixes, segment.origin, *limits)
    whole.limit_to(segment.size)
    return BatchReader((whole,), 0, MAX64, first_position=position, on_error="skip")
