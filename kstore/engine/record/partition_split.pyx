# cython: binding=False
"""Columns of records, split by partition: what `LogStore.extend` gives to the log of each.

Nothing is copied: the parts point at the cells of the columns that were given, and keep those alive.
"""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kstore.engine.columns.binary_input cimport BinaryInput, ks_cell, ks_cells
from kstore.engine.columns.column_input cimport TimestampInput
from kstore.engine.record.hashes cimport hash_of

cdef struct ks_part:
    int64_t count
    int64_t used
    const uint8_t **values
    int64_t *value_sizes
    const uint8_t **keys
    int64_t *key_sizes
    int64_t *times


cdef void assign(const ks_cells *keys, int32_t *numbers, ks_part *parts, int32_t count, int32_t keyless) noexcept nogil:
    """The partition of every record, and how many records each gets."""
    cdef int64_t i, size = 0
    cdef const uint8_t *key
    cdef int32_t number
    for i in range(keys.count):
        key = ks_cell(keys, i, &size)
        number = keyless if size < 0 else <int32_t>((hash_of(key, size) & 0x7FFFFFFF) % <uint32_t>count)
        numbers[i] = number
        parts[number].count += 1


cdef void distribute(
    const ks_cells *values, const ks_cells *keys, const int64_t *times, const int32_t *numbers, ks_part *parts
) noexcept nogil:
    """Puts every cell behind those that its partition has."""
    cdef int64_t i, at
    cdef ks_part *part
    for i in range(values.count):
        part = &parts[numbers[i]]
        at = part.used
        part.values[at] = ks_cell(values, i, &part.value_sizes[at])
        part.keys[at] = ks_cell(keys, i, &part.key_sizes[at])
        if times is not NULL:
            part.times[at] = times[i]
        part.used = at + 1


def split_by_partition(values, keys, timestamps, int32_t count, int32_t keyless):
    """[(partition, values, keys, timestamps), …] of the partitions, of `count`, that get records; the columns are for
    RecordAppender.extend. A record's partition is that of its key as Kafka's default partitioner has it; one without a
    key goes to `keyless`."""
    cdef BinaryInput value_cells = BinaryInput.of(values, "values", -1)
    cdef int64_t total = value_cells.cells.count
    cdef BinaryInput key_cells = BinaryInput.of(keys, "keys", total)
    cdef TimestampInput times = TimestampInput.of(timestamps, total, 0)
    cdef BinaryInput part_values, part_keys
    cdef TimestampInput part_times
    cdef ks_part *parts
    cdef int32_t *numbers
    cdef int32_t number
    if not 0 <= keyless < count:
        raise ValueError(f"partition {keyless} is none of {count}")
    found = []
    parts = <ks_part *>PyMem_RawCalloc(<size_t>count, sizeof(ks_part))
    numbers = <int32_t *>PyMem_RawMalloc(<size_t>total * 4)
    try:
        if parts is NULL or numbers is NULL:
            raise MemoryError()
        with nogil:
            assign(&key_cells.cells, numbers, parts, count, keyless)
        for number in range(count):
            if parts[number].count == 0:
                continue
            part_values, part_keys, part_times = BinaryInput(), BinaryInput(), None
            part_values.room(parts[number].count)
            part_keys.room(parts[number].count)
            part_values.owner, part_keys.owner = value_cells, key_cells
            parts[number].values, parts[number].value_sizes = part_values.cells.pointers, part_values.cells.sizes
            parts[number].keys, parts[number].key_sizes = part_keys.cells.pointers, part_keys.cells.sizes
            if timestamps is not None:
                part_times = TimestampInput()
                part_times.count = parts[number].count
                part_times.constant = times.constant
                if times.data is not NULL:
                    part_times.room(part_times.count)
                    parts[number].times = part_times.own
            found.append((number, part_values, part_keys, part_times))
        with nogil:
            distribute(&value_cells.cells, &key_cells.cells, times.data, numbers, parts)
    finally:
        PyMem_RawFree(parts)
        PyMem_RawFree(numbers)
    return found
