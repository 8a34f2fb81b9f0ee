from libc.stdint cimport int64_t

from kstore.engine.io.file cimport File, FileHandle
from kstore.engine.io.read_window cimport ReadWindow
from kstore.engine.record.batch cimport Records
from kstore.engine.segment.index cimport IndexEntries, OffsetIndex, TimeIndex
from libkstore.format cimport ks_batch, ks_fault


cdef class Segment:
    cdef readonly int64_t base_offset
    cdef readonly int64_t end_offset
    cdef readonly str directory
    cdef readonly str stem
    cdef readonly dict suffixes
    cdef readonly int64_t origin
    cdef readonly int64_t index_interval_bytes
    cdef readonly int64_t max_decompressed_bytes
    cdef tuple _notes
    cdef readonly object damage
    cdef int64_t _claimed
    cdef readonly int64_t tail_bytes
    cdef str _path
    cdef FileHandle _handle       # of the .log; segments of one file share it
    cdef int64_t _limit
    cdef OffsetIndex _offset_index
    cdef TimeIndex _time_index
    cdef object _transaction_index
    cdef object _max_timestamp_so_far
    cdef signed char _overlaps       # the next one; -1 if that was not asked
    cdef int64_t _last_at            # where the last batch began when read_next_offset() first found it
    cdef readonly bytes _last_header  # its header; None if it was not looked for, or there is none
    cdef public object _keys         # what lookups by key know of it, None at first
    cdef object __weakref__

    cdef str log_path(self)
    cdef File opened(self)
    cdef bint has_final_name(self) except -1
    cdef object changed(self, str what, int64_t offset)
    cdef int64_t limit(self) except -1
    cdef int load_offsets(self) except -1
    cdef int load_times(self) except -1
    cdef int replace_lost(self, IndexEntries index) except -1
    cdef OffsetIndex offsets(self)
    cdef TimeIndex times(self)
    cdef ReadWindow borrow(self)
    cdef ReadWindow fresh(self)
    cdef void give_back(self, ReadWindow w) noexcept
    cdef Segment another(self, int64_t end_offset)
    cdef Segment shown_until(self, int64_t limit, int64_t end_offset)
    cdef int64_t locate(self, int64_t target, ReadWindow w, ks_batch *b, bint whole) except -2
    cdef int64_t walk_to(
        self, int64_t target, int64_t position, int64_t promised, ReadWindow w, ks_batch *b, ks_fault *fault
    ) noexcept nogil
    cdef int load(self, ReadWindow w, int64_t position, ks_batch *b) except -1
    cdef Records records(self, ReadWindow w, int64_t position, const ks_batch *b)
    cdef int confirm_gap(self, ReadWindow w, int64_t position, ks_batch *b, int64_t offset) except -1
    cdef int64_t end_of_batches(self, int64_t *next_offset) except -1
    cdef bint follows_on_beyond(self) except -1
    cdef int know_last_batch(self, ReadWindow w, int64_t position, int64_t size) except -1
    cdef int torn(self, int64_t position, int64_t target) except -1
    cdef int64_t after(self, ReadWindow w, int64_t position, ks_batch *b) except -2
    cdef OffsetIndex distrusted(self, OffsetIndex index, int64_t slot, int64_t found)
    cdef object time_fault(self, TimeIndex times, int64_t slot, found)
    cdef File index_file(self, str kind)
    cdef bytes contents(self, str kind, int64_t width, str absent=*)
    cdef bytes used_contents(self, str kind, int64_t width)
    cdef bint is_named(self, OffsetIndex index, int64_t slot, ReadWindow w, ks_batch *b) except -1
    cdef int check_last_time(self) except -1
    cdef int load_between(self, ReadWindow w, int64_t position, int64_t end) except -1
