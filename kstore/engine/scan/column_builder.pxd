from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from kstore.engine.columns.array cimport ColumnBatch, Field, ArrayData
from kstore.engine.io.buffers cimport Buffer, BufferPool, ks_vector
from kstore.engine.record.batch cimport Record
from kstore.engine.record.batch_fields cimport FIELD_COUNT
from libkstore.format cimport KS_OK, ks_batch, ks_fault, ks_header, ks_next_header, ks_record

cdef enum:
    ROWS_DONE = 0       # the records at hand are used up
    ROWS_FULL = 1       # take() first, then go on
    ROWS_END = 2        # a record at or behind the last offset wanted
    ROWS_MEMORY = -100  # negative: this, or a status of format.h

cdef enum:
    ANY_VALUE = -2   # of a wanted header: whatever it is

cdef struct ks_wanted:
    const uint8_t *name
    const uint8_t *value
    int64_t name_size
    int64_t value_size   # -1: null

# What a record must be like. Key and prefix have size -1 where they do not matter.
cdef struct ks_filter:
    int64_t start
    int64_t stop
    int64_t since
    int64_t latest
    const uint8_t *key
    const uint8_t *prefix
    int64_t key_size
    int64_t prefix_size
    int64_t wanted_count
    ks_wanted *wanted
    bint looks_inside    # something but the offset matters


cdef class Predicate:
    cdef ks_filter filter
    cdef list owners

    cdef int hold(self, bytes text, const uint8_t **data, int64_t *size) except -1
    cdef int want_header(self, object name, object value, bint any_value) except -1


cdef inline bint ks_has_header(const ks_record *r, const ks_wanted *w) noexcept nogil:
    cdef const uint8_t *p = r.headers
    cdef ks_header h
    cdef int32_t left = r.headers_count
    while left > 0:
        left -= 1
        if ks_next_header(&p, r.end, &h) != KS_OK:
            return False
        if h.key_size != w.name_size or memcmp(h.key, w.name, <size_t>w.name_size) != 0:
            continue
        if w.value_size == ANY_VALUE:
            return True
        if h.value_size == w.value_size and (
            w.value_size <= 0 or memcmp(h.value, w.value, <size_t>w.value_size) == 0
        ):
            return True
    return False


cdef inline bint ks_matches(const ks_filter *f, const ks_record *r) noexcept nogil:
    """All but the offset, which also tells where a scan ends."""
    cdef int64_t i
    if r.timestamp < f.since or r.timestamp > f.latest:
        return False
    if f.key_size >= 0 and (
        r.key_size != f.key_size or memcmp(r.key, f.key, <size_t>f.key_size) != 0
    ):
        return False
    if f.prefix_size >= 0 and (
        r.key_size < f.prefix_size or memcmp(r.key, f.prefix, <size_t>f.prefix_size) != 0
    ):
        return False
    for i in range(f.wanted_count):
        if not ks_has_header(r, &f.wanted[i]):
            return False
    return True


# Records still to be decoded. Long values are viewed where `block` says that they may be, else copied.
cdef struct ks_run:
    const uint8_t *start
    const uint8_t *p
    const uint8_t *end
    int32_t left
    const uint8_t *block
    int32_t block_index
    bint block_used
    int64_t position     # of their batch

# A column of bytes under construction: cells are the ends of the rows, or views.
cdef struct ks_bytes:
    bint wanted
    bint viewed
    int64_t count
    int64_t null_count
    ks_vector cells
    ks_vector data
    ks_vector validity
    int64_t hint         # the bytes that the last batch had


cdef class ColumnBuilder:
    cdef readonly int64_t count
    cdef readonly Field schema
    cdef BufferPool pool
    cdef tuple names
    cdef int64_t most_rows
    cdef int64_t most_bytes
    cdef int64_t bytes
    cdef int64_t rows_hint     # that the last batch had
    cdef bint begun
    cdef bint views
    cdef bint key_is_text
    cdef bint value_is_text
    cdef bint with_offset
    cdef bint with_timestamp
    cdef bint with_headers
    cdef ks_vector offsets
    cdef ks_vector timestamps
    cdef ks_vector lists
    cdef ks_bytes key
    cdef ks_bytes value
    cdef ks_bytes header_name
    cdef ks_bytes header_value
    cdef int field_count
    cdef int[FIELD_COUNT] field_ids
    cdef ks_vector[FIELD_COUNT] fields
    cdef list blocks
    cdef int32_t block_count

    cdef int begin(self) except -1
    cdef void put_plain(self, ks_run *run, const ks_batch *b, const ks_filter *f) noexcept nogil
    cdef int decode(self, ks_run *run, const ks_batch *b, const ks_filter *f, ks_fault *fault) noexcept nogil
    cdef int put_record(self, Record record, const ks_batch *b, int64_t position, const ks_filter *f) except -1
    cdef int add_block(self, Buffer block) except -1
    cdef bint is_full(self) noexcept nogil
    cdef int make_room(self, int64_t more) noexcept nogil
    cdef int put_headers(self, const ks_record *r) noexcept nogil
    cdef int put_fields(self, int64_t more, const ks_batch *b, int64_t position, int kind) noexcept nogil
    cdef str wrong_text(self)
    cdef ColumnBatch take(self)
    cdef ArrayData finish_fixed(self, Field field, ks_vector *v)
    cdef ArrayData finish_headers(self, Field field)
    cdef ArrayData finish_bytes(self, Field field, ks_bytes *c)
