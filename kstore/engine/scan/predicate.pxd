from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from libkstore.format cimport KS_OK, ks_header, ks_next_header, ks_record

cdef enum:
    ANY_VALUE = -2   # of a wanted header: whatever it is

cdef struct ks_wanted:
    const uint8_t *name
    const uint8_t *value
    int64_t name_size
    int64_t value_size   # -1: null

# What a record must be like. Key and prefix have size -1 where they do not matter.
cdef struct ks_filter:
    int64_t start
    int64_t stop
    int64_t since
    int64_t latest
    const uint8_t *key
    const uint8_t *prefix
    int64_t key_size
    int64_t prefix_size
    int64_t wanted_count
    ks_wanted *wanted
    bint looks_inside    # something but the offset matters


cdef class Predicate:
    cdef ks_filter filter
    cdef list owners

    cdef int want_header(self, object name, object value, bint any_value) except -1


cdef inline bint ks_has_header(const ks_record *r, const ks_wanted *w) noexcept nogil:
    cdef const uint8_t *p = r.headers
    cdef ks_header h
    cdef int32_t left = r.headers_count
    while left > 0:
        left -= 1
        if ks_next_header(&p, r.end, &h) != KS_OK:
            return False
        if h.key_size != w.name_size or memcmp(h.key, w.name, <size_t>w.name_size) != 0:
            continue
        if w.value_size == ANY_VALUE:
            return True
        if h.value_size == w.value_size and (
            w.value_size <= 0 or memcmp(h.value, w.value, <size_t>w.value_size) == 0
        ):
            return True
    return False


cdef inline bint ks_matches(const ks_filter *f, const ks_record *r) noexcept nogil:
    """All but the offset, which also tells where a scan ends."""
    cdef int64_t i
    if r.timestamp < f.since or r.timestamp > f.latest:
        return False
    if f.key_size >= 0 and (
        r.key_size != f.key_size or memcmp(r.key, f.key, <size_t>f.key_size) != 0
    ):
        return False
    if f.prefix_size >= 0 and (
        r.key_size < f.prefix_size or memcmp(r.key, f.prefix, <size_t>f.prefix_size) != 0
    ):
        return False
    for i in range(f.wanted_count):
        if not ks_has_header(r, &f.wanted[i]):
            return False
    return True
