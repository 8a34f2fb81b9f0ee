from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    CELLS_NULL = 0
    CELLS_POINTERS
    CELLS_OFFSETS32
    CELLS_OFFSETS64
    CELLS_FIXED

# A column of bytes cells.
cdef struct ks_cells:
    int kind
    int64_t count
    const uint8_t *data          # OFFSETS*, FIXED
    const void *offsets          # OFFSETS*: count + 1 of them
    const uint8_t *validity      # a bit a cell, 1 for valid; or NULL
    int64_t first                # where cell 0 lies in offsets and validity
    int64_t width                # FIXED
    const uint8_t **pointers     # POINTERS: NULL for null
    int64_t *sizes


cdef inline const uint8_t *ks_cell(const ks_cells *c, int64_t i, int64_t *size) noexcept nogil:
    """The bytes of cell i, and how many; NULL and -1 for null."""
    cdef int64_t at = i + c.first, start
    if c.kind == CELLS_POINTERS:
        size[0] = c.sizes[i]
        return c.pointers[i]
    if c.kind == CELLS_NULL or (c.validity is not NULL and not (c.validity[at >> 3] >> (at & 7)) & 1):
        size[0] = -1
        return NULL
    if c.kind == CELLS_OFFSETS32:
        start = (<const int32_t *>c.offsets)[at]
        size[0] = (<const int32_t *>c.offsets)[at + 1] - start
    elif c.kind == CELLS_OFFSETS64:
        start = (<const int64_t *>c.offsets)[at]
        size[0] = (<const int64_t *>c.offsets)[at + 1] - start
    else:
        start = at * c.width
        size[0] = c.width
    return c.data + start


cdef class Cells:
    cdef ks_cells cells
    cdef object owner

    @staticmethod
    cdef Cells of(object values, str what, int64_t count)
    cdef int room(self, int64_t count) except -1


cdef class Times:
    cdef const int64_t *data
    cdef int64_t constant
    cdef int64_t count
    cdef object owner

    @staticmethod
    cdef Times of(object timestamps, int64_t count, int64_t default_ms)


cdef class HeaderLists:
    cdef bytes shared
    cdef const uint8_t *shared_at
    cdef int64_t shared_size
    cdef ks_cells cells
    cdef Cells encoded

    @staticmethod
    cdef HeaderLists of(object headers, int64_t count)
    cdef const uint8_t *at(self, int64_t i, int64_t *size) noexcept nogil
