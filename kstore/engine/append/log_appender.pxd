from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore.engine.io.file cimport Traffic
from kstore.engine.io.owned_lock cimport ks_owned_lock
from kstore.engine.record.batch_builder cimport BatchBuilder
from kstore.engine.segment.active_segment cimport ActiveSegment
from libkstore.format cimport ks_batch

cdef extern from "gate.h" nogil:
    ctypedef struct ks_gate:
        int64_t reached
        int leading
        int failed
    void ks_gate_init(ks_gate *g)
    void ks_gate_destroy(ks_gate *g)
    int ks_gate_enter(ks_gate *g, int64_t offset)
    void ks_gate_leave(ks_gate *g, int64_t reached, int failed)


cdef class LogAppender:
    cdef ks_owned_lock mutex
    cdef unsigned long leader      # the thread that syncs for all; 0 for none
    cdef readonly ActiveSegment active
    cdef readonly object _sealed   # the segments before the active one, as the deriving class keeps them
    cdef readonly tuple _segments  # (_sealed, active), replaced as one: readers take no lock
    cdef BatchBuilder builder
    cdef int64_t end
    cdef int32_t leader_epoch
    cdef int32_t known_epoch
    cdef int64_t segment_bytes
    cdef int64_t segment_ms
    cdef int64_t max_message_bytes
    cdef int64_t before_max_ms
    cdef int64_t after_max_ms
    cdef int64_t flush_messages
    cdef bint log_append_time
    cdef bint keys_required
    cdef int durability
    cdef int target_codec
    cdef bint own_clock            # the deriving class tells the time
    cdef str refusal
    cdef str unfinished            # a change under way: where it is broken off, nothing more is written
    cdef readonly bint _closed
    cdef ks_gate commit
    cdef int64_t sync_ceiling      # what the sync under way can make durable at most: truncation lowers it
    cdef list unsynced
    cdef bint names_unsynced
    cdef int64_t unsynced_from     # the first segment that has files among them
    cdef int64_t syncing_from      # the same of the sync under way
    cdef public Traffic traffic  # None: nothing is counted
    cdef unsigned int calls        # of appends, to choose those that are timed
    cdef unsigned long gathering   # the thread that syncs for what it appends later, for all of it at once; 0 for none
    cdef list waiting             # events to set at the next change; None for none

    cdef int acquire(self) except -1
    cdef int acquire_to_append(self) except -1
    cdef int refuse_reentrance(self) except -1
    cdef int enter_gate(self, int64_t offset) except -2
    cdef void release(self) noexcept
    cdef void end_append(self) noexcept
    cdef int notify(self) except -1
    cdef int check_usable(self) except -1
    cdef int64_t now(self, bint exact=*) except? -1
    cdef int fail(self, str what) except -1
    cdef int refuse_size(self, int64_t size) except -1
    cdef int refuse_offsets(self, int64_t count) except -1
    cdef int place(self, const ks_batch *b, int64_t now) except -1
    cdef int write_out(self, const uint8_t *data, int64_t size) except -1
    cdef int settle(self) except -1
    cdef int64_t begun(self) noexcept
    cdef int keep_promise(self, int64_t offset, int64_t began) except -1
    cdef int sync_closed(self) except -1
    cdef int wait_durable(self, int64_t offset, bint sealed=*) except -1
    cdef int64_t sync_once(self, bint sealed) except -1
    cdef int64_t check_timestamp(self, int64_t timestamp, int64_t now) except? -2
    cdef int note_epoch(self, const ks_batch *b) except -1
