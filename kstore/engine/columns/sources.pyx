"""What columns come from: any iterable, numpy's arrays, the buffers of other objects."""

import sys
from itertools import islice

from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stdint cimport int64_t, uint8_t

cdef uint8_t EMPTY = 0


cdef object materialised(object values, str what, int64_t count):
    """The elements of any iterable as a tuple, which no other thread changes; one more than `count` at most."""
    if type(values) is tuple:
        return values
    if type(values) is list:
        return tuple(values)
    if isinstance(values, (str, bytes, bytearray, memoryview, dict, set, frozenset)):
        raise TypeError(f"{what}: a sequence with an element a record, not {type(values).__name__}")
    try:
        elements = iter(values)
    except TypeError:
        raise TypeError(f"{what}: a sequence with an element a record, not {type(values).__name__}") from None
    return tuple(elements if count < 0 else islice(elements, count + 1))


cdef object numpy_of(object values):
    """numpy, if `values` is one of its arrays. Nobody makes an array without importing it, so this need not.

    While another thread imports it, the module is there already, and the class of arrays not yet."""
    numpy = sys.modules.get("numpy")
    ndarray = getattr(numpy, "ndarray", None)
    return numpy if isinstance(ndarray, type) and isinstance(values, ndarray) else None


cdef object pinned(object source, const uint8_t **data, int64_t *size):
    """A memoryview that keeps the bytes of `source` where they are; of a copy, if they do not lie together."""
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
