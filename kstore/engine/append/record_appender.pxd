from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore.engine.append.batch_validation cimport ks_arrival
from kstore.engine.append.log_appender cimport LogAppender
from kstore.engine.columns.binary_input cimport BinaryInput
from kstore.engine.columns.column_input cimport HeaderInput, TimestampInput
from kstore.engine.record.batch_builder cimport BatchBuilder, ks_columns


cdef class RecordAppender(LogAppender):
    cdef uint8_t *given           # the batches that append_batches has at hand
    cdef int64_t given_size
    cdef bint is_accounting       # producers are taken into account, or that has failed

    cdef int64_t append_built(self, BatchBuilder built) except -1
    cdef void set_columns(
        self, ks_columns *columns, BinaryInput values, BinaryInput keys, TimestampInput times, bint without_times,
        int64_t now,
    ) noexcept
    cdef int64_t most_of(self, int64_t batch_bytes) noexcept nogil
    cdef int check_columns(
        self, const ks_columns *columns, HeaderInput headers, int64_t most, int64_t now
    ) except -1
    cdef int check_headers(self, const ks_columns *columns, HeaderInput headers) except -1
    cdef int refuse_build(self, int status, const ks_columns *columns, int64_t i) except -1
    cdef int check_large(
        self, const ks_columns *columns, HeaderInput headers, int64_t first, int64_t most, int64_t now
    ) except -1
    cdef int wrong_record(
        self, const ks_columns *columns, int64_t now, int64_t safe, int64_t *slot, int64_t *large
    ) noexcept nogil
    cdef int refuse_record(self, const ks_columns *columns, int64_t i, int status, int64_t now) except -1
    cdef int take(self, encoded, bint as_they_are) except -1
    cdef int number(self, int64_t offset, int32_t epoch) except -1
    cdef list parsed(self)
    cdef int leave_out(self, dict retries) except -1
    cdef int roll_first(self, const ks_arrival *found, bint joined, int64_t now) except -1
    cdef int64_t put_accounted(
        self, const ks_arrival *found, bint joined, list batches, int64_t now, change
    ) except -1
    cdef int account(self, list batches) except -1
    cdef int64_t put_each(self, int64_t now, list batches=*) except -1
    cdef int64_t put_joined(self, const ks_arrival *found, int64_t now) except -1
    cdef int note_epochs(self, const ks_arrival *found) except -1
    cdef int stage_given(self, const ks_arrival *found) except -1
