"""Twin of kstore/crc32c.h, to cimport."""

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t


cdef extern from "kstore/crc32c.h" nogil:
    uint32_t ks_crc32c(uint32_t crc, const void *data, size_t size)
    uint32_t ks_crc32c_portable(uint32_t crc, const void *data, size_t size)
