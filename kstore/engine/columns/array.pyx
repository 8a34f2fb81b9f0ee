# cython: binding=False, embedsignature=True
# cython: nonecheck=True
# (nothing here runs a row at a time, and ArrayData and ColumnBatch may be made by __new__ alone)
"""Columns of decoded records: buffers in Arrow's layout, with numpy views, and with Arrow's capsules to hand
them on.

The layout is Arrow's throughout: fixed widths in native order, cells of bytes by int32 offsets or as views, a
bit a row that says what is not null. Views share memory with the batch, and keep alive what they look at.

The file is long because a module of its own for a column of one number would take 20 KB.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from cython cimport final, no_gc
from libc.errno cimport EINVAL, EIO, ENOMEM
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset, strncpy

from kstore.engine.columns.column_input cimport ArrowArray, ArrowArrayStream, ArrowSchema
from kstore.engine.io.buffers cimport Buffer, ks_ensure, ks_vector

from kstore.libraries import library


cdef dict DTYPES = {b"l": "i8", b"tsm:UTC": "i8", b"i": "i4", b"I": "u4", b"s": "i2", b"c": "i1"}
cdef list VIEW_FIELDS = [("size", "i4"), ("start", "V4"), ("buffer", "i4"), ("offset", "i4")]


@final
@no_gc  # these three refer to text, buffers and each other, from the outside to the inside only
cdef class Field:
    """A column's name and type, by Arrow's format string."""

    @staticmethod
    cdef Field of(str name, bytes format, bint nullable, tuple children, ArrayData dictionary):
        cdef Field self = Field.__new__(Field)
        self.name = name
        self.format = format
        self.nullable = nullable
        self.children = children
        self.dictionary = dictionary
        return self

    def __arrow_c_schema__(self):
        return schema_capsule(self)


@final
@no_gc
cdef class ArrayData:
    """One column of a batch. `values` is for fixed widths; `offsets` and `data`, or `views`, for the
    others."""

    @staticmethod
    cdef ArrayData of(Field field, int64_t length, int64_t null_count, tuple buffers, tuple children):
        cdef ArrayData self = ArrayData.__new__(ArrayData)
        self.field = field
        self.length = length
        self.null_count = null_count
        self.buffers = buffers
        self.children = children
        return self

    def __len__(self):
        return self.length

    @property
    def name(self):
        return self.field.name

    cdef object array(self, int at, object dtype, int64_t count):
        numpy = library("numpy")  # only for those who ask for arrays
        return numpy.frombuffer(self.buffers[at], dtype=dtype, count=count)

    @property
    def values(self):
        """The rows as a numpy array; of names (timestamp_type, codec) their numbers in `field.dictionary`."""
        if self.field.format not in DTYPES:
            raise TypeError(f"{self.name} has no fixed width: see offsets and data, or views")
        return self.array(1, DTYPES[self.field.format], self.length)

    @property
    def offsets(self):
        """Where in `data` (of headers: in the rows of the child) each row begins, and the last ends."""
        if self.field.format not in (b"z", b"u", b"+l"):
            raise TypeError(f"{self.name} has no offsets")
        return self.array(1, "i4", self.length + 1)

    @property
    def data(self):
        """The bytes of all rows, one behind the other."""
        if self.field.format not in (b"z", b"u"):
            raise TypeError(f"{self.name} is not a column of bytes that follow one another without gaps")
        return self.array(2, "u1", self.buffers[2].size)

    @property
    def views(self):
        """With views=True: (size, first four bytes, buffer, offset in it) a row; the buffers are
        `buffers[2:-1]`."""
        if self.field.format not in (b"vz", b"vu"):
            raise TypeError(f"{self.name} is no column of views")
        return self.array(1, VIEW_FIELDS, self.length)

    @property
    def validity(self):
        """Which rows are not null, as an array of bool; None if all are."""
        if not self.null_count:
            return None
        numpy = library("numpy")
        bits = numpy.frombuffer(self.buffers[0], dtype="u1")
        return numpy.unpackbits(bits, count=self.length, bitorder="little").astype(bool)

    def to_list(self):
        """The rows as Python objects, like those of Record."""
        valid = self.validity
        if self.field.format in DTYPES:
            rows = self.values.tolist()
            if self.field.dictionary is not None:
                words = self.field.dictionary.to_list()
                rows = [words[row] for row in rows]
        elif self.field.format == b"+s":
            rows = list(zip(*[child.to_list() for child in self.children]))
        elif self.field.format == b"+l":
            ends = self.offsets.tolist()
            inner = self.children[0].to_list()
            rows = [tuple(inner[a:b]) for a, b in zip(ends, ends[1:])]
        elif self.field.format in (b"vz", b"vu"):
            raw = bytes(self.buffers[1])
            parts = [memoryview(buffer) for buffer in self.buffers[2:-1]]
            rows = [
                raw[16 * i + 4 : 16 * i + 4 + size] if size <= 12 else bytes(parts[at][start : start + size])
                for i, (size, _, at, start) in enumerate(self.views.tolist())
            ]
        else:
            ends = self.offsets.tolist()
            data = bytes(self.buffers[2])
            rows = [data[a:b] for a, b in zip(ends, ends[1:])]
        if self.field.format in (b"u", b"vu"):
            rows = [row.decode() for row in rows]
        if valid is not None:
            rows = [row if there else None for row, there in zip(rows, valid.tolist())]
        return rows

    def __arrow_c_schema__(self):
        return self.field.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        return self.field.__arrow_c_schema__(), array_capsule(self)

    def __repr__(self):
        return f"<column {self.name}, {self.length} rows, {self.null_count} null>"


@final
@no_gc
cdef class ColumnBatch:
    """Some rows of a log, column by column. It outlives its log and its scan, and its columns outlive it."""

    def __cinit__(self, ArrayData values not None):
        self.values = values

    def __len__(self):
        return self.values.length

    @property
    def names(self):
        return tuple([child.field.name for child in self.values.children])

    @property
    def columns(self):
        return self.values.children

    @property
    def nbytes(self):
        """Bytes of memory that the columns refer to, each buffer counted once."""
        cdef set found = set()
        cdef list stack = [self.values]
        cdef ArrayData each
        cdef Buffer buffer
        cdef int64_t total = 0
        while stack:
            each = stack.pop()
            found.update(each.buffers)
            stack += each.children
        found.discard(None)
        for buffer in found:
            total += buffer.size
        return total

    def column(self, str name not None):
        """KeyError where it was not asked for."""
        for child in self.values.children:
            if child.field.name == name:
                return child
        raise KeyError(name)

    def rows(self):
        """The rows as tuples of Python objects, for tests and small things."""
        columns = [child.to_list() for child in self.values.children]
        return list(zip(*columns)) if columns else [()] * self.values.length

    def __arrow_c_schema__(self):
        return self.values.field.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        """(schema, array) capsules of a struct array. `requested_schema` is not looked at, as Arrow
        permits."""
        return self.values.__arrow_c_array__()

    def __repr__(self):
        return f"<ColumnBatch of {self.values.length} rows: {', '.join(self.names)}>"


cdef ArrayData dictionary_of(tuple words):
    """A dictionary of text."""
    cdef ks_vector ends, data
    cdef int64_t size
    cdef bytes raw
    cdef int end = 0
    ends.data = data.data = NULL
    ends.size = ends.room = data.size = data.room = 0
    for word in ("", *words):
        raw = word.encode()
        size = len(raw)
        if ks_ensure(&ends, 4) < 0 or ks_ensure(&data, size) < 0:
            raise MemoryError()
        if size:
            memcpy(data.data + data.size, <const char *>raw, <size_t>size)
        data.size += size
        end = <int>data.size
        memcpy(ends.data + ends.size, &end, 4)
        ends.size += 4
    field = Field.of("", b"u", False, (), None)
    return ArrayData.of(field, len(words), 0, (None, Buffer.of(&ends, None), Buffer.of(&data, None)), ())


cdef extern from "Python.h":
    bint Py_IsInitialized() noexcept nogil

cdef enum:
    NULLABLE = 2  # ARROW_FLAG_NULLABLE
    ERROR_ROOM = 1024


# ---- schemas -----------------------------------------------------------------------------------------------

cdef void release_schema(ArrowSchema *schema) noexcept nogil:
    cdef int64_t i
    for i in range(schema.n_children):
        if schema.children[i].release is not NULL:
            schema.children[i].release(schema.children[i])
        PyMem_RawFree(schema.children[i])
    PyMem_RawFree(schema.children)
    if schema.dictionary is not NULL:
        if schema.dictionary.release is not NULL:
            schema.dictionary.release(schema.dictionary)
        PyMem_RawFree(schema.dictionary)
    drop(schema.private_data)
    schema.release = NULL


cdef void drop(void *owner) noexcept nogil:
    """Gives up a reference. At the end of the process, when the interpreter is gone, there is nothing to give
    it to."""
    if owner is not NULL and Py_IsInitialized():
        with gil:
            Py_DECREF(<object>owner)


cdef int fill_schema(ArrowSchema *out, Field field) except -1:
    """On failure, what was filled can be released."""
    cdef bytes name = field.name.encode()
    cdef int64_t i
    owner = (name, field)
    memset(out, 0, sizeof(ArrowSchema))
    out.name = name
    out.format = field.format
    out.flags = NULLABLE if field.nullable else 0
    out.release = release_schema
    Py_INCREF(owner)
    out.private_data = <void *><PyObject *>owner
    if field.children:
        out.children = <ArrowSchema **>PyMem_RawCalloc(len(field.children), sizeof(void *))
        if out.children is NULL:
            raise MemoryError()
        for i in range(len(field.children)):
            out.children[i] = <ArrowSchema *>PyMem_RawCalloc(1, sizeof(ArrowSchema))
            if out.children[i] is NULL:
                raise MemoryError()
            out.n_children += 1
            fill_schema(out.children[i], field.children[i])
    if field.dictionary is not None:
        out.dictionary = <ArrowSchema *>PyMem_RawCalloc(1, sizeof(ArrowSchema))
        if out.dictionary is NULL:
            raise MemoryError()
        fill_schema(out.dictionary, field.dictionary.field)
    return 0


cdef void free_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:
        schema.release(schema)
    PyMem_RawFree(schema)


def schema_capsule(Field field not None):
    """A new capsule with a schema, for __arrow_c_schema__."""
    cdef ArrowSchema *schema = <ArrowSchema *>PyMem_RawCalloc(1, sizeof(ArrowSchema))
    if schema is NULL:
        raise MemoryError()
    capsule = PyCapsule_New(schema, "arrow_schema", free_schema)
    fill_schema(schema, field)
    return capsule


# ---- arrays ------------------------------------------------------------------------------------------------

cdef void release_array(ArrowArray *array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release is not NULL:
            array.children[i].release(array.children[i])
        PyMem_RawFree(array.children[i])
    PyMem_RawFree(array.children)
    if array.dictionary is not NULL:
        if array.dictionary.release is not NULL:
            array.dictionary.release(array.dictionary)
        PyMem_RawFree(array.dictionary)
    PyMem_RawFree(array.buffers)
    drop(array.private_data)
    array.release = NULL


cdef int fill_array(ArrowArray *out, ArrayData values) except -1:
    """On failure, what was filled can be released."""
    cdef Py_ssize_t i, count = len(values.buffers)
    cdef Py_buffer view
    memset(out, 0, sizeof(ArrowArray))
    out.release = release_array
    out.length = values.length
    out.null_count = values.null_count
    Py_INCREF(values)
    out.private_data = <void *><PyObject *>values
    out.buffers = <const void **>PyMem_RawCalloc(count or 1, sizeof(void *))
    if out.buffers is NULL:
        raise MemoryError()
    out.n_buffers = count
    for i in range(count):
        if values.buffers[i] is not None:  # its address stays as long as `values` holds it
            PyObject_GetBuffer(values.buffers[i], &view, PyBUF_SIMPLE)
            out.buffers[i] = view.buf
            PyBuffer_Release(&view)
    if values.children:
        out.children = <ArrowArray **>PyMem_RawCalloc(len(values.children), sizeof(void *))
        if out.children is NULL:
            raise MemoryError()
        for i in range(len(values.children)):
            out.children[i] = <ArrowArray *>PyMem_RawCalloc(1, sizeof(ArrowArray))
            if out.children[i] is NULL:
                raise MemoryError()
            out.n_children += 1
            fill_array(out.children[i], values.children[i])
    if values.field.dictionary is not None:
        out.dictionary = <ArrowArray *>PyMem_RawCalloc(1, sizeof(ArrowArray))
        if out.dictionary is NULL:
            raise MemoryError()
        fill_array(out.dictionary, values.field.dictionary)
    return 0


cdef void free_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    PyMem_RawFree(array)


def array_capsule(ArrayData values not None):
    """A new capsule with an array, for __arrow_c_array__."""
    cdef ArrowArray *array = <ArrowArray *>PyMem_RawCalloc(1, sizeof(ArrowArray))
    if array is NULL:
        raise MemoryError()
    capsule = PyCapsule_New(array, "arrow_array", free_array)
    fill_array(array, values)
    return capsule


# ---- streams -----------------------------------------------------------------------------------------------

@final
cdef class Source:
    """Behind a stream: its schema, the batches to come, and the text of the last error."""

    cdef Field field
    cdef object batches
    cdef char[ERROR_ROOM] text

    cdef int fill(self, ArrowSchema *schema, ArrowArray *array) noexcept:
        """Gives out the schema, or the next array; the other is NULL. No exception may pass through the C code
        of the caller: 0, or an errno."""
        try:
            if schema is not NULL:
                fill_schema(schema, self.field)
            else:
                batch = next(self.batches, None)
                if batch is not None:  # None: the end, for which a released array stands
                    fill_array(array, batch.values)
        except BaseException as e:
            if schema is not NULL and schema.release is not NULL:
                schema.release(schema)
            if array is not NULL and array.release is not NULL:
                array.release(array)
            return self.failed(e)
        return 0

    cdef int failed(self, error) noexcept:
        """Keeps the error's text for get_last_error, and returns its errno."""
        message = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[: ERROR_ROOM - 1]
        strncpy(self.text, message, ERROR_ROOM - 1)
        if isinstance(error, MemoryError):
            return ENOMEM
        return EIO if isinstance(error, OSError) else EINVAL


cdef int stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept nogil:
    with gil:
        memset(out, 0, sizeof(ArrowSchema))
        return (<Source>stream.private_data).fill(out, NULL)


cdef int stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept nogil:
    with gil:
        memset(out, 0, sizeof(ArrowArray))
        return (<Source>stream.private_data).fill(NULL, out)


cdef const char *stream_error(ArrowArrayStream *stream) noexcept nogil:
    with gil:
        source = <Source>stream.private_data
        return source.text if source.text[0] else NULL


cdef void release_stream(ArrowArrayStream *stream) noexcept nogil:
    drop(stream.private_data)
    stream.release = NULL


cdef void free_stream(object capsule) noexcept:
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release is not NULL:
        stream.release(stream)
    PyMem_RawFree(stream)


def stream_capsule(Field field not None, batches):
    """A new capsule with a stream of what `batches` gives, for __arrow_c_stream__; what it raises ends the
    stream."""
    cdef Source source = Source.__new__(Source)
    cdef ArrowArrayStream *stream
    source.field = field
    source.batches = batches
    stream = <ArrowArrayStream *>PyMem_RawCalloc(1, sizeof(ArrowArrayStream))
    if stream is NULL:
        raise MemoryError()
    capsule = PyCapsule_New(stream, "arrow_array_stream", free_stream)
    stream.get_schema = stream_schema
    stream.get_next = stream_next
    stream.get_last_error = stream_error
    stream.release = release_stream
    Py_INCREF(source)
    stream.private_data = <void *><PyObject *>source
    return capsule


def leading_columns(ColumnBatch batch not None, Py_ssize_t count):
    """A batch of the first columns of another one, which they share."""
    cdef ArrayData values = batch.values
    cdef Field schema = values.field
    fields = Field.of(schema.name, schema.format, schema.nullable, schema.children[:count], None)
    return ColumnBatch(ArrayData.of(fields, values.length, 0, (None,), values.children[:count]))


@final
@no_gc  # it refers to text and fields only
cdef class ConstantColumn:
    """The column `name`, of int32, at place `at` among the columns of `schema`; `with_it` is the schema
    then."""

    cdef readonly Field with_it
    cdef int at

    def __cinit__(self, str name not None, int at, Field schema not None):
        cdef list fields = list(schema.children)
        if not 0 <= at <= len(fields):
            raise ValueError(f"no place {at} among {len(fields)} columns")
        fields.insert(at, Field.of(name, b"i", False, (), None))
        self.at = at
        self.with_it = Field.of(schema.name, schema.format, schema.nullable, tuple(fields), None)

    def put(self, ColumnBatch batch not None, int32_t number):
        """The batch with this column, `number` in each row. Its other columns are shared with `batch`."""
        cdef list columns = list(batch.values.children)
        cdef int64_t i, rows = batch.values.length
        cdef ks_vector numbers
        if len(columns) + 1 != len(self.with_it.children):
            raise ValueError(f"{len(columns)} columns, not {len(self.with_it.children) - 1}")
        memset(&numbers, 0, sizeof(numbers))
        if ks_ensure(&numbers, 4 * rows + 4) < 0:
            raise MemoryError()
        for i in range(rows):
            (<int32_t *>numbers.data)[i] = number
        numbers.size = 4 * rows
        column = ArrayData.of(self.with_it.children[self.at], rows, 0, (None, Buffer.of(&numbers, None)), ())
        columns.insert(self.at, column)
        return ColumnBatch(ArrayData.of(self.with_it, rows, 0, (None,), tuple(columns)))
