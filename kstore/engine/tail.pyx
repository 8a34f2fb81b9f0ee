"""The end of a log: who may write there, where the next batch goes, writing it, and making it durable.

What is appended is in engine/intake.pyx. What is rare or a matter of policy is left to the class that derives from it
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
    PyThread_release_lock,
)
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kstore.engine.active cimport REFUSED, ROLL_NOT, Active
from kstore.engine.builder cimport Builder
from kstore.engine.file cimport File
from libkstore.format cimport ks_batch

from kstore.engine.active import ROLL_REASONS
from kstore.engine.codecs import NAMES as CODECS
from kstore.engine.file import sync_directory
from kstore.errors import InvalidTimestampError, LogClosedError, LogFailedError, RecordTooLargeError

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


cdef class Held:
    """`with log._held():` for Python code that changes the log."""

    cdef Tail tail

    def __enter__(self):
        self.tail.acquire()

    def __exit__(self, *error):
        self.tail.release()


cdef class Tail:
    """Writes to the active segment of a log, one thread at a time."""

    def __cinit__(self, *args, **options):
        ks_gate_init(&self.commit)
        self.mutex = PyThread_allocate_lock()
        if self.mutex is NULL:
            raise MemoryError()
        self.builder = Builder()
        self.unsynced = []
        self.closed = True
        self.known_epoch = -1

    def __dealloc__(self):
        ks_gate_destroy(&self.commit)
        if self.mutex is not NULL:
            PyThread_free_lock(self.mutex)

    # ---- what the deriving class sets and supplies ----------------------------------------------------------------

    def _begin(self, Active active, int64_t next_offset, int64_t durable_offset, clock):
        """Opens the tail: appends go to `active` from `next_offset` on."""
        self.active = active
        self.end = next_offset
        self.clock = clock
        self.commit.reached = durable_offset
        self.closed = False

    def _limit(self, config, str durability):
        """Takes over what the configuration says of appends."""
        self.segment_bytes = config.effective_segment_bytes
        self.segment_ms = config.segment_ms
        if "compact" in config.cleanup_policy and config.max_compaction_lag_ms > 0:
            self.segment_ms = min(self.segment_ms, <int64_t>config.max_compaction_lag_ms)
        self.max_message_bytes = config.max_message_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.flush_messages = config.flush_messages
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.keys_required = "compact" in config.cleanup_policy
        self.durability = DURABILITY.index(durability)
        codec = config.compression_type
        self.target_codec = -1 if codec == "producer" else 0 if codec == "uncompressed" else CODECS.index(codec)
        self.builder.codec = 0 if codec in ("producer", "uncompressed") else CODECS.index(codec)
        levels = {"gzip": config.compression_gzip_level, "lz4": config.compression_lz4_level,
                  "zstd": config.compression_zstd_level}
        self.builder.level = levels.get(codec, -1)

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

    def _replace(self, Active active):
        """Another active segment; the mutex is held."""
        self.active = active

    def _move_end(self, int64_t next_offset, int64_t durable_offset):
        """Another log end offset, after truncation, and what is durable at most; the mutex is held."""
        self.end = next_offset
        self.commit.reached = min(self.commit.reached, durable_offset)
        self.sync_ceiling = min(self.sync_ceiling, durable_offset)
        self.known_epoch = -1

    def _owe_sync(self, files, bint names):
        """Files, and perhaps names, that the next sync must bring to the disk first."""
        self.unsynced += files
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
        return "a sync failed" if self.refusal is None and self.commit.failed else self.refusal

    @property
    def _end_offset(self):
        return self.end

    def _take_unsynced(self):
        """The files that the next sync would have brought to the disk: the caller does."""
        files, self.unsynced = self.unsynced, []
        return files

    def _set_leader_epoch(self, int32_t epoch):
        self.leader_epoch = epoch

    # ---- the mutex ------------------------------------------------------------------------------------------------

    cdef int acquire(self) except -1:
        if PyThread_acquire_lock(self.mutex, NOWAIT_LOCK) == 0:
            with nogil:
                PyThread_acquire_lock(self.mutex, WAIT_LOCK)
        return 0

    cdef void release(self) noexcept:
        PyThread_release_lock(self.mutex)
        if self.waiting is not None:
            self.ring()

    cdef int ring(self) except -1:
        waiting, self.waiting = self.waiting, None
        for bell in waiting:
            bell.ring()
        return 0

    def _ring_at_change(self, bell):
        """Rings this bell once, after the log has next been changed or closed."""
        if self.waiting is None:
            self.waiting = [bell]
        elif bell not in self.waiting:
            self.waiting.append(bell)

    cdef int check_usable(self) except -1:
        if self.closed:
            raise LogClosedError("the log is closed")
        if self.refusal is not None:
            raise LogFailedError(f"nothing is written until the log is opened anew: {self.refusal}")
        if self.commit.failed:
            raise LogFailedError("nothing is written until the log is opened anew: a sync failed")
        return 0

    cdef int fail(self, str what) except -1:
        """Raises the system's error, and refuses everything from here on."""
        self.refusal = f"{what}: {os.strerror(errno)}"
        PyErr_SetFromErrnoWithFilenameObject(OSError, self.active.path)

    cdef int64_t now(self, bint exact=True) except? -1:
        """The time in ms; where it need not be `exact` it may lie some ms back."""
        cdef timespec t
        if self.clock is not None:
            return self.clock()
        clock_gettime(CLOCK_REALTIME if exact else KS_COARSE_CLOCK, &t)
        return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000

    # ---- placing --------------------------------------------------------------------------------------------------

    cdef int refuse_size(self, int64_t size) except -1:
        if size > self.max_message_bytes:
            raise RecordTooLargeError("batch larger than max.message.bytes", size=size, limit=self.max_message_bytes)
        if size > self.segment_bytes:
            raise RecordTooLargeError("batch larger than segment.bytes", size=size, limit=self.segment_bytes)
        return 0

    cdef int note_epoch(self, const ks_batch *b) except -1:
        """The leader epoch of a batch about to be appended (spec 6.2)."""
        if b.leader_epoch != self.known_epoch or b.magic < 2:
            self._assign_epoch(b.leader_epoch if b.magic == 2 else -1, b.base_offset)
            self.known_epoch = b.leader_epoch
        return 0

    cdef int place(self, const ks_batch *b, int64_t now) except -1:
        """Stages a batch in the active segment, after rolling if need be; nothing else may be staged in that case."""
        cdef Active active = self.active
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
        cdef Active active = self.active
        cdef int status
        if size < SMALL:
            status = active.write(data, size)
        else:
            with nogil:
                status = active.write(data, size)
        if status == REFUSED:
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
        with nogil:
            status = ks_gate_enter(&self.commit, offset)
        if status == 0:
            return 0
        if status < 0:
            self.check_usable()
        reached = -1
        try:
            reached = self.sync_once(sealed)
        except LogClosedError:  # nothing was tried; close() sees to it
            reached = 0
            raise
        finally:
            ks_gate_leave(&self.commit, reached, reached < 0 and self.refusal is not None)
        return 0

    cdef int64_t sync_once(self, bint sealed) except -1:
        """Syncs what is written now, and returns the offset that is durable with it."""
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
            self.sync_ceiling = INT64_MAX
        finally:
            self.release()
        try:
            for other in older:
                other.sync()
            if names:
                sync_directory(self.active.directory)
            if file is not None:
                with nogil:
                    status = file.datasync()
                if status < 0:
                    file.raise_errno()
        except OSError as e:
            self.refusal = f"a sync failed: {e}"
            raise
        return min(reached, self.sync_ceiling)  # what was appended since a truncation is not in this sync

    def wait_until_durable(self, int64_t offset):
        """Returns when every record below `offset` is on the disk. ValueError above log_end_offset."""
        if offset > self.end:
            raise ValueError(f"offset {offset} lies above the log end offset {self.end}")
        self.wait_durable(offset)

    def _drain(self):
        """Waits until no sync is under way any more; the tail was closed, so none will begin."""
        cdef int status
        with nogil:
            status = ks_gate_enter(&self.commit, INT64_MAX)
        if status > 0:
            ks_gate_leave(&self.commit, -1, 0)

    def _sync_sealed(self):
        """Brings the sealed segments to the disk."""
        self.wait_durable(self.active.base_offset, True)

    def clock_ms(self):
        """The time by this log's clock, in ms."""
        return self.now()
