"""The header of a .snapshot file, and its checksum (spec 3.5)."""

from __future__ import annotations

import struct

from kstore.engine.record.batch import crc32c
from kstore.errors import CorruptSnapshotError

HEADER = struct.Struct(">hIi")  # version, CRC-32C of what follows, number of entries
ENTRY = struct.Struct(">qhiqiqiq")


def checked_count(data: bytes, file: str) -> int:
    """The number of producers in a snapshot whose checksum is right. CorruptSnapshotError."""

    def fail(reason: str, position: int, expected: object, found: object) -> CorruptSnapshotError:
        return CorruptSnapshotError(reason, file=file, position=position, expected=expected, found=found)

    if len(data) < HEADER.size:
        raise fail("size of a producer snapshot", 0, f"at least {HEADER.size}", len(data))
    version, crc, count = HEADER.unpack_from(data)
    if version != 1:
        raise fail("version of a producer snapshot", 0, 1, version)
    if count < 0 or HEADER.size + count * ENTRY.size > len(data):
        fits = (len(data) - HEADER.size) // ENTRY.size
        raise fail("number of producers in a snapshot", 6, f"0 to {fits}", count)
    computed = crc32c(memoryview(data)[6:])
    if computed != crc:
        raise fail("checksum of a producer snapshot", 2, crc, computed)
    return int(count)
