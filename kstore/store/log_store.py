"""Topics in one or more log directories, as a broker's log manager keeps them.

The file is long because it holds every public method of a store, with its documentation.
"""

import contextlib
import io
import os
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, Unpack, cast

from kstore.arguments import boolean, choice, elements, integer, number, refuse_null, warn
from kstore.config import LogConfig
from kstore.engine.io.file import Traffic
from kstore.engine.record.partitions import split_by_partition
from kstore.errors import (
    KstoreError,
    LogClosedError,
    LogFailedError,
    LogLockedError,
    LogNotFoundError,
    visible,
)
from kstore.log.compact.erasure import Match
from kstore.log.compact.report import Erasure
from kstore.log.cursors.arguments import checked_group, checked_groups
from kstore.log.cursors.expiry import expire
from kstore.log.cursors.group_file import groups_in
from kstore.log.cursors.offset_commits import OffsetAndMetadata
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.lock import once_free
from kstore.log.files.option_file import in_python
from kstore.log.files.topic_file import MOST_PARTITIONS
from kstore.log.options import checked, names_of, refuse_others
from kstore.log.partition import PartitionLog
from kstore.log.read.progress import ProgressCallback
from kstore.log.read.scan import Scan
from kstore.log.recovery.report import DataLossWarning
from kstore.log.recovery.work_left import work_left
from kstore.log.write.opening import OwnWork
from kstore.log.write.retention import Decision
from kstore.log.writer import LogWriter
from kstore.store.consumer_offsets import (
    CursorTransfer,
    all_groups,
    committed_here,
    give_back,
    lag_of,
    take_over,
)
from kstore.store.descriptions import StoreHealth, TopicDescription
from kstore.store.metrics import StoreMetrics, count_recovery, measure
from kstore.store.open_partitions import OpenPartitions, default_limit
from kstore.store.recovery import recover_all, threads_for
from kstore.store.store_cursor import StoreCursor
from kstore.store.store_directory import StoreDirectory
from kstore.store.store_scan import StoreScan
from kstore.store.table import Table
from kstore.store.topic import checked_name
from kstore.store.topic_catalog import TopicCatalog
from kstore.store.topic_reader import StoreFollower
from kstore.store.upkeep import Maintained, Upkeep, time_of
from kstore.typed import (
    BytesLike,
    Cells,
    Column,
    ConfigOptions,
    Headers,
    StoreColumn,
    StoreOptions,
    Times,
)

if TYPE_CHECKING:
    from kstore.log.write.async_appender import AsyncAppender, Touch, Work

_stores: "weakref.WeakSet[LogStore]" = weakref.WeakSet()  # those that write


class LogStore:
    """The topics of one or more log directories: what a broker's log manager is, without a broker.

    `dirs` are what a broker calls log.dirs: directories with a directory for each partition.

    mode "r": reads. Nothing is written or locked, so the directories may belong to a running broker. The
    names of the partitions are taken when the object is made, and by `refresh`. mode "a": writes too.
    Directories that are missing are made, and locked until the store is closed: close it, or use it in a
    `with` statement. If they were not closed cleanly, all partitions are recovered first, as a broker does.
    Threads may share the store.

    Options for writing, all by name: config: a LogConfig, for topics that do not say otherwise. Each of its
    options may also be given by name. durability, keep_cut, leader_epoch, clock, max_decompressed_bytes,
    producer_id_expiration_ms: for all logs, as in kstore.open. background: whether old segments are deleted,
    compacted topics compacted, .keys files made if key_files says so, and so on, in the background: True or
    False. Default: True. keep_for: groups of cursors for which nothing is deleted that they have not
    committed yet, in the background neither; see `retain`. Default: none. idle_roll_ms: how often the
    background looks for segments without appends that are older than segment_ms, and ends them, in ms.
    Default: never, as in Kafka. wait: how many seconds to wait while another process, or another store,
    writes in one of the directories. Default 0. max_open_partitions: how many logs stay open, an int.
    Default: an eighth of the descriptors that the process may have, but at least 8. Any number of partitions
    can be used: others are opened when they are needed.

    Iterating gives a TopicPartition for each partition. `others` holds the names of directories that are not
    partitions in use: those marked -delete, -future or -stray, and those with names that Kafka does not
    accept.

    Raises:
        LogNotFoundError: mode is "r" and there is no such directory, or it is itself a partition.
        LogLockedError: another process, or another store, writes there, and still does after `wait`.
        KstoreError: two directories hold one partition.
        OSError: no directory can be used. If only some fail, `health` tells, and the others are in use.
        InvalidConfigError, TypeError, ValueError: an argument is wrong.
    """

    _closed = True
    _left = True  # the directories are given up
    _is_writing = False

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
        **options: Unpack[StoreOptions],
    ) -> None:
        own: dict[str, Any] = dict(options)
        if not self._closed:
            raise RuntimeError(f"the store of {self._named()} is open already: make another LogStore")
        choice("mode", mode, ("r", "a"))
        if not dirs:
            raise TypeError("LogStore needs the path of a log directory")
        if any(os.fspath(path) in ("", b"") for path in dirs):
            raise ValueError(
                "LogStore needs the path of a log directory, not an empty one: '.' is the current directory"
            )
        for path in dirs:
            refuse_null(os.fspath(path))
        for path in dirs[1:]:
            if path in ("a", "r", "r+") and not Path(path).is_dir():
                raise TypeError(
                    f"the mode is given by name, LogStore({str(dirs[0])!r}, mode={path!r}): other arguments "
                    "are log directories"
                )
        paths = [Path(path).absolute() for path in dirs]  # the program may go to another directory
        if len({os.path.realpath(path) for path in paths}) < len(paths):
            raise ValueError(f"a directory is named twice: {', '.join(map(str, paths))}")
        self._is_writing = mode == "a"
        if not self._is_writing:
            given = {"config": config, "max_open_partitions": max_open_partitions, **own}
            given |= {"idle_roll_ms": idle_roll_ms, "background": None if background is True else background}
            given |= {"wait": None if wait == 0 else wait, "keep_for": keep_for or None}
            for name in [name for name, value in given.items() if value is not None]:
                raise TypeError(f"{visible(name)} is no option for reading: give mode='a' to write")
        if not (config is None or isinstance(config, LogConfig)):
            raise TypeError(f"config must be a kstore.LogConfig, not {config!r}")
        limit = default_limit()
        if max_open_partitions is not None:
            limit = integer("max_open_partitions", max_open_partitions, 1)
        boolean("background", background)
        wait = number("wait", wait, 0)
        keep_for = checked_groups("keep_for", keep_for)
        if idle_roll_ms is not None:
            idle_roll_ms = integer("idle_roll_ms", idle_roll_ms, 1)
        self._log_options = checked("store", {n: own.pop(n) for n in names_of("store") if n in own})
        self._now()  # a clock that tells no time is refused before anything is made
        expires_cursors = "offsets_retention_minutes" in own or (
            config is not None and "offsets_retention_minutes" in config.given_options()
        )
        self._directories: list[StoreDirectory] = []
        self._catalog = TopicCatalog(self._directories, (config or LogConfig()).replace(**own))
        self._open_logs = OpenPartitions(weakref.WeakMethod(self._open_writer), limit)
        self._is_busy = background and self._is_writing
        self._traffic: dict[str, Traffic] = {}
        clock = self._log_options.get("clock")
        self._maintained = Maintained(
            self._catalog, self._open_logs, keep_for, clock, expires_cursors=expires_cursors
        )
        self._changing = self._maintained.changing
        self._work = Upkeep(self._maintained, idle_roll_ms)
        self._async: dict[str, AsyncAppender] = {}  # by topic
        is_untouched = True  # but for what recovery does, if it was not closed cleanly
        try:
            once_free(lambda: self._take(paths), wait)
            if all(directory.failure for directory in self._directories):
                raise OSError(f"no log directory can be used: {self._directories[0].failure}")
            self._closed = self._left = False
            if self._is_writing:
                _stores.add(self)
                self._warn_of_losses()
                self._catalog.load(self._now())
                self._recover()
            else:
                self._catalog.load_to_read()
            is_untouched = False  # the background may open logs
            self._changed()
        except BaseException:
            if is_untouched:
                for directory in self._directories:
                    with contextlib.suppress(OSError):
                        directory.give_back()
            self._leave(clean=False)
            raise

    def _take(self, paths: Iterable[Path]) -> None:
        """Opens the directories; none, if one is locked: two stores that wait for each other's would wait for
        ever."""
        try:
            for path in paths:
                self._directories.append(StoreDirectory(path, writing=self._is_writing))
        except LogLockedError:
            while self._directories:
                self._directories[-1].give_back()
                self._directories.pop()
            raise

    def _warn_of_losses(self) -> None:
        """DataLossWarning for what the checkpoints of the directories have lost, as closing writes new
        ones."""
        for directory in self._directories:
            for loss in directory.losses:
                warn(loss, DataLossWarning)

    def _changed(self) -> None:
        """There may be more, or less, to do in the background."""
        if self._is_busy and not self._closed:
            self._work.start()

    # ---- opening -------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """What a broker does with logs that were not closed cleanly: each is loaded once, unless there is
        nothing to do."""
        for directory in self._catalog.live():
            if directory.was_clean:
                continue
            work: dict[TopicPartition, int] = {}
            for tp in sorted(directory.partitions):
                if tp.topic != layout.CLUSTER_METADATA:
                    with self._noting_failures(tp, directory):
                        path = directory.path_of(tp)
                        interval = self._catalog.config_of(tp.topic).index_interval_bytes
                        work[tp] = work_left(path, directory.held.state_of(path, tp), interval)

            def recover(tp: TopicPartition, directory: StoreDirectory = directory) -> None:
                with self._noting_failures(tp, directory):
                    log = self._open_writer(tp, recovers=True)
                    try:
                        if not self._open_logs.keep(tp, log):
                            log.close()
                    except BaseException:  # who keeps the exception would keep it locked
                        log.abandon()
                        raise

            todo = [tp for tp, size in work.items() if size]
            recover_all(recover, todo, threads_for(work.values()))
            for name in directory.others:
                if name.endswith(("-future", "-stray")):  # nobody has looked at these
                    directory.held.failed(TopicPartition(name, 0))
            directory.held.all_recovered()

    @contextlib.contextmanager
    def _noting_failures(self, tp: TopicPartition, directory: StoreDirectory) -> Iterator[None]:
        """A partition that cannot be recovered is told by `health`, and the directory is not clean."""
        try:
            yield
        except (OSError, KstoreError) as e:
            directory.held.failed(tp)
            self._open_logs.failures[tp] = f"{type(e).__name__}: {e}"

    def _open_writer(self, tp: TopicPartition, *, recovers: bool = False) -> LogWriter:
        directory = self._catalog.places.get(tp)
        if directory is None:
            raise LogNotFoundError(f"no partition {tp} in {self._named()}")
        directory.check_place()
        self._work.opened(tp)
        if not recovers:
            self._changed()
        path, config = directory.path_of(tp), self._catalog.config_of(tp.topic)
        traffic = self._traffic_of(tp.topic)
        own = OwnWork(
            not self._is_busy, makes_key_files=False, prepares_indexes=not recovers, traffic=traffic
        )
        log = LogWriter(path, config, create=False, own=own, **self._log_options)
        count_recovery(traffic, log.recovery)
        return log

    def _traffic_of(self, topic: str) -> Traffic:
        return self._traffic.setdefault(topic, Traffic())

    def _now(self) -> int:
        return time_of(self._log_options.get("clock"))

    # ---- what there is -------------------------------------------------------------------------------------

    @property
    def path(self) -> Path:
        """The log directory; the first one, if there are several."""
        return self._directories[0].path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The log directories."""
        return tuple(directory.path for directory in self._directories)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions, by topic and number."""
        return sorted(self._catalog.places)

    @property
    def others(self) -> list[str]:
        """The names of directories that are not partitions in use."""
        return sorted(name for directory in self._directories for name in directory.others)

    @property
    def topics(self) -> dict[str, list[int]]:
        """The numbers of the partitions of each topic: {"orders": [0, 1], …}."""
        return {name: list(topic.numbers) for name, topic in self._catalog.topics.items()}

    @property
    def closed_cleanly(self) -> bool:
        """Whether all logs in the directories were closed cleanly: a marker file says so. A store that is
        open for writing has taken it away. It says nothing of __cluster_metadata, which a broker recovers at
        each start.
        """
        return all(directory.closed_cleanly for directory in self._directories)

    @property
    def config(self) -> LogConfig:
        """The configuration of topics that do not say otherwise."""
        return self._catalog.config

    @property
    def is_closed(self) -> bool:
        """Whether the store was closed. False if close() was interrupted, and has the lock still: call it
        again."""
        return self._left

    def meta(self) -> dict[str, str]:
        """What meta.properties of the first directory says, as text: cluster.id, node.id, directory.id,
        version. Empty if there is no such file.

        CorruptCheckpointError if the file cannot be parsed.
        """
        return self._directories[0].meta()

    def describe(self, topic: str) -> TopicDescription:
        """A topic's partitions and its configuration, as a TopicDescription. LogNotFoundError."""
        found = self._catalog.topic(topic)
        if not self._is_writing:
            self._catalog.read_again()
        options = self._catalog.own_options(topic)
        places = {
            number: self._catalog.places[found.partition(number)].path_of(found.partition(number))
            for number in found.numbers
        }
        return TopicDescription(topic, places, self._catalog.config_of(topic), in_python(options))

    def health(self) -> StoreHealth:
        """What is out of use, or failed in the background, and why, as a StoreHealth; its `ok` is True if
        nothing is."""
        self._changed()
        partitions = {tp: text for tp, text in self._open_logs.failures.items() if tp in self._catalog.places}
        for tp, log in self._open_logs.open_now():
            refusal = log.maintenance.log_end.settled_refusal
            if refusal is not None:
                partitions[tp] = refusal
        directories = {d.path: d.failure for d in self._directories if d.failure}
        for directory in self._catalog.live() if self._is_writing and not self._closed else ():
            try:
                gone = directory.gone()
            except OSError as e:
                directories[directory.path] = str(e)
                continue
            for tp in gone:
                if tp in self._catalog.places:  # it was not deleted meanwhile
                    partitions.setdefault(tp, f"no partition directory at {directory.path_of(tp)}")
        return StoreHealth(
            directories,
            partitions,
            self._catalog.missing(),
            "" if self._catalog.is_changing else self._catalog.unfinished,
            dict(self._catalog.not_removed),
            self._work.failures(),
        )

    def metrics(self) -> StoreMetrics:
        """What the store has counted since it was opened, as StoreMetrics: records, bytes and times of what
        went in and out, segments, recovery, cleaning. Its prometheus() gives text for Prometheus.

        Nothing is counted of logs that kstore.open has. OSError if a directory cannot be listed.
        """
        if self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")
        return measure(self)

    def _named(self) -> str:
        return self._catalog.named()

    def _check_writing(self) -> None:
        if not self._is_writing:
            raise io.UnsupportedOperation(
                f"{self._named()} is open for reading: LogStore(path, mode='a') writes"
            )
        if self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")

    # ---- logs ----------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """The log of a partition: a LogWriter if the store writes, else a PartitionLog, as `open` gives it.

        A LogWriter is the store's own, so do not close it: it stays open for as long as you have it, at the
        longest until the store is closed. LogNotFoundError.
        """
        partition = integer("partition", partition, 0, 2**31 - 1)
        if not self._is_writing:
            return self.open(topic, partition)
        self._check_writing()
        return self._open_logs.get(self._catalog.topic(topic).partition(partition))

    def open(self, topic: str, partition: int = 0, **options: Any) -> PartitionLog:
        """Opens one partition for reading only, and returns a PartitionLog.

        `options` are those of kstore.open for reading, such as recover=False. LogNotFoundError if there is no
        such partition, ValueError for a name that no topic of Kafka's can have.
        """
        checked_name(topic)
        partition = integer("partition", partition, 0, 2**31 - 1)
        tp = TopicPartition(topic, partition)
        named = layout.parse_directory(topic)
        if named is not None and named in self._catalog.places and tp not in self._catalog.places:
            raise LogNotFoundError(
                f"no partition {partition} of a topic {topic} in {self._named()}; the partition {topic} is "
                f"open({named.topic!r}, {named.partition})"
            )
        refuse_others("read", options)
        directory = self._catalog.places.get(tp, self._directories[0])
        log = PartitionLog(directory.path_of(tp), **options)
        log.traffic = self._traffic_of(topic)
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
        tp = self._catalog.topic(topic).partition_for(key, value)
        return tp.partition, self._open_logs.get(tp).append(value, key, timestamp, headers)

    def extend(
        self,
        topic: str,
        values: Cells,
        keys: Cells | None = None,
        timestamps: Times | None = None,
    ) -> dict[int, range]:
        """Appends many records to a topic, and returns the offsets by partition: {0: range(0, 512), …}.

        The arguments are those of LogWriter.extend, and partitions are chosen as in `append`; without keys
        all records of a call go to one partition. The columns are split by partition without the GIL. Errors
        in the arguments are found before anything is written; should the system fail half way, what was
        appended before that stays, as the log_end_offset of the partitions tells.
        """
        return self._extend(None, topic, values, keys, timestamps)

    def _extend(
        self,
        touch: "Touch | None",
        topic: str,
        values: Any,
        keys: Any,
        timestamps: Any,
    ) -> dict[int, range]:
        """extend(); `touch` gets the end of each log before it is appended to."""

        def to(number: int) -> LogWriter:
            log = self._open_logs.get(found.partition(number))
            if touch is not None:
                touch(log.maintenance.log_end, log)
            return log

        self._check_writing()
        found = self._catalog.topic(topic)
        sticky = found.sticky()
        if keys is None:
            return {sticky: to(sticky).extend(values, None, timestamps)}
        if found.count > MOST_PARTITIONS:
            raise ValueError(f"topic {topic} has {found.count} partitions, more than columns can be split by")
        logs = self._open_logs
        whole, parts = split_by_partition(values, keys, timestamps, found.count, sticky)
        if len(parts) > 1:
            try:
                for number, *columns in parts:
                    logs.get(found.partition(number))._check_extend(*columns)
            except (TypeError, ValueError):  # it counts the records of one partition, and the caller all
                logs.get(found.partition(parts[0][0]))._check_extend(*whole)
                raise
        return {number: to(number).extend(*columns) for number, *columns in parts}

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
        tp = self._catalog.topic(topic).partition_for(key, value)
        if (log := self._open_logs.peek(tp)) is not None:
            log.maintenance.log_end.refuse_reentrance()  # the other thread would wait for this one

        def place(touch: "Touch") -> tuple[int, int]:
            log = self._open_logs.get(tp)
            touch(log.maintenance.log_end, log)
            return tp.partition, log.append(value, key, timestamp, headers)

        return cast(tuple[int, int], await self._later(topic, place))

    async def extend_async(
        self,
        topic: str,
        values: Cells,
        keys: Cells | None = None,
        timestamps: Times | None = None,
    ) -> dict[int, range]:
        """Appends many records to a topic, as `extend` does, while the event loop goes on; otherwise as
        append_async. Do not change the columns meanwhile. `appended` of a CancelledError is what extend()
        returned, or None.
        """
        self._check_writing()
        self._catalog.topic(topic)
        for log in self._open_logs.of_topic(topic):
            log.maintenance.log_end.refuse_reentrance()
        return cast(
            dict[int, range],
            await self._later(topic, lambda touch: self._extend(touch, topic, values, keys, timestamps)),
        )

    async def _later(self, topic: str, work: "Work") -> Any:
        from kstore.log.write.async_appender import AsyncAppender

        appender = self._async.get(topic) or self._async.setdefault(topic, AsyncAppender())
        return await appender.append(f"the store of {self._named()}", work)

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
        if not self._is_writing and self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")
        found = self._catalog.topic(topic)
        for name in ("start", "stop"):
            if name in options:
                raise TypeError(f"{name} is an offset of one partition: use log(topic, partition).scan()")
        numbers = found.numbers
        if partitions is None:
            self._catalog.require_all(found, "read as a whole")
        else:
            if not isinstance(partitions, Iterable):
                raise TypeError(f"partitions must be numbers of partitions, not {partitions!r}")
            numbers = tuple(
                found.partition(integer("partition", each, 0, 2**31 - 1)).partition for each in partitions
            )
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
        if self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")
        return Table(self, topic)

    def refresh(self) -> None:
        """Takes in what partitions there are now, and what is known of topics. A store that reads knows them
        as they were when it was made, or refreshed; one that writes always knows them. OSError, KstoreError
        as at the opening.
        """
        if not self._is_writing:
            self._directories[:] = [StoreDirectory(path, writing=False) for path in self.paths]
            self._catalog.load_to_read()

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
        if self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")
        return StoreCursor(
            self, group, topics, start, follow=follow, timeout=timeout, isolation=isolation, on_error=on_error
        )

    def cursors(self) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What all groups have committed: {"billing": {("orders", 0): OffsetAndMetadata(…), …}, …}. A
        partition of which a group has committed nothing is not there; `lag` has it. OSError,
        CorruptRecordError if a file of positions is damaged.
        """
        return committed_here(self._paths_of_all())

    def lag(self, group: str) -> dict[TopicPartition, int]:
        """How many offsets lie between what a group has committed and the end of the log, for each partition
        of the topics that it reads: {("orders", 0): 17, …}. A partition of which it has committed nothing
        counts from its start. Empty if it has committed nothing at all. It is negative if the position is
        beyond the end: records are lost, or an older copy was put back. OSError, CorruptRecordError.
        """
        return lag_of(self._paths_of_all(), checked_group(group))

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
        named = None if groups is None else set(all_groups(groups))
        boolean("dry_run", dry_run)
        return take_over(self._paths_of_all(), source, named, dry_run=dry_run)

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
        named = None if groups is None else set(all_groups(groups))
        if partitions is not None:
            partitions = integer("partitions", partitions, 1, 2**31 - 1)
        boolean("dry_run", dry_run)
        beside = [directory.path for directory in self._catalog.live()]
        return give_back(self._paths_of_all(), target, named, partitions, beside, dry_run=dry_run)

    def expire_cursors(self, *, dry_run: bool = False) -> dict[str, list[TopicPartition]]:
        """Removes the positions of groups without a read or commit for
        offsets_retention_minutes, durably, and returns of which partitions they were, by group. The
        background does so if that option was given.

        A reader that was killed has left when this is called first after it, by the background or by you.
        Positions have the system's time: a store whose own clock is ahead of that removes them too early.

        dry_run: True only says what would be removed. OSError, CorruptRecordError.
        """
        boolean("dry_run", dry_run)
        self._check_writing()
        found: dict[str, list[TopicPartition]] = {}
        for directory in self._catalog.live():
            place = os.path.realpath(directory.path)
            for group in groups_in(place):
                limit = self.config.offsets_retention_minutes * 60_000
                removed = expire(place, group, limit, self._now(), dry_run=dry_run)
                if removed:
                    found.setdefault(group, []).extend(removed)
        return found

    def _paths_of_all(self) -> dict[TopicPartition, str]:
        if self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")
        return {tp: str(directory.path_of(tp)) for tp, directory in self._catalog.places.items()}

    def follow(
        self,
        topics: Iterable[str] | None = None,
        start: Literal["earliest", "latest"] | datetime | Mapping[TopicPartition, int] = "latest",
        *,
        timeout: float | None = None,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        on_error: Literal["raise", "skip"] = "raise",
    ) -> StoreFollower:
        """The records of topics as they come, whoever writes them: a StoreFollower, which waits for all
        partitions at once.

        topics: names; one that is missing is read once it is made. Default: all topics, also those that are
        made later, but for those whose names begin with "__". start: "latest" (default), "earliest", a
        datetime with a time zone, or offsets by partition, such as positions() of another follower gave; a
        partition that is not among them is read from its beginning. timeout: seconds without a record, after
        which it ends. Default: it never does. isolation: as in PartitionLog.records. on_error: as in
        PartitionLog.follow.

        OffsetOutOfRangeError when it is iterated, if an offset is not in its partition.
        """
        if self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")
        return StoreFollower(self, topics, start, timeout=timeout, isolation=isolation, on_error=on_error)

    def flush(self) -> None:
        """Writes everything that was appended so far to the disk, and the checkpoint files.

        OSError, LogFailedError: that of the first log that failed; all others are flushed.
        """
        self._check_writing()
        failure: OSError | KstoreError | None = None
        for _, log in self._open_logs.open_now():
            try:
                log.flush()
            except LogClosedError:  # the topic was deleted meanwhile
                pass
            except (OSError, KstoreError) as e:
                failure = failure or e
        for directory in self._catalog.live():
            try:
                directory.held.store()
            except (OSError, LogFailedError) as e:
                failure = failure or e
        if failure is not None:
            raise failure

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
            log = self._open_logs.get(found.partition(at))
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

        keep_for: groups of cursors, beside those that the store was opened with. No segment is deleted that
        holds a record which one of them has not committed. Of a topic of which a group has committed some
        partitions, the others are kept whole; if it has committed nothing at all, nothing is deleted.

        A partition that fails is skipped, and `health` reports it. So is one without retention_ms, of its
        topic or of the store, if Kafka's default of 7 days would delete some of its records; and one that is
        known to be compacted, if cleanup_policy is not set.
        """
        boolean("dry_run", dry_run)
        groups = [*self._maintained.keep_for, *checked_groups("keep_for", keep_for)]
        self._check_writing()
        commits = self._maintained.commits_of(groups)
        decisions = {}
        for tp in self.partitions:
            if tp.topic == layout.CLUSTER_METADATA:
                continue
            try:
                decisions[tp] = self._open_logs.get(tp).maintenance.retain(commits(tp), dry_run=dry_run)
            except (OSError, KstoreError) as e:
                self._open_logs.failures[tp] = f"{type(e).__name__}: {e}"
            else:
                self._open_logs.failures.pop(tp, None)
        if not dry_run:
            with self._changing:
                self._catalog.remove_due(self._now())
        return decisions

    # ---- topics --------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int = 1, **config: Unpack[ConfigOptions]
    ) -> TopicDescription:
        """Makes a topic, durably, and describes it.

        `config` are options of LogConfig for this topic; what is not named is the store's. They are kept in
        the directory, and hold at the next opening too. With several directories a partition goes where the
        fewest are. If the process dies meanwhile, the topic is there with all its partitions at the next
        opening, or not at all.

        Raises: ValueError: Kafka does not allow the name, or there is such a topic, or one that Kafka cannot
        tell from it: `.` and `_` are equal in the names of its metrics. InvalidConfigError: an option is
        unknown, or has a value that it cannot have. OSError: nothing is changed, or `health` tells what is
        not finished.
        """
        self._check_writing()
        checked_name(name)
        partitions = integer("partitions", partitions, 1, MOST_PARTITIONS)
        options = self._catalog.checked_options(config)
        with self._changing:
            self._check_changeable()
            if name == layout.CLUSTER_METADATA:
                raise ValueError(f"{name} is the name of a broker's own log")
            for known in {*self._catalog.topics, *self._catalog.table.topics}:
                if known == name or known.replace(".", "_") == name.replace(".", "_"):
                    raise ValueError(f"topic {name} cannot be made: there is a topic {known}")
            self._catalog.make(name, range(partitions), options, self._now())
            self._open_logs.forget_failures(name)
            self._changed()
        return self.describe(name)

    def add_partitions(self, topic: str, total: int) -> TopicDescription:
        """Gives a topic more partitions, `total` in all, durably, and describes it.

        A key may belong to another partition from then on. ValueError if it has as many already. OSError as
        in `create_topic`.
        """
        self._check_writing()
        total = integer("total", total, 1, MOST_PARTITIONS)
        with self._changing:
            self._check_changeable()
            found = self._catalog.topic(topic)
            if total <= found.count:
                raise ValueError(
                    f"topic {topic} has {found.count} partitions already, so there cannot be {total} in all"
                )
            self._catalog.require_all(found, "given partitions")
            own = self._catalog.own_options(topic)
            self._catalog.make(topic, range(found.count, total), own, self._now())
            self._changed()
        return self.describe(topic)

    def alter_topic(self, topic: str, **config: Unpack[ConfigOptions]) -> TopicDescription:
        """Changes a topic's own configuration, durably and at once, and describes it:
        store.alter_topic("orders", retention_ms=86_400_000).

        None gives an option back to the store's configuration. InvalidConfigError: nothing is changed.
        OSError.
        """
        self._check_writing()
        with self._changing:
            self._check_changeable()
            found = self._catalog.topic(topic)
            options = self._catalog.own_options(topic)
            for name in [name for name, value in config.items() if value is None]:
                value = getattr(self._catalog.config, name, None)
                self._catalog.checked_options({name: value})  # an option that no topic has is refused
                options.pop(name.replace("_", "."), None)
            options |= self._catalog.checked_options({k: v for k, v in config.items() if v is not None})
            self._catalog.checked_options(in_python(options))
            self._open_logs.of_topic(topic)  # before it is decided: none is left as it was

            def steps() -> None:
                self._catalog.set_options(found, options)
                self._work.forget({found.partition(number) for number in found.numbers})
                after = self._catalog.config_of(topic)
                for log in self._open_logs.of_topic(topic):
                    with contextlib.suppress(LogClosedError, LogFailedError):  # its next opening uses them
                        log._use(after)
                self._changed()
                self._catalog.spread(self._catalog.live()[1:])

            self._catalog.change(f"configuration of topic {topic}", steps)
        return self.describe(topic)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic, durably: its partitions are out of use when this returns.

        Their directories get names that end in -delete, as Kafka's do, and are removed after
        file_delete_delay_ms by `retain` or a later change of topics, or when the store is closed. LogWriters
        of the topic are closed. If the process dies meanwhile, the next opening finds the topic deleted, or
        as it was. LogNotFoundError. OSError as in `create_topic`.
        """
        self._check_writing()
        with self._changing:
            self._check_changeable()
            found = self._catalog.topic(topic)
            if topic == layout.CLUSTER_METADATA:
                raise ValueError(f"{topic} is a broker's own log")
            self._catalog.require_all(found, "deleted")
            self._open_logs.of_topic(topic)

            def steps() -> None:
                partitions = self._catalog.leave(found)
                self._open_logs.drop(partitions)
                self._work.forget(partitions)
                self._catalog.delete(partitions, self._now())
                self._traffic.pop(topic, None)

            self._catalog.change(f"deletion of topic {topic}", steps)

    def _check_changeable(self) -> None:
        self._check_writing()
        self._catalog.check_changeable()
        self._catalog.remove_due(self._now())

    # ---- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes all logs, and leaves the directories as a broker's clean shutdown does.

        The directories of deleted topics are removed. If a log cannot be closed cleanly, its error is raised,
        all others are closed, and the next opening recovers the directory. A store that reads
        has nothing to close. If it is interrupted, call it again.
        """
        if not self._is_writing:
            self._closed = self._left = True
        if self._left:
            return
        with self._changing:
            if self._left:
                return
            for _, log in self._open_logs.all_open():
                log.maintenance.refuse_reentrance()
            for appender in list(self._async.values()):
                appender.close()
            self._work.stop()
            failure = self._open_logs.close()
            for tp in self._open_logs.unclean:
                if tp in self._catalog.places:
                    self._catalog.places[tp].held.failed(tp)
            self._catalog.remove_due(None)
            try:
                self._leave(clean=True)
            except (OSError, LogFailedError) as e:
                failure = failure or e
        # not before: it may wait for a log in which a signal handler interrupted this thread
        self._work.stop(wait=True)
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Closes the store without flushing, as if the process had died: the next opening recovers it."""
        if not self._left:
            self._leave(clean=False)

    def _leave(self, *, clean: bool) -> None:
        """Gives the directories up. OSError, LogFailedError: that of the first that could not be marked as
        clean."""
        self._closed = True
        self._work.stop()
        failure: OSError | LogFailedError | None = None
        if self._is_writing and not clean:
            self._open_logs.abandon()
        for directory in self._directories:
            try:
                directory.leave(clean=clean)
            except (OSError, LogFailedError) as e:
                failure = failure or e
        self._left = True
        if failure is not None:
            raise failure

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
        if self._closed or not self._is_writing:
            return
        warnings.warn(
            f"the store of {visible(self._named())} was open for writing and never closed: the next opening "
            "must recover",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"an open store cannot be pickled: give the other process its path, {self._named()}")

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self._catalog.places)

    def __repr__(self) -> str:
        paths = ", ".join(repr(str(directory.path)) for directory in self._directories)
        state = ", closed" if self._is_writing and self._closed else ""
        return f"LogStore({paths}, {len(self)} partitions{state})"


def _forked() -> None:
    """A child of fork must not write: the store is its parent's."""
    for store in list(_stores):
        store._closed = store._left = True
    _stores.clear()


os.register_at_fork(after_in_child=_forked)
