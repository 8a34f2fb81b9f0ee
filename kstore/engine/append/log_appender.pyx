"""The end of a log: who may write there, where the next batch goes, writing it, and making it durable.

What is appended is in engine/append/record_appender.pyx. What is rare or a matter of policy is left to the class that derives from it
(log/writer.py): beginning a new segment, leader epochs. It is called with the mutex held.
"""

import os

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.pythread cimport (
    NOWAIT_LOCK,
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
)
from cython cimport no_gc_clear
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kstore.engine.segment.active_segment cimport WRITE_REFUSED, ROLL_NOT, ActiveSegment
from kstore.engine.record.batch_builder cimport BatchBuilder
from kstore.engine.io.file cimport File
from libkstore.format cimport ks_batch

from kstore.arguments import integer
from kstore.engine.segment.active_segment import ROLL_REASONS
from kstore.engine.record.decompress import NAMES as CODECS
from kstore.engine.io.file import sync_directory, sync_file
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

cdef enum:
    SMALL = 32 << 10       # smaller writes keep the GIL: giving it up and getting it back takes longer

DURABILITY = ("none", "group", "each")


cdef int sync_all(list files) except -1:
    """Brings files to the disk: open ones, or paths, of which those that retention has removed need it no longer."""
    for file in files:
        if isinstance(file, str):
            sync_file(file)
        else:
            file.sync()
    return 0


@no_gc_clear
cdef class Held:
    """`with log._held():` for Python code that changes the log."""

    cdef LogAppender tail
    cdef bint entered

    def __enter__(self):
        if self.tail is None:
            raise TypeError("only a log makes these")
        self.tail.acquire()
        self.entered = True

    def __exit__(self, *error):
        if self.entered:  # what was not taken is not given back
            self.entered = False
            self.tail.release()


@no_gc_clear
cdef class UnfinishedChange:
    """`with log._unfinished("the roll") as change:` for a change in several steps; the mutex is held.

    An exception of any kind that ends it in the middle leaves a log that refuses to write, unless `change.undone()`
    was called: nothing else is known of the state then. The log says so from the first step on, so it does not matter
    where an interrupt or a lack of memory strikes.
    """

    cdef LogAppender tail
    cdef str what
    cdef str outer
    cdef bint is_undone

    def __enter__(self):
        if self.tail is None:
            raise TypeError("only a log makes these")
        self.outer = self.tail.unfinished
        self.tail.unfinished = self.what
        return self

    def undone(self):
        """Everything is again as it was before."""
        self.is_undone = True

    def __exit__(self, kind, error, trace):
        if self.tail is None:
            return
        if kind is None or self.is_undone:
            self.tail.unfinished = self.outer
        else:
            self.tail._refuse(f"{self.what} was not finished: {kind.__name__}: {error}")


cdef class LogAppender:
    """Writes to the active segment of a log, one thread at a time."""

    def __cinit__(self, *args, **options):
        ks_gate_init(&self.commit)
        self.mutex = PyThread_allocate_lock()
        if self.mutex is NULL:
            raise MemoryError()
        self.builder = BatchBuilder()
        self.unsynced = []
        self.unsynced_from = self.syncing_from = INT64_MAX
        self._sealed = ()
        self.closed = True
        self.known_epoch = -1

    def __dealloc__(self):
        ks_gate_destroy(&self.commit)
        if self.mutex is not NULL:
            PyThread_free_lock(self.mutex)

    # ---- what the deriving class sets and supplies ----------------------------------------------------------------

    def _begin(self, ActiveSegment active not None, int64_t next_offset, int64_t durable_offset, clock):
        """Opens the tail: appends go to `active` from `next_offset` on."""
        self._publish(self._sealed, active)
        self.end = next_offset
        self.clock = clock
        self.commit.reached = durable_offset
        self.closed = False

    def _apply_config(self, config, str durability):
        """Takes over what the configuration says of appends: all of it, or nothing."""
        cdef int64_t segment_bytes = config.effective_segment_bytes, segment_ms = config.segment_ms
        cdef int64_t max_message_bytes = config.max_message_bytes, flush_messages = config.flush_messages
        cdef int64_t before_max_ms = config.message_timestamp_before_max_ms
        cdef int64_t after_max_ms = config.message_timestamp_after_max_ms
        cdef bint log_append_time = config.message_timestamp_type == "LogAppendTime"
        cdef bint compacts = "compact" in config.cleanup_policy
        cdef int kind = DURABILITY.index(durability)
        cdef int target_codec, codec, level
        if self.builder is None:
            raise LogClosedError("the log was garbage")
        if compacts and config.max_compaction_lag_ms > 0:
            segment_ms = min(segment_ms, <int64_t>config.max_compaction_lag_ms)
        name = config.compression_type
        target_codec = -1 if name == "producer" else 0 if name == "uncompressed" else CODECS.index(name)
        codec = max(target_codec, 0)
        level = {"gzip": config.compression_gzip_level, "lz4": config.compression_lz4_level,
                 "zstd": config.compression_zstd_level}.get(name, -1)
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.max_message_bytes = max_message_bytes
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.flush_messages = flush_messages
        self.log_append_time = log_append_time
        self.keys_required = compacts
        self.durability = kind
        self.target_codec = target_codec
        self.builder.codec = codec
        self.builder.level = level

    def _roll(self, str reason, int64_t first_offset):
        """Seals the active segment and begins the next, for a batch that begins at `first_offset`."""
        raise NotImplementedError

    def _assign_epoch(self, int32_t epoch, int64_t start_offset):
        """Notes that a leader epoch begins."""
        raise NotImplementedError

    def _flush_due(self):
        """flush.messages says that it is time."""

    def _held(self):
        cdef Held held = Held.__new__(Held)
        held.tail = self
        return held

    def _unfinished(self, str what):
        """A change in several steps; see UnfinishedChange."""
        cdef UnfinishedChange change = UnfinishedChange.__new__(UnfinishedChange)
        change.tail = self
        change.what = what
        return change

    def _publish(self, tuple sealed not None, ActiveSegment active not None, File cut=None):
        """The segments are these from here on, for appends and readers; the mutex is held.

        `cut`: the file of the active segment, made as short as that is in the same step, which no signal interrupts.
        OSError."""
        cdef tuple segments = (sealed, active)
        if cut is not None:
            cut.truncate(active.published.size)  # the last step that can fail
        self._segments = segments
        self._sealed = sealed
        self.active = active

    def _move_end(self, int64_t next_offset, int64_t durable_offset):
        """Another log end offset, after truncation, and what is durable at most; the mutex is held."""
        self.end = next_offset
        self.commit.reached = min(self.commit.reached, durable_offset)
        self.sync_ceiling = min(self.sync_ceiling, durable_offset)
        self.known_epoch = -1

    def _owe_sync(self, list files, bint names, int64_t base_offset=INT64_MAX):
        """Files, open ones or paths, and perhaps names, that the next sync must bring to the disk first: those of a
        segment that was sealed, where `base_offset` is given."""
        self.unsynced_from = min(self.unsynced_from, base_offset)
        self.unsynced = self.unsynced + [file for file in files if file not in self.unsynced]
        self.names_unsynced = self.names_unsynced or names

    def _refuse(self, str why):
        """From here on nothing is written any more."""
        self.refusal = self.refusal or why

    def _end(self):
        """Closes the tail; the mutex is held."""
        self.closed = True

    @property
    def _refusal(self):
        """Why nothing is written any more, or None."""
        if self.refusal is not None:
            return self.refusal
        if self.commit.failed:
            return "a sync failed"
        return None if self.unfinished is None else f"{self.unfinished} was not finished"

    @property
    def _end_offset(self):
        return self.end

    def _sync_owed(self):
        """Brings to the disk what the next sync would have to; the mutex is held, and nobody syncs. OSError."""
        sync_all(self.unsynced)
        if self.names_unsynced:
            sync_directory(self.active.directory)
        self.unsynced = []
        self.names_unsynced = False
        self.unsynced_from = INT64_MAX

    @property
    def _recovery_point(self):
        """Below this offset every file is on the disk, and its name: no opening needs to look there."""
        return min(self.commit.reached, self.unsynced_from, self.syncing_from)

    def _set_leader_epoch(self, int32_t epoch):
        self.leader_epoch = epoch

    # ---- the mutex ------------------------------------------------------------------------------------------------

    cdef int acquire(self) except -1:
        if PyThread_acquire_lock(self.mutex, NOWAIT_LOCK) == 0:
            self.refuse_reentrance()
            with nogil:
                PyThread_acquire_lock(self.mutex, WAIT_LOCK)
        self.owner = PyThread_get_thread_ident()
        return 0

    cdef int refuse_reentrance(self) except -1:
        """To wait for this very thread would take for ever."""
        if self.owner == PyThread_get_thread_ident():
            raise ReentrantCallError(
                "the log was called from within itself: by a signal handler, a finalizer or its clock"
            )
        return 0

    cdef void release(self) noexcept:
        self.owner = 0
        PyThread_release_lock(self.mutex)
        if self.waiting is not None:
            self.ring()

    def _after_fork(self):
        """A child of fork: threads that it does not have may have held the locks. Nothing is written here any more."""
        self.mutex = PyThread_allocate_lock()  # the old one is left as it is: it may be held
        if self.mutex is NULL:
            raise MemoryError()
        self.owner = 0
        ks_gate_init(&self.commit)
        self.commit.failed = 1
        self.refusal = "it was opened in another process"
        if self.active is not None:
            self.active.after_fork()

    cdef int ring(self) except -1:
        waiting, self.waiting = self.waiting, None
        for bell in waiting:
            bell.ring()
        return 0

    def _notify_at_change(self, bell):
        """Rings this bell once, after the log has next been changed or closed."""
        if self.waiting is None:
            self.waiting = [bell]
        elif bell not in self.waiting:
            self.waiting.append(bell)

    def _check_usable(self):
        """LogClosedError or LogFailedError, if nothing may be written; the mutex is held."""
        self.check_usable()

    cdef int check_usable(self) except -1:
        if self.closed or self.active is None:  # None: __init__ did not run, or the collector took it
            raise LogClosedError("the log is closed" if self.active is None else f"{self.active.directory} is closed")
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
        if self.clock is not None:
            return integer("the time that the log's clock gives, in ms,", self.clock())
        clock_gettime(CLOCK_REALTIME if exact else KS_COARSE_CLOCK, &t)
        return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000

    # ---- placing --------------------------------------------------------------------------------------------------

    cdef int refuse_size(self, int64_t size) except -1:
        if size > self.max_message_bytes:
            raise RecordTooLargeError("batch larger than max.message.bytes", size=size, limit=self.max_message_bytes)
        if size > self.segment_bytes:
            raise RecordTooLargeError("batch larger than segment.bytes", size=size, limit=self.segment_bytes)
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
        """Stages a batch in the active segment, after rolling if need be; nothing else may be staged in that case."""
        cdef ActiveSegment active = self.active
        cdef int reason
        self.note_epoch(b)
        reason = active.roll_reason(b.size, b.max_timestamp, b.last_offset, now, self.segment_bytes, self.segment_ms)
        if reason != ROLL_NOT:
            self._roll(ROLL_REASONS[reason], b.base_offset)
            active = self.active
        active.prepare()
        if active.reserve(1) < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, active.path)
        active.stage(b)
        return 0

    cdef int write_out(self, const uint8_t *data, int64_t size) except -1:
        """Writes what is staged. Where it fails, nothing of it is in the log; see `fail` for when that is uncertain."""
        cdef ActiveSegment active = self.active
        cdef int status
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
            raise InvalidTimestampError(
                f"timestamp {timestamp} is outside {self.before_max_ms} ms before to {self.after_max_ms} ms after now, "
                f"{now} (message.timestamp.before.max.ms, message.timestamp.after.max.ms)"
            )
        return timestamp

    # ---- durability -----------------------------------------------------------------------------------------------

    @property
    def durable_offset(self):
        """Every record below this offset is on the disk."""
        return self.commit.reached

    cdef int wait_durable(self, int64_t offset, bint sealed=False) except -1:
        """Returns when everything below `offset` is on the disk. One thread syncs for all that wait.

        `sealed`: the segments that were sealed are enough."""
        cdef int status
        cdef int64_t reached
        if self.commit.reached >= offset:
            return 0
        self.refuse_reentrance()  # another thread may lead, and wait for the mutex
        with nogil:
            status = ks_gate_enter(&self.commit, offset)
        if status == 0:
            return 0
        if status < 0:
            self.check_usable()
        reached = -1
        try:
            reached = self.sync_once(sealed)
        finally:
            ks_gate_leave(&self.commit, reached, reached < 0 and self.refusal is not None)
        return 0

    cdef int64_t sync_once(self, bint sealed) except -1:
        """Syncs what is written now, and returns the offset that is durable with it. Any failure is final: nobody knows
        what the system has dropped."""
        cdef File file
        cdef int64_t reached
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
        return min(reached, self.sync_ceiling)  # what was appended since a truncation is not in this sync

    def wait_until_durable(self, int64_t offset):
        """Returns when every record below `offset` is on the disk. ValueError above log_end_offset."""
        if offset > self.end:
            raise ValueError(f"offset {offset} lies above the log end offset {self.end}")
        self.wait_durable(offset)

    def _drain(self):
        """Waits until no sync is under way any more; the tail was closed, so none will begin."""
        cdef int status
        self.refuse_reentrance()
        with nogil:
            status = ks_gate_enter(&self.commit, INT64_MAX)
        if status > 0:
            ks_gate_leave(&self.commit, -1, 0)

    def _sync_sealed(self):
        """Brings the sealed segments to the disk: all of their files, and names. That their records are durable, as
        `durable_offset` tells, does not say so."""
        cdef int status
        cdef int64_t reached = -1
        if self.active is None:
            raise LogClosedError("the log was not opened")
        self.refuse_reentrance()
        with nogil:
            status = ks_gate_enter(&self.commit, INT64_MAX)
        if status < 0:
            self.check_usable()
        try:
            reached = self.sync_once(True)
        finally:
            ks_gate_leave(&self.commit, reached, reached < 0 and self.refusal is not None)

    def clock_ms(self):
        """The time by this log's clock, in ms."""
        return self.now()
