from libc.stdint cimport int64_t

from kstore.engine.columns.c_data cimport ChunkedArray

cdef int64_t moment(object timestamp) except? -2


cdef class TimestampInput:
    cdef const int64_t *data     # NULL: the same for all
    cdef int64_t constant
    cdef int64_t count
    cdef int64_t *own            # what data points at, where it is not the owner's
    cdef object owner

    @staticmethod
    cdef TimestampInput of(object timestamps, int64_t count, int64_t default_ms)

    cdef int take_ints(self, tuple items) except -1
    cdef int take_numpy(self, object array, object numpy) except -1
    cdef int take_column(self, ChunkedArray column) except -1
    cdef int take_plain(self, const int64_t *data, object owner) except -1
    cdef int room(self, int64_t count) except -1
