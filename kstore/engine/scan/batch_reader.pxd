from libc.stdint cimport int64_t

from kstore.engine.io.traffic cimport Traffic
from kstore.engine.io.buffers cimport ReadWindow
from kstore.engine.record.batch cimport Records
from kstore.engine.segment.segment cimport Segment
from libkstore.format cimport ks_batch, ks_fault

cdef enum:
    LONGEST = 64 << 20  # bytes passed or checksummed between two looks at signals


cdef class Reader:
    cdef readonly list skipped
    cdef tuple segments
    cdef Segment segment
    cdef Py_ssize_t index
    cdef int64_t start_offset
    cdef int64_t stop_offset
    cdef int64_t position
    cdef int64_t end
    cdef int64_t last_offset       # of the last batch accepted in this or an earlier segment
    cdef int64_t offset_before     # of the batch before that one
    cdef int64_t end_offset        # where the log ends, or INT64_MAX
    cdef int64_t bound             # no batch of the current segment reaches it
    cdef int64_t least             # no batch from here on ends below it
    cdef bint skip
    cdef bint strict_tail
    cdef bint control
    cdef ReadWindow window
    cdef int64_t begun             # where in the segment reading began
    cdef int64_t most_ahead        # bytes to read at once, in the end
    cdef int64_t latest            # base timestamps rise: behind a later one nothing is wanted
    cdef ks_batch batch
    cdef int64_t at                # of the current batch
    cdef list aborted              # (first offset, producer id, offset of the marker), last first
    cdef dict aborting             # producer id: offset of the marker that ends it
    cdef object pages              # a PageCache, which is called with the reader's position
    cdef int64_t mark              # from which position on it is called again
    cdef int64_t patience          # bytes until signals are looked at
    cdef object failure            # what was raised, and is again
    cdef Traffic traffic           # counts what is read; None if nothing does
    cdef int64_t read_bytes        # not counted yet
    cdef int64_t read_records
    cdef bint ends_at_change       # where a file is no longer what the view shows, it ends instead of raising
    cdef readonly object change    # the LogChangedError at which it ended; None if it did not
    cdef readonly int64_t next_offset  # the offset behind what it gave last, -1 before the first
    cdef readonly bint is_stopped  # it gives nothing any more
    cdef bint busy                 # a thread is in here, perhaps without the GIL

    cdef int enter(self) except -1
    cdef void tell_traffic(self) noexcept
    cdef bint next_segment(self) except -1
    cdef int64_t reach(self, Segment segment) except -1
    cdef int64_t ahead(self, int64_t position) noexcept nogil
    cdef void bring(self, int64_t position, int64_t size) noexcept
    cdef int64_t header(self, int64_t position, ks_fault *fault) noexcept nogil
    cdef int check(self, int64_t position, int64_t size, ks_fault *fault) noexcept nogil
    cdef int in_order(self, int64_t position, int64_t size, ks_fault *fault) noexcept nogil
    cdef bint ends_here(self, int64_t size) noexcept nogil
    cdef int go_to(self, Segment segment, start) except -1
    cdef bint ends_early(self) noexcept
    cdef bint is_shortened(self) except -1
    cdef int tell(self, error) except -1
    cdef int tell_of(self, Segment segment, error) except -1
    cdef int64_t resume(self, int64_t position) except -1
    cdef int64_t search(self, int64_t position, int64_t until, int64_t spare) except -1
    cdef int try_each(self, int64_t *position, int64_t until, int64_t end, int64_t *budget) noexcept nogil
    cdef int64_t walk_to(self, int64_t position, int64_t until) noexcept nogil
    cdef int64_t sound_inside(self, int64_t position, int64_t until) except -1
    cdef int leave_out(self, int64_t position, int64_t size, error) except -1
    cdef bint advance(self) except -1
    cdef bint wanted(self) except -1
    cdef int broken(self, error) except -1
    cdef Records records(self)
    cdef Records unpacked(self)
    cdef int check_begin(self) except -1
