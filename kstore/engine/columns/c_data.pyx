# cython: binding=False
"""Arrow arrays of other libraries, taken over through the PyCapsule interface; no Arrow library is needed.

An array arrives as a struct with a release function. Taking it over means copying the struct and clearing the
release function of the original; whoever holds the copy calls it, once. Nothing says how long the buffers
are, except those of views: a producer that lies about them cannot be found out, one that contradicts itself
can.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cython cimport final
from libc.stdint cimport INT64_MAX, int64_t, uint8_t

cdef enum:
    WIDEST = 64  # no element is wider but those of w:N; lengths below INT64_MAX / WIDEST let sums and products be


cdef bint is_arrow(object source):
    return hasattr(source, "__arrow_c_array__") or hasattr(source, "__arrow_c_stream__")


cdef void *pointer_in(object capsule, const char *name, str what) except NULL:
    """What a capsule holds. ValueError unless it is one, of this name."""
    if not PyCapsule_IsValid(capsule, name):
        raise ValueError(f"{what}: a capsule named {name.decode()} was promised, and {capsule!r} came")
    return PyCapsule_GetPointer(capsule, name)


cdef int raise_released(str what, str kind) except -1:
    raise ValueError(f"{what}: the Arrow {kind} was released, or given to someone else before")


@final
cdef class Chunk:
    """Owns one array."""

    def __dealloc__(self):
        if self.array.release is not NULL:
            self.array.release(&self.array)


@final
cdef class Stream:
    """Owns a stream, whose arrays outlive it."""

    cdef ArrowArrayStream stream

    def __dealloc__(self):
        if self.stream.release is not NULL:
            self.stream.release(&self.stream)

    cdef int raise_error(self, int error, str what) except -1:
        cdef const char *text = self.stream.get_last_error(&self.stream) if self.stream.get_last_error else NULL
        reason = (<bytes>text).decode("utf-8", "replace") if text is not NULL else "no reason given"
        raise ValueError(f"{what}: the Arrow stream failed with errno {error}: {reason}")


@final
cdef class ChunkedArray:
    """Owns a schema and the arrays that came with it, none of them empty."""

    def __dealloc__(self):
        if self.schema.release is not NULL:
            self.schema.release(&self.schema)

    @staticmethod
    cdef ChunkedArray of(object source, str what, int64_t most):
        """Takes over what `source` exports. Of a stream, arrays that begin past `most` cells are not asked
        for."""
        cdef ChunkedArray column = ChunkedArray()
        column.what = what
        column.chunks = []
        if hasattr(source, "__arrow_c_array__"):
            column.take_array(source)
        else:
            column.take_stream(source, most)
        if column.schema.format is NULL:
            raise ValueError(f"{what}: an Arrow schema without a format")
        return column

    cdef int take_array(self, object source) except -1:
        pair = source.__arrow_c_array__()
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(f"{self.what}: __arrow_c_array__ gives two capsules, and {pair!r} came")
        cdef ArrowSchema *schema = <ArrowSchema *>pointer_in(pair[0], "arrow_schema", self.what)
        cdef ArrowArray *array = <ArrowArray *>pointer_in(pair[1], "arrow_array", self.what)
        if schema.release is NULL or array.release is NULL:
            raise_released(self.what, "array")
        cdef Chunk chunk = Chunk()
        self.schema = schema[0]
        schema.release = NULL
        chunk.array = array[0]
        array.release = NULL
        self.add(chunk)

    cdef int take_stream(self, object source, int64_t most) except -1:
        capsule = source.__arrow_c_stream__()
        cdef ArrowArrayStream *stream = <ArrowArrayStream *>pointer_in(capsule, "arrow_array_stream", self.what)
        if stream.release is NULL:
            raise_released(self.what, "stream")
        cdef Stream own = Stream()
        cdef Chunk chunk
        cdef int status
        own.stream = stream[0]
        stream.release = NULL
        stream = &own.stream
        with nogil:  # the producer may wait for threads of its own that need the GIL
            status = stream.get_schema(stream, &self.schema)
        if status:
            own.raise_error(status, self.what)
        if self.schema.release is NULL:
            raise_released(self.what, "schema")
        while most < 0 or self.count <= most:
            chunk = Chunk()
            with nogil:
                status = stream.get_next(stream, &chunk.array)
            if status:
                own.raise_error(status, self.what)
            if chunk.array.release is NULL:  # the end
                break
            self.add(chunk)

    cdef int add(self, Chunk chunk) except -1:
        check_extent(&chunk.array, self.count, self.what)
        if chunk.array.length:
            self.chunks.append(chunk)
            self.count += chunk.array.length

    cdef str format(self):
        return (<bytes>self.schema.format).decode("utf-8", "replace")


cdef int check_extent(const ArrowArray *a, int64_t before, str what) except -1:
    """Length and offset are no nonsense, nor would the sum with the `before` elements of other arrays be."""
    cdef int64_t most = INT64_MAX // WIDEST - before
    if a.length < 0 or a.offset < 0 or a.length > most or a.offset > most - a.length:
        raise ValueError(f"{what}: an Arrow array of length {a.length} at offset {a.offset}")


cdef int check_buffers(const ArrowArray *a, int64_t least, str what) except -1:
    """An array that is not empty has `least` buffers, whose second, the one of the elements, is there."""
    if a.n_buffers < least or a.buffers is NULL:
        raise ValueError(f"{what}: an Arrow array of {a.n_buffers} buffers where {least} belong")
    if a.buffers[1] is NULL:
        raise ValueError(f"{what}: an Arrow array of {a.length} elements without a buffer for them")


cdef const uint8_t *validity_of(const ArrowArray *a, str what) except? NULL:
    """The bitmap of an array whose buffers were checked; NULL where nothing is null."""
    if a.null_count == 0:
        return NULL
    if a.buffers[0] is NULL and a.null_count > 0:
        raise ValueError(f"{what}: an Arrow array with {a.null_count} nulls that does not say which")
    return <const uint8_t *>a.buffers[0]
