from libc.stdint cimport int64_t

from kstore.engine.io.buffers cimport ReadWindow
from kstore.engine.record.batch cimport Records
from kstore.engine.segment.index cimport IndexEntries, OffsetIndex, TimeIndex
from kstore.engine.segment.segment_files cimport SegmentFiles
from kstore.engine.segment.walks cimport SegmentEnd
from libkstore.format cimport ks_batch


cdef class Segment:
    cdef readonly SegmentFiles files
    cdef readonly int64_t base_offset
    cdef readonly int64_t end_offset
    cdef readonly int64_t origin
    cdef readonly int64_t index_interval_bytes
    cdef readonly int64_t max_decompressed_bytes
    cdef readonly object damage
    cdef tuple _notes
    cdef int64_t _claimed
    cdef int64_t _limit
    cdef OffsetIndex _offset_index
    cdef TimeIndex _time_index
    cdef object _transaction_index
    cdef object _max_timestamp_so_far
    cdef SegmentEnd _end             # None until it was looked for
    cdef signed char _overlaps       # the next one; -1 until that was asked
    cdef object __weakref__

    cdef int64_t limit(self) except -1
    cdef int load_offsets(self) except -1
    cdef int load_times(self) except -1
    cdef int replace_lost(self, IndexEntries index) except -1
    cdef int rebuild(self, reason) except -1
    cdef OffsetIndex offsets(self)
    cdef TimeIndex times(self)
    cdef ReadWindow borrow(self)
    cdef ReadWindow fresh(self)
    cdef void give_back(self, ReadWindow w) noexcept
    cdef Segment shown_until(self, int64_t limit, int64_t end_offset)
    cdef int64_t locate(self, int64_t target, ReadWindow w, ks_batch *b, bint whole) except -2
    cdef int load(self, ReadWindow w, int64_t position, ks_batch *b) except -1
    cdef Records records(self, ReadWindow w, int64_t position, const ks_batch *b)
    cdef int confirm_gap(self, ReadWindow w, int64_t position, ks_batch *b, int64_t offset) except -1
    cdef SegmentEnd end(self)
    cdef SegmentEnd find_end(self)
    cdef bint follows_on_beyond(self) except -1
    cdef int torn(self, int64_t position, int64_t target) except -1
    cdef int64_t after(self, ReadWindow w, int64_t position, ks_batch *b) except -2
    cdef OffsetIndex distrusted(self, OffsetIndex index, int64_t slot, int64_t found)
    cdef object time_fault(self, TimeIndex times, int64_t slot, found)
    cdef int check_last_time(self) except -1
    cdef int load_between(self, ReadWindow w, int64_t position, int64_t end) except -1
