# cython: binding=False, embedsignature=True
"""The end of a log: who may write there, where the next batch goes, writing it, and making it durable.

What is appended is in record_appender.pyx. What is rare or a matter of policy is left to the class that
derives from it (log/writer.py): see the section on hooks.

The file is long because one class holds all that an append touches: its state is in C fields that only its
methods see.
"""

import os
import weakref
from typing import NamedTuple

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.pythread cimport PyThread_get_thread_ident
from cython cimport no_gc_clear
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kstore.engine.io.file cimport BYTES_IN, RECORDS_IN, SMALL, File, monotonic_ns, took
from kstore.engine.io.mutex cimport holds_inner
from kstore.engine.io.owned_lock cimport (
    ks_is_ending,
    ks_owned_lock_acquire,
    ks_owned_lock_destroy,
    ks_owned_lock_init,
    ks_owned_lock_is_mine,
    ks_owned_lock_release,
    ks_owned_lock_try,
)
from kstore.engine.record.batch_builder cimport BatchBuilder
from kstore.engine.segment.active_segment cimport WRITE_REFUSED, ROLL_NOT, ActiveSegment
from libkstore.format cimport ks_batch

from kstore.arguments import MAX_MESSAGE_BYTES_NAME as _MAX_MESSAGE_BYTES
from kstore.arguments import SEGMENT_BYTES_NAME as _SEGMENT_BYTES
from kstore.arguments import instance, integer
from kstore.engine.io.notification import EventFd
from kstore.engine.io.file import sync_directory, sync_file
from kstore.engine.io.mutex import ENDING as _ENDING
from kstore.engine.segment.active_segment import ROLL_REASONS
from kstore.errors import (
    InvalidTimestampError,
    LogClosedError,
    LogFailedError,
    OffsetOverflowError,
    RecordTooLargeError,
    ReentrantCallError,
)

cdef extern from *:
    """
    #include <time.h>
    #ifdef CLOCK_REALTIME_COARSE
    #define KS_COARSE_CLOCK CLOCK_REALTIME_COARSE /* a few ms behind, and a fraction of the cost */
    #else
    #define KS_COARSE_CLOCK CLOCK_REALTIME
    #endif
    """
    int KS_COARSE_CLOCK


class AppendLimits(NamedTuple):
    """What the configuration of a log says of appends, as plain values.

    `durability` is a place in DURABILITY. `target_codec` is what batches of others are encoded to, -1 for
    what they come in; `codec` and `level` are those of records that are encoded here. A batch that would
    unpack to more than `max_decompressed_bytes`, at which readers stop, is refused.
    """

    segment_bytes: int
    segment_ms: int
    max_message_bytes: int
    before_max_ms: int
    after_max_ms: int
    flush_messages: int
    log_append_time: bool
    keys_required: bool
    durability: int
    target_codec: int
    codec: int
    level: int
    max_decompressed_bytes: int


cdef int sync_all(list files) except -1:
    """Brings files to the disk: open ones, or paths, of which those that retention has removed need it no
    longer."""
    for file in files:
        if isinstance(file, str):
            sync_file(file)
        else:
            file.sync()
    return 0


@no_gc_clear
cdef class Held:
    """`with log._held():` for Python code that changes the log."""

    cdef LogAppender log
    cdef bint entered

    def __enter__(self):
        if self.log is None:
            raise TypeError("only a log makes these")
        self.log.acquire()
        self.entered = True

    def __exit__(self, kind, error, trace):  # not *error: there may be no memory for a tuple
        if self.entered:  # what was not taken is not given back
            self.entered = False
            self.log.release()


@no_gc_clear
cdef class UnfinishedChange:
    """`with log._unfinished("the roll") as change:` for a change in several steps; the mutex is held.

    An exception of any kind that ends it in the middle leaves a log that refuses to write, unless
    `change.undone()` was called: nothing else is known of the state then. The log says so from the first step
    on, so it does not matter where an interrupt or a lack of memory strikes.
    """

    cdef LogAppender log
    cdef str what
    cdef str outer
    cdef bint is_undone

    def __enter__(self):
        if self.log is None:
            raise TypeError("only a log makes these")
        self.outer = self.log.unfinished
        self.log.unfinished = self.what
        return self

    def undone(self):
        """Everything is again as it was before."""
        self.is_undone = True

    def __exit__(self, kind, error, trace):
        if self.log is None:
            return
        if kind is None or self.is_undone:
            self.log.unfinished = self.outer
        else:
            self.log._refuse(f"{self.what} was not finished: {kind.__name__}: {error}")


cdef class LogAppender:
    """Writes to the active segment of a log, one thread at a time."""

    def __cinit__(self, *args, **options):
        ks_gate_init(&self.commit)
        ks_owned_lock_init(&self.mutex)
        self.builder = BatchBuilder()
        self.unsynced = []
        self.unsynced_from = self.syncing_from = INT64_MAX
        self._sealed = ()
        self._closed = True
        self.known_epoch = -1

    def __dealloc__(self):
        ks_gate_destroy(&self.commit)
        ks_owned_lock_destroy(&self.mutex)

    # ---- what the deriving class sets ----------------------------------------------------------------------

    def _begin(self, ActiveSegment active not None, int64_t next_offset, int64_t durable_offset):
        """Opens the log: appends go to `active` from `next_offset` on."""
        self._publish(self._sealed, active)
        self.end = next_offset
        self.commit.reached = durable_offset
        self._closed = False

    def _apply_limits(self, limits not None):
        """Takes over an AppendLimits: all of it, or nothing."""
        cdef int64_t segment_bytes, segment_ms, max_message_bytes, before_max_ms, after_max_ms, flush_messages
        cdef bint log_append_time, keys_required
        cdef int durability, target_codec, codec, level
        cdef int64_t max_decompressed_bytes
        (
            segment_bytes, segment_ms, max_message_bytes, before_max_ms, after_max_ms, flush_messages,
            log_append_time, keys_required, durability, target_codec, codec, level, max_decompressed_bytes,
        ) = limits
        if self.builder is None:
            raise LogClosedError("the log was garbage")
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.max_message_bytes = max_message_bytes
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.flush_messages = flush_messages
        self.log_append_time = log_append_time
        self.keys_required = keys_required
        self.durability = durability
        self.target_codec = target_codec
        self.builder.codec = codec
        self.builder.level = level
        self.builder.unpacked_max = max_decompressed_bytes

    def _use_own_clock(self):
        """From here on `_clock_ms` tells the time."""
        self.own_clock = True

    # ---- hooks: what the deriving class supplies -----------------------------------------------------------
    #
    # This is the contract of all methods that the engine calls and kstore/log supplies; tests/test_layers.py
    # compares it with them. They are called by the thread that appends, with the mutex held: they may call
    # what needs the mutex held, and must not wait for another thread that takes it. What changes something in
    # several steps does so in `_unfinished`.
    #
    # LogAppender._clock_ms           The time in ms, if _use_own_clock was called. If it raises, nothing is appended.
    # LogAppender._assign_epoch       Before a batch is staged whose leader epoch is not the last one; -1 if it has
    #                                 none. If it raises, nothing is appended.
    # LogAppender._roll               Before a batch is staged that needs a new segment. Publishes another active
    #                                 segment, or raises: nothing is appended. The old one is active then, unless a sync
    #                                 has failed: then nothing more is written.
    # LogAppender._flush_due          After a write, once flush.messages records are not durable. They are in the log:
    #                                 it must not raise, and leaves the flush to another thread.
    # RecordAppender._validate        For batches that must be decompressed to be checked, or encoded again. Changes
    #                                 nothing; returns the bytes to append, or raises: nothing is appended.
    # RecordAppender._analyze         For batches of producers, before they are staged. Returns which of them
    #                                 are there already, and where. Changes no producer; if none is, it may keep readers
    #                                 of committed data from going on, and write ahead, which _forget_analysis or
    #                                 _account ends.
    # RecordAppender._account         After batches of producers, or a part of them, are written. If it raises, the log
    #                                 refuses all further writes.
    # RecordAppender._forget_analysis  After an append has failed of which nothing is in the log, analyzed or not. Must
    #                                 not raise.
    # RecordAccumulator._began        When the first record of a batch has come, with the accumulator's mutex held and
    #                                 not the log's. Wakes the thread that appends the batch in time; must not wait and
    #                                 not raise.

    def _clock_ms(self):
        """The time in ms."""
        raise NotImplementedError

    def _roll(self, str reason, int64_t first_offset):
        """Seals the active segment and begins the next, for a batch that begins at `first_offset`."""
        raise NotImplementedError

    def _assign_epoch(self, int32_t epoch, int64_t start_offset):
        """Notes that a leader epoch begins."""
        raise NotImplementedError

    def _flush_due(self):
        """flush.messages says that it is time."""

    # ---- changes -------------------------------------------------------------------------------------------

    def _held(self):
        cdef Held held = Held.__new__(Held)
        held.log = self
        return held

    def _unfinished(self, str what):
        """A change in several steps; see UnfinishedChange."""
        cdef UnfinishedChange change = UnfinishedChange.__new__(UnfinishedChange)
        change.log = self
        change.what = what
        return change

    def _publish(self, sealed not None, ActiveSegment active not None):
        """The segments are these from here on, for appends and readers; the mutex is held."""
        self._segments = (sealed, active)
        self._sealed = sealed
        self.active = active

    def _move_end(self, int64_t next_offset, int64_t durable_offset):
        """Another log end offset, after truncation, and what is durable at most; the mutex is held."""
        self.end = next_offset
        self.commit.reached = min(self.commit.reached, durable_offset)
        self.sync_ceiling = min(self.sync_ceiling, durable_offset)
        self.known_epoch = -1

    def _owe_sync(self, list files, bint names, int64_t base_offset=INT64_MAX):
        """Files, open ones or paths, and perhaps names, that the next sync must bring to the disk first:
        those of a segment that was sealed, where `base_offset` is given."""
        self.unsynced_from = min(self.unsynced_from, base_offset)
        self.unsynced = self.unsynced + [file for file in files if file not in self.unsynced]
        self.names_unsynced = self.names_unsynced or names

    def _refuse(self, str why):
        """From here on nothing is written any more."""
        self.refusal = self.refusal or why

    def _end(self):
        """Nothing is appended any more; the mutex is held."""
        self._closed = True

    @property
    def _refusal(self):
        """Why nothing is written any more, or None."""
        if self.refusal is not None:
            return self.refusal
        if self.commit.failed:
            return "a sync failed"
        if self.unfinished is not None:
            return f"{self.unfinished} was not finished"
        return self._lost_index

    @property
    def _lost_index(self):
        """Which index file another program has shortened, and that it has; None if none is known."""
        return None if self.active is None else self.active.lost_index()

    @property
    def _end_offset(self):
        return self.end

    def _sync_owed(self):
        """Brings to the disk what the next sync would have to; the mutex is held. OSError, and nothing is
        written any more: nobody knows what the system has dropped."""
        try:
            sync_all(self.unsynced)
            if self.names_unsynced:
                sync_directory(self.active.directory)
        except OSError as e:
            self.refusal = self.refusal or f"a sync failed: {e}"
            raise
        self.unsynced = []
        self.names_unsynced = False
        self.unsynced_from = INT64_MAX

    @property
    def _owed_count(self):
        """How many files the next sync must bring to the disk; each of them is open until then."""
        return len(self.unsynced)

    @property
    def _recovery_point(self):
        """Below this offset every file is on the disk, and its name: no opening needs to look there."""
        return min(self.commit.reached, self.unsynced_from, self.syncing_from)

    def _set_leader_epoch(self, int32_t epoch):
        self.leader_epoch = epoch

    # ---- the mutex -----------------------------------------------------------------------------------------

    cdef int acquire(self) except -1:
        if not ks_owned_lock_try(&self.mutex):
            if holds_inner() or not ks_owned_lock_acquire(&self.mutex):
                self.refuse_reentrance()
                raise LogFailedError(_ENDING)
        return 0

    cdef int acquire_to_append(self) except -1:
        if self.durability:
            self.refuse_reentrance()  # now: once it is appended it has to be waited for
        return self.acquire()

    cdef int refuse_reentrance(self) except -1:
        """To wait for this very thread would take for ever: it has the mutex, or syncs for all, or is inside
        a lock that whoever does may be waiting for."""
        if ks_owned_lock_is_mine(&self.mutex) or self.leader == PyThread_get_thread_ident() or holds_inner():
            raise ReentrantCallError(
                "the log was called from within itself: by a signal handler, a finalizer or its clock"
            )
        return 0

    cdef int enter_gate(self, int64_t offset) except -2:
        """What ks_gate_enter() tells, unless it would wait for ever: for this thread (ReentrantCallError), or
        for one that leads and was stopped, because the interpreter ends (LogFailedError)."""
        cdef int status
        self.refuse_reentrance()  # another thread may lead, and wait for the mutex
        if self.commit.leading and ks_is_ending():
            raise LogFailedError(_ENDING)
        with nogil:
            status = ks_gate_enter(&self.commit, offset)
        return status

    def _refuse_reentrance(self):
        """ReentrantCallError, if this thread is inside the log already."""
        self.refuse_reentrance()

    cdef void release(self) noexcept:
        ks_owned_lock_release(&self.mutex)
        if self.waiting is not None:
            self.notify()

    cdef void end_append(self) noexcept:
        """Forgets what an append has staged and not written, and lets the lock go."""
        if self.active is not None and self.active.staged.size != self.active.published.size:
            self.active.unstage()
        self.release()

    def _after_fork(self):
        """A child of fork: threads that it does not have may have held the locks. Nothing is written here any
        more."""
        ks_owned_lock_init(&self.mutex)
        self.leader = 0
        ks_gate_init(&self.commit)
        self.commit.failed = 1
        self.refusal = "it was opened in another process"
        if self.active is not None:
            self.active.after_fork()

    cdef int notify(self) except -1:
        waiting, self.waiting = self.waiting, None
        for known in waiting:
            event = known()
            if event is not None:
                event.set()
        return 0

    def notify_at_change(self, event):
        """Sets this event once, after the log has next been changed or closed, if it still exists then."""
        known = weakref.ref(instance("event", event, EventFd))
        waiting = self.waiting or ()
        if known not in waiting:
            self.waiting = [other for other in waiting if other() is not None] + [known]

    def _check_usable(self):
        """LogClosedError or LogFailedError, if nothing may be written; the mutex is held."""
        self.check_usable()

    cdef int check_usable(self) except -1:
        if self._closed or self.active is None:  # None: __init__ did not run, or the collector took it
            raise LogClosedError("the log is closed" if self.active is None else f"{self.active.directory} is closed")
        if self.active.is_lost():
            self.refusal = self.refusal or self.active.lost_index()
        if self.refusal is not None or self.commit.failed or self.unfinished is not None:
            raise LogFailedError(f"nothing is written until the log is opened again: {self._refusal}")
        return 0

    cdef int fail(self, str what) except -1:
        """Raises the system's error, and refuses everything from here on."""
        self.refusal = f"{what}: {os.strerror(errno)}"
        PyErr_SetFromErrnoWithFilenameObject(OSError, self.active.path)

    cdef int64_t now(self, bint exact=True) except? -1:
        """The time in ms; where it need not be `exact` it may lie some ms back."""
        cdef timespec t
        if self.own_clock:
            return self._clock_ms()
        clock_gettime(CLOCK_REALTIME if exact else KS_COARSE_CLOCK, &t)
        return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000

    # ---- placing -------------------------------------------------------------------------------------------

    cdef int refuse_size(self, int64_t size) except -1:
        if size > self.max_message_bytes:
            what = f"batch larger than {_MAX_MESSAGE_BYTES}"
            raise RecordTooLargeError(what, size=size, limit=self.max_message_bytes)
        if size > self.segment_bytes:
            raise RecordTooLargeError(f"batch larger than {_SEGMENT_BYTES}", size=size, limit=self.segment_bytes)
        return 0

    cdef int refuse_offsets(self, int64_t count) except -1:
        """The last record must leave room for the offset behind it, which is the log end offset."""
        if count > INT64_MAX - self.end:
            raise OffsetOverflowError(
                f"{count} records from offset {self.end} on do not fit: {INT64_MAX - 1} is the largest offset"
            )
        return 0

    cdef int note_epoch(self, const ks_batch *b) except -1:
        """The leader epoch of a batch about to be appended (spec 6.2)."""
        if b.leader_epoch != self.known_epoch or b.magic < 2:
            self._assign_epoch(b.leader_epoch if b.magic == 2 else -1, b.base_offset)
            self.known_epoch = b.leader_epoch
        return 0

    cdef int place(self, const ks_batch *b, int64_t now) except -1:
        """Stages a batch in the active segment, after rolling if need be; nothing else may be staged in that
        case."""
        cdef ActiveSegment active = self.active
        cdef int reason
        self.note_epoch(b)
        reason = active.roll_reason(b.size, b.max_timestamp, b.last_offset, now, self.segment_bytes, self.segment_ms)
        if reason != ROLL_NOT:
            self._roll(ROLL_REASONS[reason], b.base_offset)
            active = self.active
        if active.time_map is None:
            active.prepare()
        if active.reserve(1) < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, active.path)
        active.stage(b)
        return 0

    cdef int write_out(self, const uint8_t *data, int64_t size) except -1:
        """Writes what is staged. Where it fails, nothing of it is in the log; see `fail` for when that is
        uncertain."""
        cdef ActiveSegment active = self.active
        cdef int64_t before = active.published.records
        cdef int status
        if active.is_lost():
            self.check_usable()
        if size < SMALL:
            status = active.write(data, size)
        else:
            with nogil:
                status = active.write(data, size)
        if status == WRITE_REFUSED:
            PyErr_SetFromErrnoWithFilenameObject(OSError, active.path)
        if status < 0:
            self.fail("a write failed")
        self.end = active.published.next_offset
        if self.traffic is not None:
            self.traffic.totals[BYTES_IN] += size
            self.traffic.totals[RECORDS_IN] += active.published.records - before
        return 0

    cdef int settle(self) except -1:
        """After a write: flush.messages."""
        if self.end - self.commit.reached >= self.flush_messages:
            self._flush_due()
        return 0

    cdef int64_t check_timestamp(self, int64_t timestamp, int64_t now) except? -2:
        """A record's timestamp as it is stored; InvalidTimestampError (spec 6.5)."""
        if self.log_append_time:
            return now
        if timestamp < -1:
            raise InvalidTimestampError(f"timestamp {timestamp} is negative and not -1")
        if timestamp >= 0 and timestamp - now > self.after_max_ms:
            now = self.now()  # it was not exact, perhaps
        if timestamp >= 0 and (now - timestamp > self.before_max_ms or timestamp - now > self.after_max_ms):
            if timestamp > <int64_t>10 ** 14:  # year 5138
                raise InvalidTimestampError(
                    f"timestamp {timestamp} is milliseconds since 1970, so long after now, {now}: "
                    f"message_timestamp_after_max_ms allows {self.after_max_ms}; if microseconds or nanoseconds were "
                    "meant, divide by 1000 or 1000000 (or give datetimes, or numpy's datetime64)"
                )
            if timestamp > now:
                raise InvalidTimestampError(
                    f"timestamp {timestamp} is {timestamp - now} ms after now, {now}: "
                    f"message_timestamp_after_max_ms allows {self.after_max_ms}"
                )
            raise InvalidTimestampError(
                f"timestamp {timestamp} is {now - timestamp} ms before now, {now}: "
                f"message_timestamp_before_max_ms allows {self.before_max_ms}"
            )
        return timestamp

    # ---- durability ----------------------------------------------------------------------------------------

    @property
    def durable_offset(self):
        """Every record below this offset is on the disk."""
        return self.commit.reached

    def _gather_here(self, bint begins):
        """What this thread appends is not waited for: it calls wait_until_durable, for many at once."""
        self.gathering = PyThread_get_thread_ident() if begins else 0

    cdef int64_t begun(self) noexcept:
        """When an append began, if that is counted: one in 16, where reading the clock would take much of its
        time."""
        if self.traffic is None:
            return 0
        self.calls += 1
        return monotonic_ns() if self.durability or self.calls % 16 == 1 else 0

    cdef int keep_promise(self, int64_t offset, int64_t began) except -1:
        """The last step of an append, without the mutex: what lies below `offset` becomes durable, if it is
        to."""
        if self.durability and self.gathering != PyThread_get_thread_ident():
            try:
                self.wait_durable(offset)
            except LogClosedError:  # by another thread, after the append
                self.sync_closed()
        if self.traffic is not None and began:
            took(&self.traffic.appends, began)
        return 0

    cdef int sync_closed(self) except -1:
        """Brings what was appended before the log was closed to the disk, if closing has not. OSError."""
        self.acquire()
        try:
            if self._refusal is not None:
                raise LogFailedError(f"the log was closed, and what was appended may be lost: {self._refusal}")
            self._owe_sync([*self.active.files()], True)
            self._sync_owed()
        finally:
            self.release()
        return 0

    cdef int wait_durable(self, int64_t offset, bint sealed=False) except -1:
        """Returns when everything below `offset` is on the disk. One thread syncs for all that wait.

        `sealed`: the segments that were sealed are enough."""
        cdef int status
        cdef int64_t reached
        if self.commit.reached >= offset:
            return 0
        status = self.enter_gate(offset)
        if status == 0:
            return 0
        if status < 0:
            self.check_usable()
        reached = -1
        self.leader = PyThread_get_thread_ident()
        try:
            reached = self.sync_once(sealed)
        finally:
            self.leader = 0
            ks_gate_leave(&self.commit, reached, reached < 0 and self.refusal is not None)
        return 0

    cdef int64_t sync_once(self, bint sealed) except -1:
        """Syncs what is written now, and returns the offset that is durable with it. Any failure is final:
        nobody knows what the system has dropped."""
        cdef File file
        cdef int64_t reached, began = monotonic_ns()
        cdef int status
        self.acquire()
        try:
            self.check_usable()
            reached = self.active.base_offset if sealed else self.end
            file = None if sealed else self.active.log
            older, names = self.unsynced, self.names_unsynced
            self.unsynced, self.names_unsynced = [], False
            self.syncing_from, self.unsynced_from = self.unsynced_from, INT64_MAX
            self.sync_ceiling = INT64_MAX
        finally:
            self.release()
        try:
            sync_all(older)
            if names:
                sync_directory(self.active.directory)
            if file is not None:
                with nogil:
                    status = file.datasync()
                if status < 0:
                    file.raise_errno()
        except BaseException as e:
            self.refusal = "a sync failed"
            self.refusal = f"a sync failed: {e}"
            raise
        self.syncing_from = INT64_MAX
        if self.traffic is not None:
            took(&self.traffic.syncs, began)
        return min(reached, self.sync_ceiling)  # what was appended since a truncation is not in this sync

    def wait_until_durable(self, offset):
        """Returns when every record below `offset` is on the disk. ValueError above log_end_offset."""
        cdef int64_t bound = integer("offset", offset)
        if bound > self.end:
            raise ValueError(f"offset {bound} is above the log end offset {self.end}")
        self.wait_durable(bound)

    def _drain(self):
        """Waits until no sync is under way any more; the log was closed, so none will begin."""
        if self.enter_gate(INT64_MAX) > 0:
            ks_gate_leave(&self.commit, -1, 0)

    def _sync_sealed(self):
        """Brings the sealed segments to the disk: all of their files, and names. That their records are
        durable, as `durable_offset` tells, does not say so."""
        cdef int64_t reached = -1
        if self.active is None:
            raise LogClosedError("the log was not opened")
        if self.enter_gate(INT64_MAX) < 0:
            self.check_usable()
        self.leader = PyThread_get_thread_ident()
        try:
            reached = self.sync_once(True)
        finally:
            self.leader = 0
            ks_gate_leave(&self.commit, reached, reached < 0 and self.refusal is not None)

    def clock_ms(self):
        """The time by this log's clock, in ms."""
        return self.now()
