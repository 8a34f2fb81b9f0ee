"""A .log file that another log wrote, given the offsets and the leader epoch that it has in this one."""

import os
import struct

from kstore.engine.io.file import File
from kstore.engine.segment.recovery_walk import RecoveryWalk
from kstore.engine.segment.segment import Segment
from kstore.errors import InvalidRecordError
from kstore.libraries import library

_PLACE = struct.Struct(">qii")  # base offset, length, leader epoch: no checksum covers them


def renumber(path: str, base_offset: int, leader_epoch: int, index_interval_bytes: int) -> RecoveryWalk:
    """Changes the headers of the batches in place, durably, and returns what the file is then, as a segment.

    Done again, also after it was broken off, it gives the same. Only batches of format v2 without producers, which nobody
    has to account for. CorruptRecordError, InvalidRecordError, OSError.
    """
    numpy = library("numpy")  # only for those who ask for this
    directory, name = os.path.split(path)
    stem = name.removesuffix(".log")
    file = File(path, "r+")
    headers = Segment(directory, stem, 0).read_headers()
    if (headers["magic"] != 2).any() or (headers["producer_id"] >= 0).any():
        raise InvalidRecordError(f"{path} has batches of a producer, or of an old format")
    nexts = base_offset + numpy.cumsum(headers["last_offset_delta"] + numpy.int64(1))
    bases = nexts - headers["last_offset_delta"] - 1
    for position, size, base in zip(
        headers["position"].tolist(), headers["size"].tolist(), bases.tolist(), strict=True
    ):
        file.write(position, _PLACE.pack(base, size - 12, leader_epoch))
    file.sync()
    found = Segment(directory, stem, base_offset, index_interval_bytes=index_interval_bytes).recovery_walk()
    if found.error is not None:
        raise found.error
    return found
