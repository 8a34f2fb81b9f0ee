from libc.stdint cimport int64_t, uint8_t


cdef class File:
    cdef readonly str path
    cdef readonly int fd

    cdef int64_t pread(self, uint8_t *into, int64_t size, int64_t position) noexcept nogil
    cdef int64_t read_into(self, uint8_t *into, int64_t size, int64_t position) except -1
    cdef int64_t length(self) except -1
