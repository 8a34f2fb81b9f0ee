# cython: binding=False
"""Memory of column batches, and parts of files in memory.

Fresh pages cost more than what is written to them here, so a Buffer that is no longer viewed serves the next
batch, of any scan of the process: POOL keeps a few of them between scans, MOST_KEPT bytes at most. A
ReadWindow moves along as the reader goes. It uses plain preads: nothing is mapped, so a file that another
process shortens gives a short read and no fault. A MappedFile is mapped for writing, and fixed for life: the
index files of the segment that is written.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cython cimport final, no_gc
from libc.errno cimport EINTR, EIO, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memmove
from posix.mman cimport (
    MADV_RANDOM,
    MAP_FAILED,
    MAP_SHARED,
    MS_SYNC,
    PROT_READ,
    PROT_WRITE,
    madvise,
    mmap,
    msync,
    munmap,
)

from kstore.engine.io.faults cimport MAP, SYNC, SYNCS, UNMAP, gate
from kstore.engine.io.file cimport File, note

cdef extern from "sigbus.h" nogil:
    int ks_add_mapping(void *start, size_t size, ks_mapped_state *state)
    void ks_remove_mapping(void *start)

cdef enum:
    WINDOW_SYSTEM = -1
    WINDOW_MEMORY = -2

cdef enum:
    PAGE = 4096
    MANY = 64 << 10  # bytes: whoever reads so many ahead reads on
    LINE = 64
    STEP = 64 << 10  # blocks of a mapped file are allocated in steps of this many bytes


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
        self.stop = self.reach = limit
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
        n = 0
        if self.file.fill is not None and ahead >= MANY:
            n = self.file.filled(self.origin + position + have, want - have, self.origin + self.reach)
        if n == 0:
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
        self.file.raise_errno()


@final
@no_gc  # it refers to a file only
cdef class MappedFile:
    """`size` bytes of `file`, whose length becomes that; unmapped when the last reference goes.

    The file is sparse: a page is touched only after `reserve` has got its block, because a store into a hole
    of a full disk kills the process. Therefore nothing shortens the file below what was reserved and is still
    read. If another program does so, the mapping becomes zeros and `is_lost` says so, on Linux;
    see sigbus.h.
    """

    def __cinit__(self, File file not None, int64_t size):
        cdef void *at
        if size <= 0:
            raise ValueError(f"a mapping of {size} bytes")
        self.file = file
        if file.resize(size) < 0:
            file.raise_errno()
        at = MAP_FAILED
        while at == MAP_FAILED:
            if gate(1) == 0:
                at = mmap(NULL, <size_t>size, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0)
            if at == MAP_FAILED and errno != EINTR:
                PyErr_SetFromErrnoWithFilenameObject(OSError, file.path)
        madvise(at, <size_t>size, MADV_RANDOM)  # a hint: otherwise the first touch reads megabytes of nothing ahead
        self.state.fd = file.fd
        self.state.length = size
        if ks_add_mapping(at, <size_t>size, &self.state) < 0:
            munmap(at, <size_t>size)
            raise MemoryError()
        self.data = <uint8_t *>at
        self.size = size
        note(MAP, file, 0, 0, NULL)

    def __dealloc__(self):
        if self.data is not NULL:
            if self.file is not None:
                note(UNMAP, self.file, 0, 0, NULL)
            ks_remove_mapping(self.data)
            munmap(self.data, <size_t>self.size)

    cdef int reserve_more(self, int64_t size) noexcept nogil:
        """What `reserve` does if they are not yet."""
        cdef uint8_t[512] zeros
        cdef int64_t until = min((size + STEP - 1) // STEP * STEP, self.size), at, n
        cdef int status
        status = self.file.allocate(self.reserved, until - self.reserved, False)
        if status > 0:  # no fallocate here: written zeros get blocks as well
            for at in range(512):
                zeros[at] = 0
            at = self.reserved
            while at < until:
                n = min(<int64_t>512, until - at)
                if self.file.pwrite(zeros, n, at) < n:
                    return -1
                at += n
        elif status < 0:
            return -1
        self.reserved = until
        return 0

    cdef int resize(self, int64_t size) noexcept nogil:
        """Gives the file another length; the mapping keeps its size. -1 with errno set."""
        cdef int64_t before = self.state.length
        if size < before:
            self.state.length = size
        if self.file.resize(size) < 0:
            self.state.length = before
            return -1
        self.state.length = size
        return 0

    cdef bint look(self) noexcept nogil:
        """Whether `is_lost`, after it has asked for the length of the file: no page behind its end need be
        touched."""
        return ks_look(&self.state)

    cdef str loss(self):
        """What another program did to the file; None if that `is_lost` is not so."""
        return f"{self.file.path} was shortened by another program" if self.is_lost() else None

    cdef int sync(self) noexcept nogil:
        """Brings what was stored to the disk; -1 with errno set on failure, EIO if the mapping is lost."""
        if self.reserved == 0:
            return 0
        note(SYNCS, self.file, 0, 0, NULL)
        while gate(1) or msync(self.data, <size_t>self.reserved, MS_SYNC) < 0:
            if errno != EINTR:
                return -1
        if self.look():
            (&errno)[0] = EIO
            return -1
        note(SYNC, self.file, 0, 0, NULL)
        return 0


# ---- memory of column batches ------------------------------------------------------------------------------

cdef enum:
    LEAST = 512
    MOST_KEPT = 32 << 20

cdef uint8_t NOTHING = 0  # where empty buffers point


cdef int ks_grow(ks_vector *v, int64_t more) noexcept nogil:
    cdef int64_t room = max(v.size + more, max(2 * v.room, <int64_t>LEAST))
    cdef uint8_t *grown = <uint8_t *>PyMem_RawRealloc(v.data, <size_t>room)
    if grown is NULL:
        return -1
    v.data = grown
    v.room = room
    return 0


@final
cdef class BufferPool:
    """Buffers to be used again. Every method needs the GIL, which is its lock."""

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            PyMem_RawFree(self.data[i])

    cdef uint8_t *take(self, int64_t least, int64_t *room) noexcept:
        """The smallest buffer of at least so many bytes, a new one if need be; NULL where memory ran out."""
        cdef int i, best = -1
        for i in range(self.count - 1, -1, -1):  # of equals, the one used last: it may still be in a cache
            if self.room[i] >= least and (best < 0 or self.room[i] < self.room[best]):
                best = i
        if best < 0 or self.room[best] > 2 * least + (64 << 10):  # one much too large is left for who needs it
            room[0] = max(least, <int64_t>LEAST)
            return <uint8_t *>PyMem_RawMalloc(<size_t>room[0])
        room[0] = self.room[best]
        return self.pick(best)

    cdef uint8_t *pick(self, int at) noexcept:
        """Takes out a buffer; the others stay in the order in which they came."""
        cdef uint8_t *data = self.data[at]
        cdef int i
        self.kept -= self.room[at]
        self.count -= 1
        for i in range(at, self.count):
            self.data[i] = self.data[i + 1]
            self.room[i] = self.room[i + 1]
        return data

    cdef void give(self, uint8_t *data, int64_t room) noexcept:
        """Keeps a buffer. If there are too many, it frees those that were unused for longest."""
        if data is NULL:
            return
        if room > MOST_KEPT:
            PyMem_RawFree(data)
            return
        while self.count == POOL_SLOTS or self.kept + room > MOST_KEPT:
            PyMem_RawFree(self.pick(0))
        self.data[self.count] = data
        self.room[self.count] = room
        self.count += 1
        self.kept += room

    @property
    def most_kept(self):
        return MOST_KEPT

    cdef void prepare(self, ks_vector *v, int64_t least) noexcept:
        """An empty vector with room, if there is memory; where there is none, growing it will fail."""
        PyMem_RawFree(v.data)
        v.size = 0
        v.room = 0
        v.data = self.take(least, &v.room)
        if v.data is NULL:
            v.room = 0


POOL = BufferPool()


@final
@no_gc  # it refers to a pool only, and needs that to the end
cdef class Buffer:
    """Bytes that no longer change, for as long as someone looks at them. Exports the buffer protocol,
    read-only."""

    def __dealloc__(self):
        if self.pool is not None:
            self.pool.give(self.data, self.room)
        else:
            PyMem_RawFree(self.data)

    @staticmethod
    cdef Buffer of(ks_vector *v, BufferPool pool):
        """Takes the memory of a vector, which is empty then. Of a large one that holds little, a copy is
        kept, and the memory goes back to the pool: a batch of few rows may be kept for long."""
        cdef Buffer self
        cdef int64_t room = 0
        cdef uint8_t *small = NULL
        if pool is not None and v.room > 8 * v.size + (64 << 10):
            small = pool.take(v.size, &room)
        if small is not NULL:
            if v.size:
                memcpy(small, v.data, <size_t>v.size)
            self = Buffer.around(small, v.size, room, pool)
            pool.give(v.data, v.room)
        else:
            self = Buffer.around(v.data, v.size, v.room, pool)
        v.data = NULL
        v.size = v.room = 0
        return self

    @staticmethod
    cdef Buffer around(uint8_t *data, int64_t size, int64_t room, BufferPool pool):
        cdef Buffer self = Buffer.__new__(Buffer)
        self.data = data
        self.size = size
        self.room = room
        self.pool = pool
        return self

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data if self.data is not NULL else &NOTHING, self.size, 1, flags)
