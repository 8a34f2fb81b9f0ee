from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.read_window cimport ReadWindow
from kstore.engine.segment.index cimport OffsetIndex, TimeIndex
from libkstore.format cimport ks_batch, ks_fault

cdef int check_marker(const uint8_t *p, const ks_batch *b, ks_fault *fault) noexcept nogil
cdef object recovery_walk(
    ReadWindow w, str path, int64_t base_offset, int64_t end_offset, int64_t interval, bint verify,
    OffsetIndex offsets=*, TimeIndex times=*,
)
