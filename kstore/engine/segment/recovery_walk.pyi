from typing import NamedTuple

from kstore.engine.segment.index import OffsetIndex, TimeIndex, TimestampOffset
from kstore.errors import CorruptRecordError

__pyx_capi__: dict[str, object]  # what other extension modules cimport

class RecoveryWalk(NamedTuple):
    """What a walk over every batch of a segment found; the indexes are those that recovery would write.

    It ends at the first byte that recovery would cut off; `error` says what is wrong there, None where nothing is
    left. `disordered`: an offset did not rise at an index entry. `overflow`: an offset lies more than 2^31 - 1 above
    the base, so the segment must be split. `torn`: the bytes end inside a batch."""

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
