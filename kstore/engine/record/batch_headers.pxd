from libc.stdint cimport int64_t

from kstore.engine.io.read_window cimport Window

cdef object header_table(Window w, str path, int64_t start)
