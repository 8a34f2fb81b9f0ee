# cython: binding=False, embedsignature=True
"""Many small appends, few batches: what stands behind log.appender()."""

from _thread import TIMEOUT_MAX as _LONGEST, allocate_lock
from time import monotonic

from cython cimport final, freelist
from libc.stdint cimport int64_t

from kstore.engine.append.record_appender cimport RecordAppender
from kstore.engine.columns.column_input cimport moment
from kstore.engine.io.owned_lock cimport (
    ks_is_ending,
    ks_owned_lock,
    ks_owned_lock_acquire,
    ks_owned_lock_destroy,
    ks_owned_lock_init,
    ks_owned_lock_is_mine,
    ks_owned_lock_release,
    ks_owned_lock_try,
)
from kstore.engine.record.batch_builder cimport BatchBuilder, ks_fields, read_fields
from libkstore.build cimport ks_record_body, ks_varlong_size
from libkstore.format cimport KS_LOG_APPEND_TIME

from kstore.arguments import MAX_MESSAGE_BYTES_NAME as _MAX_MESSAGE_BYTES
from kstore.arguments import integer, number
from kstore.engine.append.batch_validation import NO_KEY
from kstore.engine.io.synchronization import ENDING as _ENDING
from kstore.errors import InvalidRecordError, LogClosedError, LogFailedError, RecordTooLargeError, ReentrantCallError

TOO_LARGE = f"record larger than {_MAX_MESSAGE_BYTES}"


cdef class PendingBatch:
    """A batch that is being gathered, or was appended: its tickets learn from it where their records are."""

    cdef int64_t base_offset      # -1 while it is gathered
    cdef object refusal           # why the log does not take it, and never will
    cdef list waiters             # locks, released when something has become of it

    def __cinit__(self):
        self.base_offset = -1
        self.waiters = []

    cdef int wake(self) except -1:
        while self.waiters:
            self.waiters.pop().release()
        return 0


@final
@freelist(64)
cdef class Ticket:
    """What append() of an appender returns: wait() waits until the record is in the log, `offset` is its
    offset then.
    """

    cdef RecordAccumulator appender
    cdef PendingBatch batch
    cdef int64_t place

    @property
    def offset(self):
        """The offset of the record; None as long as it is not in the log."""
        if self.batch is None or self.batch.base_offset < 0:
            return None
        return self.batch.base_offset + self.place

    def wait(self, timeout=None):
        """Waits until the record is in the log, and returns its offset.

        If the durability of the log is "group" or "each", the record is on the disk then. A batch is appended
        after the linger_ms of the appender at the latest; flush() of the appender appends it at once. In
        asyncio: `await asyncio.to_thread(ticket.wait)`.

        TimeoutError after `timeout` seconds; the time that the disk takes does not count. OSError if the
        batch could not be written: the next append, flush or wait tries again. RecordTooLargeError if the log
        takes no batch of this size any more: its configuration was changed. LogClosedError if the appender
        was closed before.
        """
        if timeout is not None:
            timeout = number("timeout", timeout, 0)
        if self.batch is None:
            raise LogClosedError("a ticket that no appender gave")
        if self.batch.base_offset < 0:
            self.appender.wait_for(self.batch, timeout)
        offset = self.batch.base_offset + self.place
        if self.appender.log._log_end.durability:
            self.appender.log._log_end.wait_durable(offset + 1)
        return offset

    def __repr__(self):
        log = None if self.appender is None else self.appender.log
        offset = self.offset
        state = "not appended yet" if offset is None else f"offset {offset}"
        return f"<Ticket of {'no log' if log is None else log.path}: {state}>"


cdef class RecordAccumulator:
    """Gathers records in one batch and appends it when it is full. Thread-safe.

    `_began` is called before the first record of a batch is taken, with the mutex held, unless a batch is
    awaited. The deriving class calls `_append_due` after a while, and again as long as that returns True.
    """

    cdef RecordAppender log
    cdef BatchBuilder builder
    cdef ks_owned_lock mutex
    cdef int64_t batch_bytes
    cdef int64_t now              # the clock, as last read
    cdef PendingBatch batch           # the open one, or the last
    cdef PendingBatch awaited         # the one for which `_append_due` will be called; None if it will not be
    cdef bint gathering           # a batch is open, and has a record
    cdef bint finished            # it is closed, and not yet written
    cdef object refusal           # of a batch that was given up; the next flush() or close() tells it
    cdef bint closed
    cdef bint is_parents          # this is a child of fork

    def __cinit__(self, RecordAppender log not None, *args, batch_bytes=16384, **options):
        ks_owned_lock_init(&self.mutex)
        self.log = log
        self.batch_bytes = min(<int64_t>integer("batch_bytes", batch_bytes), log.segment_bytes, log.max_message_bytes)
        self.batch_bytes = min(self.batch_bytes, log.builder.unpacked_max)
        self.builder = log.builder.emptied()
        self.batch = PendingBatch()

    def __dealloc__(self):
        ks_owned_lock_destroy(&self.mutex)

    cdef int acquire(self) except -1:
        if self.log is None:  # a subclass's __del__ keeps what __cinit__ refused, or the collector took it
            raise LogClosedError("the appender has no log")
        if ks_owned_lock_try(&self.mutex):
            return 0
        self.log._log_end.refuse_reentrance()  # a thread with the mutex may wait for the log, which this thread is in
        if not ks_owned_lock_acquire(&self.mutex):
            if ks_is_ending():
                raise LogFailedError(_ENDING)
            raise ReentrantCallError("the appender was called from within itself: by a signal handler or a clock")
        return 0

    cdef int release(self) except -1:
        ks_owned_lock_release(&self.mutex)
        return 0

    def _began(self):
        """The first record of a batch comes."""

    def append(self, value, key=None, timestamp=None, headers=None):
        """Takes one record and returns its Ticket, whose wait() gives the offset. Arguments as for
        log.append.

        The record is in the log when its batch is full, linger_ms is over, or flush() is called. OSError if a
        full batch cannot be written: this record was not taken then, and the next call tries to write that
        batch again. A record that is too large is refused at once, with RecordTooLargeError.
        """
        cdef BatchBuilder builder
        cdef ks_fields f
        cdef Ticket ticket
        cdef int64_t now, at, given = 0, delta = 0
        cdef size_t body = 0
        cdef int status
        made = read_fields(value, key, headers, &f)
        if timestamp is not None:
            given = moment(timestamp)
        self.acquire()
        try:
            if self.closed:
                self.refuse_child()
                raise LogClosedError("the appender is closed")
            builder = self.builder
            if timestamp is None or self.log.log_append_time or not self.gathering:
                self.now = self.log.now()
            now = self.now  # a given timestamp is judged by the time its batch began: reading clocks costs
            at = now if timestamp is None else self.log.check_timestamp(given, now)
            if self.log.keys_required and f.key_size < 0:
                raise InvalidRecordError(NO_KEY)
            if self.gathering:
                delta = at - builder.batch.base_timestamp
                body = ks_record_body(delta, builder.batch.records_count, f.key_size, f.value_size, f.headers_size)
                if self.finished or (
                    builder.used + <int64_t>body + <int64_t>ks_varlong_size(<int64_t>body) > self.batch_bytes
                ):
                    self.write_before()
            if not self.gathering:
                body = ks_record_body(0, 0, f.key_size, f.value_size, f.headers_size)
                if <int64_t>body > self.log.max_message_bytes:
                    raise RecordTooLargeError(TOO_LARGE, size=<int64_t>body, limit=self.log.max_message_bytes)
                self.begin()
            ticket = Ticket.__new__(Ticket)
            status = builder.put(body, at, f.key, f.key_size, f.value, f.value_size, f.headers, f.headers_size)
            if status < 0:
                builder.raise_status(status, TOO_LARGE, <int64_t>body, self.log.max_message_bytes)
            if builder.batch.records_count == 1 and builder.used > min(
                self.log.max_message_bytes, self.log.segment_bytes, builder.unpacked_max
            ):
                self.write_alone()
            else:
                self.gathering = True  # only now: if its first record is interrupted or finds no memory, it begins anew
            ticket.appender = self
            ticket.batch = self.batch
            ticket.place = builder.batch.records_count - 1
            del made
            return ticket
        finally:
            self.release()

    cdef int begin(self) except -1:
        cdef BatchBuilder builder = self.builder
        builder.codec = self.log.builder.codec
        builder.level = self.log.builder.level
        builder.unpacked_max = self.log.builder.unpacked_max
        builder.used = 0
        if builder.begin(0, 0, KS_LOG_APPEND_TIME if self.log.log_append_time else 0) < 0:
            raise MemoryError("no memory for a batch")
        self.batch = PendingBatch()
        if self.awaited is None:
            self._began()
            self.awaited = self.batch
        return 0

    cdef int write_before(self) except -1:
        """Appends what was gathered before a record that is not taken yet."""
        try:
            self.write()
        except RecordTooLargeError as e:
            e.add_note(
                "this is of records that were gathered before; the one of this call was not taken: append it again"
            )
            raise

    cdef int write_alone(self) except -1:
        """Appends the one record that was put, which is too large unless it is packed. If that fails, it was
        not taken."""
        self.builder.finish()
        self.batch.base_offset = self.log.append_built(self.builder)

    cdef int write(self) except -1:
        """Appends the open batch to the log; it stays open, to be tried again, if that fails. It does not if
        it is too large, which it is if the limits were lowered."""
        if not self.finished:
            self.builder.finish()
            self.finished = True
        try:
            self.batch.base_offset = self.log.append_built(self.builder)
            self.gathering = self.finished = False
        except RecordTooLargeError as e:
            self.refusal = self.batch.refusal = e
            self.gathering = self.finished = False
            raise
        finally:
            self.batch.wake()  # those who wait meet what happened
        return 0

    cdef int write_rest(self) except -1:
        """Appends what was gathered; tells, once, of what the log has refused."""
        if self.gathering:
            try:
                self.write()
            except RecordTooLargeError:
                self.refusal = None
                raise
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal

    def flush(self):
        """Appends the records that were gathered, and returns the log end offset after that.

        If the durability of the log is "group" or "each", they are on the disk then. RecordTooLargeError,
        once, if the log has refused a batch since the last call, as lower limits make it. LogFailedError in a
        child of fork: what was gathered is appended by the parent.
        """
        self.refuse_child()
        self.acquire()
        try:
            self.write_rest()
        finally:
            self.release()
        cdef int64_t end = self.log._log_end.offset
        if self.log._log_end.durability:
            self.log._log_end.wait_durable(end)
        return end

    cdef int wait_for(self, PendingBatch batch, timeout) except -1:
        """Waits until a batch of this object is in the log."""
        deadline = None if timeout is None else monotonic() + timeout
        while batch.base_offset < 0:
            waiter = None
            self.acquire()
            try:
                if batch.base_offset >= 0:
                    return 0
                if batch.refusal is not None:
                    raise batch.refusal
                if not self.gathering or batch is not self.batch or self.closed:
                    self.refuse_child()
                    raise LogClosedError("the appender was closed before the record was in the log")
                if self.finished:  # it failed to be written: who waits meets it now, and tries again
                    self.write()
                else:
                    waiter = allocate_lock()
                    waiter.acquire()
                    batch.waiters.append(waiter)
            finally:
                self.release()
            if waiter is None:
                continue
            left = -1 if deadline is None else max(0.0, min(deadline - monotonic(), _LONGEST))
            if not waiter.acquire(True, left):
                self.acquire()
                try:
                    if waiter in batch.waiters:
                        batch.waiters.remove(waiter)
                finally:
                    self.release()
                if batch.base_offset < 0:
                    raise TimeoutError(f"the record is not in the log after {timeout} seconds")
        return 0

    @property
    def gathered_count(self):
        """How many records are not in the log yet. Takes no lock."""
        return self.builder.batch.records_count if self.gathering and self.builder is not None else 0

    def _append_due(self):
        """Appends the batch that was awaited if it is still open. Whether another one is open, which is
        awaited now."""
        self.acquire()
        try:
            batch, self.awaited = self.awaited, None
            if self.closed or not self.gathering:
                return False
            if self.batch is batch:
                self.write()
                return False
            self.awaited = self.batch
            return True
        finally:
            self.release()

    def _close(self):
        """Flushes, and takes nothing more. ReentrantCallError from within this object: nothing is done."""
        try:
            if self.log is not None:
                self.log._log_end.refuse_reentrance()  # or the worker would be waited for, which may wait for this one
            self.acquire()
            try:
                if self.closed:
                    return
                self.write_rest()
                self.closed = True  # with the mutex, so no record comes between
            finally:
                self.release()
            if self.log._log_end.durability:
                self.log._log_end.wait_durable(self.log._log_end.offset)
        finally:
            if not ks_owned_lock_is_mine(&self.mutex):
                self.closed = True
                if self.batch is not None:
                    self.batch.wake()

    @property
    def _is_closed(self):
        return self.closed

    def _leave_to_parent(self):
        """In a forked process: takes nothing more, and writes nothing. A thread that is not here may hold the
        mutex."""
        ks_owned_lock_init(&self.mutex)
        self.gathering = self.finished = False
        self.closed = self.is_parents = True

    cdef int refuse_child(self) except -1:
        if self.is_parents:
            raise LogFailedError("the appender was made in another process, which appends what it has gathered")
        return 0
