# cython: binding=False
"""Columns of records, dealt to the logs of partitions: each record straight into a batch of its partition, in one pass.

The first offset of a batch is in no checksum, so batches are made before anybody knows where they will lie; and nothing
is written before all are made.
"""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cython cimport final, no_gc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from kstore.engine.append.record_appender cimport RecordAppender, ks_terms
from kstore.engine.columns.binary_input cimport BinaryInput, ks_cell, ks_cells
from kstore.engine.columns.column_input cimport TimestampInput
from kstore.engine.io.buffer_pool cimport BufferPool
from kstore.engine.record.hashes cimport hash_of
from libkstore.build cimport KS_RECORD_OVERHEAD, ks_put_header, ks_put_record, ks_record_body, ks_varlong_size
from libkstore.format cimport KS_BATCH_OVERHEAD, ks_batch

from kstore.engine.io.buffer_pool import POOL

cdef enum:
    MOST_LANES = 64            # more buffers than that do not stay in the processor's cache
    MOST_BYTES = 256 << 20     # of all batches: larger columns are appended without a copy of all
    BATCH_BYTES = 16384

MOST_PARTITIONS = MOST_LANES

# The batches of one partition, as they are made.
cdef struct ks_lane:
    uint8_t *data
    uint8_t *start       # of the batch that is open
    uint8_t *p           # where its next record goes
    uint8_t *end         # of the room
    int32_t n            # records of the open batch
    int64_t base         # its first timestamp, and its largest
    int64_t newest
    int64_t placed       # records of the batches before it
    int64_t count        # records that come
    int64_t bytes        # of their keys and values
    int64_t constant     # the timestamp of all, if they have none of their own
    ks_terms terms       # of the log


cdef void choose(
    const ks_cells *values, const ks_cells *keys, uint32_t count, int keyless, uint8_t *numbers, ks_lane *lanes,
    int64_t *largest,
) noexcept nogil:
    """The partition of every record, how many records each gets, and how large they are at most: key and value."""
    cdef ks_cells v = values[0], k = keys[0]
    cdef int64_t i, size = 0, value_size = 0
    cdef const uint8_t *key
    cdef int number
    cdef ks_lane *lane
    for i in range(v.count):
        key = ks_cell(&k, i, &size)
        ks_cell(&v, i, &value_size)
        number = keyless if size < 0 else <int>((hash_of(key, size) & 0x7FFFFFFF) % count)
        numbers[i] = <uint8_t>number
        lane = lanes + number
        lane.count += 1
        lane.bytes += max(size, <int64_t>0) + max(value_size, <int64_t>0)
        largest[0] = max(largest[0], size)
        largest[1] = max(largest[1], value_size)


cdef void finish(ks_lane *lane) noexcept nogil:
    """Closes the open batch, and begins the next one."""
    cdef ks_batch b
    memset(&b, 0, sizeof(b))
    b.base_offset = lane.placed
    b.last_offset_delta = lane.n - 1
    b.base_timestamp = lane.base
    b.max_timestamp = lane.newest
    b.producer_id = b.producer_epoch = b.base_sequence = -1
    b.records_count = lane.n
    b.size = lane.p - lane.start
    ks_put_header(lane.start, &b)
    lane.placed += lane.n
    lane.n = 0
    lane.start = lane.p
    lane.p += KS_BATCH_OVERHEAD


cdef bint deal(
    const ks_cells *values, const ks_cells *keys, const int64_t *timestamps, const uint8_t *numbers, ks_lane *lanes
) noexcept nogil:
    """Makes the batches of all. False if a log would not take one of the records, or if there is no room for it."""
    cdef ks_cells v = values[0], k = keys[0]
    cdef int64_t i, key_size = 0, value_size = 0, at, whole
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef ks_lane *lane
    cdef size_t body
    cdef const uint8_t *no_headers = <const uint8_t *>b"\0"
    for i in range(v.count):
        lane = lanes + numbers[i]
        key = ks_cell(&k, i, &key_size)
        value = ks_cell(&v, i, &value_size)
        at = lane.constant if timestamps is NULL else timestamps[i]
        if at >= 0 and (at < lane.terms.oldest or at > lane.terms.newest):
            return False
        if key_size < 0 and lane.terms.keys_required:
            return False
        if lane.n == 0:
            lane.base = lane.newest = at
        body = ks_record_body(at - lane.base, lane.n, key_size, value_size, 1)
        whole = <int64_t>body + <int64_t>ks_varlong_size(<int64_t>body)
        if lane.n and lane.p - lane.start + whole > lane.terms.batch_bytes:
            finish(lane)
            lane.base = lane.newest = at
            body = ks_record_body(0, 0, key_size, value_size, 1)
            whole = <int64_t>body + <int64_t>ks_varlong_size(<int64_t>body)
        if whole + KS_BATCH_OVERHEAD > lane.terms.most or whole > lane.end - lane.p:
            return False
        lane.p = ks_put_record(
            lane.p, body, at - lane.base, lane.n, key, key_size, value, value_size, no_headers, 1
        )
        lane.newest = max(lane.newest, at)
        lane.n += 1
    return True


cdef int64_t room_for(const ks_lane *lane, int64_t overhead) noexcept nogil:
    """How many bytes the batches of a lane take at most, if a record takes `overhead` beside key and value."""
    cdef int64_t records = lane.bytes + lane.count * overhead
    cdef int64_t batches = lane.count, most = lane.terms.batch_bytes - KS_BATCH_OVERHEAD
    if most > overhead:  # two that follow each other are too much for one
        batches = min(batches, 2 * records // most + 1)
    return records + batches * KS_BATCH_OVERHEAD


@final
@no_gc  # it refers to columns, which do not know of it
cdef class DealtBatches:
    """What `LogStore.extend` makes of its columns: the partition of each record, of `count`; then the batches of each.

    A record's partition is that of its key as Kafka's default partitioner has it; one without a key goes to `keyless`.
    TypeError, ValueError for columns that RecordAppender.extend does not take."""

    cdef BinaryInput values
    cdef BinaryInput keys
    cdef TimestampInput times
    cdef bint timeless
    cdef BufferPool pool
    cdef int32_t partition_count
    cdef int64_t[2] largest   # bytes of a key, and of a value
    cdef ks_lane *lanes
    cdef uint8_t *numbers
    cdef int64_t numbers_room
    cdef uint8_t *data
    cdef int64_t room
    cdef bint is_made

    def __cinit__(self, values, keys, timestamps, int32_t count, int32_t keyless):
        cdef int64_t total
        if not 0 < count <= MOST_LANES or not 0 <= keyless < count:
            raise ValueError(f"partition {keyless} of {count}")
        self.values = BinaryInput.of(values, "values", -1)
        total = self.values.cells.count
        self.keys = BinaryInput.of(keys, "keys", total)
        self.times = TimestampInput.of(timestamps, total, 0)
        self.timeless = timestamps is None
        self.pool = POOL
        self.partition_count = count
        self.lanes = <ks_lane *>PyMem_RawCalloc(<size_t>count, sizeof(ks_lane))
        self.numbers = self.pool.take(total, &self.numbers_room)
        if self.lanes is NULL or self.numbers is NULL:
            raise MemoryError()
        with nogil:
            choose(
                &self.values.cells, &self.keys.cells, <uint32_t>count, keyless, self.numbers, self.lanes, self.largest
            )

    def __dealloc__(self):
        PyMem_RawFree(self.lanes)
        if self.pool is not None:
            self.pool.give(self.numbers, self.numbers_room)
            self.pool.give(self.data, self.room)

    @property
    def partitions(self):
        """Those that get records."""
        cdef int32_t number
        return [number for number in range(self.partition_count) if self.lanes[number].count]

    @property
    def columns(self):
        """The columns, for RecordAppender.extend and split_by_partition."""
        return self.values, self.keys, None if self.timeless else self.times

    def encode(self, dict logs not None):
        """Makes the batches; `logs` are those of all `partitions`. True if they can be appended; False if these records
        are for the extend() of each log: one of them packs them, or has a time of its own, or refuses them."""
        cdef RecordAppender log
        cdef ks_lane *lane
        cdef int32_t number
        cdef int64_t total = 0, overhead
        overhead = (
            2 + ks_varlong_size(self.largest[0] + self.largest[1] + KS_RECORD_OVERHEAD)
            + ks_varlong_size(self.largest[0]) + ks_varlong_size(self.largest[1])
            + ks_varlong_size(self.values.cells.count) + (1 if self.times.data is NULL else 10)
        )
        for number in range(self.partition_count):
            lane = self.lanes + number
            if lane.count == 0:
                continue
            log = logs[number]
            if self.data is not NULL or not log.tell_terms(lane.count, BATCH_BYTES, &lane.terms):
                return False
            lane.constant = lane.terms.now if self.timeless else self.times.constant
            total += room_for(lane, overhead)
        if total > MOST_BYTES:
            return False
        self.data = self.pool.take(total, &self.room)
        if self.data is NULL:
            return False
        total = 0
        for number in range(self.partition_count):
            lane = self.lanes + number
            lane.data = lane.start = self.data + total
            lane.p = lane.data + KS_BATCH_OVERHEAD
            total += room_for(lane, overhead) if lane.count else 0
            lane.end = self.data + total
        with nogil:
            self.is_made = deal(
                &self.values.cells, &self.keys.cells, self.times.data, self.numbers, self.lanes
            )
            if self.is_made:
                for number in range(self.partition_count):
                    if self.lanes[number].n:
                        finish(self.lanes + number)
        return bool(self.is_made)

    def append_to(self, RecordAppender log not None, int32_t number):
        """Appends the batches of a partition to its log, as extend() would; the range of their offsets."""
        cdef ks_lane *lane
        cdef int64_t first
        if not self.is_made or not 0 <= number < self.partition_count or self.lanes[number].count == 0:
            raise ValueError(f"no batches for partition {number}")
        lane = self.lanes + number
        first = log.append_made(lane.data, lane.start - lane.data, lane.count)
        return range(first, first + lane.count)
