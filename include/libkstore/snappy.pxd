"""Twin of kstore/snappy.h."""

from libc.stdint cimport int64_t, uint8_t


cdef extern from "kstore/snappy.h" nogil:
    int64_t ks_unsnap(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t size)
