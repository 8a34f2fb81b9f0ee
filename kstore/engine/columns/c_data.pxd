from libc.stdint cimport int64_t, uint8_t

# The C data and stream interfaces of Arrow. The order of the fields is their ABI.

cdef struct ArrowSchema:
    const char *format
    const char *name
    const char *metadata
    int64_t flags
    int64_t n_children
    ArrowSchema **children
    ArrowSchema *dictionary
    void (*release)(ArrowSchema *) noexcept nogil  # NULL: released, or moved elsewhere
    void *private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count                             # -1: not counted
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void **buffers
    ArrowArray **children
    ArrowArray *dictionary
    void (*release)(ArrowArray *) noexcept nogil
    void *private_data

cdef struct ArrowArrayStream:
    int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept nogil
    int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept nogil
    const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
    void (*release)(ArrowArrayStream *) noexcept nogil
    void *private_data


cdef class Chunk:
    cdef ArrowArray array


cdef class ChunkedArray:
    cdef ArrowSchema schema
    cdef list chunks       # of Chunk
    cdef int64_t count     # cells of them all
    cdef str what

    @staticmethod
    cdef ChunkedArray of(object source, str what, int64_t most)
    cdef int take_array(self, object source) except -1
    cdef int take_stream(self, object source, int64_t most) except -1
    cdef int add(self, Chunk chunk) except -1
    cdef str format(self)


cdef inline bint ks_is_null(const uint8_t *validity, int64_t at) noexcept nogil:
    """Whether a bitmap says so; NULL: nothing is null."""
    return validity is not NULL and not (validity[at >> 3] >> (at & 7)) & 1


cdef bint is_arrow(object source)
cdef const uint8_t *validity_of(const ArrowArray *a, str what) except? NULL
cdef int check_extent(const ArrowArray *a, int64_t before, str what) except -1
cdef int check_buffers(const ArrowArray *a, int64_t least, str what) except -1
