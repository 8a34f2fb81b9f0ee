from typing import NamedTuple

from kstore.engine.segment.index import OffsetIndex, TimeIndex, TimestampOffset
from kstore.errors import CorruptRecordError

__pyx_capi__: dict[str, object]  # what other extension modules cimport

class RecoveryWalk(NamedTuple):
    valid_bytes: int
    next_offset: int
    batch_count: int
    offset_index: OffsetIndex
    time_index: TimeIndex
    max_timestamp: TimestampOffset
    leader_epochs: list[tuple[int, int]]
    error: CorruptRecordError | None
    disordered: bool
    overflow: bool
    has_producers: bool
    torn: bool
