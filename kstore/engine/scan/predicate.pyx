# cython: binding=False
"""Which records a scan is asked for; answered by the bytes of a record, before anything of it is copied."""

from collections.abc import Mapping

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cython cimport final, no_gc
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t


cdef bytes exactly_bytes(object value, str what):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    hint = f": {value!r}.encode()" if isinstance(value, str) else ""
    raise TypeError(f"{what} is bytes, not {type(value).__name__}{hint}")


@final
@no_gc  # it refers to bytes only, and points into them
cdef class Predicate:
    """start <= offset < stop, since <= timestamp < until, a key, how it begins, headers: all that are given.

    `header` is a name, a pair of a name and its value, or a mapping of such pairs that must all be there."""

    def __cinit__(
        self, int64_t start, int64_t stop, since=None, until=None, key=None, key_prefix=None, header=None
    ):
        cdef ks_filter *f = &self.filter
        self.owners = []
        f.start = start
        f.stop = stop
        f.since = INT64_MIN if since is None else min(max(since, INT64_MIN), INT64_MAX)
        f.latest = INT64_MAX if until is None else min(max(until - 1, INT64_MIN), INT64_MAX)
        if (since is not None and since > INT64_MAX) or (until is not None and until <= INT64_MIN):
            f.since = INT64_MAX  # no timestamp is there
            f.latest = INT64_MIN
        f.key_size = f.prefix_size = -1
        if key is not None:
            key = exactly_bytes(key, "key")
            f.key = <const uint8_t *>PyBytes_AS_STRING(key)
            f.key_size = PyBytes_GET_SIZE(key)
            self.owners.append(key)
        if key_prefix is not None:
            key_prefix = exactly_bytes(key_prefix, "key_prefix")
            f.prefix = <const uint8_t *>PyBytes_AS_STRING(key_prefix)
            f.prefix_size = PyBytes_GET_SIZE(key_prefix)
            self.owners.append(key_prefix)
        if header is None:
            pass
        elif isinstance(header, str):
            self.want_header(header, None, True)
        elif isinstance(header, Mapping):
            for name, value in header.items():
                self.want_header(name, value, False)
        elif isinstance(header, tuple) and len(header) == 2:
            self.want_header(header[0], header[1], False)
        else:
            raise TypeError("header is a name, a pair of name and value, or a mapping of such pairs")
        f.looks_inside = (
            since is not None or until is not None or f.key_size >= 0 or f.prefix_size >= 0 or f.wanted_count > 0
        )

    def __dealloc__(self):
        PyMem_RawFree(self.filter.wanted)

    cdef int want_header(self, object name, object value, bint any_value) except -1:
        cdef ks_filter *f = &self.filter
        cdef ks_wanted *wanted
        if not isinstance(name, str):
            raise TypeError(f"the name of a header is a str, not {type(name).__name__}")
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            raise ValueError(f"header: the name {name!r} has no UTF-8") from None
        wanted = <ks_wanted *>PyMem_RawRealloc(f.wanted, <size_t>(f.wanted_count + 1) * sizeof(ks_wanted))
        if wanted is NULL:
            raise MemoryError()
        f.wanted = wanted
        wanted = &f.wanted[f.wanted_count]
        wanted.name = <const uint8_t *>PyBytes_AS_STRING(raw)
        wanted.name_size = PyBytes_GET_SIZE(raw)
        wanted.value_size = ANY_VALUE if any_value else -1
        self.owners.append(raw)
        if value is not None:
            raw = exactly_bytes(value, "the value of a header")
            wanted.value = <const uint8_t *>PyBytes_AS_STRING(raw)
            wanted.value_size = PyBytes_GET_SIZE(raw)
            self.owners.append(raw)
        f.wanted_count += 1
        return 0
