# cython: binding=False, embedsignature=True
"""Appending at the end of a log: what the configuration says of a batch, where it goes, and writing it.

What is appended is in record_appender.pyx. What is rare or a matter of policy is left to an object that the
log supplies (AppendHooks in log/write/append_hooks.py).
"""

import os

from kstore.light_typing import NamedTuple

from cpython.exc cimport PyErr_SetFromErrnoWithFilenameObject
from cpython.pythread cimport PyThread_get_thread_ident
from cython cimport no_gc_clear
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from kstore.engine.append.log_end cimport LogEnd
from kstore.engine.io.file cimport SMALL
from kstore.engine.io.traffic cimport BYTES_IN, RECORDS_IN, monotonic_ns, took
from kstore.engine.record.batch_builder cimport BatchBuilder
from kstore.engine.segment.active_segment cimport WRITE_REFUSED, ROLL_NOT, ActiveSegment
from libkstore.format cimport ks_batch

from kstore.arguments import MAX_MESSAGE_BYTES_NAME as _MAX_MESSAGE_BYTES
from kstore.arguments import SEGMENT_BYTES_NAME as _SEGMENT_BYTES
from kstore.arguments import integer
from kstore.engine.segment.active_segment import ROLL_REASONS
from kstore.errors import InvalidTimestampError, LogClosedError, OffsetOverflowError, RecordTooLargeError

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


@no_gc_clear
cdef class LogAppender:
    """Writes to the active segment of a log, one thread at a time."""

    def __cinit__(self, *args, **options):
        self._log_end = LogEnd()
        self.builder = BatchBuilder()

    # ---- what the deriving class sets ----------------------------------------------------------------------

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
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.max_message_bytes = max_message_bytes
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.flush_messages = flush_messages
        self.log_append_time = log_append_time
        self.keys_required = keys_required
        self._log_end.durability = durability
        self.target_codec = target_codec
        self.builder.codec = codec
        self.builder.level = level
        self.builder.unpacked_max = max_decompressed_bytes

    def _use_clock(self, clock not None):
        """From here on this function gives the time in ms. If it raises, nothing is appended."""
        self.clock = clock

    def _use_hooks(self, hooks not None):
        """What else appending calls, as AppendHooks says."""
        self.hooks = hooks

    # ---- what there is -------------------------------------------------------------------------------------

    @property
    def active(self):
        """The active segment."""
        return self._log_end.active

    @property
    def traffic(self):
        """The counters of appends and syncs; None if nothing is counted."""
        return self._log_end.traffic

    @property
    def _closed(self):
        return self._log_end.is_closed

    def _set_leader_epoch(self, int32_t epoch):
        self._leader_epoch = epoch

    def notify_at_change(self, event):
        """Sets this event once, after the log has next been changed or closed, if it still exists then."""
        self._log_end.notify_at_change(event)

    def clock_ms(self):
        """The time by this log's clock, in ms."""
        return self.now()

    cdef int64_t now(self, bint exact=True) except? -1:
        """The time in ms; where it need not be `exact` it may lie some ms back."""
        cdef timespec t
        if self.clock is not None:
            return self.clock()
        clock_gettime(CLOCK_REALTIME if exact else KS_COARSE_CLOCK, &t)
        return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000

    cdef int acquire_to_append(self) except -1:
        if self._log_end.durability:
            self._log_end.refuse_reentrance()  # now: once it is appended it has to be waited for
        return self._log_end.acquire()

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
        if count > INT64_MAX - self._log_end.offset:
            raise OffsetOverflowError(
                f"{count} records from offset {self._log_end.offset} on do not fit: "
                f"{INT64_MAX - 1} is the largest offset"
            )
        return 0

    cdef int note_epoch(self, const ks_batch *b) except -1:
        """The leader epoch of a batch about to be appended (spec 6.2)."""
        if b.leader_epoch != self._log_end.known_epoch or b.magic < 2:
            self.hooks.assign_epoch(b.leader_epoch if b.magic == 2 else -1, b.base_offset)
            self._log_end.known_epoch = b.leader_epoch
        return 0

    cdef int roll_for(self, int reason, int64_t first_offset) except -1:
        """Begins a segment for a batch that begins at `first_offset`."""
        self.hooks.roll(ROLL_REASONS[reason], first_offset)
        return 0

    cdef int place(self, const ks_batch *b, int64_t now) except -1:
        """Stages a batch in the active segment, after rolling if need be; nothing else may be staged in that
        case."""
        cdef ActiveSegment active = self._log_end.active
        cdef int reason
        self.note_epoch(b)
        reason = active.roll_reason(b.size, b.max_timestamp, b.last_offset, now, self.segment_bytes, self.segment_ms)
        if reason != ROLL_NOT:
            self.roll_for(reason, b.base_offset)
            active = self._log_end.active
        if active.time_map is None:
            active.prepare()
        if active.reserve(1) < 0:
            PyErr_SetFromErrnoWithFilenameObject(OSError, active.path)
        active.stage(b)
        return 0

    cdef int write_out(self, const uint8_t *data, int64_t size) except -1:
        """Writes what is staged. Where it fails, whole batches that were written are in the log nevertheless, and
        nothing else of it."""
        cdef ActiveSegment active = self._log_end.active
        cdef int64_t before = active.published.records, start = active.published.size
        cdef int status, reason
        if active.is_lost():
            self._log_end.check_usable()
        if size < SMALL:
            status = active.write(data, size)
        else:
            with nogil:
                status = active.write(data, size)
        if status < 0:
            reason = errno
            self._log_end.failure = f"a write failed: {os.strerror(reason)}"
            active.take_rest()
            if status == WRITE_REFUSED:
                self._log_end.failure = None
        if active.published.size > start:
            self._log_end.offset = active.published.next_offset
        if self._log_end.traffic is not None:
            self._log_end.traffic.totals[BYTES_IN] += active.published.size - start
            self._log_end.traffic.totals[RECORDS_IN] += active.published.records - before
        if status < 0:
            (&errno)[0] = reason
            PyErr_SetFromErrnoWithFilenameObject(OSError, active.path)
        return 0

    cdef int settle(self) except -1:
        """After a write: flush.messages."""
        if self._log_end.offset - self._log_end.commit.reached >= self.flush_messages:
            self.hooks.flush_due()
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
        return self._log_end.commit.reached

    def wait_until_durable(self, offset):
        """Returns when every record below `offset` is on the disk. ValueError above log_end_offset."""
        self._log_end.wait_until_durable(integer("offset", offset))

    cdef int64_t begun(self) noexcept:
        """When an append began, if that is counted: one in 16, where reading the clock would take much of its
        time."""
        if self._log_end.traffic is None:
            return 0
        self.calls += 1
        return monotonic_ns() if self._log_end.durability or self.calls % 16 == 1 else 0

    cdef int keep_promise(self, int64_t offset, int64_t began) except -1:
        """The last step of an append, without the mutex: what lies below `offset` becomes durable, if it is
        to."""
        if self._log_end.durability and self._log_end.gathering != PyThread_get_thread_ident():
            try:
                self._log_end.wait_durable(offset)
            except LogClosedError:  # by another thread, after the append
                self._log_end.sync_closed()
        if self._log_end.traffic is not None and began:
            took(&self._log_end.traffic.appends, began)
        return 0
