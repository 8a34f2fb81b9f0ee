# cython: binding=False
"""Columns of records, dealt to the logs of partitions: each record straight into a batch of its partition, in
one pass.

The first offset of a batch is in no checksum, so batches are made before anybody knows where they will lie;
and nothing is written before all are made.

Several threads share the work on large columns: first each chooses the partitions of some of the rows, then
each makes all batches of some of the partitions. So what is made does not depend on their number.
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

cdef extern from *:
    void prefetch "__builtin_prefetch"(const void *) nogil

cdef extern from "team.h" nogil:
    int ks_usable_processors()
    int ks_team_run(int (*part)(void *, int) noexcept nogil, void *work, int parts, int *begun)

from kstore.engine.io.buffer_pool import POOL

cdef enum:
    MOST_LANES = 64            # more buffers than that do not stay in the processor's cache
    MOST_BYTES = 256 << 20     # of all batches: larger columns are appended without a copy of all
    BATCH_BYTES = 16384
    MOST_THREADS = 8
    BLOCK = 256                # rows, looked through for those of a part at once
    AHEAD = 12                 # rows
    LINE = 64                  # bytes, of the processor's cache
    RECORD_EFFORT = 64         # a record takes as long as so many bytes of it
    PAYING_ROWS = 50_000       # a second thread takes some 30 us to begin: as many are chosen in 250 us
    PAYING_BYTES = 2 << 20     # and batches of so many bytes are made in as long

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
    uint8_t[LINE] apart    # the threads of two neighbours share no line of the processor's cache


# What a part of the rows gives to each partition.
cdef struct ks_tally:
    int64_t[MOST_LANES] counts
    int64_t[MOST_LANES] bytes
    int64_t[2] largest

# What the threads have in common that choose, and then deal.
cdef struct ks_deal:
    const ks_cells *values
    const ks_cells *keys
    const int64_t *timestamps
    uint8_t *numbers               # the partition of each row
    uint32_t count                 # partitions
    int keyless
    int parts
    ks_tally *tallies              # of the parts that choose, which have rows
    int[MOST_THREADS + 1] bounds    # of the parts that deal, which have lanes
    ks_lane *lanes


cdef int choose(void *work, int part) noexcept nogil:
    """The partition of every record in a part of the rows, how many each gets, and how large they are at
    most: key and value."""
    cdef ks_deal *d = <ks_deal *>work
    cdef ks_cells v = d.values[0], k = d.keys[0]
    cdef int64_t i, size = 0, value_size = 0
    cdef int64_t[2] largest
    cdef uint32_t count = d.count
    cdef const uint8_t *key
    cdef uint8_t *numbers = d.numbers
    cdef int number, keyless = d.keyless
    cdef ks_tally *tally = &d.tallies[part]
    largest[0] = largest[1] = 0
    for i in range(v.count * part // d.parts, v.count * (part + 1) // d.parts):
        key = ks_cell(&k, i, &size)
        ks_cell(&v, i, &value_size)
        number = keyless if size < 0 else <int>((hash_of(key, size) & 0x7FFFFFFF) % count)
        numbers[i] = <uint8_t>number
        tally.counts[number] += 1
        tally.bytes[number] += max(size, <int64_t>0) + max(value_size, <int64_t>0)
        largest[0] = max(largest[0], size)
        largest[1] = max(largest[1], value_size)
    tally.largest = largest
    return 0


cdef inline int64_t effort(const ks_lane *lane) noexcept nogil:
    """What it takes to make the batches of a lane, in bytes that are copied and checked."""
    return lane.bytes + lane.count * RECORD_EFFORT


cdef void share_out(ks_deal *d) noexcept nogil:
    """Divides the lanes into parts that take about the same effort."""
    cdef int part = 0
    cdef int64_t total = 0, before = 0, own
    cdef uint32_t number
    for number in range(d.count):
        total += effort(d.lanes + number)
    d.bounds[0] = 0
    for number in range(d.count):
        own = effort(d.lanes + number)
        # a lane that lies across a bound goes to the part that has more of it
        while part + 1 < d.parts and (2 * before + own) * d.parts > 2 * total * (part + 1):
            part += 1
            d.bounds[part] = <int>number
        before += own
    while part < d.parts:
        part += 1
        d.bounds[part] = <int>d.count


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


cdef int deal(void *work, int part) noexcept nogil:
    """Makes the batches of a part of the lanes. Not 0 if a log would not take one of the records, or if there
    is no room."""
    cdef ks_deal *d = <ks_deal *>work
    cdef ks_cells v = d.values[0], k = d.keys[0]
    cdef const int64_t *timestamps = d.timestamps
    cdef int64_t block = 0, i, key_size = 0, value_size = 0, at, whole
    cdef int first = d.bounds[part], lanes = d.bounds[part + 1] - d.bounds[part], j, found
    cdef int ahead = AHEAD if d.parts > 1 else BLOCK  # who reads all cells needs no fetching
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef const uint8_t *numbers
    cdef ks_lane *lane
    cdef size_t body
    cdef const uint8_t *no_headers = <const uint8_t *>b"\0"
    cdef uint8_t[BLOCK] mine
    if lanes == 0:
        return 0
    while block < v.count:
        numbers = d.numbers + block
        found = 0
        # no branch: it would be guessed wrong half of the time
        for j in range(<int>min(<int64_t>BLOCK, v.count - block)):
            mine[found] = <uint8_t>j
            found += <uint8_t>(numbers[j] - first) < lanes
        for j in range(found):
            if j + ahead < found:
                value = ks_cell(&v, block + mine[j + ahead], &value_size)
                if value_size > 0:
                    prefetch(value)
                    if value_size > LINE:
                        prefetch(value + LINE)
                    prefetch(value + value_size - 1)
            i = block + mine[j]
            lane = d.lanes + numbers[mine[j]]
            key = ks_cell(&k, i, &key_size)
            value = ks_cell(&v, i, &value_size)
            at = lane.constant if timestamps is NULL else timestamps[i]
            if at >= 0 and (at < lane.terms.oldest or at > lane.terms.newest):
                return 1
            if key_size < 0 and lane.terms.keys_required:
                return 1
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
                return 1
            lane.p = ks_put_record(
                lane.p, body, at - lane.base, lane.n, key, key_size, value, value_size, no_headers, 1
            )
            lane.newest = max(lane.newest, at)
            lane.n += 1
        block += BLOCK
    for j in range(first, first + lanes):
        if d.lanes[j].n:
            finish(d.lanes + j)
    return 0


cdef int64_t room_for(const ks_lane *lane, int64_t overhead) noexcept nogil:
    """How many bytes the batches of a lane take at most, if a record takes `overhead` beside key and
    value."""
    cdef int64_t records = lane.bytes + lane.count * overhead
    cdef int64_t batches = lane.count, most = lane.terms.batch_bytes - KS_BATCH_OVERHEAD
    if most > overhead:  # two that follow each other are too much for one
        batches = min(batches, 2 * records // most + 1)
    return records + batches * KS_BATCH_OVERHEAD


@final
@no_gc  # it refers to columns, which do not know of it
cdef class DealtBatches:
    """What `LogStore.extend` makes of its columns: the partition of each record, of `count`; then the batches
    of each.

    A record's partition is that of its key as Kafka's default partitioner has it; one without a key goes to
    `keyless`. `threads`: how many share the work at most; 0: two where that pays. What cannot be started
    leaves it to this one. TypeError, ValueError for columns that RecordAppender.extend does not take."""

    cdef BinaryInput values
    cdef BinaryInput keys
    cdef TimestampInput times
    cdef bint timeless
    cdef BufferPool pool
    cdef int32_t partition_count
    cdef int threads
    cdef readonly int helpers  # how many were started, to choose and to deal
    cdef int64_t[2] largest    # bytes of a key, and of a value
    cdef ks_deal work
    cdef ks_lane *lanes
    cdef int64_t numbers_room
    cdef uint8_t *data
    cdef int64_t room
    cdef bint is_made

    def __cinit__(self, values, keys, timestamps, int32_t count, int32_t keyless, int threads=0):
        cdef int64_t total
        cdef ks_deal *work = &self.work
        if not 0 < count <= MOST_LANES or not 0 <= keyless < count:
            raise ValueError(f"partition {keyless} of {count}")
        self.values = BinaryInput.of(values, "values", -1)
        total = self.values.cells.count
        self.keys = BinaryInput.of(keys, "keys", total)
        self.times = TimestampInput.of(timestamps, total, 0)
        self.timeless = timestamps is None
        self.pool = POOL
        self.partition_count = count
        self.threads = threads
        work.values, work.keys, work.timestamps = &self.values.cells, &self.keys.cells, self.times.data
        work.count, work.keyless = <uint32_t>count, keyless
        self.divide(total >= PAYING_ROWS)
        work.lanes = self.lanes = <ks_lane *>PyMem_RawCalloc(<size_t>count, sizeof(ks_lane))
        work.tallies = <ks_tally *>PyMem_RawCalloc(<size_t>work.parts, sizeof(ks_tally))
        work.numbers = self.pool.take(total, &self.numbers_room)
        if self.lanes is NULL or work.tallies is NULL or work.numbers is NULL:
            raise MemoryError()
        with nogil:
            ks_team_run(choose, work, work.parts, &self.helpers)
            self.sum_up()

    def __dealloc__(self):
        PyMem_RawFree(self.lanes)
        PyMem_RawFree(self.work.tallies)
        if self.pool is not None:
            self.pool.give(self.work.numbers, self.numbers_room)
            self.pool.give(self.data, self.room)

    cdef void divide(self, bint pays) noexcept:
        """Into how many parts the work that follows is divided, one for each thread: more would only read the
        columns more often."""
        self.work.parts = min(self.threads, <int>MOST_THREADS)
        if self.work.parts == 0:
            self.work.parts = 2 if pays and ks_usable_processors() > 1 else 1

    cdef void sum_up(self) noexcept nogil:
        cdef int part
        cdef int32_t number
        cdef ks_tally *tally
        for part in range(self.work.parts):
            tally = self.work.tallies + part
            for number in range(self.partition_count):
                self.lanes[number].count += tally.counts[number]
                self.lanes[number].bytes += tally.bytes[number]
            self.largest[0] = max(self.largest[0], tally.largest[0])
            self.largest[1] = max(self.largest[1], tally.largest[1])

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
        """Makes the batches; `logs` are those of all `partitions`. True if they can be appended; False if
        these records are for the extend() of each log: one of them packs them, or has a time of its own, or
        refuses them."""
        cdef RecordAppender log
        cdef ks_lane *lane
        cdef int32_t number
        cdef int begun = 0
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
        self.divide(total >= PAYING_BYTES)
        with nogil:
            share_out(&self.work)
            self.is_made = ks_team_run(deal, &self.work, self.work.parts, &begun) == 0
        self.helpers += begun
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
