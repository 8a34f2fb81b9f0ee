"""Twin of kstore/columns.h."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from libkstore.format cimport ks_batch


cdef extern from "kstore/columns.h" nogil:
    enum:
        KS_OFFSETS
        KS_TIMESTAMPS
        KS_KEYS
        KS_VALUES
        KS_LISTS
        KS_VIEWS
        KS_VIEW
        KS_VIEW_INLINE

    ctypedef struct ks_column:
        uint8_t *bytes
        int64_t size
        int64_t room
        int32_t *ends
        uint8_t *views
        uint8_t *valid
        int64_t valid_rows
        int64_t nulls

    ctypedef struct ks_table:
        int64_t rows
        int64_t most_rows
        int64_t most_bytes
        int64_t start
        int64_t stop
        int64_t *offsets
        int64_t *timestamps
        int32_t *lists
        int32_t list_end
        const uint8_t *block
        int32_t block_index
        int viewed
        ks_column key
        ks_column value

    void ks_put_view(
        uint8_t *view, const uint8_t *cell, int32_t size, const uint8_t *end, const uint8_t *block, int32_t block_index
    )

    int32_t ks_take_records(
        ks_table *t, const uint8_t **p, const uint8_t *end, const ks_batch *b, int32_t most, int columns
    )
