# cython: binding=False
"""Memory of column batches: grown without the GIL, owned by Python objects, and used again.

Fresh pages cost more than what is written to them here, so a buffer that is no longer viewed serves the next
batch, of any scan of the process: POOL keeps a few of them between scans, MOST_KEPT bytes at most.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cython cimport final, no_gc
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

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
