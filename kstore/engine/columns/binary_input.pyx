# cython: binding=False
"""What `log.extend` takes, as columns of C: read once with the GIL, and then by index without it.

A column of cells comes as a sequence of bytes-like objects and None, as a numpy array, or as anything that
exports Arrow arrays. Bytes are not copied, they are pinned: a BinaryInput holds a reference to each object,
or the buffers under them, for as long as it lives. Someone who changes a bytearray or a writable array
meanwhile changes what is written, but not where it lies or how long it is.

numpy arrays of dtype S give what their elements are in Python: the zeros at the end of a cell are not part of
it. Arrays of dtype V and two-dimensional arrays of uint8 (a row a cell) give all their bytes.
"""


from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_New
from cython cimport final
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy

from kstore.engine.columns.column_input cimport (
    ArrowArray,
    ArrowSchema,
    Chunk,
    ChunkedArray,
    check_buffers,
    check_count,
    check_extent,
    empty_cell,
    is_arrow,
    ks_is_null,
    materialised,
    numpy_of,
    pinned,
    refuse_mask,
    validity_of,
)

# On PyObject *, so that the loop over a list counts no references.
cdef extern from "Python.h":
    bint is_bytes_exactly "PyBytes_CheckExact"(PyObject *)
    const char *bytes_of "PyBytes_AS_STRING"(PyObject *)
    Py_ssize_t size_of "PyBytes_GET_SIZE"(PyObject *)
    PyObject *tuple_item "PyTuple_GET_ITEM"(PyObject *, Py_ssize_t)
    PyObject *list_item "PyList_GET_ITEM"(PyObject *, Py_ssize_t)
    void put_item "PyTuple_SET_ITEM"(PyObject *, Py_ssize_t, PyObject *)
    void take_reference "Py_INCREF"(PyObject *)

cdef enum:
    VIEW = 16          # bytes of an element of an Arrow view array
    VIEW_INLINE = 12   # a cell of up to so many lies in the element itself

# Formats of Arrow arrays of bytes and text; w:N beside them.
cdef frozenset BYTES_FORMATS = frozenset((b"n", b"z", b"Z", b"u", b"U", b"vz", b"vu"))
cdef frozenset INDEX_FORMATS = frozenset((b"c", b"C", b"s", b"S", b"i", b"I", b"l", b"L"))


@final
cdef class BinaryInput:
    """A column of bytes cells; `cells` may be read without the GIL as long as the object lives.
    Thread-safe."""

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.pin_count):
            PyBuffer_Release(&self.pins[i])
        PyMem_RawFree(self.pins)
        if self.cells.rows is NULL:  # else they are the owner's
            PyMem_RawFree(self.cells.pointers)

    @staticmethod
    cdef BinaryInput of(object values, str what, int64_t count):
        """The cells of `values`, which errors call `what`. ValueError unless there are `count` (-1: any
        number).

        TypeError for what is no column of bytes; ValueError too for Arrow arrays that contradict
        themselves."""
        cdef BinaryInput self
        cdef ChunkedArray column
        if type(values) is BinaryInput:  # made before
            self = <BinaryInput>values
            check_count(what, self.cells.count, count)
            return self
        self = BinaryInput()
        if values is None:
            if count < 0:
                raise TypeError(f"{what}: a sequence of bytes, not None")
            self.cells.count = count
            return self
        if isinstance(values, str):
            raise TypeError(f"{what}: a sequence of bytes, not str; encode the elements")
        if (numpy := numpy_of(values)) is not None:
            self.take_numpy(values, numpy, what)
        elif type(values) is not list and type(values) is not tuple and is_arrow(values):
            column = ChunkedArray.of(values, what, count)
            self.take_column(column)
        else:
            self.take_objects(values if type(values) is list else materialised(values, what, count), what)
        check_count(what, self.cells.count, count)
        return self

    cdef BinaryInput chosen(self, object rows, int64_t first, int64_t count):
        """Some of the cells, not copied: their numbers are `count` of the int64 in the bytes object `rows`,
        from place `first` on."""
        cdef BinaryInput part = BinaryInput()
        assert self.cells.rows is NULL
        part.owner = (self, rows)
        part.cells = self.cells
        part.cells.rows = <const int64_t *>PyBytes_AS_STRING(rows) + first
        part.cells.count = count
        return part

    cdef int room(self, int64_t count) except -1:
        """Memory for the pointers and sizes of so many cells."""
        self.cells.pointers = <const uint8_t **>PyMem_RawMalloc(<size_t>(count * 16))
        if self.cells.pointers is NULL:
            raise MemoryError()
        self.cells.sizes = <int64_t *>(self.cells.pointers + count)
        self.cells.kind = CELLS_POINTERS
        self.cells.count = count

    cdef int take_objects(self, object items, str what) except -1:
        """The cells of a list or a tuple, and references to them.

        A list may be changed by whatever Python code runs, so none does until all references are taken: what
        is neither bytes nor None is set aside at first."""
        cdef int64_t i, n = len(items), odd = 0
        cdef PyObject *item
        cdef PyObject *owner
        cdef bint from_list
        self.owner = PyTuple_New(n) if type(items) is list else items
        if len(items) != n:  # a collection of garbage, which a new tuple may set off, runs any code
            self.owner = items = tuple(items)
            n = len(items)
        self.room(n)
        from_list = type(items) is list
        owner = <PyObject *>self.owner
        for i in range(n):
            if from_list:
                item = list_item(<PyObject *>items, i)
                take_reference(item)
                put_item(owner, i, item)
            else:
                item = tuple_item(owner, i)
            if is_bytes_exactly(item):
                self.cells.pointers[i] = <const uint8_t *>bytes_of(item)
                self.cells.sizes[i] = size_of(item)
                odd += size_of(item) > INT32_MAX
            else:
                self.cells.pointers[i] = NULL
                self.cells.sizes[i] = -1
                odd += item is not <PyObject *>None
        if odd:
            self.take_odd(self.owner, odd, what)

    cdef int take_odd(self, tuple items, int64_t odd, str what) except -1:
        """The cells set aside, `odd` of them. They keep their lengths as long as their buffers are pinned."""
        cdef int64_t i
        self.pins = <Py_buffer *>PyMem_RawMalloc(<size_t>odd * sizeof(Py_buffer))
        if self.pins is NULL:
            raise MemoryError()
        for i in range(self.cells.count):
            if self.cells.pointers[i] is NULL and items[i] is not None:
                self.pin(items[i], i, what)
            if self.cells.sizes[i] > INT32_MAX:
                raise ValueError(f"{what}: cell {i} has {self.cells.sizes[i]} bytes, more than a record can hold")

    cdef int pin(self, object item, int64_t i, str what) except -1:
        cdef Py_buffer *pin = &self.pins[self.pin_count]
        if isinstance(item, str):
            raise TypeError(f"{what}: cell {i} is a str; encode it")
        if not isinstance(item, (bytes, bytearray, memoryview)):
            raise TypeError(f"{what}: cell {i} is bytes, bytearray, memoryview or None, not {type(item).__name__}")
        if isinstance(item, memoryview) and not item.c_contiguous:
            item = item.tobytes()
        PyObject_GetBuffer(item, pin, PyBUF_SIMPLE)
        self.pin_count += 1
        self.cells.pointers[i] = <const uint8_t *>pin.buf if pin.len else empty_cell()
        self.cells.sizes[i] = pin.len

    # ---- numpy ----

    cdef int take_numpy(self, object array, object numpy, str what) except -1:
        refuse_mask(array, what)
        kind = array.dtype.kind
        plain = array.dtype.names is None
        if kind == "S" and array.ndim == 1:
            self.take_fixed(numpy.ascontiguousarray(array), array.dtype.itemsize, True)
        elif kind == "V" and plain and array.ndim == 1:
            self.take_fixed(numpy.ascontiguousarray(array), array.dtype.itemsize, False)
        elif array.dtype == numpy.uint8 and array.ndim == 2:
            self.take_fixed(numpy.ascontiguousarray(array), array.shape[1], False)
        elif kind == "O" and array.ndim == 1:
            self.take_objects(tuple(array.tolist()), what)
        else:
            hint = "; numpy.char.encode(array) encodes text" if kind == "U" else ""
            raise TypeError(
                f"{what}: an array of bytes (S, V or objects), or of uint8 with a row a record, "
                f"not {array.ndim}-D {array.dtype}{hint}"
            )

    cdef int take_fixed(self, object array, int64_t width, bint strip) except -1:
        cdef int64_t i, size
        self.owner = pinned(array, &self.cells.data, &size)
        self.cells.count = len(array)
        self.cells.width = width
        self.cells.kind = CELLS_FIXED
        if not strip:
            return 0
        self.room(self.cells.count)
        with nogil:
            for i in range(self.cells.count):
                size = width
                while size and not self.cells.data[i * width + size - 1]:
                    size -= 1
                self.cells.pointers[i] = self.cells.data + i * width
                self.cells.sizes[i] = size

    # ---- Arrow ----

    cdef int take_column(self, ChunkedArray column) except -1:
        """All chunks of a column: as it lies if it is one, pointers into them if there are more."""
        cdef BinaryInput part
        cdef Chunk chunk
        cdef int64_t i, at = 0
        check_format(column)
        self.owner = column
        if not column.chunks:
            return 0
        if len(column.chunks) > 1:
            self.room(column.count)
        for chunk in column.chunks:
            part = BinaryInput.of_array(&column.schema, &chunk.array, column.what)
            if len(column.chunks) == 1:
                self.cells = part.cells
                part.cells.pointers = NULL  # they are ours now
                return 0
            with nogil:
                for i in range(part.cells.count):
                    self.cells.pointers[at + i] = ks_cell(&part.cells, i, &self.cells.sizes[at + i])
            at += part.cells.count

    @staticmethod
    cdef BinaryInput of_array(const ArrowSchema *schema, const ArrowArray *array, str what):
        """The cells of one array, which the caller keeps alive; its format and extent have been checked."""
        cdef BinaryInput self = BinaryInput()
        cdef bytes format = schema.format
        self.cells.count = array.length
        self.cells.first = array.offset
        if format == b"n" or array.length == 0:
            return self
        if schema.dictionary is not NULL:
            self.take_dictionary(schema, array, what)
        elif format.startswith(b"w:"):
            self.take_width(array, format[2:], what)
        elif format.startswith(b"v"):
            self.take_views(array, what)
        else:
            self.cells.kind = CELLS_OFFSETS32 if format in (b"z", b"u") else CELLS_OFFSETS64
            self.take_offsets(array, what)
        return self

    cdef int take_offsets(self, const ArrowArray *a, str what) except -1:
        cdef ks_cells *c = &self.cells
        cdef int64_t i
        check_buffers(a, 3, what)
        c.validity = validity_of(a, what)
        c.offsets = a.buffers[1]
        c.data = <const uint8_t *>a.buffers[2]
        with nogil:
            i = wrong_offset(c)
        if i >= 0:
            raise ValueError(f"{what}: cell {i} of an Arrow array is said to be from {offset_at(c, i)} to "
                             f"{offset_at(c, i + 1)}")
        if c.data is NULL:
            if offset_at(c, 0) != offset_at(c, c.count):
                raise ValueError(f"{what}: an Arrow array of cells without a buffer for their bytes")
            c.kind = CELLS_FIXED  # all are empty
            c.data = empty_cell()

    cdef int take_width(self, const ArrowArray *a, bytes width, str what) except -1:
        cdef ks_cells *c = &self.cells
        c.kind = CELLS_FIXED
        c.width = int(width)
        if c.width == 0 and a.n_buffers >= 1 and a.buffers is not NULL:
            c.data = empty_cell()
        else:
            check_buffers(a, 2, what)
            c.data = <const uint8_t *>a.buffers[1]
            if c.width and c.first + c.count > INT64_MAX // c.width:
                raise ValueError(f"{what}: an Arrow array of {c.count} cells of {c.width} bytes")
        c.validity = validity_of(a, what)

    cdef int take_views(self, const ArrowArray *a, str what) except -1:
        cdef const uint8_t *validity
        cdef int64_t i
        check_buffers(a, 3, what)
        validity = validity_of(a, what)
        self.room(a.length)
        with nogil:
            i = fill_views(a, validity, &self.cells)
        if i >= 0:
            raise ValueError(f"{what}: cell {i} of an Arrow array of views points outside its buffers")

    cdef int take_dictionary(self, const ArrowSchema *schema, const ArrowArray *a, str what) except -1:
        cdef const uint8_t *validity
        cdef BinaryInput words
        cdef int64_t i
        cdef char index = schema.format[0]
        check_buffers(a, 2, what)
        if a.dictionary is NULL:
            raise ValueError(f"{what}: an Arrow array of indexes without its dictionary")
        check_extent(a.dictionary, 0, what)
        validity = validity_of(a, what)
        words = BinaryInput.of_array(schema.dictionary, a.dictionary, what)
        self.room(a.length)
        with nogil:
            i = fill_from_dictionary(a, index, validity, &words.cells, &self.cells)
        if i >= 0:
            raise ValueError(f"{what}: cell {i} of an Arrow array is not in its dictionary of {words.cells.count}")


cdef bint is_bytes_format(const ArrowSchema *schema):
    cdef bytes format = schema.format if schema.format is not NULL else b""
    return format in BYTES_FORMATS or (
        format.startswith(b"w:") and format[2:].isdigit() and len(format) < 13 and int(format[2:]) <= INT32_MAX
    )


cdef int check_format(ChunkedArray column) except -1:
    """TypeError unless a column is of bytes or text, be it by a dictionary."""
    cdef const ArrowSchema *schema = &column.schema
    if schema.dictionary is NULL:
        if not is_bytes_format(schema):
            hint = ": give one column of the table" if column.format() == "+s" else ""
            raise TypeError(
                f"{column.what}: an Arrow array of bytes or text, not of Arrow's format {column.format()!r}{hint}"
            )
    elif (
        <bytes>schema.format not in INDEX_FORMATS
        or schema.dictionary.dictionary is not NULL
        or not is_bytes_format(schema.dictionary)
    ):
        raise TypeError(f"{column.what}: an Arrow array with a dictionary of bytes or text, not of another kind")
    return 0


cdef inline int64_t offset_at(const ks_cells *c, int64_t i) noexcept nogil:
    """Where cell i begins."""
    cdef int32_t narrow
    cdef int64_t wide
    if c.kind == CELLS_OFFSETS32:
        memcpy(&narrow, <const uint8_t *>c.offsets + 4 * (c.first + i), 4)
        return narrow
    memcpy(&wide, <const uint8_t *>c.offsets + 8 * (c.first + i), 8)
    return wide


cdef int64_t wrong_offset(const ks_cells *c) noexcept nogil:
    """The first cell with a negative offset, or of less than no bytes, or more than a record can hold; -1:
    none.

    Null cells too have offsets that do not fall (Arrow's own rule)."""
    cdef int64_t i, end, start = offset_at(c, 0)
    if start < 0:
        return 0
    for i in range(c.count):
        end = offset_at(c, i + 1)
        if end < start or end - start > INT32_MAX:
            return i
        start = end
    return -1


cdef int64_t fill_views(const ArrowArray *a, const uint8_t *validity, ks_cells *c) noexcept nogil:
    """Pointers from views: i32 size, then the bytes, or their first four, i32 buffer and i32 offset in it.

    The last buffer holds the sizes of those that views point into. Returns the first wrong cell, or -1."""
    cdef const uint8_t *view = <const uint8_t *>a.buffers[1] + a.offset * VIEW
    cdef const uint8_t *rooms = <const uint8_t *>a.buffers[a.n_buffers - 1]
    cdef int64_t i, room
    cdef int32_t size, buffer, start
    for i in range(a.length):
        c.pointers[i] = NULL
        c.sizes[i] = -1
        if not ks_is_null(validity, a.offset + i):
            memcpy(&size, view, 4)
            if size < 0:
                return i
            c.sizes[i] = size
            c.pointers[i] = view + 4
            if size > VIEW_INLINE:
                memcpy(&buffer, view + 8, 4)
                memcpy(&start, view + 12, 4)
                if buffer < 0 or buffer >= a.n_buffers - 3 or start < 0:
                    return i
                if rooms is NULL or a.buffers[2 + buffer] is NULL:
                    return i
                memcpy(&room, rooms + 8 * buffer, 8)
                if <int64_t>start + size > room:
                    return i
                c.pointers[i] = <const uint8_t *>a.buffers[2 + buffer] + start
        view += VIEW
    return -1


cdef inline int64_t index_at(const uint8_t *indexes, char format, int64_t at) noexcept nogil:
    """An index into a dictionary, by Arrow's letter for its type. Out of int64 it turns negative."""
    cdef int16_t i16
    cdef int32_t i32
    cdef int64_t i64
    if format == c"c":
        return (<const int8_t *>indexes)[at]
    if format == c"C":
        return indexes[at]
    if format == c"s" or format == c"S":
        memcpy(&i16, indexes + 2 * at, 2)
        return i16 if format == c"s" else <int64_t><uint16_t>i16
    if format == c"i" or format == c"I":
        memcpy(&i32, indexes + 4 * at, 4)
        return i32 if format == c"i" else <int64_t><uint32_t>i32
    memcpy(&i64, indexes + 8 * at, 8)
    return i64


cdef int64_t fill_from_dictionary(
    const ArrowArray *a, char format, const uint8_t *validity, const ks_cells *words, ks_cells *c
) noexcept nogil:
    """Pointers into the words of a dictionary. Returns the first cell whose index is outside it, or -1."""
    cdef const uint8_t *indexes = <const uint8_t *>a.buffers[1]
    cdef int64_t i, index
    for i in range(a.length):
        c.pointers[i] = NULL
        c.sizes[i] = -1
        if not ks_is_null(validity, a.offset + i):
            index = index_at(indexes, format, a.offset + i)
            if index < 0 or index >= words.count:
                return i
            c.pointers[i] = ks_cell(words, index, &c.sizes[i])
    return -1
