from cpython.buffer cimport Py_buffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kstore.engine.columns.column_input cimport ArrowArray, ArrowSchema, ChunkedArray, ks_is_null
from kstore.engine.columns.column_input cimport TimestampInput  # for those who take columns: the two come from here

cdef enum:
    CELLS_NULL = 0     # every cell is null
    CELLS_POINTERS
    CELLS_OFFSETS32
    CELLS_OFFSETS64
    CELLS_FIXED

# A column of cells: bytes, or null.
cdef struct ks_cells:
    int kind
    int64_t count
    const uint8_t *data          # OFFSETS*, FIXED
    const void *offsets          # OFFSETS*: int32 or int64, one more than cells, perhaps not aligned
    const uint8_t *validity      # a bit a cell, lowest first, 1 for valid; or NULL
    int64_t first                # where cell 0 lies in offsets (FIXED: in data) and in validity
    int64_t width                # FIXED
    const uint8_t **pointers     # POINTERS: NULL for null
    int64_t *sizes
    const int64_t *rows          # if not NULL: cell i is what cell rows[i] would be without it


cdef inline const uint8_t *ks_cell(const ks_cells *c, int64_t i, int64_t *size) noexcept nogil:
    """The bytes of cell i, and how many: NULL and -1 for null, a pointer and 0 for an empty cell."""
    cdef int64_t at, start
    cdef int32_t[2] ends32
    cdef int64_t[2] ends64
    if c.rows is not NULL:
        i = c.rows[i]
    if c.kind == CELLS_POINTERS:
        size[0] = c.sizes[i]
        return c.pointers[i]
    at = c.first + i
    if c.kind == CELLS_NULL or ks_is_null(c.validity, at):
        size[0] = -1
        return NULL
    if c.kind == CELLS_OFFSETS32:
        memcpy(ends32, <const uint8_t *>c.offsets + 4 * at, 8)  # a load, wherever they lie
        start = ends32[0]
        size[0] = ends32[1] - start
    elif c.kind == CELLS_OFFSETS64:
        memcpy(ends64, <const uint8_t *>c.offsets + 8 * at, 16)
        start = ends64[0]
        size[0] = ends64[1] - start
    else:
        start = at * c.width
        size[0] = c.width
    return c.data + start


cdef inline bint ks_cells_are_alike(const ks_cells *c) noexcept nogil:
    """Whether all cells are known to have one size: it is enough to look at the first."""
    return c.kind == CELLS_NULL or (c.kind == CELLS_FIXED and c.validity is NULL)


cdef class BinaryInput:
    cdef ks_cells cells
    cdef object owner            # of all that the cells point at
    cdef Py_buffer *pins         # of cells that are no bytes objects
    cdef int64_t pin_count

    @staticmethod
    cdef BinaryInput of(object values, str what, int64_t count)

    @staticmethod
    cdef BinaryInput of_array(const ArrowSchema *schema, const ArrowArray *array, str what)

    cdef BinaryInput chosen(self, object rows, int64_t first, int64_t count)
    cdef int take_objects(self, object items, str what) except -1
    cdef int take_odd(self, tuple items, int64_t odd, str what) except -1
    cdef int pin(self, object item, int64_t i, str what) except -1
    cdef int take_numpy(self, object array, object numpy, str what) except -1
    cdef int take_fixed(self, object array, int64_t width, bint strip) except -1
    cdef int take_column(self, ChunkedArray column) except -1
    cdef int take_offsets(self, const ArrowArray *a, str what) except -1
    cdef int take_width(self, const ArrowArray *a, bytes width, str what) except -1
    cdef int take_views(self, const ArrowArray *a, str what) except -1
    cdef int take_dictionary(self, const ArrowSchema *schema, const ArrowArray *a, str what) except -1
    cdef int room(self, int64_t count) except -1
