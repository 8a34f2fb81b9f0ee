"""One partition, written: what a Kafka broker would leave in the directory, with one writer at a time.

The file is long because it holds every public method of a log that is open for writing, with its
documentation.
"""

import contextlib
import errno
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, cast

from kstore.arguments import MAX64, MAX_EPOCH, MAX_OFFSET, boolean, instance, integer, warn
from kstore.config import LogConfig, changed, given_in_text
from kstore.engine.append.record_appender import Appended, RecordAppender
from kstore.engine.io.directory import make_directory
from kstore.engine.io.file import (
    File,
    Traffic,
    is_crowded,
    open_files,
    rename,
    sync_directory,
    unlink,
    write_whole,
)
from kstore.engine.io.mutex import Mutex
from kstore.engine.record.batch import RecordBatch
from kstore.engine.segment.active_segment import ActiveSegment
from kstore.engine.segment.segment import Segment
from kstore.errors import (
    CorruptFileError,
    CorruptRecordError,
    KstoreError,
    LogChangedError,
    LogClosedError,
    LogFailedError,
    LogLockedError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    ReentrantCallError,
    visible,
)
from kstore.log.compact.cleaned import CLEANED, SWAP, Cleaned
from kstore.log.cursors.home import Home
from kstore.log.files import checkpoints, layout
from kstore.log.files.leader_epochs import LeaderEpochCheckpoint
from kstore.log.files.listing import delete_file, list_directory
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of, is_led
from kstore.log.files.log_directory import PartitionLease
from kstore.log.files.option_file import in_python, write_options
from kstore.log.files.truncations import read_truncations, write_truncations
from kstore.log.later import later
from kstore.log.options import checked
from kstore.log.partition import PartitionLog
from kstore.log.producers.manager import ProducerStateManager
from kstore.log.producers.states import ProducerState
from kstore.log.read.key_index import KeyIndex
from kstore.log.read.max_timestamp_index import MaxTimestampIndex
from kstore.log.recovery.loader import Loaded, carried_out, load
from kstore.log.recovery.presence import not_found
from kstore.log.recovery.repairs import Repairs
from kstore.log.recovery.report import DataLossWarning, in_short
from kstore.log.recovery.segment_factory import SegmentFactory
from kstore.log.view.log_view import LogView
from kstore.log.worker import Job
from kstore.log.write.append_limits import limits_of
from kstore.log.write.deleted_segments import DeletedSegments
from kstore.log.write.flusher import Flusher
from kstore.log.write.rebase_segment import AdoptedFile, finish_adoptions
from kstore.log.write.reports import Reports
from kstore.log.write.sealed_segments import SealedSegments

if TYPE_CHECKING:
    from random import randrange
    from uuid import UUID

    from kstore.log.compact.compactor import LogState, compact, last_offsets
    from kstore.log.compact.erasure import Match, erase, matching
    from kstore.log.compact.key_files import KeyFileReport, job_for, make_key_files
    from kstore.log.compact.report import Compaction, Erasure
    from kstore.log.cursors.arguments import checked_groups
    from kstore.log.cursors.offset_commits import Commit
    from kstore.log.follow.sources import Source, WriterSource
    from kstore.log.producers.transactions import Transactions
    from kstore.log.read.progress import ProgressCallback, check_progress
    from kstore.log.recovery.last_batch import last_batch_of
    from kstore.log.write.appender import Appender
    from kstore.log.write.async_appender import AsyncAppender, Work
    from kstore.log.write.given_retention import what_was_not_said
    from kstore.log.write.log_validator import validate
    from kstore.log.write.retention import Decision, decide_for
    from kstore.log.write.segment_truncation import truncate_segment
    from kstore.typed import BytesLike, Cells, ConfigOptions, HeaderLists, Headers, Times, WriterOptions
else:
    later(
        globals(),
        {
            "random": "randrange",
            "kstore.log.compact.compactor": "LogState compact last_offsets",
            "kstore.log.compact.erasure": "Match erase matching",
            "kstore.log.compact.key_files": "KeyFileReport job_for make_key_files",
            "kstore.log.compact.report": "Compaction Erasure",
            "kstore.log.cursors.arguments": "checked_groups",
            "kstore.log.cursors.offset_commits": "Commit",
            "kstore.log.follow.sources": "Source WriterSource",
            "kstore.log.producers.transactions": "Transactions",
            "kstore.log.read.progress": "ProgressCallback check_progress",
            "kstore.log.recovery.last_batch": "last_batch_of",
            "kstore.log.write.appender": "Appender",
            "kstore.log.write.given_retention": "what_was_not_said",
            "kstore.log.write.log_validator": "validate",
            "kstore.log.write.retention": "Decision decide_for",
            "kstore.log.write.segment_truncation": "truncate_segment",
            "kstore.typed": "BytesLike Cells ConfigOptions HeaderLists Headers Times WriterOptions",
        },
    )

_writers: "weakref.WeakSet[LogWriter]" = weakref.WeakSet()


def _last_epoch(segments: Sequence[Segment]) -> int:
    """The leader epoch of the last batch; -1 if there is none, or it has none."""
    for segment in reversed(segments):
        with contextlib.suppress(CorruptFileError, OSError):  # who reads it is told
            segment.read_next_offset()
        if segment._last_header is not None:
            last = last_batch_of(segment)
            return -1 if last is None else last.leader_epoch
    return -1


def _cut_files(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{len(paths)} .cut files, {paths[0]} first"


class OwnWork(NamedTuple):
    """What a log that is open for writing does itself; a store does the rest for its logs. `flushes`: by
    flush_ms. `prepares_indexes`: gives index files their room when it is opened, as Kafka does, not at the
    first append. `traffic`: counts what the log reads and writes."""

    flushes: bool = True
    makes_key_files: bool = True
    prepares_indexes: bool = True
    traffic: Traffic | None = None


_ALL_WORK = OwnWork()


class KeptConfig(NamedTuple):
    """The configuration of a log is what is kept of it, with these changes, which are kept, too, if
    `keeps`."""

    changes: Mapping[str, Any]
    keeps: bool

    def changed(self, options: Mapping[str, str]) -> LogConfig:
        """The configuration, where these options are kept, in Kafka's notation. InvalidConfigError."""
        return changed(LogConfig(**in_python(options)), self.changes)


class LogWriter(RecordAppender, PartitionLog):
    """A partition open for writing: a PartitionLog that can also append, roll, retain and truncate.

    Close it, or use it in a `with` statement: otherwise the next opening must recover it. Threads may share
    it: one at a time changes the log, and readers do not wait. A call from inside another call by the same
    thread, such as a signal handler makes, raises ReentrantCallError if it would have to wait for itself.

    If a method raises an exception, even KeyboardInterrupt, its change is either done or not done. If that
    cannot be known, the log refuses to write until it is opened again (LogFailedError).
    """

    path = ""
    _left = True
    _log_dir: PartitionLease
    _flusher: Flusher | None = None
    _key_job: Job | None = None
    _lacks_key_files = True  # perhaps, since they were last made
    _stops_compacting = False
    _async: "AsyncAppender | None" = None
    # kept, so that their records are appended after the program has dropped them
    _appenders: "set[Appender] | tuple[()]" = ()

    def __init__(
        self,
        path: str | PathLike[str],
        config: LogConfig | None = None,
        *,
        create: bool = True,
        kept: KeptConfig | None = None,
        own: OwnWork = _ALL_WORK,
        **options: Unpack[WriterOptions],
    ) -> None:
        if not self._left:
            raise RuntimeError(f"{self.path} is open already: make another LogWriter")
        self.path = os.path.abspath(os.fspath(path))  # noqa: PTH100 - the program may go to another directory
        given = checked("write", options)
        self._durability: str = given["durability"]
        if not (config is None or isinstance(config, LogConfig)):
            raise TypeError(f"config must be a kstore.LogConfig, not {config!r}")
        self._config = config or LogConfig()
        self._own = own
        self.traffic = own.traffic
        self._max_decompressed_bytes: int = given["max_decompressed_bytes"]
        self._producer_id_expiration_ms: int = given["producer_id_expiration_ms"]
        clock, leader_epoch = given["clock"], given["leader_epoch"]
        self._clock = clock
        if clock is not None:
            self._use_own_clock()
        now = self.clock_ms()
        directory = Path(self.path)
        made = not directory.is_dir()
        if made:
            if not create:
                raise not_found(Path(path))
            make_directory(str(directory))
        self._directory = str(directory)
        self._compacting = Mutex()  # for one compaction at a time; whoever closes the log waits for it
        self._reports = Reports()
        try:
            self._log_dir = PartitionLease(directory, reads_options=kept is not None)
        except BaseException:
            if made:  # it was locked, say: an empty directory would be a partition that nobody has closed
                with contextlib.suppress(OSError):
                    directory.rmdir()
            raise
        self._left = False  # from here on an interrupt must find the `try` that abandons the log
        try:
            found = self._log_dir.kept
            self._keeps_config = found is not None and not found.of_store
            if kept is not None and found is not None:
                self._config = kept.changed(found.options)
            self._apply_limits(limits_of(self._config, self._durability, self._max_decompressed_bytes))
            self._load(given, now)
            if leader_epoch is not None:
                self.assign_leader_epoch(leader_epoch)
            else:
                latest = self._epoch_checkpoint.epochs.latest
                if latest is None:
                    # it knows nothing of records that were deleted, though they are in the last file
                    latest = _last_epoch(self.segments)
                self._set_leader_epoch(max(latest, 0))
            self._appenders = set()
            self._complete_truncation()
            self._flusher = Flusher(self)
            self._flusher.flush_every(self._config.flush_ms if own.flushes else MAX64)
            self._key_files_due()
            _writers.add(self)
            self._report_recovery()
            if kept is not None and kept.keeps and found is not None and not found.of_store:
                self._keep_config(found.options)
        except BaseException:
            self.abandon()
            raise

    # ---- opening -------------------------------------------------------------------------------------------

    def _load(self, given: Mapping[str, Any], now: int) -> None:
        if not self._log_dir.state.clean:
            self._finish_adoptions()
        repairs = Repairs(self._directory, keep_cut=given["keep_cut"])
        self._truncations = read_truncations(Path(self._directory))
        loaded = load(
            Path(self._directory),
            clean=given["clean"],
            recovery_point=given["recovery_point"],
            log_start_offset=given["log_start_offset"],
            index_interval_bytes=self._config.index_interval_bytes,
            max_decompressed_bytes=self._max_decompressed_bytes,
            state=self._log_dir.state,
            mode="write",
        )
        end = loaded.log_end_offset
        known = self._truncations
        # A crash may have taken records that others had read, and their offsets are given to new ones: so a
        # generation begins where recovery ends the log.
        if loaded.segments and not loaded.recovery.clean and known.pending != "all":
            self._expect_truncation(min(end, known.offset) if known.pending else end)
        loaded = self._loaded = carried_out(loaded, repairs)
        recovery = loaded.recovery
        if recovery.truncated_bytes:
            sync_directory(self._directory)  # what was cut off must not come back behind what is appended now
            self._log_dir.lower_cleaner_offset(loaded.log_end_offset)
        losses = [*recovery.losses, *recovery.missing, *recovery.lost_starts]
        losses += self._log_dir.losses
        self._told_of = recovery
        if losses:
            kept = f"; kept in {_cut_files(sorted(repairs.kept))}" if repairs.kept else ""
            warn(f"{self.path}: {in_short(losses)}{kept}", DataLossWarning)
        self._epoch_checkpoint = LeaderEpochCheckpoint(self._directory, loaded.leader_epochs)
        self._identify(given["topic_id"])
        self._producer_states = ProducerStateManager(self._directory, self._producer_id_expiration_ms)
        for base, index in self._producer_states.open(loaded, now).items():
            path = f"{self._directory}/{layout.segment_stem(base)}.txnindex"
            if not index.is_empty or os.path.exists(path):  # noqa: PTH110
                write_whole(path, index.to_bytes())
        end = loaded.log_end_offset
        segments = loaded.segments
        if segments:
            active = self._make_active(segments[-1].stem, segments[-1].base_offset, now, end, segments[-1])
            if self._own.prepares_indexes:
                active.prepare_indexes()
            delete_file(segments[-1].path_of(layout.KEYS))  # it was sealed once
        else:
            active = self._make_active(layout.segment_stem(end), end, now, end)
        self._publish(SealedSegments(segments[:-1]), active)
        self._start = loaded.log_start_offset
        # a broker's line below the first segment: the records between are in remote storage, of which kstore
        # knows nothing
        told_start = self._log_dir.state.log_start_offset
        self._log_dir.keeps_log_start = 0 < told_start < self._first_base() and is_led(Path(self._directory))
        self._loaded = loaded.replace(segments=())  # those that go must not stay open for being kept here
        self._shown: tuple[tuple[object, ...], Loaded] = ((), self._loaded)
        self._max_timestamps = MaxTimestampIndex(())
        self._transactions = None
        self._deleted = DeletedSegments()
        self._stored_recovery_point = -1
        self._told_point = recovery.recovery_point  # what the checkpoint says at most
        if recovery.clean:
            durable = end
            owed: list[File | str] = []
        else:
            # What lies behind the recovery point may be in the page cache only, whoever wrote it.
            durable = min(recovery.recovery_point, end)
            owed = [s.path for s in segments if s.end_offset > durable]
        owed += self._producer_states.snapshots.unsynced
        self._owe_sync(owed, True)
        self._begin(active, end, max(durable, 0))
        self._log_dir.show_loaded()

    def _finish_adoptions(self) -> None:
        for path, error in finish_adoptions(self._directory):
            if error is None:
                self._reports.info("%s: a file was taken over that was on its way here: %s", self.path, path)
            else:
                warn(
                    f"{self.path}: a file that was being taken over is not part of the log: {error}",
                    DataLossWarning,
                )

    def _report_recovery(self) -> None:
        recovery, report = self._loaded.recovery, self._reports
        for loss in recovery.losses:
            report.warning("%s: recovery: %s", self.path, loss)
        offsets = self._start, self._end_offset
        if recovery.truncated_bytes:
            text = "%s: recovery cut off %d bytes; the log holds offsets %d to %d (exclusive)"
            report.warning(text, self.path, recovery.truncated_bytes, *offsets)
        elif recovery.recovered_segments:
            text = "%s: recovered from offset %d on; the log holds offsets %d to %d (exclusive)"
            report.info(text, self.path, recovery.recovery_point, *offsets)
        report.pass_on()

    def _make_active(
        self, stem: str, base_offset: int, now: int, next_offset: int, segment: Segment | None = None
    ) -> ActiveSegment:
        config = self._config
        jitter = min(config.segment_jitter_ms, config.segment_ms)
        active = ActiveSegment(
            self._directory,
            stem,
            base_offset,
            segment=segment,
            next_offset=next_offset,
            created_ms=now,
            roll_jitter_ms=randrange(jitter) if jitter else 0,
            index_interval_bytes=config.index_interval_bytes,
            segment_index_bytes=config.segment_index_bytes,
            segment_bytes=config.effective_segment_bytes,
            max_decompressed_bytes=self._max_decompressed_bytes,
            preallocate=config.preallocate,
        )
        active._keys = KeyIndex()
        return active

    def _make_segment(self) -> SegmentFactory:
        """Makes segments of this log as its configuration is now."""
        return SegmentFactory(
            self._directory, self._config.index_interval_bytes, self._max_decompressed_bytes
        )

    def _identify(self, topic_id: "UUID | None") -> None:
        """partition.metadata: the topic id that a broker gave the topic (spec 1.5)."""
        if topic_id is None:
            return
        known = self.topic_id()
        if known is None:
            checkpoints.write_topic_id(Path(self._directory, layout.METADATA), topic_id)
        elif known != topic_id:
            raise ValueError(
                f"topic_id={topic_id} does not match: {self.path} has the topic id {known} in its "
                "partition.metadata"
            )

    # ---- what there is -------------------------------------------------------------------------------------

    def _now(self) -> Loaded:
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        return self._current()

    for_reading = _now  # what is lost was told when it was opened

    def _current(self) -> Loaded:
        """The log at this moment, or as it was when it was closed."""
        held = self._segments
        view = held[1].view()
        start, epochs, truncations = self._start, self._epoch_checkpoint.epochs, self._truncations
        shown, loaded = self._shown  # taken and stored as one: other threads do the same meanwhile
        if (
            shown
            and shown[0] is held
            and shown[1] is view
            and shown[2] == start
            and (shown[3] is epochs or shown[3] == epochs)
            and shown[4] is truncations
        ):
            return loaded
        segment, end = view
        loaded = self._loaded.replace(
            segments=held[0].and_then(segment),
            origin=held[0].origin,
            log_start_offset=start,
            log_end_offset=max(end, start),
            leader_epochs=epochs,
            truncations=truncations,
        )
        self._shown = ((held, view, start, epochs, truncations), loaded)
        return loaded

    def _bounds(self) -> tuple[int, int]:
        """Where the log starts and ends at this moment. Unlike `_current` this does not look at all
        segments."""
        _, end = self._segments[1].view()
        start = self._start
        return start, max(end, start)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read. It may be inside a segment, or inside a batch."""
        return self._bounds()[0] if not self._closed else self._now().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get: one more than the last."""
        return self._bounds()[1] if not self._closed else self._now().log_end_offset

    @property
    def config(self) -> LogConfig:
        """The configuration of the log, as a LogConfig."""
        return self._config

    def configure(self, **changes: Unpack[ConfigOptions]) -> None:
        """Changes options of the open log: log.configure(retention_ms=86_400_000). The names are those of
        LogConfig; None gives an option its default back.

        If the log keeps its configuration, which it does unless it is in the directory of a store that knows
        the topic, the change is kept too, durably; else it counts until the log is closed, with a warning:
        store.alter_topic() is meant then. InvalidConfigError for an unknown option or a value that is not
        allowed, OSError if it cannot be kept: nothing is changed then.
        """
        self._change_config(lambda config: changed(config, changes))
        if not self._keeps_config:
            warn(
                f"{self.path}: a store keeps the options of this topic: these count until the log is closed; "
                "alter_topic() keeps them"
            )

    def _use(self, config: LogConfig) -> None:
        """Goes on with another configuration, and keeps what was given of it. OSError: with the one until
        now."""
        self._change_config(lambda _: config)

    def _keep_config(self, before: Mapping[str, str]) -> None:
        """Keeps the options that were given. A full disk is no reason not to open: how else could something
        be deleted? OSError."""
        if given_in_text(self._config) == before:
            return
        try:
            write_options(Path(self._directory), given_in_text(self._config))
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            text = (
                f"{self.path}: the options that were given count, but are not kept for the next opening: {e}"
            )
            warn(text)

    def _change_config(self, change: Callable[[LogConfig], LogConfig]) -> None:
        with self._held():
            self._check_usable()
            config = change(self._config)
            limits = limits_of(config, self._durability, self._max_decompressed_bytes)
            if self._keeps_config:
                self._check_place()
                write_options(Path(self._directory), given_in_text(config))
            self._apply_limits(limits)
            self._config = config
            assert self._flusher is not None
            self._flusher.flush_every(config.flush_ms if self._own.flushes else MAX64)
        if config.key_files:
            self._key_files_due()

    def _clock_ms(self) -> int:
        assert self._clock is not None
        return integer("the time that the log's clock gives, in ms,", self._clock())

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that is written into the batches that are appended."""
        return max(self._epoch, 0)

    def _set_leader_epoch(self, epoch: int) -> None:
        self._epoch = epoch
        super()._set_leader_epoch(epoch)

    def assign_leader_epoch(self, epoch: int) -> None:
        """Begins a leader epoch at the log end offset, as a broker does when it becomes leader of the
        partition.

        `epoch` is an int from 0 to 2^31 - 1. TypeError, ValueError, OSError.
        """
        epoch = integer("leader epoch", epoch, 0, MAX_EPOCH)
        with self._held():
            self._check_place()
            self._assign_epoch(epoch, self._end_offset)
            self._set_leader_epoch(epoch)

    def view(self, snapshot: Loaded | None = None) -> PartitionLog:
        """A view of the log as it is now, or in a snapshot of it. It changes only by its own `refresh()`."""
        now = self._now() if snapshot is None else instance("snapshot", snapshot, Loaded)
        transactions = self._producer_states.transactions(now.log_start_offset, now.log_end_offset)
        return cast(PartitionLog, self._view(now, transactions))

    def source(self) -> Source:
        """Where a reader that goes on takes views of this log from, later ones as well."""
        return WriterSource(self.path, self._view_now, self.notify_at_change, lambda: self._closed)

    def _view_now(self, known: LogView | None) -> LogView:
        """A view of the log as it is now, or was when it was closed: the one that is known, if nothing has
        changed."""
        now = self._current()
        if (
            known is not None
            and now is known.snapshot
            and self.last_stable_offset() == known.last_stable_offset()
        ):
            return known
        return self.view(now)

    def transactions(self) -> Transactions:
        """The producers and the transactions of the log."""
        return self._producer_states.transactions(*self._bounds())

    def last_stable_offset(self) -> int:
        """The offset at which readers of committed records must stop: where the oldest open transaction
        begins, or the end.
        """
        return self._producer_states.last_stable_offset(*self._bounds())

    def producers(self) -> dict[int, ProducerState]:
        """What is known of each idempotent producer now, as a dict from producer id to its state. It is a
        copy."""
        return self._producer_states.producers.copied()

    # ---- what appending needs (called with the mutex held) -------------------------------------------------

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch < 0:
            # messages of magic 0 and 1 know no epochs
            if start_offset >= 0 and self._epoch_checkpoint.epochs.entries:
                self._epoch_checkpoint.clear()
            return
        self._epoch_checkpoint.assign(epoch, start_offset)

    def _roll(self, reason: str, first_offset: int) -> None:
        """Seals the active segment and begins the next (spec 5.3). Where that fails, the active one stays
        what it was."""
        base = max(first_offset, self._end_offset)
        if self._log_dir.is_moved:  # that it is usable was looked at before; an append may be half done
            self._check_place()
        old, now = self.active, self.clock_ms()
        if base == old.base_offset:
            if old.size == 0:
                return  # it is new already
            raise CorruptRecordError(
                "offset at which the last segment ends",
                file=old.path,
                position=0,
                expected=f"above {base}",
                found=base,
            )
        if base < old.base_offset:
            return self._begin_lower(base, now)
        if self._owed_count >= max(8, min(64, open_files()[1] // 4)):
            self._sync_owed()  # each of them is open: on a slow disk appending waits
        stem = layout.segment_stem(base)
        with self._unfinished(f"the roll at offset {base}") as change:
            try:
                if base <= self._told_point:  # no opening would look at the old one, which is not on the disk
                    self._store(min(self._told_point, old.base_offset), self._start_to_store())
                    self._stored_recovery_point = -1
                for kind in layout.SEGMENT_KINDS:
                    unlink(f"{self._directory}/{stem}{kind}", missing_ok=True)
                if old.size == 0:  # as in Kafka, a sealed segment has index files
                    old.prepare_indexes()
                old.seal()
                active = self._make_active(stem, base, now, self._end_offset)
                self._producer_states.write_snapshot(base)
                sealed = self._make_segment()(old.stem, old.base_offset, end_offset=base)
                sealed._keys = old._keys
                files: list[File | str] = [*old.files()]
                if base in self._producer_states.snapshots:
                    files.append(self._producer_states.snapshots.path_of(base))
            except BaseException:
                unlink(f"{self._directory}/{stem}.log", missing_ok=True)
                old.unseal()
                change.undone()
                raise
            self._owe_sync(files, True, old.base_offset)
            self._publish(self._sealed.with_one_more(sealed), active)
        if is_crowded():  # with many writers, even a few open files each are too many
            self._sync_owed()
        self._reports.info("%s: a segment begins at offset %d (%s)", self.path, base, reason)
        if self._flusher is not None:
            self._flusher.sealed()
        self._key_files_due()

    def _key_files_due(self) -> None:
        self._lacks_key_files = True
        if not (self._config.key_files and self._own.makes_key_files):
            return
        if self._key_job is None:
            self._key_job = job_for(self)
        with contextlib.suppress(RuntimeError, MemoryError):  # no more threads: the next time
            self._key_job.ask()

    def _begin_lower(self, base: int, now: int) -> None:
        """Begins the active segment, which is empty, at a lower offset: the append with a gap that it was
        begun for has failed."""
        old = self.active
        with self._unfinished(f"the roll at offset {base}"):
            active = self._make_active(layout.segment_stem(base), base, now, self._end_offset)
            self._publish(self._sealed, active)
            for kind in layout.SEGMENT_KINDS:
                unlink(old.path_of(kind), missing_ok=True)
            self._owe_sync([], True)

    def _validate(self, encoded: bytes, now: int, origin: str) -> bytes:
        return validate(encoded, self._config, now, self._max_decompressed_bytes)

    def _analyze(
        self, batches: list[RecordBatch], origin: str, transaction_version: int
    ) -> dict[int, Appended]:
        retries = self._producer_states.analyze(batches, origin, transaction_version, self.clock_ms())
        if not retries:
            self._producer_states.hold(self.last_stable_offset())
            if aborted := self._producer_states.producers.aborted_by(batches):
                self.active.write_aborted(aborted)
        return retries

    def _forget_analysis(self) -> None:
        self._producer_states.let_go()
        try:
            self.active.drop_ahead()
        except OSError as e:  # readers of committed records must not meet it
            self._refuse(f"a transaction that was not aborted is in the index: {e}")

    def _account(self, batches: list[RecordBatch]) -> None:
        active = self.active
        try:
            self._producer_states.enter(batches, active.append_aborted, self._end_offset)
        except OSError as e:  # its batches came to lie in a segment that was begun for them
            raise LogFailedError(
                f"{self.path}: batches were appended, but not all transactions that they abort are in the "
                "index: open it again"
            ) from e
        if active.transaction_file is not None:
            self._owe_sync([active.transaction_file], True)

    def _flush_due(self) -> None:
        assert self._flusher is not None
        self._flusher.flush_now()

    # ---- taking over whole segments ------------------------------------------------------------------------

    def adopt(self, path: str | PathLike[str]) -> range:
        """Moves a .log file that another LogWriter has written to the end of this log; returns its new
        offsets.

        The file is renamed, not copied, and becomes a segment. Offsets and leader epochs are changed in
        place. The checksums of its batches are checked, but not what the configuration asks of batches, such
        as max_message_bytes. What the log holds before is made durable first, and so is the new name of the
        file. After an error the file is at `path` as it was, or it is part of the log once that was opened
        for writing again: there is no file at `path` then.

        Raises: ValueError: the file is no .log file, belongs to this log, or has other names (hard links),
        which would be changed too. LogLockedError: the log that the file belongs to is open for writing.
        CorruptRecordError: a batch is damaged. InvalidRecordError: the file has no records, or records of
        idempotent producers or transactions. OSError: the file cannot be renamed; it must be on the same file
        system.
        """
        if not os.fspath(path).endswith(".log") or Path(path).is_dir():
            raise ValueError(f"{path} is no .log file")
        staged = Path(os.path.realpath(Path(os.fspath(path)).parent))
        if str(staged) == os.path.realpath(self._directory):
            raise ValueError(f"{path} is a file of this log itself")
        if is_locked(staged) or is_locked(directory_of(staged)):
            raise LogLockedError(str(staged), None)
        while True:
            if self._closed:
                raise LogClosedError(f"{self.path} is closed")
            active = self.active
            self.wait_until_durable(self._end_offset)
            with self._held():
                if self.active is active:  # so what others have appended since lies in this one segment
                    return self._adopt(os.fspath(path))

    def _adopt(self, path: str) -> range:
        self._check_place()
        base, epoch = self._end_offset, self.leader_epoch
        adopted = AdoptedFile(path)
        if self.durable_offset < base:
            try:
                self.active.sync(indexes=False)
            except OSError as e:
                self._refuse(f"a sync failed: {e}")
                raise
        self._roll("adopted", base)
        self._assign_epoch(epoch, base)
        empty = self.active
        with self._unfinished(f"taking over {path} as {empty.path}") as change:
            try:
                found = adopted.become(self._directory, base, epoch, self._config.index_interval_bytes)
            except BaseException:
                if adopted.put_back():  # if that fails, the next opening goes on
                    change.undone()
                raise
            segment = self._make_segment()(empty.stem, base)
            segment.use_indexes(found.offset_index, found.time_index)
            segment.set_max_timestamp(found.max_timestamp)
            active = self._make_active(empty.stem, base, self.clock_ms(), found.next_offset, segment)
            active.prepare_indexes()
            self._producer_states.enter((), active.append_aborted, found.next_offset)
            self._owe_sync([], True)
            self._publish(self._sealed, active)
            self._move_end(found.next_offset, base)
        return range(base, found.next_offset)

    # ---- rolling, flushing ---------------------------------------------------------------------------------

    def roll(self) -> int:
        """Begins a new segment, whatever the size of the current one; returns the offset at which it begins.
        OSError."""
        with self._held():
            self._check_usable()
            self._roll("asked", self._end_offset)
            base = self.active.base_offset
        self._reports.pass_on()
        return base

    def flush(self) -> int:
        """Writes everything that was appended so far to the disk. Returns the offset below which all records
        are on it. OSError. LogFailedError if the directory was renamed or removed.
        """
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        if self._log_dir.is_moved:  # what is synced there, nobody finds
            with self._held():
                self._check_place()
        self.wait_until_durable(self._end_offset)
        self._store_recovery_point()
        return self.durable_offset

    def _store_recovery_point(self) -> None:
        """Tells the checkpoint of it, once a start would have to recover whole segments without."""
        if self._stored_recovery_point < self.active.base_offset <= self.durable_offset:
            if self._recovery_point < self.active.base_offset:
                self._sync_sealed()
            with self._held():  # nobody truncates or deletes records between the look and the writing
                self._check_place()
                point = self._point_to_store()
                self._store(point, self._start_to_store())
                self._stored_recovery_point = point

    def _check_place(self) -> None:
        """LogFailedError if the directory is no longer where it was: another log may be there by now."""
        if self._log_dir.is_moved:
            self._refuse(self._log_dir.fate)
        self._check_usable()

    def _store(self, recovery_point: int, log_start_offset: int | None) -> None:
        """Writes both checkpoints, durably. OSError: the old ones or the new ones are there."""
        self._told_point = max(self._told_point, recovery_point)
        self._log_dir.store(recovery_point, log_start_offset)
        self._told_point = recovery_point

    def _point_to_store(self) -> int:
        """The recovery point: no opening looks at what lies below it, and the log is known to reach there."""
        return min(self._recovery_point, self._end_offset)

    def _start_to_store(self) -> int | None:
        """The log start offset, where the first segment does not begin with it."""
        return self._start if self._start > self._first_base() else None

    def _lowered_start_to_store(self) -> int | None:
        """What replaces the log start offset that is stored, also if that is kept for a broker."""
        return self._start if self._log_dir.keeps_log_start else self._start_to_store()

    def _first_base(self) -> int:
        """The base offset of the first segment."""
        return self._sealed[0].base_offset if self._sealed else self.active.base_offset

    def appender(self, *, linger_ms: float = 5.0, batch_bytes: int = 16384) -> Appender:
        """An object that gathers single records of many threads into batches, to append them faster.

        A batch is appended when it has `batch_bytes`, or after `linger_ms`. Its append() returns a Ticket,
        whose wait() gives the offset. Closing the log closes its appenders first.
        """
        appender = Appender(self, linger_ms=linger_ms, batch_bytes=batch_bytes)
        assert isinstance(self._appenders, set)
        self._appenders.add(appender)
        if self._closed:  # meanwhile: nobody else closes it
            appender.close()
        return appender

    async def append_async(
        self,
        value: BytesLike | None,
        key: BytesLike | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Appends one record, as append() does, while the event loop goes on: a thread appends, in the order
        of the calls, and syncs once for all tasks that wait.

        If the task is cancelled, the record is appended or not: `appended` of the CancelledError is its
        offset, or None if nothing was appended. If it has begun, the task ends only when that is known. A
        TimeoutError of asyncio.timeout() has the CancelledError as its __cause__. close() appends what has
        begun before it; what a task has not begun then, as after asyncio.create_task() alone, is
        LogClosedError.
        """
        return int(await self._later(lambda to: to(self).append(value, key, timestamp, headers)))

    async def extend_async(
        self,
        values: Cells,
        keys: Cells | None = None,
        timestamps: Times | None = None,
        headers: HeaderLists | None = None,
        *,
        batch_bytes: int = 16384,
    ) -> range:
        """Appends many records, as extend() does, while the event loop goes on; otherwise as append_async. Do
        not change the columns meanwhile.
        """
        return cast(
            range,
            await self._later(
                lambda to: to(self).extend(values, keys, timestamps, headers, batch_bytes=batch_bytes)
            ),
        )

    async def _later(self, work: "Work") -> Any:
        from kstore.log.write.async_appender import AsyncAppender

        self._refuse_reentrance()  # the other thread would wait for this one
        if self._async is None:
            self.__dict__.setdefault("_async", AsyncAppender())
        assert self._async is not None
        return await self._async.append(self.path, work)

    # ---- deleting, truncating ------------------------------------------------------------------------------

    def retain(self, *, dry_run: bool = False, keep_for: Iterable[str] = ()) -> list[Decision]:
        """Deletes old segments, as retention_bytes, retention_ms and the log start offset say.

        Returns a Decision with its reason for every segment, oldest first. dry_run=True decides, and deletes
        nothing; what the deletion would refuse, it refuses too. keep_for: groups of cursors. No segment is
        deleted that holds a record which one of them has not committed; if a group has committed nothing,
        nothing is deleted. Files are renamed to .deleted, and removed by a later retain() or by close() when
        file_delete_delay_ms is over.

        If nobody has said retention_ms, at this opening or, where the log keeps its configuration, at one
        before, segments that only Kafka's default of 7 days would delete are kept, and InvalidConfigError
        says so. So are segments of a log that is known to be compacted, by its directory's
        cleaner-offset-checkpoint or as one of Kafka's own topics, if nobody has said cleanup_policy. Segments
        below the log start offset are deleted all the same.

        It works on a full disk, of a log that is open already or was closed. OSError if a file cannot be
        renamed or removed: older segments are deleted then, that one and newer ones are not.
        """
        boolean("dry_run", dry_run)
        groups = checked_groups("keep_for", keep_for)
        return self._retain({group: Home.of(self.path).durable_commit(group) for group in groups}, dry_run)

    def _retain(self, commits: Mapping[str, Commit | None], dry_run: bool) -> list[Decision]:
        """retain(), given what groups of cursors have committed, also after a power cut."""
        with self._held():
            self._check_place()
            now_ms = self.clock_ms()
            decisions = decide_for(self._now(), self._retention(), now_ms, commits)
            refusal = what_was_not_said(self.path, self._config, decisions)
            if not dry_run:
                gone = sum(d.delete and (refusal is None or d.rule == "start_offset") for d in decisions)
                if gone:
                    self._delete_oldest(gone, now_ms)
                self._deleted.unlink(now_ms)
                self._producer_states.forget(now_ms)
                if gone:
                    self._store_deletion()
        self._reports.pass_on()
        if refusal is not None:
            raise refusal
        return decisions

    def _keep_up(self, now_ms: int) -> None:
        """Removes files, and forgets producers, whose time has come. OSError."""
        if self._deleted.is_due(now_ms) or self._producer_states.is_expiry_due(now_ms):
            with self._held():
                self._check_place()
                self._deleted.unlink(now_ms)
                self._producer_states.forget(now_ms)

    def _retention(self) -> LogConfig:
        """What says which segments go: who has given only a size means that."""
        given = self._config.given_options()
        if "retention_ms" not in given and given.get("retention_bytes", -1) >= 0:
            return self._config.replace(retention_ms=-1)
        return self._config

    def _delete_oldest(self, count: int, now_ms: int) -> None:
        """Deletes so many segments; the active one, if it goes too, once those before it have made room."""
        sealed = min(count, len(self._sealed))
        if sealed:
            self._delete_sealed(sealed, now_ms)
        if count > sealed:
            self._deleted.unlink(now_ms)
            self._roll("retention", self._end_offset)  # a new one must be there first
            self._delete_sealed(1, now_ms)

    def _delete_sealed(self, count: int, now_ms: int) -> None:
        failure: OSError | None = None
        gone: list[Segment] = []
        due = now_ms + self._config.file_delete_delay_ms
        # a power cut must not leave a log that ends, or begins, before the active one
        sync_directory(self._directory)
        with self._unfinished("the deletion of segments"):
            for segment in self._sealed.first(count):
                try:
                    self._deleted.set_aside(segment, due)
                except OSError as e:
                    failure = e
                    break
                gone.append(segment)
            kept = self._sealed.without_first(len(gone))
            # the start first: readers must not miss records that the log still seems to begin with
            self._start = max(self._start, (kept[0] if kept else self.active).base_offset)
            self._publish(kept, self.active)
            self._owe_sync([], True)
            if gone:
                sync_directory(self._directory)  # without its other files no log must come back
            for segment in gone:
                snapshot = self._producer_states.snapshots.set_aside(segment.base_offset)
                self._deleted.set_rest_aside(segment, snapshot, due)
        if self.traffic is not None:
            self.traffic.add(4, len(gone))
        for segment in gone:
            text = "%s: retention deleted the segment of offsets %d to %d (exclusive)"
            self._reports.info(text, self.path, segment.base_offset, segment.end_offset)
        if failure is not None:
            raise failure

    def _store_deletion(self) -> None:
        """Brings to the disk what follows from a deletion, as far as there is room: an opening would find it
        out."""
        self._epoch_checkpoint.truncate_from_start(self._start)
        with contextlib.suppress(OSError):
            # before the log start may be forgotten, as the first segment tells it
            sync_directory(self._directory)
            self._store(self._point_to_store(), self._start_to_store())

    # ---- finding by key ------------------------------------------------------------------------------------

    def make_key_files(self) -> list[KeyFileReport]:
        """Makes a .keys file beside each sealed segment that has none, so that `last` and `history` find a
        key without a look at all records. Returns a KeyFileReport for every sealed segment, oldest first.

        The file takes about 15 bytes for each key of the segment, and Kafka passes it over. It tells for
        which state of the .log it was made, and each part has a checksum: one that does not fit, or is
        damaged, is not believed, and made again. It goes with its segment. Other threads may append and read
        meanwhile. The option key_files has it done in the background whenever a segment is sealed or
        compacted.

        While it works on a segment, it takes memory, at most about twice log_cleaner_dedupe_buffer_size, and
        no compaction runs. LogClosedError if the log is closed meanwhile. OSError: files that were made
        before stay.
        """
        self._refuse_reentrance()
        return make_key_files(self)

    def _sealed_segments(self) -> list[Segment]:
        sealed: SealedSegments = self._sealed
        return sealed.first(len(sealed))

    # ---- compaction ----------------------------------------------------------------------------------------

    def compact(self, *, dry_run: bool = False, progress: ProgressCallback | None = None) -> Compaction:
        """Removes records that a later record of the same key supersedes, from all segments but the active
        one.

        Offsets, order and timestamps of the others stay. A record without a value deletes its key, and goes
        too delete_retention_ms after the first compaction that met it: in a later compaction, which, as in
        Kafka, has to have something new to compact. Segments become fewer and larger. Returns a Compaction,
        which says what went and why; dry_run=True finds that out and changes nothing.

        It works if cleanup_policy contains compact, and begins if the share of bytes that were not compacted
        is above min_cleanable_dirty_ratio, or max_compaction_lag_ms is over. Records younger than
        min_compaction_lag_ms stay, and so does what follows the last stable offset. Other threads may append
        and read meanwhile: who reads already goes on in the old files, which are removed after
        file_delete_delay_ms. One compaction runs at a time; another call waits. Closing the log stops it.

        progress: called now and then as progress(done, total), with how many bytes were gone through and how
        many there are; in the last call both are equal. If the keys of the log do not fit into
        log_cleaner_dedupe_buffer_size, total grows. An exception that it raises ends the compaction, and is
        passed on: what was compacted stays so. It may use the log, but not call compact, erase,
        make_key_files or close (ReentrantCallError).

        Raises: PolicyViolationError: cleanup_policy does not contain compact. CorruptFileError: a segment is
        damaged. It stays as it is, and so do those after it. LogChangedError: the log was truncated, or
        segments were deleted, meanwhile. What was compacted stays so. LogClosedError: the log was closed
        meanwhile. OSError: a file could not be read or written. The log is as before, or partly compacted, or
        refuses to write until it is opened again.
        """
        boolean("dry_run", dry_run)
        check_progress(progress)
        self._refuse_reentrance()
        with self._compacting:
            done = compact(self, dry_run=dry_run, progress=progress)
            with self._held():
                if not self._closed:
                    self._deleted.unlink(self.clock_ms())
        if done.segments and not dry_run:
            if self.traffic is not None:
                for at, count in ((5, 1), (6, done.records_removed), (7, done.bytes_gained)):
                    self.traffic.add(at, count)
            self._key_files_due()
            text = "%s: compacted offsets %d to %d (exclusive): %d bytes less"
            self._reports.info(text, self.path, done.first_dirty_offset, done.end_offset, done.bytes_gained)
        self._reports.pass_on()
        return done

    def erase(
        self,
        *,
        keys: Iterable[bytes] | None = None,
        where: Match | None = None,
        reason: str,
        what: Literal["records", "values"] = "records",
        cut_files: bool = False,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> Erasure:
        """Removes records for good, whatever cleanup_policy says: segments that hold them are rewritten.

        keys: those with these keys. where: those for which this function of a Record says True. what:
        "values" leaves key, offset and timestamp, and removes value and headers. In a compacted topic a
        record without a value deletes its key: if it is the last of its key, the key is no longer in
        store.table(topic). reason: is in the Erasure that is returned, with files, offsets, digests and time.
        It is not stored. cut_files: True removes also what recoveries have kept of this log in .cut files,
        without a look into them. Those that are left are in `cut_files_left` of the Erasure. dry_run: True
        finds out what would go, and changes nothing. progress: called now and then as progress(done, total),
        with how many bytes were gone through and how many there are; in the last call both are equal. total
        grows once it is known which segments are to be rewritten. An exception that it raises ends the
        erasure, and is passed on: each segment is as before, or done. As `where`, it may use the log, but not
        call compact, erase, make_key_files or close (ReentrantCallError).

        All other records stay as they are, with their offsets, and so does what is known of producers.
        Records below log_start_offset are erased too, as long as their files are there. If the active segment
        holds some, a new one is begun first. Records that are appended meanwhile may stay, and so do those
        that an appender() of this log has not written yet: call its flush() first. The old files are removed
        at once, and with them all that wait for file_delete_delay_ms; a reader that has one open reads on in
        it. Copies elsewhere are not known.

        Raises: TypeError, ValueError: an argument. What `where` raises is passed on, and nothing was erased
        then. CorruptFileError: a segment is damaged. Nothing was erased. LogChangedError: the log was
        truncated, or segments were deleted, meanwhile. LogClosedError: the log was closed meanwhile.
        OffsetOverflowError: the offsets of a segment span more than 2^31 - 1. OSError: a file could not be
        read or written. Each segment is as before or done, or the log refuses to write until it is opened
        again. The next call does the rest.
        """
        match = matching(keys, where, what, reason)
        check_progress(progress)
        boolean("cut_files", cut_files)
        boolean("dry_run", dry_run)
        self._refuse_reentrance()
        with self._compacting:
            done = erase(
                self,
                match,
                reason,
                blanks=what == "values",
                cut_files=cut_files,
                dry_run=dry_run,
                progress=progress,
            )
        if done.segments and not dry_run:
            self._key_files_due()
            text = "%s: erased %d records from %d segments: %s"
            self._reports.info(text, self.path, done.records_erased, len(done.segments), reason)
        self._reports.pass_on()
        return done

    def _remove_old_files(self) -> None:
        with self._held():
            self._check_place()
            self._deleted.unlink(MAX64)
            sync_directory(self._directory)

    def _compaction_state(self, *, forgets: bool = True) -> LogState:
        with self._held():
            self._check_place()
            now_ms = self.clock_ms()
            if forgets:
                self._producer_states.forget(now_ms)
            now = self._current()
            return LogState(
                now.segments,
                now.log_start_offset,
                now.log_end_offset,
                self.last_stable_offset(),
                self.transactions(),
                last_offsets(self._producer_states.producers.states),
                self._log_dir.cleaner_offset(),
                self._config,
                now_ms,
            )

    def _check_compacting(self) -> None:
        if self._closed or self._stops_compacting:
            raise LogClosedError(f"{self.path} is closed")
        if self._settled_refusal() is not None:
            raise LogFailedError(f"nothing is written until the log is opened again: {self._refusal}")

    def _settled_refusal(self) -> str | None:
        """Why nothing is written any more, or None. A change that another thread is in the middle of does not
        count."""
        if self._refusal is None:
            return None
        try:
            with self._held():
                return self._refusal
        except ReentrantCallError:  # it is this thread's
            return None

    def _compacted_to(self, offset: int) -> None:
        with self._held():
            self._check_place()
            self._log_dir.store_cleaner_offset(offset)

    def _replace_segments(self, old: Sequence[Segment], new: Sequence[Cleaned]) -> None:
        """Spec 8.7: at any moment the files are the old segments, or an opening makes them the new ones. The
        first new one has the base offset of the first old one."""
        with self._held():
            self._check_place()
            at = self._place_of(old)
            due = self.clock_ms() + self._config.file_delete_delay_ms
            names = [each.stem + kind for each in new for kind in each.kinds]
            self._drop_unfinished(names)
            # Readers that have the first one must not take the new files of its name for its own.
            _ = old[0].offset_index, old[0].time_index, old[0].transaction_index
            base, end = old[0].base_offset, old[-1].end_offset
            ends = [*(each.base_offset for each in new[1:]), end]
            with self._unfinished(f"the replacement of the segments from {base} to {end}") as change:
                try:
                    # Beside a .cleaned file an opening passes over the .swap files from its offset on, and
                    # over no other: so each segment's new names are on the disk before those of the one below
                    # it.
                    for each in reversed(new):
                        for kind in each.kinds:
                            path = f"{self._directory}/{each.stem}{kind}"
                            rename(path + CLEANED, path + SWAP)
                        sync_directory(self._directory)
                    # From here on the new ones count.
                except OSError:
                    self._drop_replacements(names)
                    change.undone()
                    raise
                self._deleted.set_all_aside(old[0], due)
                for segment in old[1:]:
                    self._deleted.set_aside(segment, due)
                    snapshot = self._producer_states.snapshots.set_aside(segment.base_offset)
                    self._deleted.set_rest_aside(segment, snapshot, due)
                # Or an old one may come back beside the new one that holds its records.
                sync_directory(self._directory)
                for name in names:
                    rename(f"{self._directory}/{name}{SWAP}", f"{self._directory}/{name}")
                segments = []
                for each, end_offset in zip(new, ends, strict=True):
                    segment = self._make_segment()(each.stem, each.base_offset, end_offset=end_offset)
                    segment.use_indexes(each.offset_index, each.time_index, each.transaction_index)
                    segment.set_max_timestamp(each.max_timestamp)
                    segments.append(segment)
                self._publish(self._sealed.replacing(at, len(old), segments), self.active)
                sync_directory(self._directory)

    def _drop_replacements(self, names: Sequence[str]) -> None:
        """Removes new segments that do not count yet. The first .log goes last: as long as it ends in
        .cleaned, an opening passes all of them over."""
        first, *others = names
        path = f"{self._directory}/{first}"
        if sum(name.endswith(".log") for name in names) > 1 and os.path.exists(path + SWAP):  # noqa: PTH110
            rename(path + SWAP, path + CLEANED)
            sync_directory(self._directory)
        for part in (others, [first]):
            for name in reversed(part):
                for suffix in (CLEANED, SWAP):
                    unlink(f"{self._directory}/{name}{suffix}", missing_ok=True)
            sync_directory(self._directory)

    def _place_of(self, old: Sequence[Segment]) -> int:
        """Where these segments are among the sealed ones. LogChangedError if they are not, one after the
        other."""
        sealed = self._sealed.first(len(self._sealed))
        at = next((i for i, segment in enumerate(sealed) if segment is old[0]), -1)
        if at < 0 or [id(s) for s in sealed[at : at + len(old)]] != [id(s) for s in old]:
            what = "segments were deleted, or the log was truncated,"
            raise LogChangedError(old[0].path, old[0].base_offset, self._start, self._end_offset, what)
        return at

    def _drop_unfinished(self, names: Sequence[str]) -> None:
        """Removes what an earlier compaction could not remove: beside it an opening would not take the new
        files. As long as there are .swap files, a .cleaned one may be what keeps an opening from taking
        them."""
        left = [
            name
            for name in list_directory(self._directory)
            if name.endswith((CLEANED, SWAP)) and name.removesuffix(CLEANED) not in names
        ]
        for suffix in (SWAP, CLEANED):
            if found := [name for name in left if name.endswith(suffix)]:
                for name in found:
                    unlink(f"{self._directory}/{name}")
                sync_directory(self._directory)

    def delete_records(self, before_offset: int) -> int:
        """Makes `before_offset` (-1: the log end offset) the first offset that can be read, durably, and
        returns it.

        The files are deleted by the next retain(), when a whole segment is below that offset.

        Raises: TypeError, ValueError: `before_offset` is not an offset. OffsetOutOfRangeError: it is above
        the end of the log. PolicyViolationError: cleanup_policy is only "compact", or the topic is
        __cluster_metadata. OSError: it could not be written. This log keeps its start; if the disk failed
        last of all, the next opening may find the new one.
        """
        before_offset = integer("before_offset", before_offset, -MAX_OFFSET)
        wanted = self._end_offset if before_offset == -1 else before_offset
        if self.durable_offset < wanted <= self._end_offset:
            # so a log start beyond the end is never that of a log whose records a power cut took
            self.flush()
        with self._held():
            self._check_place()
            end = self._end_offset
            if self._config.cleanup_policy == ("compact",):
                raise PolicyViolationError(
                    "records cannot be deleted by offset if cleanup_policy is only compact: add delete to it"
                )
            if self._log_dir.name.topic == layout.CLUSTER_METADATA:
                raise PolicyViolationError(
                    f"records of {layout.CLUSTER_METADATA} cannot be deleted by offset: a broker takes its "
                    "start from snapshots"
                )
            offset = min(wanted, end) if before_offset == -1 else before_offset
            if not 0 <= offset <= end:
                raise OffsetOutOfRangeError(offset, self._start, end)
            if offset > self._start:
                with self._unfinished(f"the deletion of records before {offset}") as change:
                    try:
                        self._store(self._point_to_store(), offset)
                    except OSError:
                        change.undone()
                        raise
                    self._start = offset
                    self._epoch_checkpoint.truncate_from_start(offset)
                self._reports.info("%s: deleted the records before offset %d", self.path, offset)
            start = self._start
        self._reports.pass_on()
        return start

    def truncate_to(self, offset: int) -> bool:
        """Removes the records from `offset` to the end, durably. False if there are none.

        The next record gets `offset`. Of a batch with `offset` in its middle, the records before `offset`
        stay; Kafka removes all of it. If the process dies meanwhile, the next opening for writing completes
        the truncation. TypeError, ValueError. OSError: nothing is changed, or the log refuses to write until
        it is opened again.
        """
        offset = integer("offset", offset)
        with self._held():
            self._check_place()
            now_ms = self.clock_ms()
            end = self._end_offset
            if offset >= end:
                self._epoch_checkpoint.truncate_from_end(end)
                self._move_end(end, end)  # what is appended tells its epoch
                return False
            if self._first_base() > offset:
                self._start_anew(offset, None, now_ms)
                return True
            with self._unfinished(f"the truncation to {offset}") as change:
                try:
                    self._lower_recovery_point(offset)
                    self._log_dir.lower_cleaner_offset(offset)
                    self._expect_truncation(offset)
                except OSError:
                    change.undone()
                    raise
                self._truncate(offset, now_ms)
            self._reports.info("%s: truncated: removed offsets %d to %d (exclusive)", self.path, offset, end)
            return True

    def _complete_truncation(self) -> None:
        """Carries out a truncation that a process which died has left; ends one that recovery has begun."""
        known = self._truncations
        if known.pending == "all":
            self.truncate_fully_and_start_at(known.offset)
        elif known.pending and not self.truncate_to(known.offset):  # the log ends there, or before
            self._note_truncation()
            self._keep_truncations()

    def _expect_truncation(self, offset: int, pending: str = "records") -> None:
        """Before anything is removed: whatever becomes of this process, the next writer completes it."""
        known = self._truncations
        expected = known.without_pending().expecting(offset, pending)
        try:
            write_truncations(self._directory, expected)
        except OSError as e:
            try:
                write_truncations(self._directory, known)  # or the next writer would remove what comes now
            except OSError:
                raise LogFailedError(f"{self.path}: a truncation could not be noted, nor withdrawn") from e
            raise
        self._truncations = expected

    def _note_truncation(self) -> None:
        """It is done: readers in this process are told."""
        self._truncations = self._truncations.carried_out(self.last_stable_offset())

    def _keep_truncations(self) -> None:
        """Before anything is appended: who began to read meanwhile, and has read what was cut off, is told
        too."""
        write_truncations(self._directory, self._truncations)

    def _lower_recovery_point(self, point: int) -> None:
        """Before the bytes from `point` on go, the checkpoints must not say that they are there."""
        self._store(min(self._point_to_store(), point), self._start_to_store())
        self._stored_recovery_point = -1

    def _truncate(self, offset: int, now_ms: int) -> None:
        segments = self._now().segments
        gone = tuple(s for s in segments if s.base_offset > offset)
        kept = segments[: len(segments) - len(gone)]
        if gone:
            self.active.seal()
            self._remove(gone, now_ms)  # before the cut: what a crash leaves at any moment has no gap
        delete_file(kept[-1].path_of(layout.KEYS))
        rest = truncate_segment(kept[-1], offset, self._make_segment())
        active = self._make_active(rest.stem, rest.base_offset, now_ms, offset, rest)
        active.prepare_indexes()
        self._publish(SealedSegments(kept[:-1]), active)
        self._move_end(offset, offset)
        lowered = offset < self._start
        self._start = min(self._start, offset)
        self._epoch_checkpoint.truncate_from_end(offset)
        self._producer_states.begin_anew(self._now(), now_ms)
        self._note_truncation()
        if lowered:  # not before: what lies between was deleted, and is gone only now
            self._store(self._point_to_store(), self._lowered_start_to_store())
        self._keep_truncations()

    def _remove(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Takes segments out of the directory, the last one first, on the disk too: what is left at any
        moment is a log."""
        due = now_ms + self._config.file_delete_delay_ms
        for segment in reversed(segments):
            self._deleted.set_aside(segment, due)
            snapshot = self._producer_states.snapshots.set_aside(segment.base_offset)
            self._deleted.set_rest_aside(segment, snapshot, due)
            sync_directory(self._directory)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Removes all records, durably. The next record gets `offset`.

        `log_start_offset` is from 0 to `offset`; default `offset`. It lasts until the log is closed: as in
        Kafka, an opened log starts at its first segment. A crash meanwhile leaves the log before or after it;
        or if `offset` was in the log, some of the records from there on. TypeError, ValueError. OSError:
        nothing is changed, or the log refuses to write until it is opened again.
        """
        offset = integer("offset", offset)
        if log_start_offset is not None:
            log_start_offset = integer("log_start_offset", log_start_offset, 0, offset)
        with self._held():
            self._check_place()
            self._start_anew(offset, log_start_offset, self.clock_ms())

    def _start_anew(self, offset: int, log_start_offset: int | None, now_ms: int) -> None:
        with self._unfinished(f"starting again at offset {offset}") as change:
            try:
                # If a crash leaves no file, this is all that is known: it must not begin at 0, nor miss
                # anything.
                point = min(self._point_to_store(), offset, self._first_base())
                self._store(point, self._start)
                self._log_dir.lower_cleaner_offset(offset)
                self._expect_truncation(offset, "all")
            except OSError:
                change.undone()
                raise
            self._stored_recovery_point = -1
            self.active.seal()
            # First: an opening begins there, whatever segments a crash has left, and gives out no offset
            # below.
            self._store(point, max(offset, self._start))
            self._remove(self._now().segments, now_ms)
            active = self._make_active(layout.segment_stem(offset), offset, now_ms, offset)
            self._publish(SealedSegments(), active)
            self._move_end(offset, offset)
            self._start = offset if log_start_offset is None else log_start_offset
            self._epoch_checkpoint.clear()
            self._producer_states.snapshots.clear()
            self._producer_states.begin_anew(self._now(), now_ms)
            self._note_truncation()
            sync_directory(self._directory)
            self._store(min(self._point_to_store(), offset), self._lowered_start_to_store())
            self._keep_truncations()
        self._reports.info("%s: truncated: removed all records, and goes on at offset %d", self.path, offset)

    def refresh(self) -> bool:
        """Does nothing and returns False: a log that is open for writing always shows all that it holds.
        LogClosedError.
        """
        self._now()
        return False

    # ---- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flushes, and leaves the directory as a broker's clean shutdown does: the next opening needs no
        recovery.

        As with a broker, one marker tells that of all partitions of a log directory. If others in it were
        left unclean, there is none until a LogStore has opened and closed all of them.

        If it is interrupted, call it again. After a failure (LogFailedError) the log is closed as after a
        crash: the next opening recovers it. LogFailedError is raised for a failure that happened in the
        background, and if the directory or a .log file of it is no longer there: it says which offsets are
        lost with it. OSError if closing fails. The log is closed all the same.
        """
        if self._left:
            return
        self._refuse_inner_close()
        failure: Exception | None = None
        for appender in list(self._appenders):
            try:
                appender.close()
            except ReentrantCallError:
                raise
            except (OSError, KstoreError) as e:
                failure = e  # its records were never appended; the log is closed all the same
        if self._async is not None:
            self._async.close()
        with self._held():
            lost = "" if self._closed else self._lost_files()
        with self._held():
            self._end()
        with self._compacting:
            pass  # it stops now, and nothing of it is left in the directory that another may open next
        if self._key_job is not None:
            self._key_job.stop()
        if self._flusher is not None:
            self._flusher.stop()
        self._drain()  # who syncs now has taken files that must be on the disk before the marker says so
        with self._held():
            if self._left:
                return
            if self._log_dir.is_moved:
                self._refuse(self._log_dir.fate)
            clean = self._refusal is None
            if clean:
                try:
                    self._leave_clean()
                except (OSError, KstoreError):
                    self._leave(clean=False)
                    raise
            self._leave(clean=clean)
        if not clean:
            self._reports.warning(
                "%s: not closed cleanly, so its next opening recovers it: %s", self.path, self._refusal
            )
        self._reports.pass_on()
        if lost:
            raise LogFailedError(f"{self.path} is closed, but {lost}")
        if self._flusher is not None and self._flusher.failure is not None and not clean:
            raise LogFailedError(
                f"{self.path} is not closed cleanly: {self._refusal}"
            ) from self._flusher.failure
        if failure is not None:
            raise failure

    def _refuse_inner_close(self) -> None:
        """ReentrantCallError if this thread is inside the log, or inside a compaction of it, which closing
        would wait for."""
        self._refuse_reentrance()
        self._compacting.refuse_reentrance()

    def _lost_files(self) -> str:
        """What somebody has removed under the open log, in words; "" for nothing."""
        if self._log_dir.has_left:  # it was garbage once, and came back
            return ""
        now = self._current()
        if self._log_dir.is_moved:
            self._refuse(self._log_dir.fate)
            offsets = f"{now.log_start_offset} to {now.log_end_offset} (exclusive)"
            return f"{self._log_dir.fate} while it was open: offsets {offsets} are no longer at this path"
        gone = [segment for segment in now.segments if not os.path.lexists(segment.path)]
        if not gone or any(name.endswith(SWAP) for name in list_directory(self._directory)):
            return ""  # of a compaction that broke off: the next opening finds all there
        more = f", the first of {len(gone)} such files" if len(gone) > 1 else ""
        end = min(gone[0].end_offset, now.log_end_offset)
        offsets = f"{gone[0].base_offset} to {end} (exclusive)"
        return f"{gone[0].path}, with offsets {offsets}, was removed while it was open{more}"

    def _leave_clean(self) -> None:
        active, end = self.active, self._end_offset
        active.prepare_indexes()
        active.seal()
        if end > self._start:
            self._producer_states.write_snapshot(end, durable=True)
        self._epoch_checkpoint.store()
        self._owe_sync([*active.files()], True)
        self._sync_owed()
        self._deleted.unlink(MAX64)
        sync_directory(self._directory)
        self._store(end, self._start_to_store())
        self._log_dir.store_high_watermark(end)

    def _leave(self, *, clean: bool) -> None:
        """Gives the directory up."""
        _writers.discard(self)
        try:
            self._log_dir.leave(clean=clean)
        finally:
            self._left = self._log_dir.has_left

    def abandon(self) -> None:
        """Closes the log without flushing, as if the process had died: the next opening recovers it."""
        if self._left:
            return
        self._compacting.refuse_reentrance()
        with self._held():
            self._end()
        with self._compacting:
            pass
        if self._key_job is not None:
            self._key_job.stop(wait=False)
        if self._flusher is not None:
            self._flusher.stop(wait=False)
        self._leave(clean=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        finally:
            self.abandon()  # where closing was interrupted: nobody calls it again

    def __del__(self) -> None:
        if self._left:
            return
        forgotten = not (self._closed or self._log_dir.has_left)  # in a forked child it is the parent's
        gathered = sum(appender._gathered_count for appender in self._appenders)
        self._end()
        if self._key_job is not None:
            self._key_job.stop(wait=False)
        if self._flusher is not None:
            self._flusher.stop(wait=False)
        self._log_dir.leave_unclean()
        if forgotten:  # last, because a filter may make it an exception
            lost = f", and {gathered} records that its appenders had gathered are lost" if gathered else ""
            warnings.warn(
                f"{visible(self.path)} was open for writing and never closed: the next opening must "
                f"recover{lost}",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        if self._closed:
            return f"LogWriter({self.path!r}, closed)"
        return PartitionLog.__repr__(self).replace("PartitionLog", "LogWriter", 1)


def _forked() -> None:
    """A child of fork must not write: the log is its parent's."""
    for writer in list(_writers):
        writer._after_fork()
        writer.__dict__.pop("_async", None)  # its thread is the parent's
        writer._compacting = Mutex()  # a thread that the child does not have may be in it
    _writers.clear()


os.register_at_fork(after_in_child=_forked)
