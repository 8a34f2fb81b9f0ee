"""What `extend` takes, as columns of C: sequences of bytes, numpy arrays, Arrow arrays (PyCapsule interface).

They are read once with the GIL; whatever they point at lives, unchanged in length, as long as the Cells do.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from kstore.engine.builder cimport encode_headers

cdef extern from *:
    """
    #include <stdint.h>
    /* The Arrow C data and stream interfaces, as their specification declares them. */
    #ifndef ARROW_C_DATA_INTERFACE
    #define ARROW_C_DATA_INTERFACE
    struct ArrowSchema {
        const char *format, *name, *metadata;
        int64_t flags, n_children;
        struct ArrowSchema **children, *dictionary;
        void (*release)(struct ArrowSchema *);
        void *private_data;
    };
    struct ArrowArray {
        int64_t length, null_count, offset, n_buffers, n_children;
        const void **buffers;
        struct ArrowArray **children, *dictionary;
        void (*release)(struct ArrowArray *);
        void *private_data;
    };
    #endif
    #ifndef ARROW_C_STREAM_INTERFACE
    #define ARROW_C_STREAM_INTERFACE
    struct ArrowArrayStream {
        int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
        int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
        const char *(*get_last_error)(struct ArrowArrayStream *);
        void (*release)(struct ArrowArrayStream *);
        void *private_data;
    };
    #endif
    """
    struct ArrowSchema:
        const char *format
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept
    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        const void **buffers
        ArrowArray *dictionary
        void (*release)(ArrowArray *) noexcept
    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *) noexcept
        int (*get_next)(ArrowArrayStream *, ArrowArray *) noexcept
        const char *(*get_last_error)(ArrowArrayStream *) noexcept
        void (*release)(ArrowArrayStream *) noexcept

cdef uint8_t EMPTY = 0


cdef class Chunk:
    """Owns one Arrow array, taken over from its exporter."""

    cdef ArrowArray array

    def __dealloc__(self):
        if self.array.release is not NULL:
            self.array.release(&self.array)


cdef class Form:
    """Owns the schema of Arrow arrays."""

    cdef ArrowSchema schema

    def __dealloc__(self):
        if self.schema.release is not NULL:
            self.schema.release(&self.schema)


cdef tuple imported(object source, str what):
    """(Form, list of Chunks) of an Arrow array or stream."""
    cdef Form form = Form()
    cdef Chunk chunk
    cdef ArrowArrayStream *stream
    cdef ArrowSchema *schema
    cdef ArrowArray *array
    chunks = []
    if hasattr(source, "__arrow_c_array__"):
        schema_capsule, array_capsule = source.__arrow_c_array__()
        schema = <ArrowSchema *>PyCapsule_GetPointer(schema_capsule, "arrow_schema")
        array = <ArrowArray *>PyCapsule_GetPointer(array_capsule, "arrow_array")
        if schema.release is NULL or array.release is NULL:
            raise ValueError(f"{what}: an Arrow array that was released")
        form.schema = schema[0]
        schema.release = NULL
        chunk = Chunk()
        chunk.array = array[0]
        array.release = NULL
        chunks.append(chunk)
        return form, chunks
    capsule = source.__arrow_c_stream__()
    stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release is NULL:
        raise ValueError(f"{what}: an Arrow stream that was released")
    if stream.get_schema(stream, &form.schema) != 0:
        raise ValueError(f"{what}: the Arrow stream gives no schema")
    while True:
        chunk = Chunk()
        if stream.get_next(stream, &chunk.array) != 0:
            raise ValueError(f"{what}: the Arrow stream failed")
        if chunk.array.release is NULL:
            return form, chunks
        chunks.append(chunk)


cdef int check_array(const ArrowArray *a, int64_t buffers, str what) except -1:
    cdef int64_t i
    if a.length < 0 or a.offset < 0 or a.n_buffers < buffers or (a.length and a.buffers is NULL):
        raise ValueError(f"{what}: an Arrow array of length {a.length}, offset {a.offset}, {a.n_buffers} buffers")
    for i in range(1, buffers):
        if a.length and a.buffers[i] is NULL and i == 1:
            raise ValueError(f"{what}: an Arrow array without buffer {i}")
    return 0


cdef int check_offsets(const ks_cells *c, str what) except -1:
    """Offsets must not fall: a cell of negative size would be read as 2^64 bytes."""
    cdef int64_t i, size
    cdef int64_t start = 0
    if c.count == 0:
        return 0
    start = (<const int32_t *>c.offsets)[c.first] if c.kind == CELLS_OFFSETS32 else (<const int64_t *>c.offsets)[c.first]
    if start < 0:
        raise ValueError(f"{what}: an Arrow offset of {start}")
    for i in range(c.first, c.first + c.count):
        if c.kind == CELLS_OFFSETS32:
            size = <int64_t>(<const int32_t *>c.offsets)[i + 1] - (<const int32_t *>c.offsets)[i]
        else:
            size = (<const int64_t *>c.offsets)[i + 1] - (<const int64_t *>c.offsets)[i]
        if size < 0 or size > INT32_MAX:
            raise ValueError(f"{what}: cell {i - c.first} of {size} bytes")
    return 0


cdef Cells cells_of_array(bytes format, ArrowArray *a, ArrowSchema *dictionary, object owner, str what):
    """The cells of one Arrow array."""
    cdef Cells cells = Cells.__new__(Cells)
    cdef ks_cells *c = &cells.cells
    cdef const uint8_t *entry
    cdef int64_t i, size, slot
    cdef int32_t buffer
    cells.owner = owner
    c.count = a.length
    c.first = a.offset
    if dictionary is not NULL:
        return cells_of_dictionary(format, a, dictionary, owner, what)
    if format == b"n":
        c.kind = CELLS_NULL
        return cells
    check_array(a, 1, what)
    c.validity = <const uint8_t *>a.buffers[0] if a.length else NULL
    if format in (b"z", b"u", b"Z", b"U"):
        c.kind = CELLS_OFFSETS32 if format in (b"z", b"u") else CELLS_OFFSETS64
        check_array(a, 3, what)
        if a.length:
            c.offsets = a.buffers[1]
            c.data = <const uint8_t *>a.buffers[2]
            check_offsets(c, what)
        if c.data is NULL:
            c.data = &EMPTY
        return cells
    if format.startswith(b"w:"):
        check_array(a, 2, what)
        c.kind = CELLS_FIXED
        c.width = int(format[2:])
        c.data = <const uint8_t *>a.buffers[1] if a.length else NULL
        if c.data is NULL:
            c.data = &EMPTY
        return cells
    if format in (b"vz", b"vu"):
        check_array(a, 2, what)
        cells.room(a.length)
        for i in range(a.length):
            slot = i + a.offset
            if c.validity is not NULL and not (c.validity[slot >> 3] >> (slot & 7)) & 1:
                c.sizes[i] = -1
                c.pointers[i] = NULL
                continue
            entry = <const uint8_t *>a.buffers[1] + 16 * slot
            size = (<const int32_t *>entry)[0]
            if size < 0:
                raise ValueError(f"{what}: cell {i} of {size} bytes")
            c.sizes[i] = size
            if size <= 12:
                c.pointers[i] = entry + 4
                continue
            buffer = (<const int32_t *>entry)[2]
            if buffer < 0 or buffer + 3 > a.n_buffers or (<const int32_t *>entry)[3] < 0:
                raise ValueError(f"{what}: cell {i} lies in buffer {buffer}")
            c.pointers[i] = <const uint8_t *>a.buffers[2 + buffer] + (<const int32_t *>entry)[3]
        c.validity = NULL
        c.first = 0
        c.kind = CELLS_POINTERS
        return cells
    raise TypeError(f"{what}: Arrow type {format.decode('ascii', 'replace')} is not binary, string or fixed-size binary")


cdef Cells cells_of_dictionary(bytes format, ArrowArray *a, ArrowSchema *dictionary, object owner, str what):
    cdef Cells words, cells = Cells.__new__(Cells)
    cdef ks_cells *c = &cells.cells
    cdef const uint8_t *validity
    cdef int64_t i, at, word
    if format not in (b"c", b"C", b"s", b"S", b"i", b"I", b"l", b"L") or a.dictionary is NULL:
        raise TypeError(f"{what}: Arrow dictionary indices of type {format}")
    words = cells_of_array(dictionary.format, a.dictionary, NULL, owner, what)
    check_array(a, 2, what)
    cells.owner = (owner, words)
    cells.room(a.length)
    c.kind = CELLS_POINTERS
    c.count = a.length
    if a.length == 0:
        return cells
    validity = <const uint8_t *>a.buffers[0]
    for i in range(a.length):
        at = i + a.offset
        if validity is not NULL and not (validity[at >> 3] >> (at & 7)) & 1:
            c.sizes[i] = -1
            c.pointers[i] = NULL
            continue
        if format in (b"c", b"C"):
            word = (<const signed char *>a.buffers[1])[at] if format == b"c" else (<const uint8_t *>a.buffers[1])[at]
        elif format in (b"s", b"S"):
            word = (<const short *>a.buffers[1])[at] if format == b"s" else (<const unsigned short *>a.buffers[1])[at]
        elif format in (b"i", b"I"):
            word = (<const int32_t *>a.buffers[1])[at]
        else:
            word = (<const int64_t *>a.buffers[1])[at]
        if not 0 <= word < words.cells.count:
            raise ValueError(f"{what}: cell {i} is word {word} of a dictionary of {words.cells.count}")
        c.pointers[i] = ks_cell(&words.cells, word, &c.sizes[i])
    return cells


cdef Cells joined(list parts, object owner):
    """The cells of several columns one after another."""
    cdef Cells part, cells = Cells.__new__(Cells)
    cdef ks_cells *c = &cells.cells
    cdef int64_t i, at = 0
    for part in parts:
        c.count += part.cells.count
    cells.owner = (parts, owner)
    cells.room(c.count)
    c.kind = CELLS_POINTERS
    for part in parts:
        for i in range(part.cells.count):
            c.pointers[at] = ks_cell(&part.cells, i, &c.sizes[at])
            at += 1
    return cells


cdef Cells cells_of_arrow(object source, str what):
    cdef Form form
    cdef Chunk chunk
    form, chunks = imported(source, what)
    parts = []
    for chunk in chunks:
        parts.append(
            cells_of_array(form.schema.format, &chunk.array, form.schema.dictionary, (form, chunk), what)
        )
    return parts[0] if len(parts) == 1 else joined(parts, None)


cdef Cells cells_of_list(list values, str what):
    """The cells of a list of bytes; other bytes-like objects are copied, because they may change."""
    cdef Cells cells = Cells.__new__(Cells)
    cdef ks_cells *c = &cells.cells
    cdef int64_t i
    cdef PyObject *item
    cdef object copied
    values = list(values)  # our own references: the caller's list may change while the GIL is away
    cells.owner = values
    c.count = len(values)
    cells.room(c.count)
    c.kind = CELLS_POINTERS
    for i in range(c.count):
        item = PyList_GET_ITEM(values, i)
        if PyBytes_CheckExact(<object>item):
            c.pointers[i] = <const uint8_t *>PyBytes_AS_STRING(<object>item)
            c.sizes[i] = PyBytes_GET_SIZE(<object>item)
        elif <object>item is None:
            c.pointers[i] = NULL
            c.sizes[i] = -1
        else:
            if isinstance(<object>item, str):
                raise TypeError(f"{what}[{i}] is str, not bytes: encode it")
            copied = bytes(memoryview(<object>item))
            values[i] = copied
            c.pointers[i] = <const uint8_t *>PyBytes_AS_STRING(copied)
            c.sizes[i] = PyBytes_GET_SIZE(copied)
    return cells


cdef Cells cells_of_numpy(object array, str what):
    """S cells as numpy gives them, without their trailing zeros; V cells and rows of uint8 whole."""
    cdef Cells cells
    cdef const uint8_t[:, ::1] rows
    cdef int64_t i, size
    if array.dtype.kind == "O":
        return cells_of_list(array.tolist(), what)
    import numpy

    width = array.dtype.itemsize
    if array.dtype == numpy.uint8 and array.ndim == 2:
        width = array.shape[1]
    elif array.dtype.kind not in "SV" or array.ndim != 1:
        raise TypeError(f"{what}: a numpy array of {array.dtype} in {array.ndim} dimensions is not one of bytes")
    array = numpy.ascontiguousarray(array)  # read where it lies: sizes are settled here, so changing it harms nobody else
    cells = Cells.__new__(Cells)
    cells.owner = array
    cells.cells.count = array.shape[0]
    cells.cells.kind = CELLS_FIXED
    cells.cells.width = width
    cells.cells.data = &EMPTY
    if array.shape[0] and width:
        rows = array.view(numpy.uint8).reshape(array.shape[0], width)
        cells.cells.data = &rows[0, 0]
        if array.dtype.kind == "S":
            cells.room(array.shape[0])
            cells.cells.kind = CELLS_POINTERS
            for i in range(cells.cells.count):
                size = width
                while size and rows[i, size - 1] == 0:
                    size -= 1
                cells.cells.pointers[i] = &rows[i, 0]
                cells.cells.sizes[i] = size
    return cells


cdef class Cells:
    """A column of bytes cells; see ks_cells."""

    def __dealloc__(self):
        PyMem_RawFree(self.cells.pointers)
        PyMem_RawFree(self.cells.sizes)

    cdef int room(self, int64_t count) except -1:
        self.cells.pointers = <const uint8_t **>PyMem_RawMalloc(<size_t>(count * sizeof(void *) + 1))
        self.cells.sizes = <int64_t *>PyMem_RawMalloc(<size_t>(count * sizeof(int64_t) + 1))
        if self.cells.pointers is NULL or self.cells.sizes is NULL:
            raise MemoryError()
        return 0

    @staticmethod
    cdef Cells of(object values, str what, int64_t count):
        """The cells of `values`, which must be `count` (-1: as many as there are). TypeError, ValueError."""
        cdef Cells cells
        if values is None:
            if count < 0:
                raise TypeError(f"{what} is a sequence of bytes, not None")
            cells = Cells.__new__(Cells)
            cells.cells.count = count
            return cells
        if isinstance(values, (bytes, bytearray, memoryview, str)):
            raise TypeError(f"{what} is a sequence of bytes, not one {type(values).__name__}")
        if isinstance(values, list):
            cells = cells_of_list(values, what)
        elif hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
            cells = cells_of_arrow(values, what)
        elif hasattr(values, "dtype") and hasattr(values, "ndim"):
            cells = cells_of_numpy(values, what)
        else:
            cells = cells_of_list(list(values), what)
        if 0 <= count != cells.cells.count:
            raise ValueError(f"{what}: {cells.cells.count} for {count} records")
        return cells


cdef class Times:
    """A column of milliseconds, or one for all (`data` NULL)."""

    @staticmethod
    cdef Times of(object timestamps, int64_t count, int64_t default_ms):
        """The timestamps of `count` records. TypeError, ValueError: below -1, not a time, another number of them."""
        cdef Times times = Times.__new__(Times)
        cdef const int64_t[::1] view
        cdef int64_t i
        times.count = count
        times.constant = default_ms
        if timestamps is None:
            return times
        if isinstance(timestamps, int) and not isinstance(timestamps, bool):
            times.constant = timestamps
            if timestamps < -1:
                raise ValueError(f"timestamp {timestamps} is negative and not -1")
            return times
        import numpy

        array = milliseconds(timestamps, numpy)
        if array.shape[0] != count:
            raise ValueError(f"timestamps: {array.shape[0]} for {count} records")
        times.owner = array
        if count:
            view = array
            for i in range(count):
                if view[i] < -1:
                    raise ValueError(f"timestamp {view[i]} of record {i} is negative and not -1")
            times.data = &view[0]
        return times


def milliseconds(timestamps, numpy):
    """Timestamps of any kind as an int64 array of ms that nobody else changes."""
    if hasattr(timestamps, "__arrow_c_array__") or hasattr(timestamps, "__arrow_c_stream__"):
        return milliseconds_of_arrow(timestamps, numpy)
    if not hasattr(timestamps, "dtype"):
        timestamps = list(timestamps)
        for i, t in enumerate(timestamps):
            if isinstance(t, bool) or not hasattr(t, "__index__"):
                raise TypeError(f"timestamps[{i}] is {type(t).__name__}, not int")
        return numpy.array(timestamps, dtype=numpy.int64)
    if timestamps.ndim != 1:
        raise TypeError(f"timestamps: an array of {timestamps.ndim} dimensions")
    if timestamps.dtype.kind == "M":
        if numpy.isnat(timestamps).any():
            raise ValueError("timestamps: not a time (NaT)")
        return timestamps.astype("datetime64[ms]").astype(numpy.int64)
    if timestamps.dtype.kind not in "iu":
        raise TypeError(f"timestamps: an array of {timestamps.dtype}")
    return numpy.array(timestamps, dtype=numpy.int64)


cdef object milliseconds_of_arrow(object source, object numpy):
    cdef Form form
    cdef Chunk chunk
    cdef ArrowArray *a
    cdef const int64_t *data
    cdef const uint8_t *validity
    cdef int64_t i, at, done = 0, divisor = 1, factor = 1, value
    cdef int64_t[::1] out
    form, chunks = imported(source, "timestamps")
    format = bytes(form.schema.format)
    if format[:3] == b"tss" or format == b"l":
        factor = 1000 if format != b"l" else 1
    elif format[:3] == b"tsu":
        divisor = 1000
    elif format[:3] == b"tsn":
        divisor = 1000000
    elif format[:3] != b"tsm" and format != b"tdm":
        raise TypeError(f"timestamps: Arrow type {format.decode('ascii', 'replace')} is not int64 or a timestamp")
    total = 0
    for chunk in chunks:
        check_array(&chunk.array, 2, "timestamps")
        total += chunk.array.length
    array = numpy.empty(total, dtype=numpy.int64)
    out = array
    for chunk in chunks:
        a = &chunk.array
        if a.length == 0:
            continue
        data = <const int64_t *>a.buffers[1]
        validity = <const uint8_t *>a.buffers[0]
        for i in range(a.length):
            at = i + a.offset
            if validity is not NULL and not (validity[at >> 3] >> (at & 7)) & 1:
                value = -1
            else:
                value = data[at]
                if divisor > 1:  # towards the past, as numpy does; C rounds towards 0
                    value = value // divisor - (1 if value < 0 and value % divisor else 0)
                else:
                    value *= factor
            out[done] = value
            done += 1
    return array


cdef class HeaderLists:
    """The headers of records as they lie in them: one encoding for all, or one for each."""

    @staticmethod
    cdef HeaderLists of(object headers, int64_t count):
        """`headers`: None, pairs (or a mapping) for all records, or a sequence of those, or None, for each."""
        cdef HeaderLists lists = HeaderLists.__new__(HeaderLists)
        if headers is None or not len(headers):
            lists.shared = b"\0"
        elif hasattr(headers, "items"):
            lists.shared = encode_headers(headers)
        elif isinstance(headers[0], tuple) and len(headers[0]) == 2 and isinstance(headers[0][0], str):
            lists.shared = encode_headers(headers)
        else:
            if len(headers) != count:
                raise ValueError(f"headers: {len(headers)} for {count} records")
            lists.encoded = cells_of_list([encode_headers(h) for h in headers], "headers")
            lists.cells = lists.encoded.cells
            return lists
        lists.shared_at = <const uint8_t *>PyBytes_AS_STRING(lists.shared)
        lists.shared_size = PyBytes_GET_SIZE(lists.shared)
        return lists

    cdef const uint8_t *at(self, int64_t i, int64_t *size) noexcept nogil:
        if self.encoded is None:
            size[0] = self.shared_size
            return self.shared_at
        return ks_cell(&self.cells, i, size)


def cells_list(values, int64_t count=-1):
    """What `extend` makes of a column, for tests: a list of bytes and None."""
    cdef Cells cells = Cells.of(values, "values", count)
    cdef const uint8_t *p
    cdef int64_t size = 0, i
    del values
    found = []
    for i in range(cells.cells.count):
        p = ks_cell(&cells.cells, i, &size)
        found.append(None if p is NULL else (<const char *>p)[:size])
    return found


def times_list(timestamps, int64_t count, int64_t default_ms=0):
    """The same for timestamps: a list of ms."""
    cdef Times times = Times.of(timestamps, count, default_ms)
    return [times.data[i] if times.data is not NULL else times.constant for i in range(count)]
