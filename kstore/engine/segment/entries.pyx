"""The entries of an index file, all of one size, as they lie in it: what offset and time index have in common.

They lie in memory of their own, or in the MappedFile of a file, where they are appended. Views of a mapped index have a
count of their own, which no append changes.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cython cimport final, no_gc
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kstore.engine.io.mapped_file cimport MappedFile


@no_gc  # it refers to text and a file only, so it is in no cycle; the collector would take the mapping away first
cdef class IndexEntries:
    """Entries whose offsets are relative to `base_offset`. Readers may share them; appending is for one at a time."""

    def __dealloc__(self):
        PyMem_RawFree(self.own)

    @final
    cdef int copy_from(self, const uint8_t *data, int64_t size) except -1:
        """Takes over entries, whole ones, as they lie in a file."""
        self.count = self.room = size // self.width
        if size:
            self.own = <uint8_t *>PyMem_RawRealloc(NULL, <size_t>size)
            if self.own is NULL:
                raise MemoryError()
            self.data = self.own
            memcpy(self.data, data, <size_t>size)
        return 0

    @final
    cdef int map_onto(self, MappedFile owner, IndexEntries entries) except -1:
        """Begins in a mapped file, after the entries of another. OSError: no room."""
        cdef int64_t size = entries.count * self.width
        self.owner = owner
        self.data = owner.data
        self.room = self.max_entries
        if owner.reserve(size) < 0:
            owner.file.raise_errno()
        if size:
            memcpy(self.data, entries.data, <size_t>size)
        self.count = entries.count
        return 0

    @final
    cdef void show(self, IndexEntries mapped, int64_t count):
        """Shares the first `count` entries of a mapped index."""
        self.owner = mapped.owner
        self.data = mapped.data
        self.shown = True
        self.count = self.room = count

    @final
    cdef int reserve(self, int64_t more) noexcept nogil:
        """Makes room for `more` entries in the file; -1 with errno set."""
        return self.owner.reserve(min(self.count + more, self.max_entries) * self.width)

    @final
    cdef int one_more(self, int64_t offset) noexcept nogil:
        """Sees to it that an entry of this offset can be put behind the last: 0 or why not."""
        cdef int64_t more
        cdef uint8_t *data
        if offset < self.base_offset or <uint64_t>(offset - self.base_offset) > <uint64_t>INT32_MAX:
            return INDEX_RANGE
        if self.shown:
            return INDEX_FULL
        if self.count < self.room:
            return 0
        if self.owner is not None:
            return INDEX_FULL
        more = max(<int64_t>64, 2 * self.room)
        data = <uint8_t *>PyMem_RawRealloc(self.own, <size_t>(more * self.width))
        if data is NULL:
            return INDEX_MEMORY
        self.data = self.own = data
        self.room = more
        return 0

    def __len__(self):
        return self.count

    def to_bytes(self):
        """The entries as a file holds them."""
        return PyBytes_FromStringAndSize(<char *>self.data, self.count * self.width) if self.count else b""
