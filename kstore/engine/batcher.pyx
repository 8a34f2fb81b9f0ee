"""Many small appends, few batches: what stands behind log.appender()."""

from cpython.pythread cimport (
    NOWAIT_LOCK,
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
)
from libc.stdint cimport int64_t

from kstore.engine.builder cimport Builder, ks_fields, read_fields
from kstore.engine.intake cimport Intake
from libkstore.build cimport ks_record_body, ks_varlong_size
from libkstore.format cimport KS_LOG_APPEND_TIME

from kstore.errors import InvalidRecordError, LogClosedError, RecordTooLargeError


cdef class Batcher:
    """Gathers records in one batch and appends it when it is full. Thread-safe.

    A ticket is the number of a record, from 0, among all that this object took. `_began` is called when the first
    record of a batch comes, with the mutex held: the deriving class sees to it that the batch does not wait too long.
    """

    cdef Intake log
    cdef Builder builder
    cdef PyThread_type_lock mutex
    cdef int64_t batch_bytes
    cdef int64_t tickets          # records taken
    cdef int64_t written          # records appended to the log
    cdef int64_t first_ticket     # of the open batch
    cdef int64_t now              # the clock, as last read
    cdef bint gathering           # a batch is open
    cdef bint finished            # it is closed, and not yet written
    cdef bint closed
    cdef dict _offsets            # first ticket of each batch written -> its base offset

    def __cinit__(self, Intake log not None, int64_t batch_bytes=16384, **options):
        self.mutex = PyThread_allocate_lock()
        if self.mutex is NULL:
            raise MemoryError()
        if batch_bytes < 0:
            raise ValueError(f"batch_bytes {batch_bytes} is negative")
        self.log = log
        self.batch_bytes = min(batch_bytes, log.segment_bytes, log.max_message_bytes)
        self.builder = log.builder.emptied()
        self._offsets = {}

    def __dealloc__(self):
        if self.mutex is not NULL:
            PyThread_free_lock(self.mutex)

    cdef int acquire(self) except -1:
        if self.log is None:  # a subclass's __del__ keeps what __cinit__ refused, or the collector took it
            raise LogClosedError("the appender has no log")
        if PyThread_acquire_lock(self.mutex, NOWAIT_LOCK) == 0:
            with nogil:
                PyThread_acquire_lock(self.mutex, WAIT_LOCK)
        return 0

    def _began(self):
        """The first record of a batch has come."""

    def append(self, value, key=None, timestamp=None, headers=None):
        """Takes one record, as log.append does, and returns its ticket (see `wait`).

        The record is in the log once its batch is full, linger_ms is over, or flush() was called. OSError when a full
        batch cannot be written: then this record was not taken, and that batch is tried again by the next call.
        """
        cdef Builder builder
        cdef ks_fields f
        cdef int64_t now, at, ticket, delta = 0
        cdef size_t body = 0
        made = read_fields(value, key, headers, &f)
        self.acquire()
        try:
            if self.closed:
                raise LogClosedError("the appender is closed")
            builder = self.builder
            if timestamp is None or self.log.log_append_time or not self.gathering:
                self.now = self.log.now()
            now = self.now  # a given timestamp is judged by the time its batch began: reading clocks costs
            at = now if timestamp is None else self.log.check_timestamp(timestamp, now)
            if self.log.keys_required and f.key_size < 0:
                raise InvalidRecordError("a record of a compacted topic has no key")
            if self.gathering:
                delta = at - builder.batch.base_timestamp
                body = ks_record_body(delta, builder.batch.records_count, f.key_size, f.value_size, f.headers_size)
                if self.finished or (
                    builder.used + <int64_t>body + <int64_t>ks_varlong_size(<int64_t>body) > self.batch_bytes
                ):
                    self.write()
            if not self.gathering:
                body = ks_record_body(0, 0, f.key_size, f.value_size, f.headers_size)
                if <int64_t>body > self.log.max_message_bytes:
                    raise RecordTooLargeError("record", size=<int64_t>body, limit=self.log.max_message_bytes)
                self.begin()
            if builder.put(
                body, at, f.key, f.key_size, f.value, f.value_size, f.headers, f.headers_size
            ) < 0:
                raise RecordTooLargeError("record", size=<int64_t>body, limit=self.log.max_message_bytes)
            ticket = self.tickets
            self.tickets += 1
            del made
            return ticket
        finally:
            PyThread_release_lock(self.mutex)

    cdef int begin(self) except -1:
        cdef Builder builder = self.builder
        builder.codec = self.log.builder.codec
        builder.level = self.log.builder.level
        builder.used = 0
        if builder.begin(0, 0, KS_LOG_APPEND_TIME if self.log.log_append_time else 0) < 0:
            raise MemoryError("a batch")
        self.gathering = True
        self.first_ticket = self.tickets
        self._began()
        return 0

    cdef int write(self) except -1:
        """Appends the open batch to the log; it stays open, to be tried again, where that fails."""
        if self.builder.batch.records_count == 0:  # its first record found no memory
            self.gathering = False
            return 0
        if not self.finished:
            self.builder.finish()
            self.finished = True
        base_offset = self.log.append_built(self.builder)
        self._offsets[self.first_ticket] = base_offset
        if len(self._offsets) > 4096:
            del self._offsets[next(iter(self._offsets))]
        self.written = self.tickets
        self.gathering = self.finished = False
        return 0

    def flush(self):
        """Appends what was gathered; returns the log end offset then, durable where the log's durability says so."""
        self.acquire()
        try:
            if self.gathering:
                self.write()
        finally:
            PyThread_release_lock(self.mutex)
        cdef int64_t end = self.log.end
        if self.log.durability:
            self.log.wait_durable(end)
        return end

    def _flush_ticket(self, int64_t ticket):
        """Appends the open batch if it is the one that began with this ticket."""
        self.acquire()
        try:
            if self.gathering and self.first_ticket == ticket:
                self.write()
        finally:
            PyThread_release_lock(self.mutex)

    @property
    def _first_ticket(self):
        return self.first_ticket

    def offset_of(self, int64_t ticket):
        """The offset of a record that was written, by its ticket; None while it waits. LookupError when long ago."""
        cdef int64_t first
        self.acquire()
        try:
            if not 0 <= ticket < self.tickets:
                raise LookupError(f"ticket {ticket} was not given")
            if ticket >= self.written:
                return None
            for first in reversed(self._offsets):
                if first <= ticket:
                    return self._offsets[first] + (ticket - first)
            raise LookupError(f"ticket {ticket} is too old")
        finally:
            PyThread_release_lock(self.mutex)

    def wait(self, int64_t ticket):
        """The offset of a record, once it is in the log, and durable where the log's durability says so."""
        offset = self.offset_of(ticket)
        if offset is None:
            self.flush()
            offset = self.offset_of(ticket)
        elif self.log.durability:
            self.log.wait_durable(<int64_t>offset + 1)
        return offset

    def _close(self):
        """Flushes, and takes nothing more."""
        try:
            self.flush()
        finally:
            self.closed = True
