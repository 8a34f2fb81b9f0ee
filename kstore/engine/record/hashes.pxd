from libc.stdint cimport uint8_t, uint32_t


cdef uint32_t hash_of(const uint8_t *p, Py_ssize_t size) noexcept nogil
