from libc.stdint cimport int32_t, int64_t, uint8_t

from kstore.engine.columns.binary_input cimport ks_cells
from kstore.engine.columns.column_input cimport HeaderInput
from libkstore.format cimport ks_batch


cdef enum:
    BUILD_NO_MEMORY = -1
    BUILD_TOO_LARGE = -2        # the batch would pass 2^31 - 1 bytes
    BUILD_HEADERS = -3          # the record's headers, as objects, would take more memory than readers allow

# What a record says, as pointers into Python objects that the caller keeps; null has size -1.
cdef struct ks_fields:
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers      # as they lie in a record, their count included
    int64_t key_size
    int64_t value_size
    int64_t headers_size

# Many records as columns.
cdef struct ks_columns:
    const ks_cells *values
    const ks_cells *keys
    const int64_t *timestamps   # NULL: `timestamp` for all
    int64_t timestamp
    int64_t count


cdef bytes encode_headers(object headers)
cdef object read_fields(object value, object key, object headers, ks_fields *f)


cdef class BatchBuilder:
    cdef uint8_t *data
    cdef int64_t room
    cdef int64_t used
    cdef int64_t start
    cdef ks_batch batch
    cdef int codec
    cdef int level
    cdef int64_t unpacked_max   # bytes: what readers unpack a batch to at most

    cdef BatchBuilder emptied(self)
    cdef int ensure(self, int64_t more) noexcept nogil
    cdef int begin(self, int64_t base_offset, int32_t leader_epoch, int attributes) noexcept nogil
    cdef int put(
        self, size_t body, int64_t timestamp, const uint8_t *key, int64_t key_size, const uint8_t *value,
        int64_t value_size, const uint8_t *headers, int64_t headers_size,
    ) noexcept nogil
    cdef int add(self, int64_t timestamp, const ks_fields *f) noexcept nogil
    cdef int64_t fill(self, const ks_columns *columns, HeaderInput headers, int64_t first, int64_t most) noexcept nogil
    cdef int raise_status(self, int status, str what, int64_t size, int64_t limit) except -1
    cdef int finish(self) except -1 nogil
    cdef int pack(self) except -1
