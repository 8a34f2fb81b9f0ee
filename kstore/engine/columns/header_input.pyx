"""The headers of the records that `log.extend` takes, encoded as they lie in a record (spec 2.3)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from cython cimport final
from libc.stdint cimport INT32_MAX, int64_t, uint8_t
from libc.string cimport memcpy

from kstore.engine.columns.sources cimport materialised, of_record
from libkstore.format cimport KS_MAX_VARINT, ks_write_varlong


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

        None: no record has any. A mapping of str to bytes or None, or a sequence of such pairs, which one tells by its
        first element: all have the same. Otherwise a sequence with one of these a record. An empty sequence is none
        for all. TypeError for what is no header; ValueError for a name that UTF-8 cannot say, or another count."""
        cdef HeaderInput self = HeaderInput()
        cdef int64_t i
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


def header_input_list(headers, int64_t count):
    """For tests and debugging: the encoded headers of each of `count` records."""
    cdef HeaderInput lists = HeaderInput.of(headers, count)
    cdef const uint8_t *data
    cdef int64_t i, size
    out = []
    for i in range(count):
        data = lists.headers_at(i, &size)
        out.append(data[:size])
    return out
