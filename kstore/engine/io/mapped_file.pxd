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

    cdef int reserve_more(self, int64_t size) noexcept nogil
    cdef int resize(self, int64_t size) noexcept nogil
    cdef int sync(self) noexcept nogil
    cdef bint look(self) noexcept nogil
    cdef str loss(self)

    cdef inline int reserve(self, int64_t size) noexcept nogil:
        """Makes the first `size` bytes safe to touch. -1 with errno set: the disk is full, or fails."""
        return 0 if size <= self.reserved else self.reserve_more(size)

    cdef inline bint is_lost(self) noexcept nogil:
        """Whether another program has shortened the file. What was read before this call counts only if it
        has not."""
        return ks_is_lost(&self.state)
