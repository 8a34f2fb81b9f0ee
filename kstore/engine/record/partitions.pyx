# cython: binding=False
"""Which partition a record goes to, as Kafka's default partitioner has it: murmur2 of its key. And columns of
records, split by it: what `LogStore.extend` gives to the log of each partition.

Keys and values are not copied: the parts point at the cells of the columns that were given, and keep those alive.
Headers of single records are copied.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kstore.engine.columns.binary_input cimport BinaryInput, ks_cell, ks_cells
from kstore.engine.columns.column_input cimport HeaderInput, TimestampInput


cdef inline uint32_t hash_of(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """murmur2, as Kafka has it."""
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        k = p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24  # one load
        k *= m
        k ^= k >> 24
        h = h * m ^ k * m
        p += 4
        size -= 4
    if size > 0:
        k = p[0]
        if size > 1:
            k |= <uint32_t>p[1] << 8
        if size > 2:
            k |= <uint32_t>p[2] << 16
        h = (h ^ k) * m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


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


cdef void assign(
    const ks_cells *keys, int32_t *numbers, int64_t *counts, int32_t count, int32_t keyless
) noexcept nogil:
    """The partition of every record, and how many records each gets."""
    cdef int64_t i, size = 0
    cdef const uint8_t *key
    cdef int32_t number
    cdef uint32_t divisor = <uint32_t>count
    for i in range(keys.count):
        key = ks_cell(keys, i, &size)
        number = keyless if size < 0 else <int32_t>((hash_of(key, size) & 0x7FFFFFFF) % divisor)
        numbers[i] = number
        counts[number] += 1


cdef void distribute(const int32_t *numbers, int64_t total, int64_t *starts, int64_t *rows) noexcept nogil:
    """Puts the number of every record behind those of its partition, whose first lies at its start."""
    cdef int64_t i
    cdef int32_t number
    for i in range(total):
        number = numbers[i]
        rows[starts[number]] = i
        starts[number] += 1


cdef void gather(const int64_t *times, const int64_t *rows, int64_t count, int64_t *chosen) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        chosen[i] = times[rows[i]]


def split_by_partition(values, keys, timestamps, headers, int32_t count, int32_t keyless):
    """The columns as RecordAppender.extend takes them, more than once; and [(partition, values, keys,
    timestamps, headers), …] of the partitions, of `count`, that get records. A record's partition is that of its key
    as Kafka's default partitioner has it; one without a key goes to `keyless`."""
    cdef BinaryInput value_cells = BinaryInput.of(values, "values", -1)
    cdef int64_t total = value_cells.cells.count
    cdef BinaryInput key_cells = BinaryInput.of(keys, "keys", total)
    cdef TimestampInput times = TimestampInput.of(timestamps, total, 0)
    cdef HeaderInput header_lists = HeaderInput.of(headers, total)
    cdef TimestampInput part_times
    cdef bytes order = PyBytes_FromStringAndSize(NULL, total * 8)
    cdef int64_t *rows = <int64_t *>PyBytes_AS_STRING(order)
    cdef int64_t *counts
    cdef int64_t *starts
    cdef int32_t *numbers
    cdef int32_t number
    cdef int64_t first = 0
    if not 0 <= keyless < count:
        raise ValueError(f"partition {keyless} does not exist: there are {count}")
    found = []
    counts = <int64_t *>PyMem_RawCalloc(<size_t>count * 2, 8)
    numbers = <int32_t *>PyMem_RawMalloc(<size_t>total * 4)
    try:
        if counts is NULL or numbers is NULL:
            raise MemoryError()
        starts = counts + count
        with nogil:
            assign(&key_cells.cells, numbers, counts, count, keyless)
            for number in range(1, count):
                starts[number] = starts[number - 1] + counts[number - 1]
            distribute(numbers, total, starts, rows)
        for number in range(count):
            if counts[number] == 0:
                continue
            part_times = None
            if timestamps is not None:
                part_times = TimestampInput()
                part_times.count = counts[number]
                part_times.constant = times.constant
                if times.data is not NULL:
                    part_times.room(part_times.count)
                    with nogil:
                        gather(times.data, rows + first, part_times.count, part_times.own)
            part = (value_cells.chosen(order, first, counts[number]), key_cells.chosen(order, first, counts[number]))
            found.append((number, *part, part_times, header_lists.chosen(rows + first, counts[number])))
            first += counts[number]
    finally:
        PyMem_RawFree(counts)
        PyMem_RawFree(numbers)
    return (value_cells, key_cells, None if timestamps is None else times, header_lists), found
