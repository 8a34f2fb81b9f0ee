from cpython.pythread cimport PyThread_type_lock
from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore.engine.active cimport Active
from kstore.engine.builder cimport Builder, ks_columns
from kstore.engine.incoming cimport ks_arrival
from libkstore.format cimport ks_batch

cdef extern from "gate.h" nogil:
    ctypedef struct ks_gate:
        int64_t reached
        int failed
    void ks_gate_init(ks_gate *g)
    void ks_gate_destroy(ks_gate *g)
    int ks_gate_enter(ks_gate *g, int64_t offset)
    void ks_gate_leave(ks_gate *g, int64_t reached, int failed)


cdef class Tail:
    cdef PyThread_type_lock mutex
    cdef readonly Active active
    cdef Builder builder
    cdef uint8_t *given           # the batches that append_batches has at hand
    cdef int64_t given_size
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
    cdef object clock
    cdef str refusal
    cdef bint closed
    cdef ks_gate commit
    cdef int64_t sync_ceiling      # what the sync under way can make durable at most: truncation lowers it
    cdef list unsynced
    cdef bint names_unsynced
    cdef list waiting             # bells to ring at the next change; None for none

    cdef int acquire(self) except -1
    cdef void release(self) noexcept
    cdef int ring(self) except -1
    cdef int check_usable(self) except -1
    cdef int64_t now(self, bint exact=*) except? -1
    cdef int fail(self, str what) except -1
    cdef int64_t append_built(self, Builder built) except -1
    cdef int refuse_size(self, int64_t size) except -1
    cdef int place(self, const ks_batch *b, int64_t now) except -1
    cdef int write_out(self, const uint8_t *data, int64_t size) except -1
    cdef int settle(self) except -1
    cdef int wait_durable(self, int64_t offset, bint sealed=*) except -1
    cdef int64_t sync_once(self, bint sealed) except -1
    cdef int64_t check_timestamp(self, int64_t timestamp, int64_t now) except? -2
    cdef int check_columns(self, const ks_columns *columns, int64_t now) except -1
    cdef int wrong_record(self, const ks_columns *columns, int64_t now, int64_t *slot) noexcept nogil
    cdef int refuse_record(self, const ks_columns *columns, int64_t i, int status, int64_t now) except -1
    cdef int note_epoch(self, const ks_batch *b) except -1
    cdef int take(self, encoded, bint as_they_are) except -1
    cdef int number(self, int64_t offset, int32_t epoch) except -1
    cdef list parsed(self)
    cdef int roll_first(self, const ks_arrival *found, bint joined, int64_t now) except -1
    cdef int64_t put_each(self, int64_t now) except -1
    cdef int64_t put_joined(self, const ks_arrival *found, int64_t now) except -1
    cdef int note_epochs(self, const ks_arrival *found) except -1
    cdef int stage_given(self, const ks_arrival *found) except -1
