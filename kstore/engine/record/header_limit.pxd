# How much memory the headers of one record may take as objects. What one side writes, the other reads.

from libc.stdint cimport int32_t, int64_t, uint8_t

from libkstore.format cimport KS_OK, ks_read_varint

cdef enum:
    HEADER_OBJECTS = 176  # bytes of memory: a tuple with its place in another, a short str, short bytes


cdef inline bint ks_headers_fit(int64_t count, int64_t size, int64_t most) noexcept nogil:
    """Whether readers make objects of so many headers, which take `size` bytes in a record."""
    return count * HEADER_OBJECTS + size <= most


cdef inline bint ks_encoded_headers_fit(const uint8_t *headers, int64_t size, int64_t most) noexcept nogil:
    """Whether readers make objects of these headers, as they lie in a record, their count in front."""
    cdef const uint8_t *p = headers
    cdef int32_t count = 0
    if size <= most // HEADER_OBJECTS:  # a header has two bytes or more
        return True
    return ks_read_varint(&p, headers + size, &count) == KS_OK and ks_headers_fit(count, size, most)
