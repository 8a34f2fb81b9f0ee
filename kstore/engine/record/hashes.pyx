# cython: binding=False
"""The two hashes of Kafka: CRC-32C guards a batch, murmur2 of a key chooses its partition."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint32_t, uint8_t

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


def murmur2(data, /):
    """The hash of some bytes as Kafka's Utils.murmur2 gives it: a signed 32-bit integer."""
    cdef Py_buffer view
    if isinstance(data, memoryview) and not data.c_contiguous:
        data = data.tobytes()
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return <int32_t>hash_of(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def partitions_into(out, offsets, data, int32_t count, /):
    """Writes to `out` the partition, of `count`, of every key: key i is data[offsets[i]:offsets[i + 1]].
    `out` and `offsets` are buffers of int32; offsets that lie outside of `data` are a ValueError."""
    cdef Py_buffer to, bounds, bytes_of
    cdef Py_ssize_t keys, i
    cdef const int32_t *at
    cdef int32_t *found
    cdef bint right = count > 0
    PyObject_GetBuffer(out, &to, PyBUF_SIMPLE | PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(offsets, &bounds, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(data, &bytes_of, PyBUF_SIMPLE)
            try:
                keys = to.len // 4
                at, found = <const int32_t *>bounds.buf, <int32_t *>to.buf
                right = right and to.len % 4 == 0 and bounds.len == to.len + 4
                if right:
                    with nogil:
                        for i in range(keys):
                            if not 0 <= at[i] <= at[i + 1] <= bytes_of.len:
                                right = False
                                break
                            found[i] = <int32_t>(
                                (hash_of(<const uint8_t *>bytes_of.buf + at[i], at[i + 1] - at[i]) & 0x7FFFFFFF)
                                % <uint32_t>count
                            )
            finally:
                PyBuffer_Release(&bytes_of)
        finally:
            PyBuffer_Release(&bounds)
    finally:
        PyBuffer_Release(&to)
    if not right:
        raise ValueError("offsets outside of the data, or not one more than partitions")
