# cython: binding=False
"""What `log.extend` takes as columns, beside bytes (binary_input.pyx): timestamps and headers, and what they
come from, such as Arrow arrays of other libraries.

A column is read once with the GIL, and then by index without it. Timestamps that lie together are not copied
but pinned. They are read once: a thread that changes a writable array meanwhile changes what is written.

Arrow arrays come through the PyCapsule interface; no Arrow library is needed. An array arrives as a struct
with a release function. Taking it over means copying the struct and clearing the release function of the
original; the owner of the copy calls it, once. Nothing says how long the buffers are, except those of views: a
producer that lies about them cannot be detected, one that contradicts itself can.
"""

import sys

from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from cython cimport cdivision, final
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from libkstore.format cimport KS_MAX_VARINT, ks_write_varlong

from kstore.arguments import FIRST_SECOND, LAST_SECOND, elements, is_datetime, milliseconds
from kstore.arguments import warn_of_seconds as warn
from kstore.errors import InvalidTimestampError

cdef enum:
    WIDEST = 64  # no element is wider but those of w:N; lengths below INT64_MAX / WIDEST let sums and products be

cdef uint8_t EMPTY = 0


# ---- arrays of Arrow ---------------------------------------------------------------------------------------


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


# ---- columns of other kinds --------------------------------------------------------------------------------


cdef object materialised(object values, str what, int64_t count):
    """The elements of any iterable as a tuple, which no other thread changes; one more than `count` at
    most."""
    if type(values) is tuple:
        return values
    if type(values) is list:
        return tuple(values)
    if isinstance(values, (dict, set, frozenset)):
        raise TypeError(f"{what}: a sequence with an element a record, not {type(values).__name__}")
    return elements(f"{what}: a sequence with an element a record", values, None if count < 0 else count + 1)


cdef object numpy_of(object values):
    """numpy, if `values` is one of its arrays. Its arrays exist only once it is imported, so this need not import it.

    While another thread imports it, the module is there already, and the class of arrays not yet."""
    numpy = sys.modules.get("numpy")
    ndarray = getattr(numpy, "ndarray", None)
    return numpy if isinstance(ndarray, type) and isinstance(values, ndarray) else None


cdef object pinned(object source, const uint8_t **data, int64_t *size):
    """A memoryview that keeps the bytes of `source` where they are; of a copy, if they do not lie
    together."""
    view = PyMemoryView_FromObject(source)
    if not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), c"C"):
        view = PyMemoryView_FromObject(view.tobytes())
    size[0] = PyMemoryView_GET_BUFFER(view).len
    data[0] = <const uint8_t *>PyMemoryView_GET_BUFFER(view).buf if size[0] else empty_cell()
    return view


cdef const uint8_t *empty_cell() noexcept nogil:
    """What an empty cell points at that has nothing else."""
    return &EMPTY


cdef str of_record(int64_t i):
    """For messages: which record, unless all are meant."""
    return f" of record {i}" if i >= 0 else ""


cdef int check_count(str what, int64_t found, int64_t count) except -1:
    if count >= 0 and found != count:
        raise ValueError(f"{what}: {'more' if found > count else found} for {count} records")


cdef int refuse_mask(object array, str what) except -1:
    if hasattr(array, "mask"):
        raise TypeError(f"{what}: a masked array; fill in what is masked, or make it a list with None")


cdef enum:
    DAY_MS = 86_400_000

# unit: so many milliseconds, so many of it a millisecond
cdef dict ARROW_TIMES = {
    b"l": (1, 1), b"tdD": (DAY_MS, 1), b"tdm": (1, 1),
    b"tss:": (1000, 1), b"tsm:": (1, 1), b"tsu:": (1, 10**3), b"tsn:": (1, 10**6),
}
cdef dict NUMPY_TIMES = {
    "W": (7 * DAY_MS, 1), "D": (DAY_MS, 1), "h": (3_600_000, 1), "m": (60_000, 1), "s": (1000, 1), "ms": (1, 1),
    "us": (1, 10**3), "ns": (1, 10**6), "ps": (1, 10**9), "fs": (1, 10**12), "as": (1, 10**15),
}
cdef int64_t first_second = FIRST_SECOND  # read without Python for every call
cdef int64_t last_second = LAST_SECOND
cdef int64_t LAST_YEAR = INT64_MAX // (366 * <int64_t>DAY_MS)  # so many years since 1970 are int64 milliseconds


@final
cdef class TimestampInput:
    """Timestamps of records: milliseconds since 1970, or -1 for none; readable without the GIL as BinaryInput
    are."""

    def __dealloc__(self):
        PyMem_RawFree(self.own)

    @staticmethod
    cdef TimestampInput of(object timestamps, int64_t count, int64_t default_ms):
        """The timestamps of `count` records: None (all `default_ms`), an int or a datetime for all, or one a
        record.

        ints, numpy's or Arrow's int64, are milliseconds; dates and datetimes become such, rounded down.
        Python's must have a time zone. Arrow's nulls are -1. ValueError for a number below -1, a NaT, or
        another count."""
        cdef TimestampInput self
        cdef ChunkedArray column
        if type(timestamps) is TimestampInput:  # made before
            self = <TimestampInput>timestamps
            check_count("timestamps", self.count, count)
            return self
        self = TimestampInput()
        self.count = count
        if timestamps is None:
            self.constant = default_ms
            return self
        # not of a tuple of both: Cython would not look whether that raises
        if is_datetime(timestamps) or isinstance(timestamps, float) or (
            hasattr(timestamps, "__index__") and numpy_of(timestamps) is None
        ):
            self.constant = moment(timestamps)
        elif (numpy := numpy_of(timestamps)) is not None:
            check_count("timestamps", timestamps.size, count)
            self.take_numpy(timestamps, numpy)
            if self.count and timestamps.dtype.kind in "iu":
                warn_of_seconds(self.data[0])
        elif type(timestamps) is not list and type(timestamps) is not tuple and is_arrow(timestamps):
            refuse_missing(timestamps)
            column = ChunkedArray.of(timestamps, "timestamps", count)
            check_count("timestamps", column.count, count)
            self.take_column(column)
            if self.count and column.schema.format == b"l":
                warn_of_seconds(self.data[0])
        else:
            items = materialised(timestamps, "timestamps", count)
            check_count("timestamps", len(items), count)
            self.take_ints(items)
        return self

    cdef int room(self, int64_t count) except -1:
        self.own = <int64_t *>PyMem_RawMalloc(<size_t>(count * 8))
        if self.own is NULL:
            raise MemoryError()
        self.data = self.own

    cdef int take_ints(self, tuple items) except -1:
        cdef int64_t i = 0
        self.room(self.count)
        try:  # once for all: for each it would take as long as the rest
            for i in range(self.count):
                self.own[i] = time_of(items[i], i)
        except OverflowError:
            refuse_overflow(items[i], i)
        if self.count:
            warn_of_seconds(self.own[0])

    cdef int take_plain(self, const int64_t *data, object owner) except -1:
        """Milliseconds where they lie."""
        cdef int64_t i
        with nogil:
            i = to_ms(<const uint8_t *>data, 8, self.count, NULL, 0, 1, 1, NULL)
        if i >= 0:
            raise_time(data[i], i)
        self.data = data
        self.owner = owner

    cdef int take_numpy(self, object array, object numpy) except -1:
        cdef const uint8_t *data
        cdef int64_t size, i, times = 1, by = 1
        refuse_mask(array, "timestamps")
        kind = array.dtype.kind
        if array.ndim != 1 or kind not in "iuMO" or kind == "u" and array.dtype.itemsize == 8:
            raise TypeError(f"timestamps: a column of int64 or datetime64, not {array.ndim}-D {array.dtype}")
        if kind == "O":
            self.take_ints(tuple(array.tolist()))
            return 0
        if kind == "M":
            array, times, by = in_small_units(array, numpy)
        plain = numpy.require(array.astype(numpy.int64, casting="safe", copy=False), None, ["C", "A"])
        view = pinned(plain, &data, &size)
        if times == 1 and by == 1:
            self.take_plain(<const int64_t *>data, view)
            return 0
        self.room(self.count)
        with nogil:
            i = to_ms(data, 8, self.count, NULL, 0, times, by, self.own)
        if i >= 0:
            raise_time((<const int64_t *>data)[i], i)

    cdef int take_column(self, ChunkedArray column) except -1:
        cdef Chunk chunk
        cdef const ArrowArray *a
        cdef const uint8_t *validity
        cdef const uint8_t *data
        cdef int64_t i, at = 0, times, by
        cdef bytes format = column.schema.format
        cdef int width = 4 if format == b"tdD" else 8
        unit = ARROW_TIMES.get(format[:4])
        if unit is None or column.schema.dictionary is not NULL or len(format) > 4 and format[3] != c":":
            raise TypeError(f"timestamps: an Arrow array of int64, timestamps or dates, not of {column.format()!r}")
        times, by = unit
        for chunk in column.chunks:
            a = &chunk.array
            check_buffers(a, 2, "timestamps")
            validity = validity_of(a, "timestamps")
            data = <const uint8_t *>a.buffers[1] + width * a.offset
            if times == 1 and by == 1 and validity is NULL and a.length == self.count and <size_t>data % 8 == 0:
                self.take_plain(<const int64_t *>data, column)
                return 0
            if self.own is NULL:
                self.room(self.count)
            with nogil:
                i = to_ms(data, width, a.length, validity, a.offset, times, by, self.own + at)
            if i >= 0:
                raise_time(number_at(data, width, i), at + i)
            at += a.length
        if self.own is NULL:
            self.room(0)


cdef int64_t moment(object timestamp) except? -2:
    """The timestamp given for one record, in milliseconds. TypeError, ValueError."""
    cdef int64_t ms
    cdef int overflow = 0
    if PyLong_CheckExact(timestamp):
        ms = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        if overflow or ms < -1:
            raise_time(timestamp, -1)
    else:
        ms = odd_time_of(timestamp, -1)
    warn_of_seconds(ms)
    return ms


cdef inline int64_t time_of(object number, int64_t i) except? -2:
    """An int, or a datetime with a time zone, as the timestamp of record i.
    OverflowError for an int that is too large, which the caller puts into words with refuse_overflow."""
    cdef int64_t ms
    if not PyLong_CheckExact(number):
        return odd_time_of(number, i)
    ms = number
    if ms < -1:
        raise_time(number, i)
    return ms


cdef int64_t odd_time_of(object given, int64_t i) except? -2:
    # a datetime before 1970 is no timestamp, though -1 is
    return milliseconds(f"timestamp{of_record(i)}", given, 0 if is_datetime(given) else -1)


cdef int refuse_overflow(object number, int64_t i) except -1:
    """In an except clause: raises it again unless an int is too large: the code of an `__index__` raised it."""
    if not PyLong_CheckExact(number):
        raise
    raise_time(number, i)


cdef inline int warn_of_seconds(int64_t ms) except -1:
    """Warns of a number that is a time of our days in seconds: time.time() gives such."""
    if first_second <= ms <= last_second:
        warn("timestamp", ms)
    return 0


cdef int refuse_missing(object timestamps) except -1:
    """Of a column of pandas, which makes a NaT a null when it gives its Arrow."""
    if hasattr(timestamps, "isna") and (missing := timestamps.isna()).any():
        raise_time(INT64_MIN, int(missing.argmax()))


cdef int raise_time(object number, int64_t i) except -1:
    wrong = "not a time (NaT)" if number == INT64_MIN else f"{number} is before 1970 and not -1, or past 2^63 - 1 ms"
    raise InvalidTimestampError(f"timestamp{of_record(i)}: {wrong}")


cdef tuple in_small_units(object array, object numpy):
    """(array of numbers, times, by) of an array of datetime64: milliseconds are number * times / by.

    Months and years have no fixed length; they are made days, by numpy. Some versions of it do not see
    overflow, others raise OverflowError: numbers that are too large are refused before."""
    unit, step = numpy.datetime_data(array.dtype)
    if unit == "generic":
        raise ValueError("timestamps: datetime64 without a unit")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if unit not in NUMPY_TIMES:
        raw = array.view(numpy.int64)
        wrong = (raw < 0) | (raw > (12 if unit == "M" else 1) * LAST_YEAR // step)
        if wrong.any():
            i = wrong.argmax()
            raise_time(raw[i].item(), i)
        array, unit, step = array.astype("datetime64[D]"), "D", 1
    times, by = NUMPY_TIMES[unit]
    return array.view(numpy.int64), times * step, by


cdef inline int64_t number_at(const uint8_t *data, int width, int64_t i) noexcept nogil:
    cdef int32_t narrow
    cdef int64_t wide
    if width == 4:
        memcpy(&narrow, data + 4 * i, 4)
        return narrow
    memcpy(&wide, data + 8 * i, 8)
    return wide


@cdivision(True)  # `by` is one or more
cdef int64_t to_ms(
    const uint8_t *data, int width, int64_t count, const uint8_t *validity, int64_t first, int64_t times, int64_t by,
    int64_t *out,
) noexcept nogil:
    """floor(number * times / by) of each, -1 for null; out NULL: only looks.

    Returns the first that is below -1 or past int64, or -1."""
    cdef int64_t i, number
    cdef int64_t most = INT64_MAX // times
    for i in range(count):
        if ks_is_null(validity, first + i):
            number = -1
        else:
            number = number_at(data, width, i)
            if number > most or number < -most:
                return i
            number *= times
            number = number // by - (number % by < 0)
            if number < -1:
                return i
        if out is not NULL:
            out[i] = number
    return -1


cdef bint is_pair(object item):
    """Whether this can only be a header; the headers of a record never begin with a str."""
    if type(item) is tuple:
        return len(<tuple>item) == 2 and isinstance((<tuple>item)[0], str)
    return isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str)


@final
cdef class HeaderInput:
    """The encoded headers of many records, readable without the GIL. They own their bytes. Thread-safe."""

    def __dealloc__(self):
        PyMem_RawFree(self.data)
        PyMem_RawFree(self.ends)

    @staticmethod
    cdef HeaderInput of(object headers, int64_t count):
        """Headers for `count` records.

        None: no record has any. A mapping of str to bytes or None, or a sequence of such pairs, as its
        first element shows: all records have these. Otherwise a sequence with one of these a record. An
        empty sequence is none for all. A HeaderInput is taken as it is. TypeError for what is no header;
        ValueError for a name that UTF-8 cannot say, or another count."""
        cdef HeaderInput self = HeaderInput()
        cdef int64_t i
        if type(headers) is HeaderInput:
            return <HeaderInput>headers
        self.count = count
        if headers is None or hasattr(headers, "items"):
            self.put(headers, -1)
            return self
        items = materialised(headers, "headers", -1)
        if not items or is_pair(items[0]):
            self.put(items, -1)
            return self
        if len(items) != count:
            raise ValueError(f"headers: {len(items)} for {count} records")
        self.ends = <int64_t *>PyMem_RawMalloc(<size_t>(count * 8))
        if self.ends is NULL:
            raise MemoryError()
        for i in range(count):
            self.put(items[i], i)
            self.ends[i] = self.size
        return self

    cdef HeaderInput chosen(self, const int64_t *rows, int64_t count):
        """The headers of some records, copied: the rows of these records, each below the count."""
        cdef HeaderInput part
        cdef int64_t i, size = 0, total = 0
        cdef const uint8_t *encoded
        if self.ends is NULL:  # all records have equal headers
            return self
        part = HeaderInput()
        part.count = count
        with nogil:
            for i in range(count):
                self.headers_at(rows[i], &size)
                total += size
        part.reserve(total)
        part.ends = <int64_t *>PyMem_RawMalloc(<size_t>(count * 8))
        if part.ends is NULL:
            raise MemoryError()
        with nogil:
            for i in range(count):
                encoded = self.headers_at(rows[i], &size)
                memcpy(part.data + part.size, encoded, <size_t>size)
                part.size += size
                part.ends[i] = part.size
        return part

    cdef int put(self, object headers, int64_t i) except -1:
        """Adds the headers of one record."""
        cdef const char *text
        cdef Py_ssize_t size
        cdef bytes raw
        cdef tuple pairs
        if headers is None:
            self.put_varint(0)
            return 0
        if type(headers) is list or type(headers) is tuple:
            pairs = tuple(headers)
        else:
            headers = headers.items() if hasattr(headers, "items") else headers
            pairs = materialised(headers, "headers" + of_record(i), -1)
        self.put_varint(len(pairs))
        for pair in pairs:
            if not is_pair(pair):
                raise TypeError(f"headers{of_record(i)}: pairs of a str and bytes or None, not {pair!r:.80}")
            name, value = pair
            try:
                text = PyUnicode_AsUTF8AndSize(name, &size)
            except UnicodeEncodeError:
                raise ValueError(f"headers{of_record(i)}: the name {name!r} has no UTF-8") from None
            self.put_field(text, size)
            if value is None:
                self.put_varint(-1)
                continue
            if not isinstance(value, (bytes, bytearray, memoryview)):
                cure = ": encode it" if isinstance(value, str) else ""
                raise TypeError(
                    f"headers{of_record(i)}: the value of {name!r} is bytes-like or None, "
                    f"not {type(value).__name__}{cure}"
                )
            raw = value if type(value) is bytes else bytes(value)
            self.put_field(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))

    cdef int put_field(self, const char *data, int64_t size) except -1:
        if size > INT32_MAX:
            raise ValueError(f"headers: {size} bytes, more than a record can hold")
        self.put_varint(size)
        self.reserve(size)
        memcpy(self.data + self.size, data, <size_t>size)
        self.size += size

    cdef int put_varint(self, int64_t value) except -1:
        self.reserve(KS_MAX_VARINT)
        self.size += <int64_t>ks_write_varlong(self.data + self.size, value)

    cdef int reserve(self, int64_t more) except -1:
        """Makes room for `more` bytes, doubling."""
        cdef int64_t space
        cdef uint8_t *data
        if more <= self.space - self.size:
            return 0
        space = max(<int64_t>64, 2 * self.space, self.size + more)
        data = <uint8_t *>PyMem_RawRealloc(self.data, <size_t>space)
        if data is NULL:
            raise MemoryError()
        self.data = data
        self.space = space
