from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.file cimport File
from kstore.engine.io.buffers cimport MappedFile
from kstore.engine.segment.index cimport OffsetIndex, TimeIndex, ks_index_state
from kstore.engine.segment.segment cimport Segment
from libkstore.format cimport ks_batch

cdef enum:
    ROLL_NOT = 0
    ROLL_SIZE
    ROLL_TIME
    ROLL_OFFSET_INDEX
    ROLL_TIME_INDEX
    ROLL_OFFSET

cdef enum:
    WRITE_REFUSED = -1   # there was no room for all of it; errno says why
    WRITE_UNKNOWN = -2   # what the disk has is unknown

# What an append moves on: as far as it was written (published), and as far as it is being made (staged).
cdef struct ks_extent:
    int64_t size
    ks_index_state indexed
    int64_t first_timestamp
    int64_t offset_entries
    int64_t time_entries
    int64_t next_offset
    int64_t records               # since the segment was opened for writing


cdef class ActiveSegment:
    cdef readonly int64_t base_offset
    cdef readonly str directory
    cdef readonly str stem
    cdef int64_t created_ms
    cdef int64_t roll_jitter_ms
    cdef readonly int64_t index_interval_bytes
    cdef readonly int64_t segment_index_bytes
    cdef readonly int64_t segment_bytes
    cdef File log
    cdef Segment unlimited          # without a limit: views are made of it
    cdef OffsetIndex offsets
    cdef TimeIndex times
    cdef MappedFile offset_map
    cdef MappedFile time_map
    cdef object _transaction_index
    cdef readonly File transaction_file   # made when there is something for it
    cdef bytes ahead                # of its entries, those whose markers are yet to be written
    cdef ks_extent staged
    cdef ks_extent published
    cdef long version            # odd while `published` changes
    cdef int64_t allocated
    cdef bint allocates
    cdef tuple _view
    cdef int64_t _view_size

    cdef int prepare(self) except -1
    cdef int reserve(self, int64_t batches) noexcept nogil
    cdef str lost_index(self)
    cdef int check_indexes(self) except -1
    cdef int roll_reason(
        self, int64_t size, int64_t max_timestamp, int64_t last_offset, int64_t now, int64_t segment_bytes,
        int64_t segment_ms,
    ) noexcept nogil
    cdef void stage(self, const ks_batch *b) noexcept nogil
    cdef void unstage(self) noexcept nogil
    cdef int write(self, const uint8_t *data, int64_t size) noexcept nogil
    cdef void publish(self) noexcept nogil
    cdef int take(self, const ks_extent *extent) except -1
    cdef int take_rest(self) except -1
    cdef int map_indexes(self) except -1
    cdef int64_t taken(self, ks_extent *into) noexcept nogil
    cdef int allocate_ahead(self) noexcept nogil
    cdef void use_indexes(self, OffsetIndex offsets, TimeIndex times)
    cdef object fresh(self, str kind)
    cdef inline int64_t offset_limit(self) noexcept nogil
    cdef inline int64_t time_limit(self) noexcept nogil

    cdef inline bint is_lost(self) noexcept nogil:
        """Whether another program has shortened an index file: no more is to be published."""
        return self.time_map is not None and (self.time_map.is_lost() or self.offset_map.is_lost())
