"""One partition of a share group: reading records, delivering them, and storing their acknowledgements."""

from __future__ import annotations

import time
from itertools import chain

from kstore.engine.scan.batch_reader import RecordReader
from kstore.engine.share.share_state import ACKNOWLEDGED, ACQUIRED, ARCHIVED, Update
from kstore.errors import InvalidRecordStateError, LogChangedError, OffsetOutOfRangeError
from kstore.light_typing import TYPE_CHECKING, NamedTuple, cast
from kstore.log.cursors.arguments import offset_of
from kstore.log.follow.feed import Feed, read_by
from kstore.log.follow.position import diverged_at, position_in
from kstore.log.share.acquired_record import AcquiredRecord
from kstore.log.share.dead_letters import EXHAUSTED, REJECTED, append_dead_letter
from kstore.log.share.descriptions import topic_id_at
from kstore.log.share.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from kstore.engine.record.batch import Record
    from kstore.engine.scan.batch_reader import Skipped
    from kstore.log.files.layout import TopicPartition
    from kstore.log.follow.sources import Source
    from kstore.log.read.left_out import LeftOut
    from kstore.log.share.dead_letters import DeadLetterLog
    from kstore.log.view.log_view import LogView

_SKIPPED = 256  # records that are read and passed over before a reader looks for the next one by its offset
_LOOK = 100_000_000  # ns between looks at what other workers have done, and whether they live
_new = tuple.__new__  # AcquiredRecord() takes twice as long


class ShareOptions(NamedTuple):
    """The options of a share group. `dead_letter_log_of` returns the log that gets a copy of a record."""

    group: str
    isolation: str
    on_error: str
    record_lock_ms: int
    max_delivery_attempts: int
    max_record_locks: int
    durable: bool
    dead_letter_log_of: Callable[[AcquiredRecord], DeadLetterLog] | None


class SharedPartition:
    """A partition of a share group, for one worker, whose threads may share it."""

    def __init__(
        self,
        tp: TopicPartition,
        source: Source,
        worker: int,
        options: ShareOptions,
        start: str | int | datetime,
        left_out: LeftOut,
    ) -> None:
        self.tp = tp
        self.options = options
        self._worker = worker
        view = source.known
        self._file = StateFile(
            source.path, options.group, tp, topic_id_at(source.path), worker, durable=options.durable
        )
        self._dead: set[int] = set()
        self._next_look = 0
        self._view: LogView | None = None  # the one that was compared with the state
        self._last_epoch, self._last_epoch_start = (-1, -1), 0  # and the generation, of its last records
        self._is_stale = True  # the log may have changed since
        self._feed = Feed(
            source, position_in(view.snapshot, view.log_start_offset), options.isolation, left_out
        )
        self._read = read_by(RecordReader, options.isolation, options.on_error)
        self._records: Iterator[Record] = iter(())
        self._ahead: Record | None = None  # was read and is not delivered yet
        self._has_more = True  # the reader is not at the end of its view
        with self._file.lock:
            self._file.catch_up()
            if self._file.is_new:
                offset = offset_of(view, start, options.isolation)
                _, epoch, generation = position_in(view.snapshot, offset)[:3]
                self._file.begin(Update((), offset, epoch, generation, is_snapshot=True))

    # ---- looking -------------------------------------------------------------------------------------------

    def mark_stale(self) -> None:
        """Have the next call read the log again: it may have changed."""
        self._is_stale = self._has_more = True

    def may_have_record(self) -> bool:
        """Whether `take` is worth it. A lock is not taken, so another thread may be about to change this."""
        state = self._file.state
        return (self._has_more or self._is_stale) or (
            bool(state.in_flight) and (time.monotonic_ns() >= self._next_look or state.due_in_ms(_now()) == 0)
        )

    @property
    def skipped(self) -> list[Skipped]:
        """What on_error="skip" has left out."""
        return self._feed.skipped

    def pause(self, longest: float) -> float:
        """For how many seconds there is nothing to do, if no record comes: at most `longest`."""
        if not self._file.state.in_flight:
            return longest
        return min(longest, _LOOK / 1e9, self._file.state.due_in_ms(_now()) / 1000)

    # ---- delivering ----------------------------------------------------------------------------------------

    def take(self) -> AcquiredRecord | None:
        """Acquire the next record for this worker; None if there is none now. What reading a log raises."""
        now = _now()
        with self._file.lock:
            record = self._next(now)
            return None if record is None else self._acquire(record, now)

    def has_record(self) -> bool:
        """Whether there is a record to acquire. What reading a log raises."""
        with self._file.lock:
            return self._next(_now()) is not None

    def _next(self, now: int) -> Record | None:
        """The record that is to be acquired next."""
        file = self._file
        file.catch_up()
        if time.monotonic_ns() >= self._next_look:
            self._find_dead()
        if self._is_stale:
            self._compare()
        while (found := file.state.available(now, self._dead)) is not None:
            record = self._again(found)
            if record is not None:
                return record
        if len(file.state.in_flight) >= self.options.max_record_locks:
            return None
        return self._fresh()

    def _acquire(self, record: Record, now: int) -> AcquiredRecord:
        state, offset = self._file.state, record.offset
        epoch = generation = -1
        if offset >= state.end:
            position = self._last_epoch if offset >= self._last_epoch_start else self._position_at(offset)
            if position != (state.leader_epoch, state.generation):
                epoch, generation = position
        until = now + self.options.record_lock_ms
        update = state.acquire(offset, self._worker, until, epoch, generation)
        self._file.append(update)
        return _new(AcquiredRecord, (*self.tp, record, update.batches[-1][3]))

    def _position_at(self, offset: int) -> tuple[int, int]:
        """The leader epoch of the record at an offset, and the generation of the log."""
        assert self._view is not None
        return position_in(self._view.snapshot, offset + 1)[1:3]

    def _again(self, offset: int) -> Record | None:
        """A record in flight that is to be delivered again; None if it is not to be, and so is done now."""
        record = self._stored(offset)
        if record is not None:
            count = self._file.state.deliveries(offset)
            if count < self.options.max_delivery_attempts:
                return record
            self._bury(record, count, EXHAUSTED)
        self._file.append(self._file.state.finish(offset, ARCHIVED))
        return None

    def _stored(self, offset: int) -> Record | None:
        """The record at an offset; None if it was deleted or compacted away."""
        while True:
            try:
                found = self._feed.view.get(offset)
            except OffsetOutOfRangeError:
                return None
            except LogChangedError:
                before = self._feed.view
                self._is_stale = True
                self._compare()
                if self._feed.view is before:
                    raise
                continue
            return found if found.offset == offset else None

    def _bury(self, record: Record, count: int, reason: str) -> None:
        """Copy a record that the group gives up, before it is done: a crash in between copies it again."""
        options = self.options
        if options.dead_letter_log_of is not None:
            letter = AcquiredRecord(*self.tp, record, count)
            log = options.dead_letter_log_of(letter)
            append_dead_letter(log, options.group, letter, reason, durable=options.durable)

    # ---- reading -------------------------------------------------------------------------------------------

    def _fresh(self) -> Record | None:
        """The first record that was not delivered yet."""
        while True:
            try:
                record = self._read_on(self._file.state.end)
            except OffsetOutOfRangeError:  # while it was read, the log has lost records
                self._is_stale = True
            if self._feed.view is not self._view:
                self._is_stale = True
            if not self._is_stale:
                return record
            self._compare()

    def _read_on(self, end: int) -> Record | None:
        """The first record of the view at an offset or behind it."""
        record, skipped = self._ahead, 0
        while record is None or record.offset < end:
            self._ahead, skipped = None, skipped + 1
            if skipped > _SKIPPED and self._feed.offset < end <= self._feed.view.log_end_offset:
                self._feed.seek(self._feed.view, end, is_number=False)
                self._records, skipped = iter(()), 0
            record = next(self._records, None)
            if record is None:
                if not self._has_more:
                    return None
                runs = cast("Iterator[Iterator[Record]]", self._feed.rest(self._read))
                self._records = chain.from_iterable(runs)
                record = next(self._records, None)
                if record is None:
                    self._has_more = False
                    return None
        self._ahead = record
        return record

    def _compare(self) -> None:
        """Take the log as it is now, and drop from the state what the log has no longer."""
        self._is_stale = False
        feed, state = self._feed, self._file.state
        try:
            view = feed.source.view()
            if view is self._view:
                return
            now = view.snapshot
            first, end = now.log_start_offset, now.log_end_offset
            known = position_in(now, state.end)._replace(
                leader_epoch=state.leader_epoch, generation=state.generation
            )
            cut = diverged_at(now, known, self.options.isolation)
            if cut >= 0:
                at = position_in(now, max(cut, first))
                self._file.append(state.truncated(*at[:3]))
            if state.start < first:
                self._file.append(Update((), first))
            feed.seek(view, min(max(self._file.state.end, first), end), is_number=False)
            self._records, self._ahead, self._has_more = iter(()), None, True
            self._view = view
            latest = now.leader_epochs.entries[-1:]
            self._last_epoch_start = latest[0][1] if latest else 0
            self._last_epoch = (latest[0][0] if latest else -1), now.truncations.number
        except BaseException:
            self._is_stale = True
            raise

    def _find_dead(self) -> None:
        self._next_look = time.monotonic_ns() + _LOOK
        workers = self._file.state.workers()
        self._dead = {worker for worker in workers if not self._file.is_alive(worker)}
        if self._dead:
            self._file.state.look_again()

    # ---- acknowledging -------------------------------------------------------------------------------------

    def accept(self, record: AcquiredRecord) -> None:
        """The work of a record is done. InvalidRecordStateError, OSError."""
        file = self._file
        with file.lock:
            if self._holds(record):
                file.append(file.state.finish(record.record.offset, ACKNOWLEDGED))
        self._sync()

    def reject(self, record: AcquiredRecord) -> None:
        """A record cannot be processed. InvalidRecordStateError, OSError."""
        with self._file.lock:
            if self._holds(record):
                self._bury(record.record, record.delivery_count, REJECTED)
                self._file.append(self._file.state.finish(record.offset, ARCHIVED))
        self._sync()

    def release(self, record: AcquiredRecord, delay_ms: int) -> None:
        """A record is to be delivered again after a while. InvalidRecordStateError, OSError."""
        with self._file.lock:
            if self._holds(record):
                state, now = self._file.state, _now()
                if self._again(record.offset) is not None:
                    self._file.append(state.release(record.offset, now + delay_ms if delay_ms else 0))
        self._sync()

    def renew(self, record: AcquiredRecord) -> None:
        """Extend the lock of a record. InvalidRecordStateError, OSError."""
        with self._file.lock:
            if self._holds(record):
                until = _now() + self.options.record_lock_ms
                self._file.append(self._file.state.renew(record.offset, until))

    def has_acquired(self, record: AcquiredRecord) -> bool:
        """Whether this worker has a record still, as far as it knows."""
        return self._file.state.holds(record.offset, record.delivery_count, self._worker)

    def _holds(self, record: AcquiredRecord) -> bool:
        """Whether this worker has a record still; False if the log has deleted it.
        InvalidRecordStateError."""
        self._file.catch_up()
        if self._file.state.holds(record.record.offset, record.delivery_count, self._worker):
            return True
        if record.offset < self._feed.view.log_start_offset:
            return False
        known = self._file.state.in_flight.get(record.offset)
        if known is None:
            why = "it is done"
        elif known[0] != ACQUIRED:
            why = "it was released"
        else:
            why = "its lock expired, and another worker has acquired it"
        raise InvalidRecordStateError(
            f"offset {record.offset} of {self.tp} is not acquired by this worker of share group "
            f"{self.options.group!r}: {why}"
        )

    def _sync(self) -> None:
        if self.options.durable:
            self._file.sync()

    # ---- the end -------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Delete the state of the group. OSError."""
        with self._file.lock:
            self._file.catch_up()
            self._file.remove()

    @property
    def is_shared(self) -> bool:
        """Whether other workers have the partition open for the group."""
        return self._file.has_others()

    def close(self) -> None:
        """What this worker has acquired is for others."""
        self._feed.close()
        self._file.close()


def _now() -> int:
    return time.time_ns() // 1_000_000
