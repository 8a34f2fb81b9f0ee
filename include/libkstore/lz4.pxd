"""Twin of kstore/lz4.h."""

from libc.stdint cimport int64_t, uint8_t


cdef extern from "kstore/lz4.h" nogil:
    int64_t ks_unlz4(const uint8_t *p, const uint8_t *end, uint8_t *out, int64_t size)
