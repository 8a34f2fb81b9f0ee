from libc.stdint cimport uint8_t, uint32_t


cdef inline uint32_t hash_of(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """murmur2, as Kafka has it."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        k = p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24  # one load
        k *= m
        k ^= k >> 24
        h = h * m ^ k * m
        p += 4
        size -= 4
    if size > 0:
        k = p[0]
        if size > 1:
            k |= <uint32_t>p[1] << 8
        if size > 2:
            k |= <uint32_t>p[2] << 16
        h = (h ^ k) * m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h
