from typing import NamedTuple, final

from kstore.engine.segment.index import OffsetIndex, TimeIndex, TimestampOffset
from kstore.errors import CorruptRecordError

__pyx_capi__: dict[str, object]  # what other extension modules cimport

@final
class SegmentEnd:
    @property
    def next_offset(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def tail_bytes(self) -> int: ...
    @property
    def last_position(self) -> int: ...
    @property
    def last_header(self) -> bytes | None: ...
    @property
    def leader_epoch(self) -> int: ...

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
