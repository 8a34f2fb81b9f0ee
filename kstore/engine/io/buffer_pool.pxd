from libc.stdint cimport int64_t, uint8_t

# Bytes that grow. No Python object is in it, so code without the GIL writes it.
cdef struct ks_vector:
    uint8_t *data
    int64_t size
    int64_t room

cdef int ks_grow(ks_vector *v, int64_t more) noexcept nogil


cdef inline int ks_ensure(ks_vector *v, int64_t more) noexcept nogil:
    """Room for `more` bytes behind those there are: 0, or -1 where memory ran out."""
    if more <= v.room - v.size:
        return 0
    return ks_grow(v, more)


cdef enum:
    POOL_SLOTS = 128


cdef class BufferPool:
    cdef uint8_t *data[POOL_SLOTS]
    cdef int64_t room[POOL_SLOTS]
    cdef int count
    cdef readonly int64_t kept   # bytes that wait to be used

    cdef uint8_t *take(self, int64_t least, int64_t *room) noexcept
    cdef uint8_t *pick(self, int at) noexcept
    cdef void give(self, uint8_t *data, int64_t room) noexcept
    cdef void prepare(self, ks_vector *v, int64_t least) noexcept


cdef class Buffer:
    cdef uint8_t *data
    cdef readonly int64_t room   # what it takes of memory
    cdef readonly int64_t size
    cdef BufferPool pool

    @staticmethod
    cdef Buffer of(ks_vector *v, BufferPool pool)

    @staticmethod
    cdef Buffer around(uint8_t *data, int64_t size, int64_t room, BufferPool pool)
