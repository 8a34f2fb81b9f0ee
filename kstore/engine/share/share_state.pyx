# cython: binding=False
"""The state of a share group in a partition: which records are delivered, and what comes next; and its file, to
which several processes append under a lock on a file beside it.

An update is the only thing that changes a state. All other methods are questions, or return the update that a
decision leads to, so that the caller can store it first. Only what is below "the file" does I/O. It is compiled
because each record passes it twice, in each process that works for the group.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_CheckSignals
from cython cimport final, no_gc
from libc.errno cimport EINTR, errno
from libc.stdint cimport INT16_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from kstore.engine.io.faults cimport gate
from kstore.engine.io.file cimport File
from kstore.engine.io.synchronization cimport Mutex
from kstore.engine.record.batch_builder cimport BatchBuilder, ks_fields
from libkstore.format cimport (
    KS_BATCH_OVERHEAD,
    KS_OK,
    ks_batch,
    ks_check_batch,
    ks_codec,
    ks_fault,
    ks_next_record,
    ks_record,
)

# Kafka's delivery states, as its share-state records have them
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4
FOREVER = INT64_MAX

cdef enum:
    IS_AVAILABLE = 0
    IS_ACQUIRED = 1
    IS_ACKNOWLEDGED = 2
    IS_ARCHIVED = 4
    TAG = 100              # of kstore's fields; Kafka numbers its own from 0
    BATCH = 8 + 8 + 1 + 2 + 1
    IN_FLIGHT = 2 + 16     # worker and time, as a tagged field
    UPDATE_HEAD = 2 + 4 + 4 + 8
    SNAPSHOT_HEAD = 2 + 4 + 4 + 4 + 8 + 8 + 8
    GENERATION = 1 + 2 + 8
    VARINT = 5
    MOST_BATCHES = 1 << 15  # more than max_record_locks lead to


@final
@no_gc  # it refers to tuples of numbers
cdef class Update:
    """A change of a state, or with `is_snapshot` a whole state.

    `batches`: changes of ranges of records, as in Kafka's records: (first offset, last offset, state,
    delivery count, worker, until). `until` is the time in ms at which the lock of the worker expires if the
    record is acquired, else the time from which on it is available. `start_offset`: all records below it are
    done; -1 if it does not change. `leader_epoch` and `generation` are those of the log position at the end
    of the delivered records; -1 if they do not change."""

    cdef readonly tuple batches
    cdef readonly int64_t start_offset
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t generation
    cdef readonly bint is_snapshot

    def __init__(
        self,
        tuple batches not None,
        int64_t start_offset=-1,
        int32_t leader_epoch=-1,
        int64_t generation=-1,
        *,
        bint is_snapshot=False,
    ):
        self.batches = batches
        self.start_offset = start_offset
        self.leader_epoch = leader_epoch
        self.generation = generation
        self.is_snapshot = is_snapshot

    def _fields(self):
        return self.batches, self.start_offset, self.leader_epoch, self.generation, self.is_snapshot

    def __eq__(self, other):
        return isinstance(other, Update) and self._fields() == (<Update>other)._fields()

    __hash__ = None

    def __repr__(self):
        return f"Update{self._fields()}"


cdef Update update_of(tuple batches, int64_t start_offset):
    cdef Update update = Update.__new__(Update)
    update.batches = batches
    update.start_offset = start_offset
    update.leader_epoch = -1
    update.generation = -1
    return update


@final
cdef class ShareState:
    """What a share group has done in a partition.

    Records below `end` were delivered; those of them that are not in `in_flight` are done, so a slow record
    keeps nothing but itself. `in_flight` has (state, delivery count, worker, until) by offset, in ascending
    order."""

    cdef readonly int64_t end
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t generation
    cdef readonly dict in_flight
    cdef int64_t due  # no record in flight becomes available before this time

    def __cinit__(self):
        self.in_flight = {}
        self.leader_epoch = -1
        self.generation = -1
        self.due = INT64_MAX

    # ---- questions -----------------------------------------------------------------------------------------

    @property
    def start(self):
        """The offset of the first record that is not done."""
        return self.first()

    cdef int64_t first(self) except? -1:
        for offset in self.in_flight:
            return offset
        return self.end

    def available(self, int64_t now, dead):
        """The offset of the first record that was delivered and is to be delivered again, or None: it was
        released, its lock has expired, or its worker is among the dead ones."""
        cdef int64_t due = INT64_MAX, until
        if now < self.due:
            return None
        for offset, known in self.in_flight.items():
            until = (<tuple>known)[3]
            if until <= now or ((<tuple>known)[0] == IS_ACQUIRED and (<tuple>known)[2] in dead):
                return offset
            due = min(due, until)
        self.due = due
        return None

    def due_in_ms(self, int64_t now):
        """In how many ms a record in flight may become available, unless its worker dies."""
        return max(self.due - now, 0)

    def look_again(self):
        """A worker has died: the next call of `available` looks at all records."""
        self.due = 0

    def workers(self):
        """The workers that have acquired records."""
        return {known[2] for known in self.in_flight.values() if known[0] == IS_ACQUIRED}

    def deliveries(self, int64_t offset):
        """How often a record in flight was delivered; 0 for another one."""
        known = self.in_flight.get(offset)
        return 0 if known is None else (<tuple>known)[1]

    def holds(self, int64_t offset, delivery_count, worker):
        """Whether a worker has still acquired a record, by its delivery of this number."""
        known = self.in_flight.get(offset)
        return (
            known is not None
            and (<tuple>known)[0] == IS_ACQUIRED
            and (<tuple>known)[1] == delivery_count
            and (<tuple>known)[2] == worker
        )

    # ---- decisions -----------------------------------------------------------------------------------------

    def acquire(
        self, int64_t offset, int64_t worker, int64_t until, int32_t leader_epoch=-1, int64_t generation=-1
    ):
        """Deliver a record to a worker. Offsets between the end and a new record have no record."""
        known = self.in_flight.get(offset)
        cdef int64_t count = 1 if known is None else min(<int64_t>(<tuple>known)[1] + 1, <int64_t>INT16_MAX)
        batch = (offset, offset, IS_ACQUIRED, count, worker, until)
        cdef Update update
        if offset > self.end:
            update = update_of(((self.end, offset - 1, IS_ARCHIVED, 0, 0, 0), batch), -1)
        else:
            update = update_of((batch,), -1)
        update.leader_epoch = leader_epoch
        update.generation = generation
        return update

    def finish(self, int64_t offset, int state):
        """End a record in flight: ACKNOWLEDGED or ARCHIVED."""
        known = <tuple>self.in_flight[offset]
        cdef int64_t start = -1
        for at in self.in_flight:
            if start == -1 and at != offset:
                break  # it is not the first one, so the start stays
            if at != offset:
                start = at
                break
            start = self.end
        return update_of(((offset, offset, state, known[1], 0, 0),), start)

    def release(self, int64_t offset, int64_t until):
        """Make a record in flight available again, from a time on."""
        return update_of(((offset, offset, IS_AVAILABLE, self.in_flight[offset][1], 0, until),), -1)

    def renew(self, int64_t offset, int64_t until):
        """Set the time at which the lock of an acquired record expires."""
        known = <tuple>self.in_flight[offset]
        return update_of(((offset, offset, IS_ACQUIRED, known[1], known[2], until),), -1)

    def snapshot(self):
        """The whole state."""
        return self.snapshot_below(self.end, self.leader_epoch, self.generation)

    def truncated(self, int64_t end, int32_t leader_epoch, int64_t generation):
        """The whole state, for a log that has lost all records from an offset on: others may have their
        offsets."""
        return self.snapshot_below(min(self.end, end), leader_epoch, generation)

    cdef Update snapshot_below(self, int64_t end, int32_t leader_epoch, int64_t generation):
        cdef int64_t at = min(self.first(), end), start = at
        batches = []
        for offset, known in self.in_flight.items():
            if offset >= end:
                break
            if at < offset:
                batches.append((at, offset - 1, IS_ACKNOWLEDGED, 0, 0, 0))
            batches.append((offset, offset, *known))
            at = offset + 1
        if at < end:
            batches.append((at, end - 1, IS_ACKNOWLEDGED, 0, 0, 0))
        return Update(tuple(batches), start, leader_epoch, generation, is_snapshot=True)

    # ---- changes -------------------------------------------------------------------------------------------

    def apply(self, Update update not None):
        """Take in an update. ValueError for one that no state leads to. Applying it again changes nothing."""
        cdef int64_t first, last, until
        cdef int state
        if update.is_snapshot:
            self.in_flight.clear()
            self.end = update.start_offset
            self.due = 0  # of these workers some may be known to be dead
        for batch in update.batches:
            first, last, state = (<tuple>batch)[0], (<tuple>batch)[1], (<tuple>batch)[2]
            if last < first or last == INT64_MAX:
                raise ValueError(f"{batch} is no range of records")
            if state <= IS_ACQUIRED:
                if first != last or (first < self.end and first not in self.in_flight):
                    raise ValueError(f"{batch} is of records that are done")
                self.in_flight[first] = (<tuple>batch)[2:]
                until = (<tuple>batch)[5]
                self.due = min(self.due, until)
            elif first == last:
                self.in_flight.pop(first, None)
            else:
                self.drop(first, last + 1)
            self.end = max(self.end, last + 1)
        if update.start_offset >= 0 and update.start_offset > self.first():
            self.drop(0, update.start_offset)
            self.end = max(self.end, update.start_offset)
        if update.generation >= 0 or update.leader_epoch >= 0:
            self.leader_epoch = update.leader_epoch
            self.generation = update.generation

    cdef int drop(self, int64_t first, int64_t stop) except -1:
        for offset in [offset for offset in self.in_flight if first <= offset < stop]:
            del self.in_flight[offset]
        return 0


# ---- the values of Kafka's records -------------------------------------------------------------------------


cdef inline uint8_t *put(uint8_t *p, uint64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        p[i] = <uint8_t>(value >> (8 * (size - 1 - i)))
    return p + size


cdef inline int64_t take(const uint8_t *p, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | p[i]
    return <int64_t>(value << (64 - 8 * size)) >> (64 - 8 * size)  # with its sign


def encode_value(Update update not None, int32_t snapshot_epoch, int64_t now):
    """The value of a ShareSnapshot or ShareUpdate record, of version 0.

    Kafka's records have neither the worker and the time of a record in flight nor the generation of a log.
    They are tagged fields, which Kafka's decoders skip."""
    cdef Py_ssize_t count = len(update.batches), most
    most = SNAPSHOT_HEAD + VARINT + count * (BATCH + IN_FLIGHT) + GENERATION
    cdef bytes data = PyBytes_FromStringAndSize(NULL, most)
    cdef uint8_t *start = <uint8_t *>PyBytes_AS_STRING(data)
    cdef uint8_t *p = put(put(start, 0, 2), <uint64_t>snapshot_epoch, 4)
    cdef uint64_t left = count + 1
    cdef int64_t worker, until
    if update.is_snapshot:
        p = put(p, 0, 4)
    p = put(put(p, <uint64_t>update.leader_epoch, 4), <uint64_t>update.start_offset, 8)
    if update.is_snapshot:
        p = put(put(p, <uint64_t>now, 8), <uint64_t>now, 8)
    while left >= 0x80:
        p[0] = <uint8_t>(left | 0x80)
        p += 1
        left >>= 7
    p = put(p, left, 1)
    for batch in update.batches:
        worker, until = (<tuple>batch)[4], (<tuple>batch)[5]
        p = put(put(p, <uint64_t><int64_t>(<tuple>batch)[0], 8), <uint64_t><int64_t>(<tuple>batch)[1], 8)
        p = put(put(p, <uint64_t><int64_t>(<tuple>batch)[2], 1), <uint64_t><int64_t>(<tuple>batch)[3], 2)
        if worker == 0 and until == 0:
            p = put(p, 0, 1)
        else:
            p = put(put(put(p, 1, 1), TAG, 1), 16, 1)
            p = put(put(p, <uint64_t>worker, 8), <uint64_t>until, 8)
    if update.generation < 0:
        p = put(p, 0, 1)
    else:
        p = put(put(put(put(p, 1, 1), TAG, 1), 8, 1), <uint64_t>update.generation, 8)
    return data[:p - start]


def decode_value(bytes value not None, *, bint is_snapshot):
    """The update that a value has, and its snapshot epoch. ValueError for one that `encode_value` does not
    make."""
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(value)
    cdef const uint8_t *end = p + PyBytes_GET_SIZE(value)
    cdef int64_t epoch, leader_epoch, start, count = 0, generation = -1, shift = 0
    cdef int64_t first, last, state, deliveries, worker, until
    if end - p < (SNAPSHOT_HEAD if is_snapshot else UPDATE_HEAD) or take(p, 2) != 0:
        raise ValueError("a head")
    epoch = take(p + 2, 4)
    p += 10 if is_snapshot else 6
    leader_epoch, start = take(p, 4), take(p + 4, 8)
    p += 28 if is_snapshot else 12
    while True:
        if p == end or shift > 21:
            raise ValueError("a count")
        count |= <int64_t>(p[0] & 0x7F) << shift
        shift += 7
        p += 1
        if p[-1] < 0x80:
            break
    if not 0 < count <= MOST_BATCHES or start < (0 if is_snapshot else -1) or leader_epoch < -1:
        raise ValueError("a start")
    batches = []
    for _ in range(count - 1):
        if end - p < BATCH:
            raise ValueError("a batch")
        first, last, state, deliveries = take(p, 8), take(p + 8, 8), take(p + 16, 1), take(p + 17, 2)
        worker = until = 0
        if p[19] != 0:
            if end - p < BATCH + IN_FLIGHT or p[19] != 1 or p[20] != TAG or p[21] != 16:
                raise ValueError("a tag")
            worker, until = take(p + 22, 8), take(p + 30, 8)
            if worker == until == 0:
                raise ValueError("a tag")
            p += IN_FLIGHT
        p += BATCH
        if state not in (IS_AVAILABLE, IS_ACQUIRED, IS_ACKNOWLEDGED, IS_ARCHIVED) or min(
            first, deliveries, worker, until
        ) < 0:
            raise ValueError("a state")
        batches.append((first, last, state, deliveries, worker, until))
    if end - p == GENERATION and p[0] == 1 and p[1] == TAG and p[2] == 8:
        generation = take(p + 3, 8)
        if generation < 0:
            raise ValueError("a generation")
    elif end - p != 1 or p[0] != 0:
        raise ValueError("an end")
    return Update(tuple(batches), start, <int32_t>leader_epoch, generation, is_snapshot=is_snapshot), epoch


cdef bint is_key(const ks_record *record, bytes key) noexcept:
    return record.key_size == PyBytes_GET_SIZE(key) and memcmp(
        record.key, PyBytes_AS_STRING(key), <size_t>record.key_size
    ) == 0


def take_updates(
    ShareState state not None,
    bytes data not None,
    int64_t next_offset,
    bytes update not None,
    bytes snapshot not None,
):
    """Applies the updates of the sound batches at the beginning of `data`: their size, the offset behind
    them, how many bytes of the file were synced according to them (-1: unknown), and the epoch of the last
    snapshot (-1: none).

    next_offset: of the first batch; -1: any. update, snapshot: the keys of the records. ValueError for a
    sound batch with anything else in it; its second argument is the position of the batch."""
    cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef const uint8_t *end = start + PyBytes_GET_SIZE(data)
    cdef const uint8_t *p = start
    cdef const uint8_t *at
    cdef ks_batch batch
    cdef ks_record record
    cdef ks_fault fault
    cdef int64_t synced = -1, epoch = -1
    cdef bint is_snapshot
    while end - p >= KS_BATCH_OVERHEAD and ks_check_batch(p, end, &batch, &fault) == KS_OK:
        if batch.magic != 2 or (batch.base_offset != next_offset and next_offset >= 0):
            break
        at = p + KS_BATCH_OVERHEAD
        try:
            if ks_codec(&batch) != 0:
                raise ValueError("a codec")
            for _ in range(batch.records_count):
                if ks_next_record(&at, p + batch.size, &batch, &record, &fault) != KS_OK:
                    raise ValueError("a record that is damaged")
                is_snapshot = is_key(&record, snapshot)
                if record.value is NULL or not (is_snapshot or is_key(&record, update)):
                    raise ValueError("a record of something else")
                value = PyBytes_FromStringAndSize(<const char *>record.value, record.value_size)
                found, snapshot_epoch = decode_value(value, is_snapshot=is_snapshot)
                state.apply(found)
                if is_snapshot:
                    epoch = snapshot_epoch
        except ValueError as e:
            raise ValueError(str(e), p - start) from None
        next_offset = batch.last_offset + 1
        synced = max(synced, <int64_t>batch.base_sequence - 1)
        p += batch.size
    return p - start, next_offset, synced, epoch


# ---- the file ----------------------------------------------------------------------------------------------


cdef extern from "<sys/file.h>" nogil:
    enum:
        LOCK_EX
        LOCK_UN
    int flock(int fd, int operation)


cdef extern from "<sys/stat.h>" nogil:
    """
    /* Not fstat: a file system that is asked for the times of a file dates each later write exactly. */
    static int ks_links_and_size(int fd, unsigned *links, long long *size)
    {
        struct statx st;
        if (statx(fd, "", AT_EMPTY_PATH, STATX_NLINK | STATX_SIZE, &st) < 0)
            return -1;
        *links = st.stx_nlink;
        *size = (long long)st.stx_size;
        return 0;
    }
    """
    int ks_links_and_size(int fd, unsigned *links, long long *size)


cdef enum:
    PROBE = 61  # bytes of the header of a batch

UNCHANGED, GROWN, REPLACED = 0, 1, 2


@final
@no_gc  # it refers to a file and a mutex only
cdef class FileLock:
    """`with lock:` is for one thread of one process at a time. The system releases the lock of a process that
    dies. Entering and leaving are C code, which no signal interrupts; a signal handler that raises ends the
    waiting. OSError. ReentrantCallError, as for a Mutex."""

    cdef readonly File file
    cdef Mutex mutex

    def __cinit__(self, str path not None):
        self.file = File(path, "a")
        self.mutex = Mutex()

    def __enter__(self):
        cdef int status = -1
        self.mutex.acquire()
        try:
            while True:
                with nogil:
                    status = flock(self.file.fd, LOCK_EX)
                if status == 0:
                    return
                if errno != EINTR:
                    self.file.raise_errno()
                PyErr_CheckSignals()
        finally:
            if status < 0:
                self.mutex.leave()

    def __exit__(self, kind, error, trace):
        flock(self.file.fd, LOCK_UN)
        self.mutex.leave()


def look_behind(File file not None, int64_t position):
    """Whether a file has other bytes than zeros from a position on, GROWN; or REPLACED if it has no name any
    more, because another file was renamed over it. Else UNCHANGED. OSError."""
    cdef uint8_t probe[PROBE]
    cdef unsigned links = 0
    cdef long long length = 0
    cdef int64_t size, i
    if gate(0) or ks_links_and_size(file.fd, &links, &length) < 0:
        file.raise_errno()
    if links == 0:
        return REPLACED
    if length <= position:
        return UNCHANGED
    size = file.pread(probe, PROBE, position)
    if size < 0:
        file.raise_errno()
    for i in range(size):
        if probe[i] != 0:
            return GROWN
    return UNCHANGED


def write_batch(
    File file not None,
    int64_t position,
    bytes key not None,
    bytes value not None,
    int64_t timestamp,
    int64_t base_offset,
    int64_t producer_id,
    int32_t base_sequence,
):
    """Writes a batch of one record at a position, and returns its size. OSError."""
    cdef BatchBuilder builder = BatchBuilder.__new__(BatchBuilder)
    cdef ks_fields f
    cdef int status
    cdef int64_t done
    f.key, f.key_size = <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
    f.value, f.value_size = <const uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
    f.headers, f.headers_size = <const uint8_t *>b"\0", 1
    status = builder.begin(base_offset, -1, 0)
    if status == 0:
        builder.batch.producer_id = producer_id
        builder.batch.producer_epoch = 0
        builder.batch.base_sequence = base_sequence
        status = builder.add(timestamp, &f)
    if status < 0:
        builder.raise_status(status, "a record of a state is too large", f.value_size, 0)
    builder.finish()
    with nogil:
        done = file.pwrite(builder.data, builder.used, position)
    if done < builder.used:
        file.raise_errno()
    return builder.used
