from libc.stdint cimport int64_t, uint8_t


cdef object decompress_at(int codec, int magic, const uint8_t *p, int64_t size, int64_t limit)
cdef int level_of(int codec, object level) except? -2147483648
cdef int64_t compress_bound(int codec, int64_t size) noexcept nogil
cdef int64_t compress_into(
    int codec, int level, const uint8_t *data, int64_t size, uint8_t *out, int64_t room
) except -1
