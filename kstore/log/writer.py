"""One partition, written: what a Kafka broker would leave in the directory, with one writer at a time."""

import os
import random
import uuid
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from kstore.config import MAX64, LogConfig
from kstore.engine.active import Active
from kstore.engine.batch import RecordBatch
from kstore.engine.file import File, make_directory, rename, sync_directory, unlink, write_whole
from kstore.engine.intake import Appended, Intake
from kstore.engine.segment import Segment
from kstore.errors import (
    InvalidRecordError,
    LogClosedError,
    LogFailedError,
    LogNotFoundError,
    OffsetOutOfRangeError,
    PolicyViolationError,
)
from kstore.log import checkpoints, layout
from kstore.log.appender import Appender
from kstore.log.cutting import cut, end_of_rest
from kstore.log.discarded import Discarded
from kstore.log.epoch_file import EpochFile
from kstore.log.feed import Feed, WriterFeed
from kstore.log.flusher import Flusher
from kstore.log.home import Home
from kstore.log.ledger import Ledger
from kstore.log.loader import Loaded, load
from kstore.log.partition import PartitionLog
from kstore.log.producers import ProducerState
from kstore.log.reached import Reached
from kstore.log.renumbered import renumber
from kstore.log.repairs import Repairs
from kstore.log.retention import Decision, decide_for
from kstore.log.segment_maker import SegmentMaker
from kstore.log.transactions import Transactions
from kstore.log.validator import validate

_writers: "weakref.WeakSet[LogWriter]" = weakref.WeakSet()


class DataLossWarning(UserWarning):
    """Recovery cut off records that had been flushed: the disk lost them. What was there is kept in .cut files."""


class LogWriter(Intake, PartitionLog):
    """A partition open for writing: a PartitionLog that also appends, rolls, retains, truncates.

    Appending (append, extend, append_batches) is in engine/intake.pyx. Thread-safe: one thread at a time changes the log,
    readers take no lock. Close it: otherwise the next opening must recover.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        config: LogConfig | None = None,
        *,
        create: bool = True,
        durability: str = "none",
        keep_cut: bool = False,
        leader_epoch: int | None = None,
        topic_id: uuid.UUID | None = None,
        clock: Callable[[], int] | None = None,
        clean: bool | None = None,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        max_decompressed_bytes: int = 256 << 20,
        producer_id_expiration_ms: int = 86_400_000,
    ) -> None:
        if producer_id_expiration_ms < 1:
            raise ValueError(f"producer_id_expiration_ms {producer_id_expiration_ms} is not positive")
        self.path = os.fspath(path)
        self._config = config or LogConfig()
        self._durability = durability
        self._closed = True
        self._max_decompressed_bytes = max_decompressed_bytes
        self._producer_id_expiration_ms = producer_id_expiration_ms
        directory = Path(os.path.abspath(self.path))  # noqa: PTH100
        if not directory.is_dir():
            if not create:
                raise LogNotFoundError(f"no partition directory at {path}")
            make_directory(str(directory))
        self._directory = str(directory)
        self._limit(self._config, durability)
        self._home = Home(directory)
        try:
            self._load(keep_cut, clean, recovery_point, log_start_offset, clock, topic_id)
            if leader_epoch is not None:
                self.assign_leader_epoch(leader_epoch)
            else:
                self._set_leader_epoch(max(self._epoch_file.epochs.latest or 0, 0))
        except BaseException:
            self._home.leave(clean=False)
            raise
        self._flusher = Flusher(self, self._config.flush_ms)
        self._appenders: weakref.WeakSet[Appender] = weakref.WeakSet()
        _writers.add(self)

    # ---- opening --------------------------------------------------------------------------------------------------

    def _load(
        self,
        keep_cut: bool,
        clean: bool | None,
        recovery_point: int | None,
        log_start_offset: int | None,
        clock: Callable[[], int] | None,
        topic_id: uuid.UUID | None,
    ) -> None:
        repairs = Repairs(self._directory, keep_cut=keep_cut)
        loaded = load(
            Path(self._directory),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            max_decompressed_bytes=self._max_decompressed_bytes,
            state=self._home.state,
            repairs=repairs,
        )
        self._loaded = loaded
        recovery = loaded.recovery
        if repairs.kept and not recovery.clean and loaded.log_end_offset < recovery.recovery_point:
            warnings.warn(
                f"{self.path}: offsets {loaded.log_end_offset} to {recovery.recovery_point} had been flushed, and are "
                f"lost: {'; '.join(f.text for f in recovery.findings)}; kept in {', '.join(repairs.kept)}",
                DataLossWarning,
                stacklevel=5,
            )
        self._epoch_file = EpochFile(self._directory, loaded.leader_epochs)
        self._identify(topic_id)
        now = clock() if clock is not None else self.clock_ms()
        self._ledger = Ledger(self._directory, self._producer_id_expiration_ms)
        for base, index in self._ledger.open(loaded, now).items():
            path = f"{self._directory}/{layout.segment_stem(base)}.txnindex"
            if not index.is_empty or os.path.exists(path):  # noqa: PTH110
                write_whole(path, index.to_bytes())
        end = loaded.log_end_offset
        segments = loaded.segments
        if segments:
            active = self._make_active(segments[-1].stem, segments[-1].base_offset, now, end, segments[-1])
            active.prepare_indexes()
        else:
            active = self._make_active(layout.segment_stem(end), end, now, end)
        self._sealed_and_active = (segments[:-1], active)
        self._start = loaded.log_start_offset
        self._loaded = replace(loaded, segments=())  # those that go must not stay open for being kept here
        self._shown: tuple[tuple[object, ...], Loaded] = ((), self._loaded)
        self._reached = Reached(())
        self._transactions = None
        self._discarded = Discarded()
        durable = end if recovery.clean else min(recovery.recovery_point, end)
        self._stored_recovery_point = -1
        self._begin(active, end, max(durable, 0), clock)
        self._owe_sync([], True)
        self._closed = False

    def _make_active(
        self, stem: str, base_offset: int, now: int, next_offset: int, segment: Segment | None = None
    ) -> Active:
        config = self._config
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        return Active(
            self._directory,
            stem,
            base_offset,
            segment=segment,
            next_offset=next_offset,
            created_ms=now,
            roll_jitter_ms=random.randrange(jitter) if jitter else 0,
            index_interval_bytes=config.index_interval_bytes,
            segment_index_bytes=config.segment_index_bytes,
            segment_bytes=config.effective_segment_bytes,
            max_decompressed_bytes=self._max_decompressed_bytes,
            preallocate=config.preallocate,
        )

    def _make_segment(self) -> SegmentMaker:
        """Makes segments of this log as its configuration is now."""
        return SegmentMaker(self._directory, self._config.index_interval_bytes, self._max_decompressed_bytes)

    def _identify(self, topic_id: uuid.UUID | None) -> None:
        """partition.metadata: the topic id that a broker gave the topic (spec 1.5)."""
        if topic_id is None:
            return
        known = self.topic_id()
        if known is None:
            checkpoints.write_topic_id(Path(self._directory, layout.METADATA), topic_id)
        elif known != topic_id:
            raise ValueError(f"{self.path} belongs to topic id {known}, not {topic_id}")

    # ---- what there is --------------------------------------------------------------------------------------------

    def _now(self) -> Loaded:
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        return self._current()

    def _current(self) -> Loaded:
        """The log at this moment, or as it was when it was closed."""
        held = self._sealed_and_active
        view = held[1].view()
        start, epochs = self._start, self._epoch_file.epochs
        seen = (held, view, start, epochs)
        shown, loaded = self._shown  # taken and stored as one: other threads do the same meanwhile
        if shown and all(a is b or a == b for a, b in zip(shown, seen, strict=False)):
            return loaded
        segment, end = view
        loaded = replace(
            self._loaded,
            segments=(*held[0], segment),
            log_start_offset=start,
            log_end_offset=max(end, start),
            leader_epochs=epochs,
        )
        self._shown = (seen, loaded)
        return loaded

    @property
    def config(self) -> LogConfig:
        """The configuration in force."""
        return self._config

    def configure(self, **changes: Any) -> None:
        """Changes the configuration of the open log, such as retention_ms=…. InvalidConfigError."""
        config = self._config.replace(**changes)
        with self._held():
            self._config = config
            self._limit(config, self._durability)
        self._flusher.flush_every(config.flush_ms)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that is put into batches appended from here on."""
        return max(self._epoch, 0)

    def _set_leader_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        super()._set_leader_epoch(epoch)

    def assign_leader_epoch(self, epoch: int) -> None:
        """Begins a leader epoch at the log end offset, as a partition does that becomes leader. OSError."""
        with self._held():
            self._check_usable()
            self._assign_epoch(epoch, self._end_offset)
            self._set_leader_epoch(epoch)

    def _feed(self, isolation: str) -> Feed:
        return WriterFeed(self, self._current, self._ring_at_change, isolation)

    def _read_transactions(self) -> Transactions:
        now = self._current()
        return self._ledger.transactions(now.log_start_offset, now.log_end_offset)

    def _known_transactions(self) -> Transactions:
        return self._read_transactions()

    def last_stable_offset(self) -> int:
        """Where readers of committed data must stop: the beginning of the oldest open transaction, or the end."""
        now = self._current()
        return self._ledger.last_stable_offset(now.log_start_offset, now.log_end_offset)

    def producers(self) -> dict[int, ProducerState]:
        """The state of every producer id that the log remembers."""
        return self._ledger.producers.states

    # ---- what appending needs (called with the mutex held) --------------------------------------------------------

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch < 0:
            if (
                start_offset >= 0 and self._epoch_file.epochs.entries
            ):  # messages of magic 0 and 1 know no epochs
                self._epoch_file.clear()
            return
        self._epoch_file.assign(epoch, start_offset)

    def _roll(self, reason: str, first_offset: int) -> None:
        """Seals the active segment and begins the next (spec 5.3). Where that fails, the active one stays what it was."""
        old, now = self.active, self.clock_ms()
        base = max(first_offset, self._end_offset)
        if base == old.base_offset and old.size == 0:
            return  # it is new already
        stem = layout.segment_stem(base)
        for kind in layout.SEGMENT_KINDS:
            unlink(f"{self._directory}/{stem}{kind}", missing_ok=True)
        self._seal(old)
        try:
            active = self._make_active(stem, base, now, self._end_offset)
            self._ledger.write_snapshot(base)
        except BaseException:
            unlink(f"{self._directory}/{stem}.log", missing_ok=True)
            try:
                old.unseal()
            except OSError as e:
                self._refuse(f"the segment after {old.path} could not be begun: {e}")
            raise
        sealed = self._make_segment()(old.stem, old.base_offset, end_offset=base)
        files = old.files()
        if base in self._ledger.snapshots:
            files.append(File(self._ledger.snapshots.path_of(base)))
        self._owe_sync(files, True)
        self._replace(active)
        self._sealed_and_active = ((*self._sealed_and_active[0], sealed), active)
        self._flusher.sealed()

    def _seal(self, active: Active) -> None:
        try:
            active.seal()
        except OSError as e:
            self._refuse(f"{active.path} could not be sealed: {e}")
            raise

    def _validate(self, encoded: bytes, now: int, origin: str) -> bytes:
        return validate(encoded, self._config, now, self._max_decompressed_bytes)

    def _analyze(self, batches: list[RecordBatch], origin: str, transaction_version: int) -> Appended | None:
        duplicate = self._ledger.analyze(batches, origin, transaction_version, self.clock_ms())
        if duplicate is None:
            self._ledger.hold(self.last_stable_offset())
        return duplicate

    def _forget_analysis(self) -> None:
        self._ledger.let_go()

    def _account(self, batches: list[RecordBatch]) -> None:
        try:
            self._ledger.enter(batches, self.active.append_aborted, self._end_offset)
        except OSError as e:
            self._refuse(f"the transaction index of {self.active.path} was not written: {e}")
            raise

    def _flush_due(self) -> None:
        self._flusher.flush_now()

    def _check_usable(self) -> None:
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        if self._refusal is not None:
            raise LogFailedError(f"nothing is written until the log is opened anew: {self._refusal}")

    # ---- taking over whole segments -------------------------------------------------------------------------------

    def adopt(self, path: str | PathLike[str]) -> range:
        """Makes a .log file that another LogWriter left the end of this log, and returns the range of its offsets.

        It is renamed, not copied; its batches get their offsets and leader epoch in place. But for checksums, what the
        configuration asks of batches is not checked. Everything before it is made durable first, so no recovery cuts it
        off for what is before; the file itself is on the disk then, its name at the next flush. If the file has its name
        still after an error, nothing of it is in the log. CorruptRecordError; InvalidRecordError where it has producers,
        or no records; OSError, as where it lies in another file system.
        """
        while True:
            if self._closed:
                raise LogClosedError(f"{self.path} is closed")
            active = self.active
            self.wait_until_durable(self._end_offset)
            with self._held():
                if self.active is active:  # so what others have appended since lies in this one segment
                    return self._adopt(os.fspath(path))

    def _adopt(self, path: str) -> range:
        self._check_usable()
        base, epoch = self._end_offset, self.leader_epoch
        found = renumber(path, base, epoch, self._config.index_interval_bytes)
        if found.batch_count == 0:
            raise InvalidRecordError(f"{path} has no records")
        if self.durable_offset < base:
            try:
                self.active.sync(indexes=False)
            except OSError as e:
                self._refuse(f"a sync failed: {e}")
                raise
        self._roll("adopted", base)
        self._assign_epoch(epoch, base)
        empty = self.active
        rename(path, empty.path)
        try:
            segment = self._make_segment()(empty.stem, base)
            segment.adopt(found.offset_index, found.time_index)
            segment.take_max_timestamp(found.max_timestamp)
            active = self._make_active(empty.stem, base, self.clock_ms(), found.next_offset, segment)
            active.prepare_indexes()
        except BaseException as e:
            self._refuse(f"{empty.path} was taken over, and could not be opened: {e}")
            raise
        self._move_end(found.next_offset, base)
        self._replace(active)
        self._sealed_and_active = (self._sealed_and_active[0], active)
        self._ledger.enter((), active.append_aborted, found.next_offset)
        self._owe_sync([], True)
        return range(base, found.next_offset)

    # ---- rolling, flushing ----------------------------------------------------------------------------------------

    def roll(self) -> int:
        """Begins a new segment at the log end offset, whatever the active one holds; returns its base offset. OSError."""
        with self._held():
            self._check_usable()
            self._roll("asked", self._end_offset)
            return self.active.base_offset

    def flush(self) -> int:
        """Brings everything appended so far to the disk; returns the offset below which all is durable. OSError."""
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        self.wait_until_durable(self._end_offset)
        self._store_recovery_point()
        return self.durable_offset

    def _store_recovery_point(self) -> None:
        """Tells the checkpoint of it, once a start would have to recover whole segments without."""
        if self._stored_recovery_point < self.active.base_offset <= self.durable_offset:
            with self._held():  # nobody truncates or deletes records between the look and the writing
                self._check_usable()
                point = self.durable_offset
                self._home.store(point, self._start_to_store())
                self._stored_recovery_point = point

    def _start_to_store(self) -> int | None:
        """The log start offset, where the first segment does not begin with it."""
        sealed, active = self._sealed_and_active
        first = sealed[0].base_offset if sealed else active.base_offset
        return self._start if self._start > first else None

    def appender(self, *, linger_ms: float = 5.0, batch_bytes: int = 16384) -> Appender:
        """An object whose append() gathers records of many threads into batches of up to `batch_bytes`.

        A batch waits for more at most `linger_ms`. Closing the log closes its appenders first.
        """
        appender = Appender(self, linger_ms=linger_ms, batch_bytes=batch_bytes)
        self._appenders.add(appender)
        return appender

    # ---- deleting, truncating -------------------------------------------------------------------------------------

    def retain(self, *, dry_run: bool = False) -> list[Decision]:
        """Deletes the segments that retention.bytes, retention.ms and the log start offset let go (spec 9).

        Returns a decision with its reason for every segment, oldest first. Files get the suffix .deleted and go once
        file.delete.delay.ms is over, at a later retain() or at close. dry_run decides and changes nothing. OSError.
        """
        with self._held():
            self._check_usable()
            now_ms = self.clock_ms()
            decisions = decide_for(self._now(), self._config, now_ms)
            if not dry_run:
                gone = sum(d.delete for d in decisions)
                if gone:
                    self._delete_oldest(gone, now_ms)
                self._discarded.unlink(now_ms)
                self._ledger.forget(now_ms)
            return decisions

    def _delete_oldest(self, count: int, now_ms: int) -> None:
        sealed, active = self._sealed_and_active
        if count > len(sealed):  # all go: a new one must be there first
            self._roll("retention", self._end_offset)
            sealed, active = self._sealed_and_active
        gone, kept = sealed[:count], sealed[count:]
        first = kept[0].base_offset if kept else active.base_offset
        if first > self._start:
            self._start = first
            self._epoch_file.truncate_from_start(first)
        self._sealed_and_active = (kept, active)
        self._set_aside(gone, now_ms)
        self._home.store(min(self.durable_offset, self._end_offset), self._start_to_store())

    def _set_aside(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Gives the files of segments, and their snapshots, the suffix .deleted."""
        self._discarded.add(segments, self._ledger.snapshots, now_ms + self._config.file_delete_delay_ms)

    def delete_records(self, before_offset: int) -> int:
        """Moves the log start offset up to `before_offset` (-1: the end), durably; returns where it is (spec 9.4).

        Files go at the next retain(), when a whole segment lies below. OffsetOutOfRangeError; PolicyViolationError in
        a topic that is only compacted.
        """
        with self._held():
            self._check_usable()
            end = self._end_offset
            if self._config.cleanup_policy == ("compact",):
                raise PolicyViolationError(
                    "records of a topic with cleanup.policy=compact are not deleted by offset"
                )
            offset = end if before_offset == -1 else before_offset
            if not 0 <= offset <= end:
                raise OffsetOutOfRangeError(offset, self._start, end)
            if offset > self._start:
                self._home.store(min(self.durable_offset, end), offset)
                self._start = offset
                self._epoch_file.truncate_from_start(offset)
            return self._start

    def truncate_to(self, offset: int) -> bool:
        """Removes the records from `offset` on; False where there are none (spec 8.9).

        A batch that holds `offset` in its middle goes as a whole, and the next record gets `offset` all the same.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        with self._held():
            self._check_usable()
            if offset >= self._end_offset:
                self._epoch_file.truncate_from_end(self._end_offset)
                return False
            sealed, active = self._sealed_and_active
            first = sealed[0].base_offset if sealed else active.base_offset
            if first > offset:
                self._start_anew(offset, None)
                return True
            at = self.floor_segment(offset - 1)
            rest = end_of_rest(self.segments[at], offset) if at >= 0 else offset
            self._lower_recovery_point(rest, offset)
            try:
                self._truncate(offset)
                self._move_end(offset, rest)
            except BaseException as e:
                self._refuse(f"truncation to {offset} was not finished: {e}")
                raise
            return True

    def _lower_recovery_point(self, point: int, offset: int) -> None:
        """Before the bytes from `point` on go, the checkpoints must not say that they are there."""
        start = min(self._start, offset)
        self._home.store(
            min(self.durable_offset, point), start if self._start_to_store() is not None else None
        )
        self._stored_recovery_point = -1

    def _truncate(self, offset: int) -> None:
        now_ms = self.clock_ms()
        segments = self._now().segments
        gone = tuple(s for s in segments if s.base_offset > offset)
        kept = segments[: len(segments) - len(gone)]
        last = kept[-1]
        if gone:
            self._seal(self.active)
        last = cut(last, offset, self._make_segment())
        self._set_aside(gone, now_ms)
        active = self._make_active(last.stem, last.base_offset, now_ms, offset, last)
        active.prepare_indexes()
        self._replace(active)
        self._sealed_and_active = (tuple(kept[:-1]), active)
        self._start = min(self._start, offset)
        self._epoch_file.truncate_from_end(offset)
        self._ledger.begin_anew(self._now(), now_ms)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Deletes every record; the next one gets `offset` (spec 8.10). OSError."""
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        with self._held():
            self._check_usable()
            self._start_anew(offset, log_start_offset)

    def _start_anew(self, offset: int, log_start_offset: int | None) -> None:
        now_ms = self.clock_ms()
        self._home.store(min(self.durable_offset, offset), None)
        self._stored_recovery_point = -1
        try:
            segments = self._now().segments
            self._seal(self.active)
            self._set_aside(segments, now_ms)
            stem = layout.segment_stem(offset)
            active = self._make_active(stem, offset, now_ms, offset)
            self._move_end(offset, offset)
            self._replace(active)
            self._sealed_and_active = ((), active)
            self._start = offset if log_start_offset is None else log_start_offset
            self._epoch_file.clear()
            self._ledger.snapshots.clear()
            self._ledger.begin_anew(self._now(), now_ms)
            self._home.store(min(self.durable_offset, offset), self._start_to_store())
        except BaseException as e:
            self._refuse(f"starting anew at {offset} was not finished: {e}")
            raise

    # ---- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flushes, trims, and leaves the directory as a broker's clean shutdown does; later openings need no recovery.

        After a failure that the log refuses to go on from, it closes all the same, as after a crash; LogFailedError
        tells of one that happened in the background. OSError.
        """
        if not self._closed:
            for appender in list(self._appenders):
                appender.close()
        with self._held():
            if self._closed:
                return
            self._closed = True
            self._end()
        self._flusher.stop()
        self._drain()  # who syncs now has taken files that must be on the disk before the marker says so
        clean = False
        try:
            if self._refusal is None:
                with self._held():
                    self._leave_clean()
                clean = True
        finally:
            _writers.discard(self)
            self._home.leave(clean=clean)
        if self._flusher.failure is not None and not clean:
            raise LogFailedError(
                f"{self.path} is not closed cleanly: {self._refusal}"
            ) from self._flusher.failure

    def _leave_clean(self) -> None:
        active, end = self.active, self._end_offset
        active.prepare_indexes()
        active.seal()
        if end > self._start:
            self._ledger.write_snapshot(end, durable=True)
        for file in [*self._take_unsynced(), *active.files()]:
            file.sync()
        self._discarded.unlink(MAX64)
        sync_directory(self._directory)
        self._home.store(end, self._start_to_store())
        self._home.store_high_watermark(end)

    def abandon(self) -> None:
        """Lets go of the log without any of what close does, as if the process had died here."""
        if self._drop():
            self._flusher.stop()
            self._home.leave(clean=False)

    def _drop(self) -> bool:
        """Nothing is written any more; whether that is new."""
        with self._held():
            if self._closed:
                return False
            self._closed = True
            self._end()
        _writers.discard(self)
        return True

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and self._drop():
            self._flusher.stop(wait=False)
            self._home.leave_unclean()

    def __repr__(self) -> str:
        if self._closed:
            return f"LogWriter({self.path!r}, closed)"
        return PartitionLog.__repr__(self).replace("PartitionLog", "LogWriter", 1)


def _forked() -> None:
    """A child of fork must not write: the log is its parent's."""
    for writer in list(_writers):
        writer._refuse("it was opened in another process")
    _writers.clear()


os.register_at_fork(after_in_child=_forked)
