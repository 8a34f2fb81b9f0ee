from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.file cimport File

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


cdef extern from "mapped_state.h" nogil:
    ctypedef struct ks_mapped_state:
        int64_t length
        int fd
        int lost
    bint ks_is_lost(const ks_mapped_state *state)
    bint ks_look(ks_mapped_state *state)


cdef class ReadWindow:
    cdef File file
    cdef uint8_t *data
    cdef int64_t room
    cdef int64_t shift     # the first byte shown is so far behind `data`
    cdef int64_t start
    cdef int64_t length
    cdef int64_t limit
    cdef int64_t stop      # nothing behind it is read ahead, as it is not wanted
    cdef int64_t reach     # as far as its reader will go on, if nothing ends it: for a file that is filled
    cdef int64_t origin
    cdef bint lent              # the buffer is someone else's: never moved, grown or freed here
    cdef uint8_t *spare         # the buffer to come after it, or NULL
    cdef int64_t spare_room
    cdef BufferPool pool              # where buffers go in the end, or None
    cdef int64_t drawn          # bytes of a buffer from there

    cdef void reset(self, File file, int64_t limit, int64_t origin) noexcept

    cdef inline bint holds(self, int64_t position, int64_t size) noexcept nogil:
        return self.start <= position and position + size <= self.start + self.length

    cdef inline const uint8_t *at(self, int64_t position) noexcept nogil:
        return self.data + self.shift + (position - self.start)

    cdef inline int64_t fill(self, int64_t position, int64_t size, int64_t ahead) noexcept nogil:
        """Brings in the `size` bytes at `position`; if they must be read, up to `ahead` in all, as far as
        `stop`.

        Returns how many bytes are there from `position` on: fewer than `size` only before the limit or the
        end of the file; negative on failure (raise_failure). Pointers got before are void.
        """
        if self.holds(position, size):
            return self.start + self.length - position
        return self.read_more(position, size, ahead)

    cdef int64_t read_more(self, int64_t position, int64_t size, int64_t ahead) noexcept nogil
    cdef void draw(self, BufferPool pool, int64_t size) noexcept
    cdef void lend(self) noexcept
    cdef int raise_failure(self, int64_t status) except -1


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
