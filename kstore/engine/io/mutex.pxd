cdef bint holds_inner() noexcept
