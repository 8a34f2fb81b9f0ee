from libc.stdint cimport int32_t, int64_t, uint8_t


cdef class OffsetIndex:
    cdef readonly int64_t base_offset
    cdef readonly str path
    cdef readonly int64_t max_entries
    cdef int64_t count
    cdef int64_t room
    cdef uint8_t *data

    cdef int64_t floor(self, int64_t target) noexcept nogil
    cdef int64_t floor_position(self, int64_t position) noexcept nogil
    cdef int64_t offset_at(self, int64_t slot) noexcept nogil
    cdef int64_t position_at(self, int64_t slot) noexcept nogil
    cdef int put(self, int64_t offset, int64_t position) noexcept nogil


cdef class TimeIndex:
    cdef readonly int64_t base_offset
    cdef readonly str path
    cdef readonly int64_t max_entries
    cdef int64_t count
    cdef int64_t room
    cdef uint8_t *data

    cdef int64_t floor(self, int64_t timestamp) noexcept nogil
    cdef int64_t timestamp_at(self, int64_t slot) noexcept nogil
    cdef int64_t offset_at(self, int64_t slot) noexcept nogil
    cdef int put(self, int64_t timestamp, int64_t offset) noexcept nogil
