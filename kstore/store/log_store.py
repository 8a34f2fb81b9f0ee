"""Topics in one or more log directories, as a broker's log manager keeps them."""

from __future__ import annotations

import io

from kstore.arguments import boolean, elements, integer, warn
from kstore.errors import KstoreError, LogLockedError, LogNotFoundError, shown
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
from kstore.store.consumer_offsets import committed_here, expire_positions, give_back, lag_of, take_over
from kstore.store.descriptions import describe_topic, health_of
from kstore.store.metrics import measure, sizes_of
from kstore.store.open_partitions import OpenPartitions
from kstore.store.read.store_cursor import StoreCursor
from kstore.store.read.store_follower import StoreFollower
from kstore.store.read.store_scan import StoreScan
from kstore.store.read.store_share_group import open_share_group, share_groups_here
from kstore.store.read.table import Table
from kstore.store.recovery import recover
from kstore.store.store_closer import StoreCloser
from kstore.store.topic import checked_name
from kstore.store.topic_appender import TopicAppender
from kstore.store.topic_catalog import TopicCatalog
from kstore.store.topic_changes import TopicChanges
from kstore.store.upkeep.maintenance_tasks import needs_of_groups
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
    """The topics of one or more log directories: what a broker's log manager is, without a broker.

    `dirs` are what a broker calls log.dirs: directories with a directory for each partition.

    mode "r": reads. Nothing is written or locked, so the directories may belong to a running broker. The
    names of the partitions are taken when the object is made, and by `refresh`. remote: the URL to which
    kstore.ship() has shipped the directory, to read segments that are only there. storage_options: for URLs,
    a mapping of fsspec's options. mode "a": writes too. Directories that are missing are made, and locked
    until the store is closed: close it, or use it in a `with` statement. If they were not closed cleanly, all
    are recovered first, as by a broker. Threads may share the store. wait: how many seconds to wait for a
    directory that does not exist yet, or in mode "a" while others write there. Default 0.

    Options for writing, all by name: config: a LogConfig, for topics that do not say otherwise. Each of its
    options may also be given by name. durability, keep_cut, leader_epoch, clock, max_decompressed_bytes,
    producer_id_expiration_ms: for all logs, as in kstore.open. shared: True lets other processes that pass
    it, too, write the store at the same time. Each sees in its next call what the others have appended, and
    which topics they have created or changed. After a fork a child opens the store itself. The file system
    must be a local one. Default: False. background: whether old segments are deleted, compacted topics
    compacted, .keys files made if key_files says so, and so on, in the background: True or False. Default:
    True. keep_for: groups of cursors and share groups, whose records the background does not delete before
    they are done; see `retain`. Default: none. idle_roll_ms: how often the background looks for segments
    without appends that are old enough to end, and ends them, in ms. Default: never, as in Kafka.
    max_open_partitions: how many logs stay open, an int. Default: an eighth of the descriptors that the
    process may have, but at least 8. Others are opened when they are needed.

    Iterating gives a TopicPartition for each partition, and `in` says whether there is one. `others` holds
    the names of directories that are no partitions in use: those marked -delete, -future or -stray,
    and those that Kafka does not accept.

    Raises:
        LogNotFoundError: mode is "r" and there is no such directory, also after `wait`, or it is itself a
            partition.
        LogLockedError: another process, or another store of this one, writes there, and still does after
            `wait`. With `shared`: one that does not share.
        KstoreError: two directories hold one partition, or `shared` is True on a network file system.
        OSError: no directory can be used. If only some fail, `health` tells, and the others are in use.
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
                self._catalog.give_back()
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
        """The names of directories that are not partitions in use."""
        return sorted(name for directory in self._catalog.directories for name in directory.others)

    @property
    def topics(self) -> dict[str, list[int]]:
        """The numbers of the partitions of each topic: {"orders": [0, 1], …}."""
        self._catalog.look()
        return {name: list(topic.numbers) for name, topic in self._catalog.topics.items()}

    @property
    def closed_cleanly(self) -> bool:
        """Whether all logs in the directories were closed cleanly: a marker file says so. A store that is
        open for writing has taken it away. It says nothing of __cluster_metadata, which a broker recovers at
        each start.
        """
        return all(directory.closed_cleanly for directory in self._catalog.directories)

    @property
    def config(self) -> LogConfig:
        """The configuration of topics that do not say otherwise."""
        return self._catalog.config

    @property
    def is_closed(self) -> bool:
        """Whether the store was closed. False if close() was interrupted, and has the lock still: call it
        again."""
        return self._closer is None or self._closer.has_left

    def meta(self) -> dict[str, str]:
        """What meta.properties of the first directory says, as text: cluster.id, node.id, directory.id,
        version. Empty if there is no such file. CorruptCheckpointError if it cannot be parsed."""
        return self._catalog.directories[0].meta()

    def describe(self, topic: str) -> TopicDescription:
        """A topic's partitions and its configuration, as a TopicDescription. LogNotFoundError."""
        return describe_topic(self._catalog, topic)

    def health(self) -> StoreHealth:
        """What is out of use, or failed in the background, and why, as a StoreHealth; its `ok` is True if
        nothing is."""
        self._upkeep.start()
        return health_of(self._logs, self._upkeep)

    def metrics(self) -> StoreMetrics:
        """What the store has counted since it was opened, as StoreMetrics: records, bytes and times of what
        went in and out, segments, recovery, cleaning. Its prometheus() gives text for Prometheus.

        Nothing is counted of logs that kstore.open has. OSError if a directory cannot be listed.
        """
        self._logs.check_open()
        self._catalog.refresh()
        failures = sum(bool(each) if isinstance(each, str) else len(each) for each in self.health())
        return measure(self._logs, failures)

    def report(self) -> Page:
        """Return a page of HTML about all partitions, as kstore.report does. OSError."""
        return page_of(self)

    def _check_writing(self) -> None:
        if not self._catalog.is_writing:
            raise io.UnsupportedOperation(
                f"{self._catalog.named()} is open for reading: LogStore(path, mode='a') writes"
            )
        self._logs.check_open()

    # ---- logs ----------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """The log of a partition: a LogWriter if the store writes, else a PartitionLog, as `open` gives it.

        A LogWriter is the store's own, so do not close it: it stays open for as long as you have it, at the
        longest until the store is closed. LogNotFoundError.
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
        """Opens one partition for reading only, and returns a PartitionLog.

        `options` are those of kstore.open for reading, such as recover=False. LogNotFoundError if there is no
        such partition, ValueError for a name that no topic of Kafka's can have.
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
        """Appends one record to a topic, and returns (partition, offset).

        The key chooses the partition, as Kafka's default partitioner does: murmur2 of the key, modulo the
        number of partitions. Records without a key stay at one partition for about 16 KiB, then go on to the
        next. The other arguments, and the errors, are those of LogWriter.append. LogNotFoundError if there is
        no such topic, or if the partition is not here.
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
        """Appends many records to a topic, and returns the offsets by partition: {0: range(0, 512), …}.

        The arguments are those of LogWriter.extend, and partitions are chosen as in `append`; without keys
        all records of a call go to one partition. The columns are split by partition without the GIL. Errors
        in the arguments are found before anything is written; should the system fail half way, what was
        appended before that stays, as the log_end_offset of the partitions tells.
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
        """Appends one record to a topic, as `append` does, while the event loop goes on: a thread for each
        topic appends, in the order of the calls, and syncs each partition once for all tasks that wait.

        If the task is cancelled, the record is appended or not: `appended` of the CancelledError is
        (partition, offset), or None if nothing was appended. If it has begun, the task ends only when that is
        known. close() appends what has begun before it; what a task has not begun then, as after
        asyncio.create_task() alone, is LogClosedError.
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
        """Appends many records to a topic, as `extend` does, while the event loop goes on; otherwise as
        append_async. Do not change the columns meanwhile. `appended` of a CancelledError is what extend()
        returned, or None.
        """
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
        """The records of a topic as columns: one Arrow stream over all its partitions, one after the other.

        columns: names, in order: `partition`, and those of PartitionLog.scan. Default: partition, offset,
        timestamp, timestamp_type, key, value, headers. partitions: numbers of the partitions to read.
        Default: all; LogFailedError if some are not here.

        The other options are those of PartitionLog.scan, but for `start` and `stop`, which are offsets of one
        partition. LogNotFoundError.
        """
        self._logs.check_open()
        found = self._catalog.topic(topic)
        for name in ("start", "stop"):
            if name in options:
                raise TypeError(f"{name} is an offset of one partition: use log(topic, partition).scan()")
        if partitions is None:
            self._catalog.require_all(found, "read as a whole")
        numbers = found.numbers if partitions is None else found.chosen(partitions)
        if not numbers:
            raise LogNotFoundError(f"no partition of topic {topic} is to be read")

        def scan_of(number: int, names: tuple[str, ...]) -> Scan:
            return self.log(topic, number).scan(cast(tuple[Column, ...], names), **options)

        return StoreScan(topic, columns, numbers, scan_of)

    def table(self, topic: str) -> Table:
        """A topic as a read-only mapping: the last value of every key, as bytes. It follows the topic while
        it grows.

        See Table. LogNotFoundError if there is no such topic, LogFailedError if some of its partitions are
        not here.
        """
        return Table(self._logs, topic)

    def refresh(self) -> None:
        """Takes in which topics and partitions there are now. A store that reads knows those of the time when
        it was opened or refreshed; one that writes always knows them. OSError, KstoreError as at the opening.
        """
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
        """The durable positions of a group of readers in the partitions of these topics: a StoreCursor, which
        gives the records after those that were committed last.

        All cursors of a group, in any thread or process, share the partitions: each has some of them, and
        takes over those of one that has died. They should name equal topics.

        `start`, `follow`, `timeout`, `isolation` and `on_error` are those of PartitionLog.cursor. Where the
        group has no position, one that is not "earliest" is committed at once: a member that takes over
        begins there too. With follow=True a topic may be missing, and is read once it is made; else
        LogNotFoundError. OSError if the files with the positions cannot be written, CorruptRecordError if
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
        """A worker of a share group: a ShareGroup, which hands out the records of these topics as jobs.

        A record of a topic is delivered only if those before it in the list have none, so a topic is a
        priority. dead_letter_topic: the name of a topic that gets copies of the records that the group gives
        up. It must exist (LogNotFoundError), and the store must be open for writing. Default: none.
        max_record_locks counts for each partition. All else is as in PartitionLog.share_group. With
        follow=True one of `topics` may be missing, and is read once it is made; else LogNotFoundError.
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
        """What all share groups have done: {"workers": {("jobs", 0): ShareGroupState(…), …}, …}. OSError,
        CorruptRecordError if a file of a group is damaged.
        """
        return share_groups_here(self._paths_of_all())

    def cursors(self) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What all groups have committed: {"billing": {("orders", 0): OffsetAndMetadata(…), …}, …}. A
        partition of which a group has committed nothing is not there; `lag` has it. OSError,
        CorruptRecordError if a file of positions is damaged.
        """
        return committed_here(self._paths_of_all())

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets lie between what a group has committed and the end of the log, for each partition
        of the topics in which it has committed one: {("orders", 0): 17, …}. Other partitions of these count
        from their start. Empty if it has committed nothing at all. It is negative if the position is
        beyond the end: records are lost, or an older copy was put back. OSError, CorruptRecordError.
        """
        return lag_of(self._paths_of_all(), group)

    def import_cursors(
        self, source: str | PathLike[str], groups: Iterable[str] | None = None, *, dry_run: bool = False
    ) -> CursorTransfer:
        """Takes over the positions of a broker's groups, as its topic __consumer_offsets has them, durably.
        Returns a CursorTransfer, which says what was taken, and what was not and why.

        source: a log directory with partitions of __consumer_offsets, or one of these.
        groups: names of groups. Default: all.
        dry_run: True only says what would be done.

        Positions of partitions that the store has are committed, in one step for each group and log
        directory, in place of what the group has committed here. A record that cannot be read is skipped and
        reported, and the others are taken over. CursorLockedError if a cursor reads for one of them;
        LogNotFoundError if there is no __consumer_offsets; CorruptRecordError if a batch of it is damaged.
        OSError.
        """
        return take_over(self._paths_of_all(), source, groups, dry_run=dry_run)

    def export_cursors(
        self,
        target: str | PathLike[str],
        groups: Iterable[str] | None = None,
        *,
        partitions: int | None = None,
        dry_run: bool = False,
    ) -> CursorTransfer:
        """Gives positions to a broker that is stopped: appends them to its topic __consumer_offsets, as it
        would. Returns a CursorTransfer, which says what was given.

        target: the broker's log directory. If it is one of the store's, positions go into the partitions of
        __consumer_offsets in any of the store's directories. Missing partitions are made, except where a
        broker has been (meta.properties is there): it sets partitions aside as -stray that it did not make.
        groups, dry_run: as in import_cursors. partitions: how many __consumer_offsets has, in all the
        broker's directories. Default: as many as are there, if none is missing from number 0 to the last; 50
        if there are none, as a broker has: then all 50 are made. Else give it.

        ValueError if the number is not known, or too small for what is there, or if a broker would set a
        partition aside; then nothing is written. LogLockedError if the broker runs. OSError,
        CorruptRecordError.
        """
        beside = [directory.path for directory in self._catalog.live()]
        return give_back(self._paths_of_all(), target, groups, partitions, beside, dry_run=dry_run)

    def expire_cursors(self, *, dry_run: bool = False) -> dict[str, list[TopicPartition]]:
        """Removes the positions of groups without a read or commit for
        offsets_retention_minutes, durably, and returns of which partitions they were, by group. The
        background does so if that option was given.

        A reader that was killed has left when this is called first after it, by the background or by you.
        Positions have the system's time: a store whose own clock is ahead of that removes them too early.

        dry_run: True only says what would be removed. OSError, CorruptRecordError.
        """
        self._check_writing()
        return expire_positions(self._catalog, dry_run=dry_run)

    def _paths_of_all(self) -> dict[TopicPartition, str]:
        self._logs.check_open()
        self._catalog.refresh()
        return {tp: str(directory.path_of(tp)) for tp, directory in self._catalog.partitions.items()}

    def follow(
        self,
        topics: Iterable[str] | None = None,
        start: Literal["earliest", "latest"] | datetime | Mapping[TopicPartition, Position | int] = "latest",
        *,
        timeout: float | None = None,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        on_error: Literal["raise", "skip"] = "raise",
    ) -> StoreFollower:
        """The records of topics as they come, whoever writes them: a StoreFollower, which waits for all
        partitions at once.

        topics: names; one that is missing is read once it is made. Default: all topics, also those that are
        made later, but for those whose names begin with "__". start: "latest" (default), "earliest", a
        datetime with a time zone, or positions() of another follower; a partition that is not among them is
        read from its beginning. Offsets by partition do not detect a truncation made in between. timeout:
        seconds without a record, after which it ends. isolation, on_error: as in PartitionLog.follow.

        OffsetOutOfRangeError when it is iterated, if an offset is not in its partition.
        """
        return StoreFollower(
            self._logs, topics, start, timeout=timeout, isolation=isolation, on_error=on_error
        )

    def flush(self) -> None:
        """Writes everything that was appended so far to the disk, and the checkpoint files.

        OSError, LogFailedError: that of the first log that failed; all others are flushed.
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
        """Removes records of a topic for good, in all its partitions: a key may be in several, if partitions
        were added since. Returns what LogWriter.erase returns, by partition.

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
        """Deletes old segments of all partitions, as LogWriter.retain does, and removes the directories of
        deleted topics whose time has come. Returns the decisions by partition.

        keep_for: groups of cursors and share groups, beside those that the store was opened with. No segment
        is deleted that holds a record which one of them has not committed, or not acknowledged. If a group
        has done so in some partitions of a topic, the others are kept whole; if it has done so in none at
        all, nothing is deleted.

        A partition that fails is skipped, and `health` reports it. So is one without retention_ms, of its
        topic or of the store, if Kafka's default of 7 days would delete some of its records; and one that is
        known to be compacted, if cleanup_policy is not set.
        """
        boolean("dry_run", dry_run)
        groups = [*self._keep_for, *checked_groups("keep_for", keep_for)]
        self._check_writing()
        needs = needs_of_groups(self._catalog, groups)
        decisions = {}
        for tp in self.partitions:
            if tp.topic == layout.CLUSTER_METADATA:
                continue
            topic = self._catalog.topics.get(tp.topic)
            try:
                decisions[tp] = self._logs.get(tp).maintenance.retain(needs(tp), dry_run=dry_run)
            except (OSError, KstoreError) as e:
                if topic is not None and not self._catalog.was_deleted(topic):
                    self._logs.failed(tp, e)
            else:
                self._logs.failures.pop(tp, None)
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
        """Makes a topic, durably, and describes it.

        partitions: their number. Default: 1. `config` are options of LogConfig for this topic; what is not
        named is the store's. They are kept in the directory, and hold at the next opening too. With several
        directories a partition goes where the fewest are. If the process dies meanwhile, the topic is there
        with all its partitions at the next opening, or not at all. exist_ok: True describes a topic that
        exists. It must have the partitions and the options that the call names: ValueError names the first
        difference. What the call does not name is not compared.

        Raises: ValueError: Kafka does not allow the name, or there is such a topic, or one that Kafka cannot
        tell from it: `.` and `_` are equal in the names of its metrics. InvalidConfigError: an option is
        unknown, or has a value that it cannot have. OSError: nothing is changed, or `health` tells what is
        not finished.
        """
        self._check_writing()
        self._changes.create(name, partitions, config, exist_ok=exist_ok)
        return self.describe(name)

    def add_partitions(self, topic: str, total: int) -> TopicDescription:
        """Gives a topic more partitions, `total` in all, durably, and describes it.

        A key may belong to another partition from then on. ValueError if it has as many already. OSError as
        in `create_topic`.
        """
        self._check_writing()
        self._changes.add_partitions(topic, total)
        return self.describe(topic)

    def alter_topic(self, topic: str, **config: Unpack[ConfigOptions]) -> TopicDescription:
        """Changes a topic's own configuration, durably and at once, and describes it:
        store.alter_topic("orders", retention_ms=86_400_000).

        None gives an option back to the store's configuration. InvalidConfigError: nothing is changed.
        OSError.
        """
        self._check_writing()
        self._changes.alter(topic, config)
        return self.describe(topic)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic, durably: its partitions are out of use when this returns.

        Their directories get names that end in -delete, as Kafka's do, and are removed after
        file_delete_delay_ms by `retain` or a later change of topics, or when the store is closed. LogWriters
        of the topic are closed. If the process dies meanwhile, the next opening finds the topic deleted, or
        as it was. LogNotFoundError. OSError as in `create_topic`.
        """
        self._check_writing()
        self._changes.delete(topic)

    # ---- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes all logs, and leaves the directories as a broker's clean shutdown does.

        The directories of deleted topics are removed. If a log cannot be closed cleanly, its error is raised,
        all others are closed, and the next opening recovers the directory. A store that reads
        has nothing to close. If it is interrupted, call it again.
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
