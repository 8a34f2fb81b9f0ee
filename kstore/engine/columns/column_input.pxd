from libc.stdint cimport int64_t, uint8_t

from kstore.engine.columns.c_data cimport ChunkedArray


cdef object materialised(object values, str what, int64_t count)
cdef object numpy_of(object values)
cdef object pinned(object source, const uint8_t **data, int64_t *size)
cdef const uint8_t *empty_cell() noexcept nogil
cdef str of_record(int64_t i)
cdef int check_count(str what, int64_t found, int64_t count) except -1
cdef int refuse_mask(object array, str what) except -1


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


cdef class HeaderInput:
    cdef uint8_t *data           # the encodings, one behind the other
    cdef int64_t size
    cdef int64_t space
    cdef int64_t *ends           # of each in data; NULL: data is the same for all
    cdef int64_t count

    @staticmethod
    cdef HeaderInput of(object headers, int64_t count)

    cdef inline const uint8_t *headers_at(self, int64_t i, int64_t *size) noexcept nogil:
        """The encoded headers of record i, their count in front."""
        cdef int64_t start
        if self.ends is NULL:
            size[0] = self.size
            return self.data
        start = self.ends[i - 1] if i else 0
        size[0] = self.ends[i] - start
        return self.data + start

    cdef int put(self, object headers, int64_t i) except -1
    cdef int put_field(self, const char *data, int64_t size) except -1
    cdef int put_varint(self, int64_t value) except -1
    cdef int reserve(self, int64_t more) except -1
