"""Batches of kstore's own small files, which a crash may have torn: positions and states of groups.

The base sequence of such a batch, less one, is the number of bytes of its file that were synced before it.
Damage below that byte is not the work of a power cut.
"""

from __future__ import annotations

import struct

from kstore.engine.record.batch import RecordBatch
from kstore.errors import CorruptRecordError

OVERHEAD, LEAST, MAGIC = 12, 61, 16
SECTOR = 512  # bytes that a power cut keeps or loses together
MOST_SEQUENCE = 2**31 - 1
_MOST_CHECKED = 1 << 30
_INT32 = struct.Struct(">i")


def size_at(data: bytes, at: int) -> int:
    """The size of a batch, according to its header."""
    return _INT32.unpack_from(data, at + 8)[0] + OVERHEAD if len(data) - at >= OVERHEAD else 0


def with_size(batch: bytes) -> bytes:
    """These bytes with a header that says how many they are."""
    return batch[:8] + _INT32.pack(len(batch) - OVERHEAD) + batch[OVERHEAD:]


def is_sound(batch: RecordBatch) -> bool:
    """Whether a batch is of the current format, and its checksum is right."""
    try:
        batch.ensure_valid()
    except CorruptRecordError:
        return False
    return batch.magic == 2


def has_batch(data: bytes) -> bool:
    """Whether these bytes are a sound batch."""
    try:
        return is_sound(RecordBatch(data))
    except CorruptRecordError:
        return False


def synced_at(batch: RecordBatch) -> int:
    """The number of bytes of the file that were synced before a batch was written; -1 if unknown."""
    return int(batch.base_sequence) - 1


def sound_batches(data: bytes, at: int) -> list[tuple[int, RecordBatch]]:
    """All complete, sound batches from a byte on, with their positions. Other bytes are skipped. Bytes that
    an enemy has made to look like batches are checked up to a bound only."""
    found = []
    left = _MOST_CHECKED
    while left > 0 and (magic := data.find(b"\2", at + MAGIC)) >= 0 and magic - MAGIC <= len(data) - LEAST:
        at = magic - MAGIC
        size = size_at(data, at)
        is_whole = LEAST <= size <= len(data) - at
        left -= size if is_whole else 0
        if is_whole and has_batch(data[at : at + size]):
            found.append((at, RecordBatch(data[at : at + size])))
            at += size
        else:
            at += 1
    return found


def has_gap(data: bytes, at: int, until: int, start: int, least: int = MAGIC) -> bool:
    """Whether a sector of these bytes is zero, so that it never reached the disk. `start`: where in the file
    `data` is. `least`: the bytes of a sector that show it; fewer of a batch may be zero."""
    for sector in range((start + at) // SECTOR * SECTOR, start + until, SECTOR):
        piece = data[max(sector - start, at) : min(sector + SECTOR - start, until)]
        if len(piece) >= least and not any(piece):
            return True
    return False
