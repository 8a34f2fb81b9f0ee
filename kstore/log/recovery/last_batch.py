"""The header of the last batch of a segment."""

import contextlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError

_V2 = struct.Struct(">q4xiBI2xi34x")  # base offset, leader epoch, magic, checksum, last offset delta


class LastBatch(NamedTuple):
    """The last batch of a segment, of format 2. Older formats have no checksum of this kind and no epoch."""

    last_offset: int
    checksum: int
    leader_epoch: int


def last_batch_of(segment: Segment) -> LastBatch | None:
    """The last batch that `segment.read_next_offset()` found; None for an empty segment or an older
    format."""
    header = segment._last_header
    if header is None or len(header) < _V2.size:
        return None
    base_offset, leader_epoch, magic, checksum, delta = _V2.unpack(header)
    return LastBatch(base_offset + delta, checksum, leader_epoch) if magic == 2 else None


def last_epoch(segments: Sequence[Segment]) -> int:
    """The leader epoch of the last batch of these segments; -1 if there is none, or it has none."""
    for segment in reversed(segments):
        with contextlib.suppress(CorruptFileError, OSError):  # reading records raises it
            segment.read_next_offset()
        if segment._last_header is not None:
            last = last_batch_of(segment)
            return -1 if last is None else last.leader_epoch
    return -1
