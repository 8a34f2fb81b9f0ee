"""Topics in one or more log directories, as a broker's log manager keeps them."""

from __future__ import annotations

import io

from kstore.arguments import boolean, elements, integer, warn
from kstore.errors import LogLockedError, LogNotFoundError, shown
from kstore.light_typing import TYPE_CHECKING, cast
from kstore.log.cursors.arguments import checked_groups
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.lock import once_free
from kstore.log.options import refuse_others
from kstore.log.partition import PartitionLog
from kstore.log.recovery.report import DataLossWarning
from kstore.page import notebook_table, page_of
from kstore.store.arguments import checked_arguments
from kstore.store.consumer_offsets import committed_here, expire_positions, export_to, import_from, lag_of
from kstore.store.descriptions import describe_topic, health_of
from kstore.store.metrics import measure, sizes_of
from kstore.store.open_partitions import OpenPartitions
from kstore.store.read.store_cursor import StoreCursor
from kstore.store.read.store_follower import StoreFollower
from kstore.store.read.store_scan import StoreScan, numbers_to_scan
from kstore.store.read.store_share_group import open_share_group, share_groups_here
from kstore.store.read.table import Table
from kstore.store.recovery import recover
from kstore.store.store_closer import StoreCloser
from kstore.store.topic import checked_name
from kstore.store.topic_appender import TopicAppender
from kstore.store.topic_catalog import TopicCatalog
from kstore.store.topic_changes import TopicChanges
from kstore.store.upkeep.maintenance_tasks import retain_all
from kstore.store.upkeep.upkeep import Upkeep
from kstore.typed import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from os import PathLike
    from pathlib import Path
    from types import TracebackType
    from typing import Any, Literal, NoReturn, Self, Unpack

    from kstore.config import LogConfig
    from kstore.log.compact.erasure import Match
    from kstore.log.compact.report import Erasure
    from kstore.log.cursors.offset_commits import OffsetAndMetadata
    from kstore.log.follow.position import Position
    from kstore.log.read.progress import ProgressCallback
    from kstore.log.read.scan import Scan
    from kstore.log.share.descriptions import ShareGroupState
    from kstore.log.share.share_group import ShareGroup
    from kstore.log.write.retention import Decision
    from kstore.page import Page
    from kstore.store.consumer_offsets import CursorTransfer
    from kstore.store.descriptions import StoreHealth, TopicDescription
    from kstore.store.metrics import StoreMetrics
    from kstore.typed import (
        BytesLike,
        Cells,
        ConfigOptions,
        HeaderLists,
        Headers,
        StoreColumn,
        StoreOptions,
        Times,
    )


class LogStore:
    """The topics of one or more log directories, as a broker's log manager has them.

    Modes:
        mode "r": reads. Nothing is written or locked, so the directories may belong to a running broker. The
            store has the partitions of the time of its opening; `refresh()` adds later ones.
        mode "a": reads and writes. Creates missing directories, and locks all until the store is closed: call
            `close()`, or use a `with` statement. If a directory was not closed cleanly, all are recovered
            first, as by a broker.

    Threads may share the store. Iterating yields a TopicPartition for each partition, and `in` says whether
    the store has one.

    Options for both:
        dirs: the log directories (Kafka's log.dirs): each contains a directory for each partition. For
            reading also URLs.
        wait: how many seconds to wait for a directory that does not exist yet, or in mode "a" while another
            process has it locked. Default 0.

    Options for reading:
        remote: the URL to which kstore.ship() has uploaded the directory. Segments that the directory no
            longer has are read from there.
        storage_options: for URLs, a mapping of fsspec's options.

    Options for writing:
        config: a LogConfig, for options that a topic does not set. Each of its options may also be passed by
            name.
        durability, keep_cut, leader_epoch, clock, max_decompressed_bytes, producer_id_expiration_ms: for all
            logs, as in kstore.open.
        shared: True lets other processes that pass it, too, write the store at the same time. The next call
            of each sees what the others have appended, and which topics they have created or changed. A child
            of fork opens the store itself. KstoreError on a network file system. Default False.
        background: True deletes old segments, compacts compacted topics, makes .keys files and so on in the
            background. Default True.
        keep_for: groups of cursors and share groups; the background deletes no segment that one of them has
            not read, as in `retain`. Default: none.
        idle_roll_ms: interval in which the background rolls logs without appends whose active segment is old
            enough. Default: never, as in Kafka.
        max_open_partitions: how many logs stay open. Others are opened when they are needed. Default: an
            eighth of the descriptors that the process may have, but at least 8.

    Raises:
        LogNotFoundError: in mode "r", a directory does not exist, also after `wait`, or is itself a
            partition.
        LogLockedError: another process, or another store of this process, has a directory open for writing,
            also after `wait`. With `shared`: one that does not pass it.
        KstoreError: two directories have the same partition, or `shared` is True on a network file system.
        OSError: no directory can be used. If some can be used, `health` reports the others.
        InvalidConfigError, TypeError, ValueError: an argument is wrong.
    """

    _closer: StoreCloser | None = None

    def __init__(
        self,
        *dirs: str | PathLike[str],
        mode: Literal["r", "a"] = "r",
        config: LogConfig | None = None,
        max_open_partitions: int | None = None,
        background: bool = True,
        idle_roll_ms: int | None = None,
        keep_for: Iterable[str] = (),
        wait: float = 0,
        storage_options: Mapping[str, Any] | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        if not self.is_closed:
            raise RuntimeError(f"the store of {self.path} is open already: make another LogStore")
        given = checked_arguments(
            dirs,
            mode,
            config=config,
            max_open_partitions=max_open_partitions,
            background=background,
            idle_roll_ms=idle_roll_ms,
            keep_for=keep_for,
            wait=wait,
            storage_options=storage_options,
            options=options,
        )
        self._catalog = TopicCatalog(
            given.config,
            given.log_options["clock"],
            is_writing=given.is_writing,
            is_shared=given.log_options["shared"],
        )
        self._catalog.now()  # a clock that tells no time is refused before anything is made
        self._keep_for = given.keep_for
        self._logs = OpenPartitions(
            self._catalog,
            given.log_options,
            given.max_open_partitions,
            flushes=not given.is_in_background,
        )
        self._upkeep = Upkeep(
            self._logs,
            given.keep_for,
            given.idle_roll_ms,
            expires_cursors=given.expires_cursors,
            is_in_background=given.is_in_background,
        )
        self._changes = TopicChanges(self._logs, self._upkeep)
        self._appender = TopicAppender(self._logs)
        self._closer = closer = StoreCloser(self._logs, self._upkeep, self._appender)
        is_untouched = True  # but for what recovery does, if it was not closed cleanly
        try:
            awaited = LogLockedError if given.is_writing else LogNotFoundError
            once_free(lambda: self._catalog.take(given.paths, given.remote), given.wait, awaited)
            closer.begin()
            if self._catalog.is_writing:
                for loss in [loss for each in self._catalog.directories for loss in each.losses]:
                    warn(loss, DataLossWarning)  # closing writes new checkpoints
                self._changes.load()
                recover(self._logs)
            else:
                self._catalog.load_to_read()
            is_untouched = False  # the background may open logs
            self._logs.on_open = self._upkeep.start
            self._upkeep.start()
        except BaseException:  # the exception keeps this object, whose directories must not stay locked
            if is_untouched:
                self._catalog.release()
            closer.leave(clean=False)
            raise

    # ---- what there is -------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The log directory; the first one, if there are several."""
        return self.paths[0]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The log directories."""
        return self._catalog.paths()

    @property
    def mode(self) -> Literal["r", "a"]:
        """ "r" if the store is open for reading, "a" if it is open for writing."""
        return "a" if self._catalog.is_writing else "r"

    @property
    def is_shared(self) -> bool:
        """Whether other processes may write the store at the same time: it was opened with `shared`."""
        return self._catalog.is_shared

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions, by topic and number."""
        self._catalog.look()
        return sorted(self._catalog.partitions)

    @property
    def others(self) -> list[str]:
        """The names of directories that are not partitions in use: those that end in -delete, -future or
        -stray, and those with names that Kafka does not allow."""
        return sorted(name for directory in self._catalog.directories for name in directory.others)

    @property
    def topics(self) -> dict[str, list[int]]:
        """The numbers of the partitions of each topic: {"orders": [0, 1], …}."""
        self._catalog.look()
        return {name: list(topic.numbers) for name, topic in self._catalog.topics.items()}

    @property
    def closed_cleanly(self) -> bool:
        """Whether all logs in the directories were closed cleanly, by the marker files. False while a store
        is open for writing. __cluster_metadata does not count: a broker recovers it at each start."""
        return all(directory.closed_cleanly for directory in self._catalog.directories)

    @property
    def config(self) -> LogConfig:
        """The configuration for options that a topic does not set."""
        return self._catalog.config

    @property
    def is_closed(self) -> bool:
        """Whether the store was closed. False if close() was interrupted and the store still has the lock:
        call it again."""
        return self._closer is None or self._closer.has_left

    def meta(self) -> dict[str, str]:
        """Return the content of meta.properties in the first directory: cluster.id, node.id, directory.id,
        version. Empty if there is no such file. CorruptCheckpointError if it cannot be parsed."""
        return self._catalog.directories[0].meta()

    def describe(self, topic: str) -> TopicDescription:
        """Return the partitions and the configuration of a topic, as a TopicDescription. LogNotFoundError."""
        return describe_topic(self._catalog, topic)

    def health(self) -> StoreHealth:
        """Return the partitions and directories that are unavailable, and the background tasks that failed,
        with the reasons, as a StoreHealth. Its `ok` is True if there are none."""
        self._upkeep.start()
        return health_of(self._logs, self._upkeep)

    def metrics(self) -> StoreMetrics:
        """Return the counters of the store since its opening, and present sizes and offsets, as StoreMetrics.
        Its prometheus() returns text for Prometheus.

        Logs that kstore.open has opened are not counted. OSError if a directory cannot be listed.
        """
        self._logs.check_open()
        self._catalog.refresh()
        failures = sum(bool(each) if isinstance(each, str) else len(each) for each in self.health())
        return measure(self._logs, failures)

    def report(self) -> Page:
        """Return an HTML page about all partitions, as kstore.report does. OSError."""
        return page_of(self)

    def _check_writing(self) -> None:
        if not self._catalog.is_writing:
            raise io.UnsupportedOperation(
                f"{self._catalog.named()} is open for reading: LogStore(path, mode='a') writes"
            )
        self._logs.check_open()

    # ---- logs ----------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """Return the log of a partition: a LogWriter if the store is open for writing, else a PartitionLog.

        Do not close the LogWriter: the store closes it, at the earliest when your program has no reference
        to it, and at the latest in close(). LogNotFoundError.
        """
        partition = integer("partition", partition, 0, 2**31 - 1)
        if not self._catalog.is_writing:
            return self.open(topic, partition)
        self._check_writing()
        while True:
            found = self._catalog.topic(topic)
            try:
                return self._logs.get(found.partition(partition))
            except LogNotFoundError:
                if not self._catalog.was_deleted(found):
                    raise

    def open(self, topic: str, partition: int = 0, **options: Any) -> PartitionLog:
        """Open one partition for reading only, and return a PartitionLog.

        `options` are those of kstore.open for reading, such as recover=False. LogNotFoundError if there is no
        such partition, ValueError for a name that Kafka does not allow.
        """
        checked_name(topic)
        partition = integer("partition", partition, 0, 2**31 - 1)
        tp = TopicPartition(topic, partition)
        named = layout.parse_directory(topic)
        if named is not None and named in self._catalog.partitions and tp not in self._catalog.partitions:
            raise LogNotFoundError(
                f"no partition {partition} of a topic {topic} in {self._catalog.named()}; the partition "
                f"{topic} is open({named.topic!r}, {named.partition})"
            )
        refuse_others("read", options)
        directory = self._catalog.partitions.get(tp, self._catalog.directories[0])
        log = directory.open_to_read(tp, **options)
        log.traffic = self._logs.traffic_of(topic)
        return log

    def append(
        self,
        topic: str,
        value: BytesLike | None,
        key: BytesLike | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> tuple[int, int]:
        """Append one record to a topic, and return (partition, offset).

        The key selects the partition, as Kafka's default partitioner does: murmur2 of the key, modulo the
        number of partitions. About 16 KiB of records without a key go to one partition, then to another one.
        The other arguments, and the errors, are those of LogWriter.append. LogNotFoundError if there is no
        such topic, or if the partition is in no directory of the store.
        """
        self._check_writing()
        return self._appender.append(topic, value, key, timestamp, headers)

    def extend(
        self,
        topic: str,
        values: Cells,
        keys: Cells | None = None,
        timestamps: Times | None = None,
        headers: HeaderLists | None = None,
    ) -> dict[int, range]:
        """Append many records to a topic, and return the offsets by partition: {0: range(0, 512), …}.

        The arguments are those of LogWriter.extend, and the key selects the partition as in `append`. Without
        keys, all records of a call go to one partition. Arguments are checked before anything is written. If
        a write fails, records that were appended before stay; the log_end_offset of the partitions shows
        them.
        """
        self._check_writing()
        return self._appender.extend(topic, values, keys, timestamps, headers)

    async def append_async(
        self,
        topic: str,
        value: BytesLike | None,
        key: BytesLike | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers | None = None,
    ) -> tuple[int, int]:
        """Append one record to a topic, as `append` does, without blocking the event loop. A thread for each
        topic appends in the order of the calls, and syncs each partition once for all waiting tasks.

        If the task is cancelled, `appended` of the CancelledError is (partition, offset), or None if nothing
        was appended. A cancelled task ends when that is known. close() completes the calls that have begun. A
        call that begins later, also of a task that was created before, raises LogClosedError.
        """
        self._check_writing()
        return await self._appender.append_async(topic, value, key, timestamp, headers)

    async def extend_async(
        self,
        topic: str,
        values: Cells,
        keys: Cells | None = None,
        timestamps: Times | None = None,
        headers: HeaderLists | None = None,
    ) -> dict[int, range]:
        """Append many records to a topic, as `extend` does, without blocking the event loop; otherwise as
        append_async. Do not change the columns meanwhile. `appended` of a CancelledError is the result of
        extend(), or None."""
        self._check_writing()
        return await self._appender.extend_async(topic, values, keys, timestamps, headers)

    def scan(
        self,
        topic: str,
        columns: Iterable[StoreColumn] | None = None,
        *,
        partitions: Iterable[int] | None = None,
        **options: Any,
    ) -> StoreScan:
        """Return the records of a topic as columns: one Arrow stream of all its partitions, one after the
        other.

        columns: names, in order: `partition`, and those of PartitionLog.scan. Default: partition, offset,
            timestamp, timestamp_type, key, value, headers.
        partitions: numbers of the partitions to read. Default: all; LogFailedError if one is missing.

        The other options are those of PartitionLog.scan, except `start` and `stop`, which are offsets of one
        partition. LogNotFoundError.
        """
        self._logs.check_open()
        for name in ("start", "stop"):
            if name in options:
                raise TypeError(f"{name} is an offset of one partition: use log(topic, partition).scan()")
        numbers = numbers_to_scan(self._catalog, topic, partitions)

        def scan_of(number: int, names: tuple[str, ...]) -> Scan:
            return self.log(topic, number).scan(cast(tuple[Column, ...], names), **options)

        return StoreScan(topic, columns, numbers, scan_of)

    def table(self, topic: str) -> Table:
        """Return a topic as a read-only mapping from each key to its last value, as bytes. It follows the
        topic.

        See Table. LogNotFoundError if there is no such topic, LogFailedError if one of its partitions is
        missing.
        """
        return Table(self._logs, topic)

    def refresh(self) -> None:
        """Update the topics and partitions of a store that is open for reading: it has those of its opening
        or of the last refresh. OSError, KstoreError as at the opening."""
        self._catalog.refresh()

    def cursor(
        self,
        group: str,
        topics: Iterable[str],
        start: Literal["earliest", "latest"] | int | datetime = "earliest",
        *,
        follow: bool = False,
        timeout: float | None = None,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        on_error: Literal["raise", "skip"] = "raise",
    ) -> StoreCursor:
        """Return a StoreCursor: a reader of these topics whose positions are saved on disk for a group.

        The cursors of a group, in any threads and processes, divide the partitions evenly, and take over
        those of a cursor that has died. They should name equal topics.

        `start`, `follow`, `timeout`, `isolation` and `on_error` are those of PartitionLog.cursor. In a
        partition without a position of the group, a `start` other than "earliest" is committed at once, so
        that another cursor that takes over begins there, too. With follow=True a topic need not exist yet;
        otherwise LogNotFoundError. OSError if the files of positions cannot be written, CorruptRecordError if
        they are damaged.
        """
        return StoreCursor(
            self._logs,
            group,
            topics,
            start,
            follow=follow,
            timeout=timeout,
            isolation=isolation,
            on_error=on_error,
        )

    def share_group(
        self,
        group: str,
        topics: Iterable[str],
        start: Literal["earliest", "latest"] | int | datetime = "earliest",
        *,
        follow: bool = False,
        timeout: float | None = None,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        on_error: Literal["raise", "skip"] = "raise",
        record_lock_ms: int = 30_000,
        max_delivery_attempts: int = 5,
        max_record_locks: int = 2_000,
        durable: bool = True,
        dead_letter_topic: str | None = None,
    ) -> ShareGroup:
        """Return a ShareGroup: a worker of a share group, which gets the records of these topics as jobs.

        The order of `topics` is a priority: a record is delivered only if no record of the topics before it
        is available. dead_letter_topic: the name of a topic for copies of the records that the group gives
        up. It must exist (LogNotFoundError), and the store must be open for writing. Default: none.
        max_record_locks is the limit for each partition. The other arguments are those of
        PartitionLog.share_group. With follow=True a topic need not exist yet; otherwise LogNotFoundError.
        """
        options = {
            "start": start,
            "follow": follow,
            "timeout": timeout,
            "isolation": isolation,
            "on_error": on_error,
            "record_lock_ms": record_lock_ms,
            "max_delivery_attempts": max_delivery_attempts,
            "max_record_locks": max_record_locks,
            "durable": durable,
        }
        return open_share_group(self._logs, group, topics, dead_letter_topic, options)

    def share_groups(self) -> dict[str, dict[TopicPartition, ShareGroupState]]:
        """Return the states of all share groups: {"workers": {("jobs", 0): ShareGroupState(…), …}, …}.
        OSError, CorruptRecordError if a file of a group is damaged."""
        return share_groups_here(self._paths_of_all())

    def cursors(self) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed positions of all groups of cursors: {"billing": {("orders", 0):
        OffsetAndMetadata(…), …}, …}. Partitions without a position are absent; `lag` has them. OSError,
        CorruptRecordError if a file of positions is damaged."""
        return committed_here(self._paths_of_all())

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """Return the number of offsets from the position of a group to the end of the log, for each partition
        of the topics in which it has committed a position: {("orders", 0): 17, …}.

        In partitions of these topics without a position, it counts from the log start offset. Empty if the
        group has committed nothing. Negative if the position is beyond the end: records were lost, or an
        older copy replaced the partition. OSError, CorruptRecordError.
        """
        return lag_of(self._paths_of_all(), group)

    def import_cursors(
        self, source: str | PathLike[str], groups: Iterable[str] | None = None, *, dry_run: bool = False
    ) -> CursorTransfer:
        """Commit the positions of a broker's groups, from its topic __consumer_offsets, durably. Returns a
        CursorTransfer with the positions, and with what was left out and why.

        source: a log directory with partitions of __consumer_offsets, or one of these partitions.
        groups: names of groups. Default: all.
        dry_run: True commits nothing.

        The positions replace those of the group in this store, in one step for each group and log directory.
        Positions of partitions that the store does not have are left out. A record that cannot be read is
        skipped and reported. CursorLockedError if a cursor of the group has one of the partitions;
        LogNotFoundError if there is no __consumer_offsets; CorruptRecordError if a batch of it is damaged.
        OSError.
        """
        return import_from(self._paths_of_all(), source, groups, dry_run=dry_run)

    def export_cursors(
        self,
        target: str | PathLike[str],
        groups: Iterable[str] | None = None,
        *,
        partitions: int | None = None,
        dry_run: bool = False,
    ) -> CursorTransfer:
        """Append positions to the topic __consumer_offsets of a stopped broker. Returns a CursorTransfer with
        the positions, and with what was left out and why.

        target: the broker's log directory. If it belongs to the store, positions go into the partitions of
            __consumer_offsets in all directories of the store.
        partitions: the number of partitions of __consumer_offsets, in all directories of the broker. Default:
            the number in the directories, if none is missing from 0 to the last; 50, a broker's default, if
            there are none, and all 50 are created.
        groups, dry_run: as in import_cursors.

        Missing partitions are created, except in the directory of a broker (with meta.properties), which
        would rename them to -stray. ValueError if the number is not known or too small, or if a broker would
        set a partition aside; then nothing is written. LogLockedError if the broker runs. OSError,
        CorruptRecordError.
        """
        beside = [directory.path for directory in self._catalog.live()]
        return export_to(self._paths_of_all(), target, groups, partitions, beside, dry_run=dry_run)

    def expire_cursors(self, *, dry_run: bool = False) -> dict[str, list[TopicPartition]]:
        """Remove the positions of groups without a read or commit for offsets_retention_minutes, durably, and
        return the partitions by group. The background does this if that option is set.

        For a reader that was killed, the time begins with the first check after its end. Positions have the
        system's time, whatever `clock` is.

        dry_run: True removes nothing. OSError, CorruptRecordError.
        """
        self._check_writing()
        return expire_positions(self._catalog, dry_run=dry_run)

    def _paths_of_all(self) -> dict[TopicPartition, str]:
        self._logs.check_open()
        self._catalog.refresh()
        return self._catalog.partition_paths()

    def follow(
        self,
        topics: Iterable[str] | None = None,
        start: Literal["earliest", "latest"] | datetime | Mapping[TopicPartition, Position | int] = "latest",
        *,
        timeout: float | None = None,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        on_error: Literal["raise", "skip"] = "raise",
    ) -> StoreFollower:
        """Return a StoreFollower: an iterator of the records of topics as they are appended by any process.
        It waits for all partitions at once.

        topics: names of topics, which need not exist yet. Default: all topics, also those that are created
            later, except those whose names begin with "__".
        start: "latest" (default), "earliest", a datetime with a time zone, or positions() of another
            follower; a partition without a position is read from its beginning. With offsets by partition,
            the follower does not detect a truncation below them.
        timeout: seconds without a record after which the iteration ends. Default: never.
        isolation, on_error: as in PartitionLog.follow.

        Iterating raises OffsetOutOfRangeError if an offset is not in its partition.
        """
        return StoreFollower(
            self._logs, topics, start, timeout=timeout, isolation=isolation, on_error=on_error
        )

    def flush(self) -> None:
        """Sync everything that was appended so far, and write the checkpoint files.

        OSError, LogFailedError: the error of the first log that failed; all others are flushed.
        """
        self._check_writing()
        self._logs.flush()

    def erase(
        self,
        topic: str,
        *,
        keys: Iterable[bytes] | None = None,
        where: Match | None = None,
        reason: str,
        what: Literal["records", "values"] = "records",
        cut_files: bool = False,
        dry_run: bool = False,
        progress: ProgressCallback | None = None,
    ) -> dict[int, Erasure]:
        """Remove records of a topic for good, in all its partitions, because a key may be in several after
        add_partitions. Returns the results of LogWriter.erase, by partition.

        The arguments and errors are those of LogWriter.erase; progress begins again at 0 with each partition.
        If a partition fails, those before it are done; the next call does the rest.
        """
        self._check_writing()
        found = self._catalog.topic(topic)
        self._catalog.require_all(found, "erased from")
        if keys is not None and not isinstance(keys, bytes | str):
            keys = elements("keys are several", keys)  # each partition goes through them
        done = {}
        for at in found.numbers:
            log = self._logs.get(found.partition(at))
            done[at] = log.erase(
                keys=keys,
                where=where,
                reason=reason,
                what=what,
                cut_files=cut_files,
                dry_run=dry_run,
                progress=progress,
            )
        return done

    def retain(
        self, *, dry_run: bool = False, keep_for: Iterable[str] = ()
    ) -> dict[TopicPartition, list[Decision]]:
        """Delete old segments of all partitions, as LogWriter.retain does, and the directories of topics that
        were deleted file_delete_delay_ms ago. Returns the decisions by partition.

        keep_for: groups of cursors and share groups, in addition to those of the store. No segment is deleted
            that has a record which one of them has not committed or acknowledged. If a group has no state in
            some partitions of a topic, those are kept whole. If it has no state in any topic, nothing is
            deleted.

        A partition that fails is skipped, and `health` reports it. Two kinds of partitions are skipped, too:
        those without retention_ms and retention_bytes, if Kafka's default of 7 days would delete records, and
        those that are known to be compacted, if cleanup_policy is not set.
        """
        boolean("dry_run", dry_run)
        groups = [*self._keep_for, *checked_groups("keep_for", keep_for)]
        self._check_writing()
        decisions = retain_all(self._logs, groups, dry_run=dry_run)
        if not dry_run:
            self._changes.remove_due()
        return decisions

    # ---- topics --------------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        exist_ok: bool = False,
        **config: Unpack[ConfigOptions],
    ) -> TopicDescription:
        """Create a topic, durably and atomically, and return its TopicDescription.

        partitions: their number. Default 1. Each is created in the directory with the fewest.
        config: options of LogConfig for this topic, which are saved. The store's options apply to the others.
        exist_ok: True returns the description of an existing topic. It must have the partitions and the
            options that you pass: ValueError names the first difference.

        Raises:
            ValueError: Kafka does not allow the name, the topic exists, or its name differs from that of
                another topic only by `.` and `_`, which are equal in the names of Kafka's metrics.
            InvalidConfigError: an option is unknown, or has a value that is not allowed.
            OSError: nothing is changed, or `health` names the unfinished change.
        """
        self._check_writing()
        self._changes.create(name, partitions, config, exist_ok=exist_ok)
        return self.describe(name)

    def add_partitions(self, topic: str, total: int) -> TopicDescription:
        """Increase the partitions of a topic to `total`, durably, and return its TopicDescription.

        Keys may move to another partition. ValueError if the topic has as many already. OSError as in
        `create_topic`.
        """
        self._check_writing()
        self._changes.add_partitions(topic, total)
        return self.describe(topic)

    def alter_topic(self, topic: str, **config: Unpack[ConfigOptions]) -> TopicDescription:
        """Change the options of a topic, durably, and return its TopicDescription:
        store.alter_topic("orders", retention_ms=86_400_000).

        None removes an option from the topic; the store's value applies then. InvalidConfigError: nothing is
        changed. OSError.
        """
        self._check_writing()
        self._changes.alter(topic, config)
        return self.describe(topic)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, durably and atomically: its partitions are unavailable when this returns.

        LogWriters of the topic are closed. The directories are renamed to names that end in -delete, as in
        Kafka. They are removed after file_delete_delay_ms by `retain` or a later change of topics, or when
        the store is closed. LogNotFoundError. OSError as in `create_topic`.
        """
        self._check_writing()
        self._changes.delete(topic)

    # ---- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all logs, and leave the directories as a broker's clean shutdown does.

        The directories of deleted topics are removed. If a log cannot be closed cleanly, its error is raised,
        all others are closed, and the next opening recovers the directory. If close() is interrupted, call it
        again. A store that is open for reading has nothing to close.
        """
        if self._closer is not None:
            self._closer.close()

    def abandon(self) -> None:
        """Closes the store without flushing, as if the process had died: the next opening recovers it."""
        if self._closer is not None:
            self._closer.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        finally:
            self.abandon()  # where closing was interrupted

    def __del__(self) -> None:
        if self._closer is not None:
            self._closer.finalize(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"an open store cannot be pickled: give the other process its path, {self._catalog.named()}"
        )

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.partitions)

    def __contains__(self, partition: object) -> bool:
        self._catalog.look()
        return partition in self._catalog.partitions

    def __len__(self) -> int:
        return len(self.partitions)

    def _repr_html_(self) -> str:
        return notebook_table(repr(self), ("topic", "partitions", "segments", "bytes"), sizes_of(self._logs))

    def __repr__(self) -> str:
        paths = ", ".join(repr(shown(path)) for path in self.paths)
        state = ", closed" if self._catalog.is_writing and self._logs.is_closed else ""
        return f"LogStore({paths}, {len(self)} partitions{state})"
