# cython: binding=False
"""A segment that another process appends to: what came since it was opened, as another segment of the same file."""

from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t

from kstore.engine.io.read_window cimport ReadWindow
from kstore.engine.record.batch_walk cimport FAR, NEAR, WALK_SYSTEM, step
from kstore.engine.segment.index cimport INDEX_MEMORY, OffsetIndex, TimeIndex, index_batch, ks_index_state
from kstore.engine.segment.recovery_walk cimport check_marker
from kstore.engine.segment.segment cimport Segment
from libkstore.format cimport KS_OK, ks_batch, ks_check_batch, ks_fault

from kstore.engine.segment.index import TimestampOffset


cdef int64_t sound(
    ReadWindow w, int64_t position, int64_t ahead, int64_t last, int64_t end, ks_batch *b
) noexcept nogil:
    """The size of the batch at `position` if it is whole, its checksum right and its offsets above `last` and below
    `end`: what recovery would keep. Its header is in b. Negative if it is not; WALK_SYSTEM if that cannot be told."""
    cdef ks_fault fault
    cdef int64_t size = step(w, position, ahead, b, &fault), have
    if size < 0:
        return size
    have = w.fill(position, size, ahead)
    if have < 0:
        return WALK_SYSTEM
    if (
        have < size
        or ks_check_batch(w.at(position), w.at(position) + have, b, &fault) != KS_OK
        or check_marker(w.at(position), b, &fault) != KS_OK
    ):
        return -1
    return size if b.base_offset > last and b.last_offset < end else -1


cdef int64_t end_of(Segment segment, int64_t end_offset) noexcept:
    """The offset that no batch of the segment may reach: the next segment's, or what its indexes cannot name."""
    if end_offset - segment.base_offset > INT32_MAX:
        return segment.base_offset + INT32_MAX + 1
    return end_offset


def grown(Segment segment not None, int64_t end_offset):
    """The same segment with the whole batches that were appended to it since, checksums verified, and another offset
    behind it; itself where there is nothing new.

    Its indexes are added to as the writer's were."""
    cdef Segment twin
    cdef ReadWindow w = ReadWindow.__new__(ReadWindow)
    cdef OffsetIndex offsets
    cdef TimeIndex times
    cdef ks_batch b
    cdef ks_index_state indexed
    cdef int64_t position = segment.limit(), size, last = segment.base_offset - 1
    cdef int64_t end = end_of(segment, end_offset)
    cdef int64_t length = segment.opened().length() - segment.origin
    cdef int put = 0
    if length <= position and end_offset == segment.end_offset:
        return segment
    if position:
        last = segment.read_next_offset() - 1
    offsets = segment.offsets().copy()
    times = segment.times().copy()
    timestamp, offset = segment.max_timestamp_so_far
    indexed.max_timestamp = timestamp
    indexed.max_timestamp_offset = offset
    indexed.since_entry = position - (offsets.position_at(offsets.count - 1) if offsets.count else 0)
    w.reset(segment.opened(), length, segment.origin)
    with nogil:
        while (size := sound(w, position, FAR, last, end, &b)) >= 0:
            put = index_batch(
                &indexed, offsets, times, segment.index_interval_bytes, INT64_MAX, INT64_MAX, &b, position
            )
            if put == INDEX_MEMORY:
                break
            last = b.last_offset
            position += size
    if put == INDEX_MEMORY:
        raise MemoryError()
    if size == WALK_SYSTEM:
        w.raise_failure(-1)
    if position == segment.limit() and end_offset == segment.end_offset:
        return segment
    twin = segment.shown_until(position, end_offset)
    twin._offset_index = offsets
    twin._time_index = times
    twin._max_timestamp_so_far = TimestampOffset(indexed.max_timestamp, indexed.max_timestamp_offset)
    return twin


def followed(Segment segment not None, int64_t last_offset, int64_t most=4 << 20):
    """(segment, its last offset): the one whose last offset is given, with the whole batches that were appended behind
    it, checksums verified; itself where there are none. About `most` bytes at most.

    Unlike `grown` it leaves the indexes as they are, so that what it costs does not depend on the segment."""
    cdef Segment twin
    cdef ReadWindow w
    cdef ks_batch b
    cdef int64_t position = segment.limit(), size = 0, until = position + most
    cdef int64_t end = end_of(segment, segment.end_offset)
    cdef int64_t length = segment.opened().length() - segment.origin
    if length <= position:
        return segment, last_offset
    w = segment.borrow()
    w.reset(segment.opened(), length, segment.origin)  # whose limit was the segment's
    with nogil:
        while position < until and (size := sound(w, position, NEAR, last_offset, end, &b)) >= 0:
            last_offset = b.last_offset
            position += size
    if size == WALK_SYSTEM:
        w.raise_failure(-1)
    if position == segment.limit():
        segment.give_back(w)
        return segment, last_offset
    twin = segment.shown_until(position, segment.end_offset)
    twin._offset_index = segment.offsets()
    twin._time_index = segment.times()
    twin.give_back(w)
    return twin, last_offset
