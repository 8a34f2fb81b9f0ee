from libc.stdint cimport int64_t

from kstore.engine.segment.entries cimport IndexEntries
from kstore.engine.io.mapped_file cimport MappedFile


cdef class OffsetIndex(IndexEntries):
    @staticmethod
    cdef OffsetIndex on(int64_t base_offset, MappedFile owner, OffsetIndex entries)
    cdef OffsetIndex view(self, int64_t count)

    cdef int64_t floor(self, int64_t target) noexcept nogil
    cdef int64_t floor_position(self, int64_t position) noexcept nogil
    cdef int64_t offset_at(self, int64_t slot) noexcept nogil
    cdef int64_t position_at(self, int64_t slot) noexcept nogil
    cdef int put(self, int64_t offset, int64_t position) noexcept nogil


cdef class TimeIndex(IndexEntries):
    @staticmethod
    cdef TimeIndex on(int64_t base_offset, MappedFile owner, TimeIndex entries)
    cdef TimeIndex view(self, int64_t count)

    cdef int64_t floor(self, int64_t timestamp) noexcept nogil
    cdef int64_t timestamp_at(self, int64_t slot) noexcept nogil
    cdef int64_t offset_at(self, int64_t slot) noexcept nogil
    cdef int put(self, int64_t timestamp, int64_t offset) noexcept nogil
