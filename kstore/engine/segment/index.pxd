from libc.stdint cimport int64_t, uint8_t

from kstore.engine.io.buffers cimport MappedFile
from libkstore.format cimport ks_batch, ks_entry_offset, ks_entry_position, ks_entry_timestamp, ks_time_entry_offset


cdef enum:
    INDEX_ORDER = -1
    INDEX_RANGE = -2
    INDEX_MEMORY = -3
    INDEX_FULL = -4


cdef int64_t int64_of(str name, value) except? -2


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

    cdef int begin(
        self, str what, int64_t width, int64_t base_offset, bytes entries, str path, int64_t max_entries
    ) except -1
    cdef int copy_from(self, const uint8_t *data, int64_t size) except -1
    cdef IndexEntries mapped(self, MappedFile owner)
    cdef IndexEntries view(self, int64_t count)
    cdef int one_more(self, int64_t offset) noexcept nogil
    cdef object shortened(self)

    cdef inline int reserve(self, int64_t more) noexcept nogil:
        """Makes room for `more` entries in the file; -1 with errno set."""
        return self.owner.reserve(min(self.count + more, self.max_entries) * self.width)

    cdef inline bint is_lost(self) noexcept nogil:
        """Whether these are a mapped file's entries and another program has shortened it: they may be
        zeros."""
        return self.owner is not None and self.owner.is_lost()


cdef class OffsetIndex(IndexEntries):
    cdef int64_t floor(self, int64_t target) noexcept nogil
    cdef int64_t floor_position(self, int64_t position) noexcept nogil

    cdef inline int64_t offset_at(self, int64_t slot) noexcept nogil:
        return ks_entry_offset(self.data, <size_t>slot, self.base_offset)

    cdef inline int64_t position_at(self, int64_t slot) noexcept nogil:
        return ks_entry_position(self.data, <size_t>slot)

    cdef int put(self, int64_t offset, int64_t position) noexcept nogil
    cdef int check_positions(self, int64_t size) except -1
    cdef void keep_rising(self, int64_t offset, int64_t position) noexcept nogil


cdef class TimeIndex(IndexEntries):
    cdef int64_t floor(self, int64_t timestamp) noexcept nogil

    cdef inline int64_t timestamp_at(self, int64_t slot) noexcept nogil:
        return ks_entry_timestamp(self.data, <size_t>slot)

    cdef inline int64_t offset_at(self, int64_t slot) noexcept nogil:
        return ks_time_entry_offset(self.data, <size_t>slot, self.base_offset)

    cdef int put(self, int64_t timestamp, int64_t offset) noexcept nogil
    cdef void keep_rising(self, int64_t offset) noexcept nogil


# What the next entries of a segment's indexes follow from.
cdef struct ks_index_state:
    int64_t since_entry           # bytes of the batches from the one indexed last
    int64_t max_timestamp
    int64_t max_timestamp_offset


cdef inline int index_batch(
    ks_index_state *s, OffsetIndex offsets, TimeIndex times, int64_t interval, int64_t offset_limit, int64_t time_limit,
    const ks_batch *b, int64_t position,
) noexcept nogil:
    """Counts a batch in, with its entries if more than `interval` bytes came since the last ones (spec 4.1).

    An index that has reached its limit takes no more. Otherwise a status of `put`."""
    cdef int status = 0
    if b.max_timestamp > s.max_timestamp:
        s.max_timestamp = b.max_timestamp
        s.max_timestamp_offset = b.last_offset
    if s.since_entry > interval:
        if offsets.count < offset_limit:
            status = offsets.put(b.last_offset, position)
            if status == 0 and times.count < time_limit:
                status = times.put(s.max_timestamp, s.max_timestamp_offset)
        s.since_entry = 0
    s.since_entry += b.size
    return status
