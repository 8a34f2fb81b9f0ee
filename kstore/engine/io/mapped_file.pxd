from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.file cimport File


cdef class MappedFile:
    cdef uint8_t *data
    cdef readonly int64_t size
    cdef int64_t reserved
    cdef File file

    cdef int reserve(self, int64_t size) noexcept nogil
    cdef int sync(self) noexcept nogil
