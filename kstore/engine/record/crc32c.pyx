"""CRC-32C of anything with the buffer protocol. The work is include/kstore/crc32c.h."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

from libkstore.crc32c cimport ks_crc32c


def crc32c(data, uint32_t value=0, /):
    """The CRC-32C (Castagnoli) of `data`, a contiguous buffer, going on from `value`, an earlier result."""
    cdef Py_buffer view
    cdef uint32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < 65536:  # below this, giving up the GIL costs more than it frees
            result = ks_crc32c(value, view.buf, <size_t>view.len)
        else:
            with nogil:
                result = ks_crc32c(value, view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return result
