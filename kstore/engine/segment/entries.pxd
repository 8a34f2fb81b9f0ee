from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.mapped_file cimport MappedFile

cdef enum:
    INDEX_ORDER = -1
    INDEX_RANGE = -2
    INDEX_MEMORY = -3
    INDEX_FULL = -4


cdef class IndexEntries:
    cdef readonly int64_t base_offset
    cdef readonly str path
    cdef readonly int64_t max_entries
    cdef int64_t count
    cdef int64_t room
    cdef int64_t width           # bytes of an entry
    cdef uint8_t *data
    cdef uint8_t *own            # what data points at, unless that lies in a mapping
    cdef MappedFile owner           # of a mapping's data
    cdef bint shown              # a view: nothing is appended to it

    cdef int copy_from(self, const uint8_t *data, int64_t size) except -1
    cdef int map_onto(self, MappedFile owner, IndexEntries entries) except -1
    cdef void show(self, IndexEntries mapped, int64_t count)
    cdef int reserve(self, int64_t more) noexcept nogil
    cdef int one_more(self, int64_t offset) noexcept nogil
