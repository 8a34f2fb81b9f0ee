from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore.engine.append.log_end cimport LogEnd
from kstore.engine.record.batch_builder cimport BatchBuilder
from libkstore.format cimport ks_batch


cdef class LogAppender:
    cdef readonly LogEnd _log_end
    cdef BatchBuilder builder
    cdef readonly int32_t _leader_epoch
    cdef int64_t segment_bytes
    cdef int64_t segment_ms
    cdef int64_t max_message_bytes
    cdef int64_t before_max_ms
    cdef int64_t after_max_ms
    cdef int64_t flush_messages
    cdef bint log_append_time
    cdef bint keys_required
    cdef int target_codec
    cdef object clock              # gives the time in ms; None: the system does
    cdef object hooks              # an AppendHooks; None until the log is open
    cdef unsigned int calls        # of appends, to choose those that are timed

    cdef int acquire_to_append(self) except -1
    cdef int64_t now(self, bint exact=*) except? -1
    cdef int refuse_size(self, int64_t size) except -1
    cdef int refuse_offsets(self, int64_t count) except -1
    cdef int roll_for(self, int reason, int64_t first_offset) except -1
    cdef int place(self, const ks_batch *b, int64_t now) except -1
    cdef int write_out(self, const uint8_t *data, int64_t size) except -1
    cdef int settle(self) except -1
    cdef int64_t begun(self) noexcept
    cdef int keep_promise(self, int64_t offset, int64_t began) except -1
    cdef int64_t check_timestamp(self, int64_t timestamp, int64_t now) except? -2
    cdef int note_epoch(self, const ks_batch *b) except -1
