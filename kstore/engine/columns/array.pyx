# cython: nonecheck=True
# (nothing here runs a row at a time, and Values and ColumnBatch may be made by __new__ alone)
"""Columns of decoded records: buffers in Arrow's layout, with numpy views, and with Arrow's capsules to hand them on.

The layout is Arrow's throughout: fixed widths in native order, cells of bytes by int32 offsets or as views, a bit a row
that says what is not null. Views share memory with the batch, and keep alive what they look at.
"""

from cython cimport final, no_gc
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from kstore.engine.io.buffer_pool cimport Buffer, ks_ensure, ks_vector

cdef dict DTYPES = {b"l": "i8", b"i": "i4", b"I": "u4", b"s": "i2", b"c": "i1"}
cdef list VIEW_FIELDS = [("size", "i4"), ("start", "V4"), ("buffer", "i4"), ("offset", "i4")]


@final
@no_gc  # these three refer to text, buffers and each other, from the outside to the inside only
cdef class Field:
    """A column's name and type, by Arrow's format string."""

    @staticmethod
    cdef Field of(str name, bytes format, bint nullable, tuple children, Values words):
        cdef Field self = Field.__new__(Field)
        self.name = name
        self.format = format
        self.nullable = nullable
        self.children = children
        self.words = words
        return self

    def __arrow_c_schema__(self):
        from kstore.engine.columns.export import schema_capsule  # which knows this module

        return schema_capsule(self)


@final
@no_gc
cdef class Values:
    """One column of a batch. `values` is for fixed widths; `offsets` and `data`, or `views`, for the others."""

    @staticmethod
    cdef Values of(Field field, int64_t length, int64_t null_count, tuple buffers, tuple children):
        cdef Values self = Values.__new__(Values)
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
        import numpy  # only for those who ask for arrays

        return numpy.frombuffer(self.buffers[at], dtype=dtype, count=count)

    @property
    def values(self):
        """The rows as a numpy array; of words (timestamp_type, codec) their numbers in `field.words`."""
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
            raise TypeError(f"{self.name} is no column of bytes that lie one behind the other")
        return self.array(2, "u1", self.buffers[2].size)

    @property
    def views(self):
        """With views=True: (size, first four bytes, buffer, offset in it) a row; the buffers are `buffers[2:-1]`."""
        if self.field.format != b"vz":
            raise TypeError(f"{self.name} is no column of views")
        return self.array(1, VIEW_FIELDS, self.length)

    @property
    def validity(self):
        """Which rows are not null, as an array of bool; None if all are."""
        import numpy

        if not self.null_count:
            return None
        bits = numpy.frombuffer(self.buffers[0], dtype="u1")
        return numpy.unpackbits(bits, count=self.length, bitorder="little").astype(bool)

    def to_list(self):
        """The rows as Python objects, like those of Record."""
        valid = self.validity
        if self.field.format in DTYPES:
            rows = self.values.tolist()
            if self.field.words is not None:
                words = self.field.words.to_list()
                rows = [words[row] for row in rows]
        elif self.field.format == b"+s":
            rows = list(zip(*[child.to_list() for child in self.children]))
        elif self.field.format == b"+l":
            ends = self.offsets.tolist()
            inner = self.children[0].to_list()
            rows = [tuple(inner[a:b]) for a, b in zip(ends, ends[1:])]
        elif self.field.format == b"vz":
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
            if self.field.format == b"u":
                rows = [row.decode() for row in rows]
        if valid is not None:
            rows = [row if there else None for row, there in zip(rows, valid.tolist())]
        return rows

    def __arrow_c_schema__(self):
        return self.field.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema=None):
        from kstore.engine.columns.export import array_capsule

        return self.field.__arrow_c_schema__(), array_capsule(self)

    def __repr__(self):
        return f"<column {self.name}, {self.length} rows, {self.null_count} null>"


@final
@no_gc
cdef class ColumnBatch:
    """Some rows of a log, column by column. It outlives its log and its scan, and its columns outlive it."""

    def __cinit__(self, Values values not None):
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
        cdef Values each
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
        """(schema, array) capsules of a struct array. `requested_schema` is not looked at, as Arrow permits."""
        return self.values.__arrow_c_array__()

    def __repr__(self):
        return f"<ColumnBatch of {self.values.length} rows: {', '.join(self.names)}>"


cdef Values words_of(tuple words):
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
    return Values.of(field, len(words), 0, (None, Buffer.of(&ends, None), Buffer.of(&data, None)), ())
