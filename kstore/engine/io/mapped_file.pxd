from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.file cimport File

cdef extern from "mapped_state.h" nogil:
    ctypedef struct ks_mapped_state:
        int64_t length
        int fd
        int lost
    bint ks_is_lost(const ks_mapped_state *state)
    bint ks_look(ks_mapped_state *state)


cdef class MappedFile:
    cdef uint8_t *data
    cdef readonly int64_t size
    cdef int64_t reserved
    cdef File file
    cdef ks_mapped_state state

    cdef int reserve(self, int64_t size) noexcept nogil
    cdef int resize(self, int64_t size) noexcept nogil
    cdef int sync(self) noexcept nogil
    cdef bint look(self) noexcept nogil
    cdef str loss(self)

    cdef inline bint is_lost(self) noexcept nogil:
        """Whether another program has shortened the file. What was read before this call counts only if it has not."""
        return ks_is_lost(&self.state)
