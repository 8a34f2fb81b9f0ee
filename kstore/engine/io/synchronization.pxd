from kstore.engine.io.owned_lock cimport ks_owned_lock


cdef bint holds_inner() noexcept


cdef class Mutex:
    cdef ks_owned_lock lock
    cdef object waiting
    cdef bint inner

    cdef int acquire(self) except -1
    cdef bint acquire_now(self) noexcept
    cdef void release(self) noexcept
    cdef int run_waiting(self) except -1
    cdef int leave(self) except -1
