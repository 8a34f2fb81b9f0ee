# cython: binding=False
"""A part of a file in memory, moved along as the reader goes. Plain preads: nothing is mapped, so a file that
another process shortens gives a short read and no fault."""

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cython cimport final, no_gc
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memmove

from kstore.engine.io.buffer_pool cimport BufferPool
from kstore.engine.io.file cimport File

cdef enum:
    WINDOW_SYSTEM = -1
    WINDOW_MEMORY = -2

cdef enum:
    PAGE = 4096
    LINE = 64


cdef inline int64_t clear_of(const uint8_t *data, int64_t position) noexcept nogil:
    """How far behind `data` to put what is read from `position` of a file.

    The kernel copies with rep movsb, which takes 2 to 5 times as long where the target lies less than a line
    behind the source within their pages: each load seems to want what was just stored."""
    cdef int64_t behind = (<int64_t>data - position) & (PAGE - 1)
    return LINE if 0 < behind < LINE else 0


@final
@no_gc  # it refers to a file and a pool only, and needs the pool to the end
cdef class ReadWindow:
    """Bytes [start, start + length) of `file`, of which nothing from `limit` on is shown. For one thread at a
    time."""

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
        """Points at another file (or another state of it), positions counted from `origin`; the buffer
        stays."""
        self.file = file
        self.limit = limit
        self.stop = limit
        self.origin = origin
        self.start = 0
        self.length = 0
        self.shift = 0

    cdef int64_t read_more(self, int64_t position, int64_t size, int64_t ahead) noexcept nogil:
        """What `fill` does if the window does not hold the bytes."""
        cdef int64_t have = self.start + self.length - position, want, room, n
        cdef uint8_t *grown = self.data
        cdef uint8_t *at
        want = min(max(size, min(ahead, self.stop - position)), self.limit - position)
        if position < 0 or want <= 0:
            return 0
        if position < self.start or have < 0:
            have = 0
        if have >= want:  # the limit, not the window, is what ends the bytes
            return have
        room = want + LINE
        if self.lent and self.spare is not NULL and self.spare_room >= room:
            grown = self.spare
            room = self.spare_room
            self.spare = NULL
        elif self.lent or room > self.room:
            grown = <uint8_t *>PyMem_RawMalloc(<size_t>room)
            if grown is NULL:
                return WINDOW_MEMORY
        else:
            room = self.room
        at = grown + clear_of(grown, self.origin + position)
        if have:
            memmove(at, self.at(position), <size_t>have)
        if grown != self.data and not self.lent:
            PyMem_RawFree(self.data)
        self.lent = False  # what others look at stays where it is, and reading goes on elsewhere
        self.data = grown
        self.room = room
        self.shift = at - grown
        self.start = position
        self.length = have
        n = self.file.pread(at + have, want - have, self.origin + position + have)
        if n < 0:
            return WINDOW_SYSTEM
        self.length += n
        return self.length

    cdef void draw(self, BufferPool pool, int64_t size) noexcept:
        """A window that has no buffer yet takes one from a pool, if there is memory."""
        self.pool = pool
        self.drawn = size + LINE
        self.data = pool.take(self.drawn, &self.room)
        if self.data is NULL:
            self.room = 0

    cdef void lend(self) noexcept:
        """Someone else owns the buffer, which was drawn, from now on; another is drawn to go on with."""
        self.lent = True
        if self.spare is NULL:
            self.spare = self.pool.take(self.drawn, &self.spare_room)

    cdef int raise_failure(self, int64_t status) except -1:
        if status == WINDOW_MEMORY:
            raise MemoryError(f"a batch of {self.file.path}")
        PyErr_SetFromErrnoWithFilenameObject(OSError, self.file.path)
