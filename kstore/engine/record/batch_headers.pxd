from libc.stdint cimport int64_t

from kstore.engine.io.read_window cimport ReadWindow

cdef object header_table(ReadWindow w, str path, int64_t start)
