"""One partition, written: what a Kafka broker would leave in the directory."""

from __future__ import annotations

import os
import weakref
from functools import partial

from kstore.arguments import (
    DURABILITY,
    MAX64,
    MAX_EPOCH,
    MAX_OFFSET,
    boolean,
    instance,
    integer,
    path_text,
    warn,
)
from kstore.config import LogConfig, changed, given_in_text, with_topic_options
from kstore.engine.append.record_appender import RecordAppender
from kstore.errors import (
    LogClosedError,
    LogLockedError,
    OffsetOutOfRangeError,
    PolicyViolationError,
)
from kstore.light_typing import TYPE_CHECKING, cast
from kstore.log.files import layout
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of
from kstore.log.files.log_directory import PartitionLease
from kstore.log.later import later
from kstore.log.log_closer import LogCloser, Opened
from kstore.log.maintenance import Maintenance
from kstore.log.options import checked
from kstore.log.partition import PartitionLog
from kstore.log.read.max_timestamp_index import MaxTimestampIndex
from kstore.log.recovery.loader import Loaded
from kstore.log.write.append_hooks import AppendHooks, limits_of
from kstore.log.write.appenders import Appenders
from kstore.log.write.flusher import Flusher
from kstore.log.write.opening import (
    ALL_WORK,
    check_leader_epoch,
    checked_clock,
    keep_config,
    open_segments,
    refuse_lower_epoch,
    report_recovery,
    take_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from os import PathLike
    from types import TracebackType
    from typing import Any, Literal, Unpack

    from kstore.log.compact.erasure import Match, matching
    from kstore.log.compact.key_files import KeyFileReport, make_key_files
    from kstore.log.compact.report import Compaction, Erasure
    from kstore.log.cursors.arguments import checked_groups
    from kstore.log.cursors.home import Home
    from kstore.log.follow.sources import DirectorySource, Source, WriterSource
    from kstore.log.producers.states import ProducerState
    from kstore.log.producers.transactions import Transactions
    from kstore.log.read.progress import ProgressCallback, check_progress
    from kstore.log.recovery.last_batch import last_epoch
    from kstore.log.recovery.report import Recovery
    from kstore.log.segments.segment_set import SegmentSet
    from kstore.log.segments.truncation import complete_truncation, start_at, truncate_to
    from kstore.log.view.log_view import LogView
    from kstore.log.write.appender import Appender
    from kstore.log.write.needs import needs_of
    from kstore.log.write.opening import KeptConfig, OwnWork
    from kstore.log.write.retention import Decision
    from kstore.typed import BytesLike, Cells, ConfigOptions, HeaderLists, Headers, Times, WriterOptions
else:
    later(
        globals(),
        {
            "kstore.log.compact.erasure": "Match matching",
            "kstore.log.compact.key_files": "KeyFileReport make_key_files",
            "kstore.log.compact.report": "Compaction Erasure",
            "kstore.log.cursors.arguments": "checked_groups",
            "kstore.log.cursors.home": "Home",
            "kstore.log.follow.sources": "DirectorySource Source WriterSource",
            "kstore.log.producers.transactions": "Transactions",
            "kstore.log.read.progress": "ProgressCallback check_progress",
            "kstore.log.segments.truncation": "complete_truncation start_at truncate_to",
            "kstore.log.recovery.last_batch": "last_epoch",
            "kstore.log.recovery.report": "Recovery",
            "kstore.log.write.appender": "Appender",
            "kstore.log.write.needs": "needs_of",
            "kstore.log.write.retention": "Decision",
            "kstore.typed": "BytesLike Cells ConfigOptions HeaderLists Headers Times WriterOptions",
        },
    )


class LogWriter(RecordAppender, PartitionLog):
    """A partition open for writing: a PartitionLog that can also append, roll, retain and truncate.

    Close it, or use it in a `with` statement: otherwise the next opening must recover it. Threads may share
    it: one at a time changes the log, and readers do not wait. A call inside another call of the same thread,
    for example in a signal handler, raises ReentrantCallError if it would wait for itself.

    If a method raises an exception, also KeyboardInterrupt, its change is either done or not done. If that is
    not known, the log refuses to write until it is opened again (LogFailedError).
    """

    path = ""
    maintenance: Maintenance
    _lease: PartitionLease
    _segments: SegmentSet
    _flusher: Flusher
    _appenders: Appenders
    _closer: LogCloser

    def __init__(
        self,
        path: str | PathLike[str],
        config: LogConfig | None = None,
        *,
        create: bool = True,
        kept: KeptConfig | None = None,
        own: OwnWork = ALL_WORK,
        **options: Unpack[WriterOptions],
    ) -> None:
        if "_closer" in self.__dict__ and not self._closer.has_left:
            raise RuntimeError(f"{self.path} is open already: make another LogWriter")
        self.path = os.path.abspath(os.fspath(path))
        given = checked("write", options)
        if not (config is None or isinstance(config, LogConfig)):
            raise TypeError(f"config must be a kstore.LogConfig, not {config!r}")
        self._log_end.traffic = own.traffic
        self._appenders = Appenders(self.path, self._log_end)
        clock = checked_clock(given["clock"])
        if given["clock"] is not None:
            self._use_clock(clock)
        clock()  # if it raises, nothing is made
        check_leader_epoch(self.path, given["leader_epoch"])
        self._lease = PartitionLease(self.path, reads_options=kept is not None, shared=given["shared"])
        self._closer = LogCloser(self.path, self._lease, self._log_end, self._appenders)
        try:
            take_directory(self._lease, path, create=create)
            self._open(config or LogConfig(), kept, own, given, clock)
        except BaseException:
            self.abandon()
            raise

    # ---- opening -------------------------------------------------------------------------------------------

    def _open(
        self,
        config: LogConfig,
        kept: KeptConfig | None,
        own: OwnWork,
        given: Mapping[str, Any],
        clock: Callable[[], int],
    ) -> None:
        found = self._lease.kept
        self._keeps_config = found is not None and not found.of_store
        if kept is not None and found is not None:
            config = kept.changed(found.options)
        self._apply_limits(limits_of(config, given["durability"], given["max_decompressed_bytes"]))
        self._segments = open_segments(
            self._lease,
            self._log_end,
            config,
            given,
            clock_ms=clock,
            prepares_indexes=own.prepares_indexes,
            reload_options=partial(_reload_options, weakref.ref(self)),
        )
        self._told_of = self.recovery  # the opening has warned of what is lost
        self._max_timestamps = MaxTimestampIndex(())
        self.maintenance = Maintenance(self._segments, makes_key_files=own.makes_key_files)
        self._flusher = Flusher(self._segments)
        self._use_hooks(AppendHooks(self._segments, self._flusher))
        self._closer.begin(Opened(self._segments, self.maintenance, self._flusher))
        self._begin_leader_epoch(given["leader_epoch"])
        if self._segments.manifest.known.truncations.pending:
            with self._log_end.held():
                complete_truncation(self._segments)
        self._begin_jobs(own)
        report_recovery(self._segments)
        if kept is not None and kept.keeps and self._keeps_config:
            with self._log_end.held():
                if self._lease.session is not None:  # other processes may have changed others since
                    self._apply_config(kept.changed(self._segments.manifest.known.options))
                keep_config(self._segments)
                if kept.changes:
                    self._log_end.note_change()
        if self._lease.session is not None:
            self._lease.session.enter()

    def reload_options(self) -> None:
        """Apply the configuration and the leader epoch that another process has saved. Internal: the mutex is
        held."""
        if "_flushes" not in self.__dict__:  # it is being opened
            return
        latest = self._segments.epochs.epochs.latest
        if latest is not None and latest > self.leader_epoch:
            self._set_leader_epoch(latest)
        saved, config = self._segments.manifest.known.options, self._segments.config
        if self._keeps_config and given_in_text(config) != saved:
            self._apply_config(with_topic_options(config, saved))

    def _apply_config(self, config: LogConfig) -> None:
        """Goes on with another configuration; the mutex is held."""
        segments = self._segments
        durability = DURABILITY[self._log_end.durability]
        self._apply_limits(limits_of(config, durability, segments.max_decompressed_bytes))
        segments.config = config
        self._flusher.flush_every(config.flush_ms if self._flushes else MAX64)

    def _begin_leader_epoch(self, epoch: int | None) -> None:
        latest = self._segments.epochs.epochs.latest
        if epoch is not None:
            refuse_lower_epoch(self.path, epoch, latest)
            self.assign_leader_epoch(epoch)
            return
        if latest is None:
            # the checkpoint knows nothing of records that were deleted, though they are in the last file
            latest = last_epoch(self.segments)
        self._set_leader_epoch(max(latest, 0))

    def _begin_jobs(self, own: OwnWork) -> None:
        flusher = self._flusher
        self._flushes = own.flushes
        flusher.flush_every(self.config.flush_ms if own.flushes else MAX64)
        key_files = self.maintenance.key_files

        def after_roll() -> None:
            flusher.flush_sealed()
            key_files.note_change()

        self._segments.on_roll = after_roll
        key_files.note_change()

    # ---- what there is -------------------------------------------------------------------------------------

    def _now(self) -> Loaded:
        if self._log_end.is_closed:
            raise LogClosedError(f"{self.path} is closed")
        return self._segments.snapshot()

    for_reading = _now

    @property
    def recovery(self) -> Recovery:
        """The report of the opening, as a Recovery: what differed from a log that was closed cleanly."""
        return self._segments.recovery

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read. It may be inside a segment, or inside a batch."""
        return self._segments.bounds()[0] if not self._closed else self._now().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get: one more than the last."""
        return self._segments.bounds()[1] if not self._closed else self._now().log_end_offset

    @property
    def config(self) -> LogConfig:
        """The configuration of the log, as a LogConfig."""
        self._log_end.look()
        return self._segments.config

    def configure(self, **changes: Unpack[ConfigOptions]) -> None:
        """Change options of the open log: log.configure(retention_ms=86_400_000). The names are those of
        LogConfig; None restores the default of an option.

        The change is saved in the directory. But in the directory of a store that has the topic, it only
        applies until the log is closed, with a warning: use store.alter_topic(). InvalidConfigError for an
        unknown option or a value that is not allowed, OSError if the change cannot be saved: nothing is
        changed then.
        """
        self._change_config(lambda config: changed(config, changes))
        if not self._keeps_config:
            warn(
                f"{self.path}: a store keeps the options of this topic: these count until the log is closed; "
                "alter_topic() keeps them"
            )

    def use_config(self, config: LogConfig) -> None:
        """Replace the configuration, and save it as configure() does. LogStore calls this after
        alter_topic(). OSError: nothing is changed."""
        instance("config", config, LogConfig)
        self._change_config(lambda _: config)

    def _change_config(self, change: Callable[[LogConfig], LogConfig]) -> None:
        segments = self._segments
        with self._log_end.held():
            self._log_end.check_usable()
            config = change(segments.config)
            if self._keeps_config:
                segments.check_place()
                segments.manifest.keep_options(given_in_text(config))
            self._apply_config(config)
            self._log_end.note_change()
        self.maintenance.key_files.note_change()

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that appends write into their batches."""
        self._log_end.look()
        return max(self._leader_epoch, 0)

    def assign_leader_epoch(self, epoch: int) -> None:
        """Begin a leader epoch at the log end offset, as a broker does when it becomes leader of the
        partition.

        `epoch` is an int from 0 to 2^31 - 1. TypeError, ValueError, OSError.
        """
        epoch = integer("leader epoch", epoch, 0, MAX_EPOCH)
        with self._log_end.held():
            self._segments.check_place()
            self._segments.epochs.assign(epoch, self._log_end.offset)
            self._log_end.note_change()
            self._set_leader_epoch(epoch)

    def view(self, snapshot: Loaded | None = None) -> PartitionLog:
        """Return a view of the log at this moment, or of a snapshot of it. It changes only by its own
        `refresh()`."""
        if snapshot is None:
            return cast(PartitionLog, self._view(*self._committed()))
        bounds = instance("snapshot", snapshot, Loaded).log_start_offset, snapshot.log_end_offset
        return cast(PartitionLog, self._view(snapshot, self._segments.producers.transactions(*bounds)))

    def _committed(self) -> tuple[Loaded, Transactions]:
        found = self._segments.committed()
        self._now()  # LogClosedError
        return found

    def source(self) -> Source:
        """Return the Source from which followers and cursors get views of this log. Internal."""
        if self._lease.session is not None:  # other processes change it, too
            return DirectorySource(self._view_now(None))
        return WriterSource(self.path, self._view_now, self.notify_at_change, lambda: self._closed)

    def _view_now(self, known: LogView | None) -> LogView:
        """A view of the log as it is now, or was when it was closed: the one that is known, if nothing has
        changed."""
        now, transactions = self._segments.committed()
        if (
            known is not None
            and now is known.snapshot
            and transactions.last_stable_offset == known.last_stable_offset()
        ):
            return known
        return self._view(now, transactions)

    def transactions(self) -> Transactions:
        """The producers and the transactions of the log."""
        return self._segments.transactions()

    def last_stable_offset(self) -> int:
        """Return the offset at which readers of committed records stop: the first offset of the oldest open
        transaction, or the end."""
        return self._segments.last_stable_offset()

    def producers(self) -> dict[int, ProducerState]:
        """Return the states of the idempotent producers, as a dict from producer id to ProducerState. It is a
        copy."""
        return self._segments.producers.producers.copied()

    # ---- taking over whole segments ------------------------------------------------------------------------

    def adopt(self, path: str | PathLike[str]) -> range:
        """Move a .log file that another LogWriter has written to the end of this log, and return its new
        offsets.

        The file is renamed, not copied, and becomes a segment. Its offsets and leader epochs are changed in
        place. The checksums of its batches are checked, but not the limits of the configuration, such as
        max_message_bytes. Earlier records of this log, and the new name of the file, are durable when this
        returns. After an error the file is unchanged at `path`, or there is no file at `path` and the next
        opening for writing adds it to the log.

        Raises:
            ValueError: the file is no .log file, belongs to this log, or has other names (hard links), which
                would be changed too.
            LogLockedError: the log that the file belongs to is open for writing.
            CorruptRecordError: a batch is damaged.
            InvalidRecordError: the file has no records, or records of idempotent producers or transactions.
            OSError: the file cannot be renamed; it must be on the same file system.
        """
        path = path_text("path", path)
        if not path.endswith(".log") or os.path.isdir(path):
            raise ValueError(f"{path} is no .log file")
        staged = os.path.realpath(os.path.dirname(path))
        if staged == os.path.realpath(self.path):
            raise ValueError(f"{path} is a file of this log itself")
        if is_locked(staged) or is_locked(directory_of(staged)):
            raise LogLockedError(staged, None)
        while True:
            self._now()
            active = self.active
            self._log_end.wait_until_durable(self._log_end.offset)
            with self._log_end.held():
                if self.active is active:  # so what others have appended since lies in this one segment
                    self._segments.check_place()
                    return self._segments.adopt(path, self.leader_epoch)

    # ---- rolling, flushing ---------------------------------------------------------------------------------

    def roll(self) -> int:
        """Begin a new segment, whatever the size of the active one, and return its base offset. OSError."""
        with self._log_end.held():
            self._log_end.check_usable()
            self._segments.roll("asked", self._log_end.offset)
            base = self.active.base_offset
        self._segments.reports.pass_on()
        return base

    def flush(self) -> int:
        """Sync everything that was appended so far, and return the offset below which all records are on the
        disk. OSError. LogFailedError if the log refuses to write, or the directory was renamed or removed."""
        self._now()
        return self._segments.flush()

    def appender(self, *, linger_ms: float = 5.0, batch_bytes: int = 16384) -> Appender:
        """Return an Appender, which collects single records of many threads into batches, to append them
        faster.

        It appends a batch that has `batch_bytes`, or after `linger_ms`. Its append() returns a Ticket, whose
        wait() returns the offset. Closing the log closes its appenders first.
        """
        self._now()
        gathering = self._appenders.gathering
        appender = Appender(self, gathering, self.path, linger_ms=linger_ms, batch_bytes=batch_bytes)
        gathering.add(appender)
        if self._closed:  # meanwhile: no other call closes it
            appender.close()
        return appender

    async def append_async(
        self,
        value: BytesLike | None,
        key: BytesLike | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Append one record, as append() does, without blocking the event loop: a thread appends, in the
        order of the calls, and syncs once for all waiting tasks.

        If the task is cancelled, `appended` of the CancelledError is the offset of the record, or None if
        nothing was appended. A cancelled task ends when that is known. A TimeoutError of asyncio.timeout()
        has the CancelledError as its __cause__. close() completes the calls that have begun. A call that
        begins later, also of a task that was created before, raises LogClosedError.
        """
        append = partial(self.append, value, key, timestamp, headers)
        return int(await self._appenders.append_later(self, append))

    async def extend_async(
        self,
        values: Cells,
        keys: Cells | None = None,
        timestamps: Times | None = None,
        headers: HeaderLists | None = None,
        *,
        batch_bytes: int = 16384,
    ) -> range:
        """Append many records, as extend() does, without blocking the event loop; otherwise as append_async.
        Do not change the columns meanwhile."""
        extend = partial(self.extend, values, keys, timestamps, headers, batch_bytes=batch_bytes)
        return cast(range, await self._appenders.append_later(self, extend))

    # ---- deleting, truncating ------------------------------------------------------------------------------

    def retain(self, *, dry_run: bool = False, keep_for: Iterable[str] = ()) -> list[Decision]:
        """Delete old segments by retention_bytes, retention_ms and the log start offset.

        Returns a Decision with its reason for every segment, oldest first. dry_run=True deletes nothing, and
        raises the same errors. keep_for: groups of cursors and share groups. No segment is deleted that has a
        record which one of them has not committed or acknowledged. If a group has read nothing yet, nothing
        is deleted. Files are renamed to .deleted, and removed by a later retain() or close() after
        file_delete_delay_ms.

        InvalidConfigError if neither retention_ms nor retention_bytes is set, and Kafka's default of 7 days
        would delete segments. InvalidConfigError also if cleanup_policy is not set, and the log is known to
        be compacted, by cleaner-offset-checkpoint of its directory or as a topic of Kafka itself. In both
        cases, segments below the log start offset are deleted nevertheless.

        It works on a full disk, if the log is open already or was closed cleanly. OSError if a file cannot be
        renamed or removed: older segments are deleted then, that one and newer ones are not.
        """
        boolean("dry_run", dry_run)
        groups = checked_groups("keep_for", keep_for)
        needs = {
            group: needs_of(self.path, self._named(), group, Home.of(self.path).durable_commit(group))
            for group in groups
        }
        return self.maintenance.retain(needs, dry_run=dry_run)

    # ---- finding by key ------------------------------------------------------------------------------------

    def make_key_files(self) -> list[KeyFileReport]:
        """Make a .keys file beside each sealed segment that has none, so that `last` and `history` find a key
        without reading all records. Returns a KeyFileReport for every sealed segment, oldest first.

        A file takes about 15 bytes for each key of the segment, and Kafka ignores it. It has checksums, and
        the state of the .log for which it was made. A damaged or outdated file is not used, and is made
        again. Deleting the segment deletes the file. Other threads may append and read meanwhile. With the
        option key_files, the background makes the file of each segment that is sealed or compacted.

        For each segment, this takes memory of at most about twice log_cleaner_dedupe_buffer_size, and no
        compaction runs. LogClosedError if the log is closed meanwhile. OSError: files that were made before
        stay.
        """
        self._log_end.refuse_reentrance()
        return make_key_files(self.maintenance.rewriter)

    # ---- compaction ----------------------------------------------------------------------------------------

    def compact(self, *, dry_run: bool = False, progress: ProgressCallback | None = None) -> Compaction:
        """Remove records that a later record of the same key supersedes, from all segments except the active
        one.

        The other records keep their offsets, order and timestamps. A record without a value deletes its key.
        A compaction removes that record delete_retention_ms after the first compaction that has read it, but
        only if there is something new to compact, as in Kafka. Segments become fewer and larger. Returns a
        Compaction with the numbers of removed records and the reasons; dry_run=True only computes it.

        cleanup_policy must contain compact. A compaction begins if the share of uncompacted bytes is above
        min_cleanable_dirty_ratio, or max_compaction_lag_ms is over. Records younger than
        min_compaction_lag_ms stay, and so do records from the last stable offset on. Other threads may append
        and read meanwhile: existing readers continue in the old files, which are removed after
        file_delete_delay_ms. One compaction runs at a time; another call waits. Closing the log stops it.

        progress: called as progress(done, total), in bytes; in the last call both are equal. If the keys of
            the log do not fit into log_cleaner_dedupe_buffer_size, total grows. An exception that it raises
            ends the compaction, and is passed on; segments that were compacted stay so. It may use the log,
            but not call compact, erase, make_key_files or close (ReentrantCallError).

        Raises:
            PolicyViolationError: cleanup_policy does not contain compact.
            CorruptFileError: a segment is damaged. It stays as it is, and so do those after it.
            LogChangedError: the log was truncated, or segments were deleted, meanwhile. Segments that were
                compacted stay so.
            LogClosedError: the log was closed meanwhile.
            OSError: a file could not be read or written. The log is as before, or partly compacted, or
                refuses to write until it is opened again.
        """
        boolean("dry_run", dry_run)
        check_progress(progress)
        return self.maintenance.compact(dry_run=dry_run, progress=progress)

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
        """Remove records for good, whatever cleanup_policy is. Segments with such records are rewritten.

        keys: removes the records with these keys.
        where: removes the records for which this function of a Record returns True.
        what: "values" keeps key, offset and timestamp, and removes value and headers. In a compacted topic a
            record without a value deletes its key: if it is the last of its key, the key is no longer in
            store.table(topic).
        reason: a text for the Erasure that is returned, with files, offsets, digests and time. It is not
            saved.
        cut_files: True also removes all .cut files of this log, whatever they contain. `cut_files_left` of
            the Erasure has the others.
        dry_run: True computes the Erasure and changes nothing.
        progress: called as progress(done, total), in bytes; in the last call both are equal. total grows when
            the segments to rewrite are known. An exception that it raises ends the erasure, and is passed on:
            each segment is as before, or done. As `where`, it may use the log, but not call compact, erase,
            make_key_files or close (ReentrantCallError).

        All other records keep their offsets, and the states of producers stay. Records below log_start_offset
        are erased too, if their files exist. If the active segment has such records, the log rolls first.
        Records that are appended meanwhile may stay, and so do those that an appender() of this log has not
        written yet: call its flush() first. The old files are removed at once, and so are all files that wait
        for file_delete_delay_ms; a reader that has one open can still read it. Copies elsewhere are not
        changed.

        Raises:
            TypeError, ValueError: an argument is wrong. An exception of `where` is passed on. Nothing was
                erased.
            CorruptFileError: a segment is damaged. Nothing was erased.
            LogChangedError: the log was truncated, or segments were deleted, meanwhile.
            LogClosedError: the log was closed meanwhile.
            OffsetOverflowError: the offsets of a segment span more than 2^31 - 1.
            OSError: a file could not be read or written. Each segment is as before or done, or the log
                refuses to write until it is opened again. The next call does the rest.
        """
        match = matching(keys, where, what, reason)
        check_progress(progress)
        boolean("cut_files", cut_files)
        boolean("dry_run", dry_run)
        return self.maintenance.erase(
            match,
            reason,
            blanks=what == "values",
            cut_files=cut_files,
            dry_run=dry_run,
            progress=progress,
        )

    def delete_records(self, before_offset: int) -> int:
        """Make `before_offset` (-1: the log end offset) the first offset that can be read, durably, and
        return it.

        The next retain() deletes the segments below that offset.

        Raises:
            TypeError, ValueError: `before_offset` is not an offset.
            OffsetOutOfRangeError: it is above the end of the log.
            PolicyViolationError: cleanup_policy is only "compact", or the topic is __cluster_metadata.
            OSError: it could not be written. This log keeps its log start offset; the next opening may have
                the new one.
        """
        before_offset = integer("before_offset", before_offset, -MAX_OFFSET)
        end = self._log_end
        wanted = end.offset if before_offset == -1 else before_offset
        if self.durable_offset < wanted <= end.offset:
            # so a log start beyond the end is never that of a log whose records a power cut took
            self.flush()
        with end.held():
            self._segments.check_place()
            if self.config.cleanup_policy == ("compact",):
                raise PolicyViolationError(
                    "records cannot be deleted by offset if cleanup_policy is only compact: add delete to it"
                )
            if self._lease.name.topic == layout.CLUSTER_METADATA:
                raise PolicyViolationError(
                    f"records of {layout.CLUSTER_METADATA} cannot be deleted by offset: a broker takes its "
                    "start from snapshots"
                )
            offset = min(wanted, end.offset) if before_offset == -1 else before_offset
            start = self._segments.offsets.start
            if not 0 <= offset <= end.offset:
                raise OffsetOutOfRangeError(offset, start, end.offset)
            if offset > start:
                self._segments.delete_records(offset)
            start = max(offset, start)
        self._segments.reports.pass_on()
        return start

    def truncate_to(self, offset: int) -> bool:
        """Remove the records from `offset` to the end, durably. Return False if there are none.

        The next record gets `offset`. If `offset` is inside a batch, the records of the batch before `offset`
        stay; Kafka removes the whole batch. If the process dies meanwhile, the next opening for writing
        completes the truncation. TypeError, ValueError. OSError: nothing is changed, or the log refuses to
        write until it is opened again.
        """
        offset = integer("offset", offset)
        with self._log_end.held():
            self._segments.check_place()
            return truncate_to(self._segments, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove all records, durably. The next record gets `offset`.

        `log_start_offset` is from 0 to `offset`; default `offset`. It applies until the log is closed: as in
        Kafka, an opened log starts at its first segment. If the process dies meanwhile, the log is as before
        or after the call; if `offset` was in the log, it may have some of the records from there on.
        TypeError, ValueError. OSError: nothing is changed, or the log refuses to write until it is opened
        again.
        """
        offset = integer("offset", offset)
        if log_start_offset is not None:
            log_start_offset = integer("log_start_offset", log_start_offset, 0, offset)
        with self._log_end.held():
            self._segments.check_place()
            start_at(self._segments, offset, log_start_offset)

    def refresh(self) -> bool:
        """Do nothing and return False: a log that is open for writing always has all its records.
        LogClosedError."""
        self._now()
        return False

    # ---- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Sync the log, and leave the directory as a broker's clean shutdown does: the next opening needs no
        recovery.

        As with a broker, one marker is for all partitions of a log directory. If others in it were not closed
        cleanly, close() writes no marker; a LogStore that opens and closes all of them does.

        If it is interrupted, call it again. After a failure (LogFailedError) the log is closed as after a
        crash: the next opening recovers it. LogFailedError is also raised for a failure in the background,
        and if the directory or a .log file was removed; its message has the lost offsets. OSError if closing
        fails; the log is closed nevertheless.
        """
        self._closer.close()

    def abandon(self) -> None:
        """Close the log without syncing, as if the process had died: the next opening recovers it."""
        self._closer.abandon()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        finally:
            self.abandon()  # where closing was interrupted: it is not called again

    def __del__(self) -> None:
        closer = self.__dict__.get("_closer")  # None: the directory was not leased
        if closer is not None:
            closer.finalize(self)


def _reload_options(writer: weakref.ref[LogWriter]) -> None:
    log = writer()
    if log is not None:
        log.reload_options()
