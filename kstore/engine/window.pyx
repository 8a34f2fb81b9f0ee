# cython: linetrace=False
# (with it, Cython 3.3 forgets a helper that the traces of this module need: the coverage build would not load)
"""A part of a file in memory, moved along as the reader goes. Plain preads: nothing is mapped, so a file that another
process shortens gives a short read and no fault."""

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cython cimport final
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memmove

from kstore.engine.buffers cimport Pool
from kstore.engine.file cimport File

cdef enum:
    E_SYSTEM = -1
    E_MEMORY = -2


@final
cdef class Window:
    """Bytes [start, start + length) of `file`, of which nothing from `limit` on is shown. For one thread at a time."""

    def __dealloc__(self):
        if self.pool is None:
            if not self.lent:
                PyMem_RawFree(self.data)
            PyMem_RawFree(self.spare)
        else:
            if not self.lent:
                self.pool.give(self.data, self.room)
            self.pool.give(self.spare, self.spare_room)

    cdef void reset(self, File file, int64_t limit, int64_t origin) noexcept:
        """Points at another file (or another state of it), positions counted from `origin`; the buffer stays."""
        self.file = file
        self.limit = limit
        self.stop = limit
        self.origin = origin
        self.start = 0
        self.length = 0

    cdef const uint8_t *at(self, int64_t position) noexcept nogil:
        return self.data + (position - self.start)

    cdef int64_t fill(self, int64_t position, int64_t size, int64_t ahead) noexcept nogil:
        """Brings in the `size` bytes at `position`; where they must be read, up to `ahead` in all, as far as `stop`.

        Returns how many bytes are there from `position` on: fewer than `size` only before the limit or the end of the
        file; negative on failure (raise_failure). Pointers got before are void.
        """
        cdef int64_t have = self.start + self.length - position, want, n
        cdef uint8_t *grown
        if position >= self.start and have >= size:
            return have
        want = min(max(size, min(ahead, self.stop - position)), self.limit - position)
        if position < 0 or want <= 0:
            return 0
        if position < self.start or have < 0:
            have = 0
        if have >= want:  # the limit, not the window, is what ends the bytes
            return have
        if self.lent:  # others look at these bytes: they stay where they are, and reading goes on elsewhere
            if self.spare is not NULL and self.spare_room >= want:
                grown = self.spare
                self.room = self.spare_room
                self.spare = NULL
            else:
                grown = <uint8_t *>PyMem_RawMalloc(<size_t>want)
                if grown is NULL:
                    return E_MEMORY
                self.room = want
            if have:
                memcpy(grown, self.at(position), <size_t>have)
            self.data = grown
            self.lent = False
        elif want > self.room:
            grown = <uint8_t *>PyMem_RawMalloc(<size_t>want)
            if grown is NULL:
                return E_MEMORY
            if have:
                memmove(grown, self.at(position), <size_t>have)
            PyMem_RawFree(self.data)
            self.data = grown
            self.room = want
        elif have:
            memmove(self.data, self.at(position), <size_t>have)
        self.start = position
        self.length = have
        n = self.file.pread(self.data + have, want - have, self.origin + position + have)
        if n < 0:
            return E_SYSTEM
        self.length += n
        return self.length

    cdef void draw(self, Pool pool, int64_t size) noexcept:
        """A window that has no buffer yet takes one from a pool, if there is memory."""
        self.pool = pool
        self.data = pool.take(size, &self.room)
        if self.data is NULL:
            self.room = 0

    cdef void lend(self, uint8_t *spare, int64_t room) noexcept:
        """Someone else owns the buffer from now on; `spare` (or NULL) is ours, to go on with."""
        self.lent = True
        PyMem_RawFree(self.spare)
        self.spare = spare
        self.spare_room = room

    cdef int raise_failure(self, int64_t status) except -1:
        if status == E_MEMORY:
            raise MemoryError(f"a batch of {self.file.path}")
        PyErr_SetFromErrnoWithFilenameObject(OSError, self.file.path)
