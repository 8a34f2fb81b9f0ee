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
cdef object materialised(object values, str what, int64_t count)
cdef object numpy_of(object values)
cdef object pinned(object source, const uint8_t **data, int64_t *size)
cdef const uint8_t *empty_cell() noexcept nogil
cdef str of_record(int64_t i)
cdef int check_count(str what, int64_t found, int64_t count) except -1
cdef int refuse_mask(object array, str what) except -1


cdef int64_t moment(object timestamp) except? -2


cdef class TimestampInput:
    cdef const int64_t *data     # NULL: all have one value, `constant`
    cdef int64_t constant
    cdef int64_t count
    cdef int64_t *own            # what data points at, where it is not the owner's
    cdef object owner

    @staticmethod
    cdef TimestampInput of(object timestamps, int64_t count, int64_t default_ms)

    cdef int take_ints(self, tuple items) except -1
    cdef int take_numpy(self, object array, object numpy) except -1
    cdef int take_column(self, ChunkedArray column) except -1
    cdef int take_plain(self, const int64_t *data, object owner) except -1
    cdef int room(self, int64_t count) except -1


cdef class HeaderInput:
    cdef uint8_t *data           # the encodings, one behind the other
    cdef int64_t size
    cdef int64_t space
    cdef int64_t *ends           # of each in data; NULL: all share data
    cdef int64_t count

    @staticmethod
    cdef HeaderInput of(object headers, int64_t count)

    cdef HeaderInput chosen(self, const int64_t *rows, int64_t count)

    cdef inline const uint8_t *headers_at(self, int64_t i, int64_t *size) noexcept nogil:
        """The encoded headers of record i, their count in front."""
        cdef int64_t start
        if self.ends is NULL:
            size[0] = self.size
            return self.data
        start = self.ends[i - 1] if i else 0
        size[0] = self.ends[i] - start
        return self.data + start

    cdef int put(self, object headers, int64_t i) except -1
    cdef int put_field(self, const char *data, int64_t size) except -1
    cdef int put_varint(self, int64_t value) except -1
    cdef int reserve(self, int64_t more) except -1
