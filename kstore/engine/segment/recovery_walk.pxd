from libc.stdint cimport int64_t

from kstore.engine.io.read_window cimport ReadWindow

cdef object recovery_walk(
    ReadWindow w, str path, int64_t base_offset, int64_t end_offset, int64_t interval, bint verify
)
