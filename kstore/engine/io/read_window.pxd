from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.buffer_pool cimport BufferPool
from kstore.engine.io.file cimport File


cdef class ReadWindow:
    cdef File file
    cdef uint8_t *data
    cdef int64_t room
    cdef int64_t shift     # the first byte shown is so far behind `data`
    cdef int64_t start
    cdef int64_t length
    cdef int64_t limit
    cdef int64_t stop      # nothing behind it is read ahead: nobody means to go there
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
