from libc.stdint cimport int64_t, uint8_t


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
