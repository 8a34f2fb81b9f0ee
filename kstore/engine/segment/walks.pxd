from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.buffers cimport ReadWindow
from kstore.engine.record.batch_walk cimport LOOK, WALK_DAMAGED, WALK_NONE, step
from kstore.engine.segment.index cimport OffsetIndex, TimeIndex
from libkstore.format cimport KS_E_OFFSET, ks_batch, ks_fail, ks_fault


cdef class SegmentEnd:
    cdef readonly int64_t next_offset
    cdef readonly int64_t position
    cdef readonly int64_t tail_bytes
    cdef readonly int64_t last_position
    cdef readonly bytes last_header
    cdef readonly int leader_epoch


cdef int check_marker(const uint8_t *p, const ks_batch *b, ks_fault *fault) noexcept nogil
cdef object recovery_walk(
    ReadWindow w, str path, int64_t base_offset, int64_t end_offset, int64_t interval, bint verify,
    OffsetIndex offsets=*, TimeIndex times=*,
)
cdef SegmentEnd walk_to_end(ReadWindow w, int64_t base_offset, OffsetIndex index)
cdef int64_t whole_until(ReadWindow w, int64_t start, int64_t end, OffsetIndex index) except -1


cdef inline int64_t walk_to(
    ReadWindow w, int64_t base_offset, int64_t target, int64_t position, int64_t promised, ks_batch *b, ks_fault *fault
) noexcept nogil:
    """From `position` on, the position of the first batch with last offset >= target; or a negative status.

    One of the batches before it must end at the offset that the index promised, unless that is -1. A fault's
    `at` is counted from the start of the file; with WALK_NONE it is where the whole batches end."""
    cdef int64_t size, last = base_offset - 1
    while True:
        size = step(w, position, LOOK, b, fault)
        if size >= 0 and b.base_offset <= last:
            ks_fail(fault, KS_E_OFFSET, 0, last + 1, b.base_offset)
            size = WALK_DAMAGED
        elif size >= 0 and b.last_offset < b.base_offset:
            ks_fail(fault, KS_E_OFFSET, 0, b.base_offset, b.last_offset)
            size = WALK_DAMAGED
        elif size >= 0 and last < promised < b.last_offset:
            ks_fail(fault, KS_E_OFFSET, 0, promised, b.last_offset)
            size = WALK_DAMAGED
        if size < 0:
            if size == WALK_DAMAGED:
                fault.at += <size_t>position
            elif size == WALK_NONE:
                fault.at = <size_t>position
            return size
        last = b.last_offset
        if b.last_offset >= target:
            return position
        position += size
