"""Topics in one or more log directories, as a broker's log manager keeps them.

The file is long because it holds every public method of a store, with its documentation.
"""

import contextlib
import io
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from kstore.arguments import MAX_EPOCH, choice, integer
from kstore.config import LogConfig
from kstore.engine.append.log_appender import DURABILITY
from kstore.engine.io.mutex import Mutex
from kstore.engine.record.partition_split import split_by_partition
from kstore.errors import (
    CorruptCheckpointError,
    KstoreError,
    LogClosedError,
    LogFailedError,
    LogNotFoundError,
)
from kstore.kinds import as_text
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.topic_file import (
    Change,
    KnownTopic,
    TopicTable,
    in_python,
    merged,
    newest,
    read_table,
    write_table,
)
from kstore.log.partition import PartitionLog
from kstore.log.read.scan import Scan
from kstore.log.recovery.report import DataLossWarning
from kstore.log.write.retention import Decision
from kstore.log.writer import LogWriter
from kstore.store.descriptions import StoreHealth, TopicDescription
from kstore.store.log_directory import LogDirectory
from kstore.store.open_partitions import OpenPartitions, default_limit
from kstore.store.store_cursor import StoreCursor
from kstore.store.store_scan import StoreScan
from kstore.store.topic import Topic
from kstore.store.upkeep import Upkeep

_READING = tuple(PartitionLog.__init__.__kwdefaults__ or ())
_WRITING = (
    "durability",
    "keep_cut",
    "leader_epoch",
    "clock",
    "max_decompressed_bytes",
    "producer_id_expiration_ms",
)
_MOST_PARTITIONS = 1 << 20
_stores: "weakref.WeakSet[LogStore]" = weakref.WeakSet()  # those that write


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"topic must be a str, not {name!r}")
    if not layout.is_valid_topic(name):
        raise ValueError(
            f"{name!r} cannot be the name of a topic: up to 249 of the characters a-z A-Z 0-9 . _ - are allowed"
        )
    return name


class _StoreLog(LogWriter):
    """A log that a store flushes by flush_ms."""

    _has_timer = False


class LogStore:
    """The topics of one or more log directories: what a broker's log manager is, without a broker.

    `dirs` are what a broker calls log.dirs: directories with a directory for each partition.

    mode "r": reads. Nothing is written or locked, so the directories may belong to a running broker. The names of the
        partitions are taken when the object is made.
    mode "a": writes too. Directories that are missing are made, and locked until the store is closed: close it, or use
        it in a `with` statement. If they were not closed cleanly, all partitions are recovered first, as a broker does.
        Threads may share the store.

    Options for writing, all by name:
        config: a LogConfig, for topics that do not say otherwise. Each of its options may also be given by name.
        durability, keep_cut, leader_epoch, clock, max_decompressed_bytes, producer_id_expiration_ms: for all logs, as in
            kstore.open.
        background: whether old segments are deleted, compacted topics compacted, and so on, in the background: True or
            False. Default: True.
        idle_roll_ms: how often the background looks for segments without appends that are older than segment_ms, and ends
            them, in ms. Default: never, as in Kafka.
        max_open_partitions: how many logs stay open, an int. Default: an eighth of the descriptors that the process may
            have. Any number of partitions can be used: others are opened when they are needed.

    Iterating gives a TopicPartition for each partition. `others` holds the names of directories that are not partitions
    in use: those marked -delete, -future or -stray, and those with names that Kafka does not accept.

    Raises:
        LogNotFoundError: mode is "r" and there is no such directory, or it is itself a partition.
        LogLockedError: another process, or another store, writes there.
        KstoreError: two directories hold the same partition.
        OSError: no directory can be used. If only some fail, `health` tells, and the others are in use.
        InvalidConfigError, TypeError, ValueError: an argument is wrong.
    """

    _closed = True
    _is_writing = False

    def __init__(
        self,
        *dirs: str | PathLike[str],
        mode: Literal["r", "a"] = "r",
        config: LogConfig | None = None,
        max_open_partitions: int | None = None,
        background: bool = True,
        idle_roll_ms: int | None = None,
        **options: Any,
    ) -> None:
        choice("mode", mode, ("r", "a"))
        if not dirs:
            raise TypeError("LogStore needs the path of a log directory")
        paths = [Path(path).absolute() for path in dirs]  # the program may go to another directory
        if len({os.path.realpath(path) for path in paths}) < len(paths):
            raise ValueError(f"a directory is named twice: {', '.join(map(str, paths))}")
        self._is_writing = mode == "a"
        if not self._is_writing:
            given = {"config": config, "max_open_partitions": max_open_partitions, **options}
            given |= {"idle_roll_ms": idle_roll_ms, "background": None if background is True else background}
            for name in [name for name, value in given.items() if value is not None]:
                raise TypeError(f"{name} is no option for reading: give mode='a' to write")
        if not (config is None or isinstance(config, LogConfig)):
            raise TypeError(f"config must be a kstore.LogConfig, not {config!r}")
        limit = default_limit()
        if max_open_partitions is not None:
            limit = integer("max_open_partitions", max_open_partitions, 1)
        if not isinstance(background, bool):
            raise TypeError(f"background must be True or False, not {background!r}")
        if idle_roll_ms is not None:
            idle_roll_ms = integer("idle_roll_ms", idle_roll_ms, 1)
        self._log_options = {name: options.pop(name) for name in _WRITING if name in options}
        _check_log_options(self._log_options)
        self._names_retention = config is not None or "retention_ms" in options
        self._config = (config or LogConfig()).replace(**options)
        self._changing = Mutex()
        self._unfinished = ""  # the change of topics that is under way, or did not come to its end
        self._leaving = ""  # the topic that is being deleted: nobody may write it
        self._not_removed: dict[Path, str] = {}
        self._configs: dict[str, LogConfig] = {}  # of topics, as the table says
        self._due: dict[tuple[LogDirectory, str], int] = {}
        self._open_logs = OpenPartitions(weakref.WeakMethod(self._open_writer), limit)
        self._directories: list[LogDirectory] = []
        self._is_busy = background and self._is_writing
        self._work = Upkeep(self, idle_roll_ms)
        try:
            for path in paths:
                self._directories.append(LogDirectory(path, writing=self._is_writing))
            if all(directory.failure for directory in self._directories):
                raise OSError(f"no log directory can be used: {self._directories[0].failure}")
            self._closed = False
            if self._is_writing:
                _stores.add(self)
            self._load()
            self._changed()
        except BaseException:
            self._leave(clean=False)
            raise

    def _changed(self) -> None:
        """There may be more, or less, to do in the background."""
        if self._is_busy:
            self._work.start(self)

    # ---- opening --------------------------------------------------------------------------------------------------

    def _live(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if not directory.failure]

    def _load(self) -> None:
        self._places: dict[TopicPartition, LogDirectory] = {}
        self._topics: dict[str, Topic] = {}
        self._table = TopicTable()
        if self._is_writing:
            tables = self._read_tables()
            topics = {tp.topic for directory in self._live() for tp in directory.partitions}
            self._table = merged([table for table in tables if table is not None], topics)
            if self._table.change is not None:
                self._finish_after_crash()
            elif any(table != self._table for table in tables):
                self._spread(self._live(), self._table)
        else:
            self._table = self._table_to_read()
        self._list()
        if self._is_writing:
            self._recover()
            now = self._now()
            for directory in self._live():
                for name in directory.deleted:
                    self._due[directory, name] = now + self._config.file_delete_delay_ms

    def _read_tables(self) -> list[TopicTable | None]:
        """The tables of the directories in use; None for a damaged one, if another is sound: it is replaced.
        CorruptCheckpointError if none is."""
        tables: list[TopicTable | None] = []
        damage: CorruptCheckpointError | None = None
        for directory in self._live():
            try:
                tables.append(read_table(directory.path))
            except CorruptCheckpointError as e:
                tables.append(None)
                damage = e
        if damage is not None and not any(tables):
            raise damage
        if damage is not None:
            text = f"the newest sound copy of the table of topics counts, which may lack the last change: {damage}"
            warnings.warn(text, DataLossWarning, stacklevel=4)
        return tables

    def _table_to_read(self) -> TopicTable:
        """The newest table; damaged ones count for nothing."""
        tables = []
        for directory in self._live():
            with contextlib.suppress(CorruptCheckpointError, OSError):
                tables.append(read_table(directory.path))
        return newest(tables)

    def _list(self) -> None:
        """What is in use: no partition of a change that is not finished."""
        known = self._table.before().topics
        change = self._table.change
        places: dict[TopicPartition, LogDirectory] = {}
        for directory in self._live():
            for tp in directory.partitions:
                if tp.topic == self._leaving or (change is not None and change.concerns(tp)):
                    continue
                if tp in places:
                    raise KstoreError(
                        f"{tp} lies in {places[tp].path} and in {directory.path}: remove one of them"
                    )
                places[tp] = directory
        numbers: dict[str, list[int]] = {name: [] for name in known if name != self._leaving}
        for topic, partition in places:
            numbers.setdefault(topic, []).append(partition)
        self._places = places
        self._topics = {
            name: Topic(name, found, known[name].count if name in known else 0)
            for name, found in sorted(numbers.items())
        }

    def _recover(self) -> None:
        """What a broker does with logs that were not closed cleanly: each is loaded once."""
        for directory in self._live():
            keeper = directory.keeper
            assert keeper is not None
            if keeper.was_clean:
                continue
            for tp in sorted(directory.partitions):
                if tp.topic == layout.CLUSTER_METADATA:
                    continue
                try:
                    self._open_writer(tp).close()
                except (OSError, KstoreError) as e:
                    keeper.failed(tp)
                    self._open_logs.failures[tp] = f"{type(e).__name__}: {e}"
            for name in directory.others:
                if name.endswith(("-future", "-stray")):  # nobody has looked at these
                    keeper.failed(TopicPartition(name, 0))
            keeper.all_recovered()

    def _open_writer(self, tp: TopicPartition) -> LogWriter:
        directory = self._places.get(tp)
        if directory is None:
            raise LogNotFoundError(f"no partition {tp} in {self._named()}")
        self._work.opened(tp)
        kind = _StoreLog if self._is_busy else LogWriter
        log = kind(directory.path_of(tp), self._config_of(tp.topic), create=False, **self._log_options)
        log._names_retention = self._says_retention(tp.topic)
        return log

    def _says_retention(self, topic: str) -> bool:
        """Whether somebody has said how long records of a topic are kept."""
        return self._names_retention or "retention.ms" in self._own_options(topic)

    def _own_options(self, name: str) -> dict[str, str]:
        known = self._table.topics.get(name)
        return {} if known is None else dict(known.options)

    def _config_of(self, name: str) -> LogConfig:
        configs = self._configs  # before the options: if these change meanwhile, it is another one that holds
        config = configs.get(name)
        if config is None:
            own = self._own_options(name)
            config = configs[name] = self._config.replace(**in_python(own)) if own else self._config
        return config

    def _now(self) -> int:
        clock: Callable[[], int] | None = self._log_options.get("clock")
        return time.time_ns() // 1_000_000 if clock is None else integer("the time in ms", clock())

    # ---- what there is --------------------------------------------------------------------------------------------

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
        return sorted(self._places)

    @property
    def others(self) -> list[str]:
        """The names of directories that are not partitions in use."""
        return sorted(name for directory in self._directories for name in directory.others)

    @property
    def topics(self) -> dict[str, list[int]]:
        """The numbers of the partitions of each topic: {"orders": [0, 1], …}."""
        return {name: list(topic.numbers) for name, topic in self._topics.items()}

    @property
    def closed_cleanly(self) -> bool:
        """Whether all logs in the directories were closed cleanly: a marker file says so. A store that is open for
        writing has taken it away.
        """
        return all(directory.closed_cleanly for directory in self._directories)

    @property
    def config(self) -> LogConfig:
        """The configuration of topics that do not say otherwise."""
        return self._config

    @property
    def is_closed(self) -> bool:
        """Whether the store was closed."""
        return self._closed

    def meta(self) -> dict[str, str]:
        """What meta.properties of the first directory says, as text: cluster.id, node.id, directory.id, version. Empty
        if there is no such file.

        CorruptCheckpointError if the file cannot be parsed.
        """
        return self._directories[0].meta()

    def describe(self, topic: str) -> TopicDescription:
        """A topic's partitions and its configuration, as a TopicDescription. LogNotFoundError."""
        found = self._topic(topic)
        if not self._is_writing:
            self._table = newest(read_table(directory.path) for directory in self._live())
            self._configs = {}
        options = self._own_options(topic)
        places = {
            number: self._places[found.partition(number)].path_of(found.partition(number))
            for number in found.numbers
        }
        return TopicDescription(topic, places, self._config_of(topic), in_python(options))

    def health(self) -> StoreHealth:
        """What is out of use, or failed in the background, and why, as a StoreHealth; its `ok` is True if nothing is."""
        partitions = {tp: text for tp, text in self._open_logs.failures.items() if tp in self._places}
        for tp, log in self._open_logs.open_now():
            refusal = log._settled_refusal()
            if refusal is not None:
                partitions[tp] = refusal
        directories = {d.path: d.failure for d in self._directories if d.failure}
        missing = [TopicPartition(topic.name, n) for topic in self._topics.values() for n in topic.missing]
        return StoreHealth(
            directories, partitions, missing, self._unfinished, dict(self._not_removed), self._work.failures()
        )

    def _topic(self, name: str) -> Topic:
        """A topic by name. Errors say why there is none."""
        found = self._topics.get(name) if isinstance(name, str) else None
        if found is None:
            _checked_name(name)
            change = self._table.change
            if self._unfinished and name in (self._leaving, change and change.topic):
                raise LogFailedError(
                    f"topic {name} is out of use until the next opening finishes this change: {self._unfinished}"
                )
            raise LogNotFoundError(f"no topic {name} in {self._named()}")
        return found

    def _require_all(self, topic: Topic, what: str) -> None:
        """LogFailedError unless all partitions of a topic are here."""
        if topic.missing:
            raise LogFailedError(
                f"topic {topic.name} cannot be {what}: its partitions {list(topic.missing)} are in none of the directories "
                f"in use, {self._named()}. Name the directory that has them; make one, empty, for a partition that is lost"
            )

    def _named(self) -> str:
        return ", ".join(str(directory.path) for directory in self._directories)

    def _check_writing(self) -> None:
        if not self._is_writing:
            raise io.UnsupportedOperation(
                f"{self._named()} is open for reading: LogStore(path, mode='a') writes"
            )
        if self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")

    # ---- logs -----------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        """The log of a partition: a LogWriter if the store writes, else a PartitionLog, as `open` gives it.

        A LogWriter is the store's own, so do not close it: it stays open for as long as you have it, at the longest until
        the store is closed. LogNotFoundError.
        """
        partition = integer("partition", partition, 0, 2**31 - 1)
        if not self._is_writing:
            return self.open(topic, partition)
        self._check_writing()
        return self._open_logs.get(self._topic(topic).partition(partition))

    def open(self, topic: str, partition: int = 0, **options: Any) -> PartitionLog:
        """Opens one partition for reading only, and returns a PartitionLog.

        `options` are those of kstore.open for reading, such as recover=False. LogNotFoundError if there is no such
        partition, ValueError for a name that no topic of Kafka's can have.
        """
        _checked_name(topic)
        partition = integer("partition", partition, 0, 2**31 - 1)
        tp = TopicPartition(topic, partition)
        named = layout.parse_directory(topic)
        if named is not None and named in self._places and tp not in self._places:
            raise LogNotFoundError(
                f"no partition {partition} of a topic {topic} in {self._named()}; the partition {topic} is "
                f"open({named.topic!r}, {named.partition})"
            )
        for name in options:
            if name not in _READING:
                raise TypeError(
                    f"{name} is none of the options for reading: they are {', '.join(_READING)}; to write, use kstore.open"
                )
        directory = self._places.get(tp, self._directories[0])
        return PartitionLog(directory.path_of(tp), **options)

    def append(
        self,
        topic: str,
        value: Any,
        key: Any = None,
        timestamp: Any = None,
        headers: Any = None,
    ) -> tuple[int, int]:
        """Appends one record to a topic, and returns (partition, offset).

        The key chooses the partition, as Kafka's default partitioner does: murmur2 of the key, modulo the number of
        partitions. Records without a key stay at one partition for about 16 KiB, then go on to the next. The other
        arguments, and the errors, are those of LogWriter.append. LogNotFoundError if there is no such topic, or if the
        partition is not here.
        """
        self._check_writing()
        tp = self._topic(topic).partition_for(key, value)
        return tp.partition, self._open_logs.get(tp).append(value, key, timestamp, headers)

    def extend(self, topic: str, values: Any, keys: Any = None, timestamps: Any = None) -> dict[int, range]:
        """Appends many records to a topic, and returns the offsets by partition: {0: range(0, 512), …}.

        The arguments are those of LogWriter.extend, and partitions are chosen as in `append`; without keys all records of
        a call go to one partition. The columns are split by partition without a copy and without the GIL. Errors in the
        arguments are found before anything is written; should the system fail half way, what was appended before that
        stays, as the log_end_offset of the partitions tells.
        """
        self._check_writing()
        found = self._topic(topic)
        sticky = found.sticky()
        if keys is None:
            return {sticky: self._open_logs.get(found.partition(sticky)).extend(values, None, timestamps)}
        if found.count > _MOST_PARTITIONS:
            raise ValueError(f"topic {topic} has {found.count} partitions, more than columns can be split by")
        parts = split_by_partition(values, keys, timestamps, found.count, sticky)
        logs = self._open_logs
        if len(parts) > 1:
            for number, *columns in parts:
                logs.get(found.partition(number))._check_extend(*columns)
        return {number: logs.get(found.partition(number)).extend(*columns) for number, *columns in parts}

    def scan(
        self,
        topic: str,
        columns: Sequence[str] | None = None,
        *,
        partitions: Iterable[int] | None = None,
        **options: Any,
    ) -> StoreScan:
        """The records of a topic as columns: one Arrow stream over all its partitions, one after the other.

        columns: names, in order: `partition`, and those of PartitionLog.scan. Default: partition, offset, timestamp,
            timestamp_type, key, value, headers.
        partitions: numbers of the partitions to read. Default: all; LogFailedError if some are not here.

        The other options are those of PartitionLog.scan, but for `start` and `stop`, which are offsets of one partition.
        LogNotFoundError.
        """
        if not self._is_writing and self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")
        found = self._topic(topic)
        for name in ("start", "stop"):
            if name in options:
                raise TypeError(f"{name} is an offset of one partition: use log(topic, partition).scan()")
        numbers = found.numbers
        if partitions is None:
            self._require_all(found, "read as a whole")
        else:
            numbers = tuple(integer("partition", number, 0, 2**31 - 1) for number in partitions)
        for number in numbers:
            found.partition(number)
        if not numbers:
            raise LogNotFoundError(f"no partition of topic {topic} is to be read")

        def scan_of(number: int, names: tuple[str, ...]) -> Scan:
            return self.log(topic, number).scan(names, **options)

        return StoreScan(topic, columns, numbers, scan_of)

    def cursor(
        self,
        group: str,
        topics: Iterable[str],
        start: Literal["earliest", "latest"] | int | datetime = "earliest",
        *,
        follow: bool = False,
        timeout: float | None = None,
        isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    ) -> StoreCursor:
        """The durable positions of a group of readers in the partitions of these topics: a StoreCursor, which gives the
        records behind what was committed last.

        All cursors of a group, in any thread or process, share the partitions: each has some of them, and takes over those
        of one that has died. They should name the same topics.

        `start`, `follow`, `timeout` and `isolation` are those of PartitionLog.cursor. With follow=True a topic may be missing,
        and is read once it is made; else LogNotFoundError. OSError if the files with the positions cannot be written,
        CorruptRecordError if they are damaged.
        """
        if self._closed:
            raise LogClosedError(f"the store of {self._named()} is closed")
        return StoreCursor(self, group, topics, start, follow=follow, timeout=timeout, isolation=isolation)

    def flush(self) -> None:
        """Writes everything that was appended so far to the disk, and the checkpoint files.

        OSError, LogFailedError: that of the first log that failed; all others are flushed all the same.
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
        for directory in self._live():
            assert directory.keeper is not None
            try:
                directory.keeper.store()
            except OSError as e:
                failure = failure or e
        if failure is not None:
            raise failure

    def retain(self, *, dry_run: bool = False) -> dict[TopicPartition, list[Decision]]:
        """Deletes old segments of all partitions, as LogWriter.retain does, and removes the directories of deleted
        topics whose time has come. Returns the decisions by partition.

        A partition that fails is left out, and `health` tells. So is one of which nobody has said how long its records are
        kept, neither the topic nor the store, and of which Kafka's default of 7 days would delete something.
        """
        self._check_writing()
        decisions = {}
        for tp in self.partitions:
            if tp.topic == layout.CLUSTER_METADATA:
                continue
            try:
                decisions[tp] = self._open_logs.get(tp).retain(dry_run=dry_run)
            except (OSError, KstoreError) as e:
                self._open_logs.failures[tp] = f"{type(e).__name__}: {e}"
            else:
                self._open_logs.failures.pop(tp, None)
        if not dry_run:
            with self._changing:
                self._remove_due(self._now())
        return decisions

    # ---- topics ---------------------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **config: Any) -> TopicDescription:
        """Makes a topic, durably, and describes it.

        `config` are options of LogConfig for this topic; what is not named is the store's. They are kept in the directory,
        and hold at the next opening too. With several directories a partition goes where the fewest are. If the process
        dies meanwhile, the topic is there with all its partitions at the next opening, or not at all.

        Raises:
            ValueError: Kafka does not allow the name, or there is such a topic, or one that Kafka takes for the same:
                `.` and `_` count as one in the names of its metrics.
            InvalidConfigError: an option is unknown, or has a value that it cannot have.
            OSError: nothing is changed, or `health` tells what is not finished.
        """
        self._check_writing()
        _checked_name(name)
        partitions = integer("partitions", partitions, 1, _MOST_PARTITIONS)
        options = self._checked_options(config)
        with self._changing:
            self._check_changeable()
            if name == layout.CLUSTER_METADATA:
                raise ValueError(f"{name} is the name of a broker's own log")
            for known in {*self._topics, *self._table.topics}:
                if known == name or known.replace(".", "_") == name.replace(".", "_"):
                    raise ValueError(f"topic {name} cannot be made: there is a topic {known}")
            self._refuse_existing(name, range(partitions))
            self._make(name, range(partitions), options)
        return self.describe(name)

    def add_partitions(self, topic: str, total: int) -> TopicDescription:
        """Gives a topic more partitions, `total` in all, durably, and describes it.

        A key may belong to another partition from then on. ValueError if it has as many already. OSError as in
        `create_topic`.
        """
        self._check_writing()
        total = integer("total", total, 1, _MOST_PARTITIONS)
        with self._changing:
            self._check_changeable()
            found = self._topic(topic)
            if total <= found.count:
                raise ValueError(
                    f"topic {topic} has {found.count} partitions already, so total cannot be {total}"
                )
            self._require_all(found, "given partitions")
            self._refuse_existing(topic, range(found.count, total))
            self._make(topic, range(found.count, total), self._own_options(topic))
        return self.describe(topic)

    def alter_topic(self, topic: str, **config: Any) -> TopicDescription:
        """Changes a topic's own configuration, durably and at once, and describes it: store.alter_topic("orders",
        retention_ms=86_400_000).

        None gives an option back to the store's configuration. InvalidConfigError: nothing is changed. OSError.
        """
        self._check_writing()
        with self._changing:
            self._check_changeable()
            found = self._topic(topic)
            options = self._own_options(topic)
            for name in [name for name, value in config.items() if value is None]:
                self._config.replace(
                    **{name: getattr(self._config, name, None)}
                )  # an unknown name is refused
                options.pop(name.replace("_", "."), None)
            options |= self._checked_options({k: v for k, v in config.items() if v is not None})
            self._checked_options(in_python(options))
            before = self._config_of(topic)
            with self._change(f"configuration of topic {topic}"):
                self._decide(self._table.with_topic(topic, KnownTopic(found.count, options)))
                self._work.forget({found.partition(number) for number in found.numbers})
                after = self._config_of(topic)
                changes = {
                    option.name: getattr(after, option.name)
                    for option in LogConfig.describe()
                    if getattr(after, option.name) != getattr(before, option.name)
                }
                for tp, log in self._open_logs.all_open():
                    if tp.topic == topic:
                        log.configure(**changes)
                        log._names_retention = self._says_retention(topic)
                self._changed()
                self._spread(self._live()[1:], self._table)
        return self.describe(topic)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic, durably: its partitions are out of use when this returns.

        Their directories get names that end in -delete, as Kafka's do, and are removed after file_delete_delay_ms by
        `retain` or a later change of topics, or when the store is closed. LogWriters of the topic are closed. If the
        process dies meanwhile, the next opening finds the topic deleted, or as it was. LogNotFoundError. OSError as in
        `create_topic`.
        """
        self._check_writing()
        with self._changing:
            self._check_changeable()
            found = self._topic(topic)
            if topic == layout.CLUSTER_METADATA:
                raise ValueError(f"{topic} is a broker's own log")
            self._require_all(found, "deleted")
            partitions = [found.partition(number) for number in found.numbers]
            with self._change(f"deletion of topic {topic}"):
                self._leaving = topic  # before it is decided: what is written from then on would be gone
                self._list()
                self._open_logs.drop(partitions)
                self._work.forget(partitions)
                for directory in self._live():
                    directory.refuse_writers(partitions)
                self._decide(self._table.without_topic(topic))
                self._carry_out()

    @contextlib.contextmanager
    def _change(self, what: str) -> Iterator[None]:
        """For a change of topics. If it fails before it is decided, nothing has happened. If it fails later, no topic is
        changed until the store is opened again, which finishes it."""
        before = self._table
        self._unfinished = what
        try:
            yield
        except BaseException as e:
            self._unfinished = f"{what}: {type(e).__name__}: {e}"
            undone = False  # as long as nobody knows better
            with contextlib.suppress(OSError, KstoreError):
                undone = read_table(self._live()[0].path) == before
            if undone:
                self._leaving = ""
                self._list()
                self._unfinished = ""
            raise
        self._unfinished = ""

    def _checked_options(self, config: dict[str, Any]) -> dict[str, str]:
        """A topic's own options in Kafka's notation. InvalidConfigError."""
        checked = self._config.replace(**config)
        given = {name: getattr(checked, name) for name in config}
        options = {
            name.replace("_", "."): as_text(value) for name, value in given.items() if value is not None
        }
        in_python(options)  # those that no topic has are refused
        return options

    def _check_changeable(self) -> None:
        self._check_writing()
        if self._unfinished:
            raise LogFailedError(
                f"a change of topics in {self._named()} is not finished, which the next opening does: {self._unfinished}"
            )
        self._remove_due(self._now())

    def _refuse_existing(self, name: str, numbers: Iterable[int]) -> None:
        """ValueError if somebody else has made a partition meanwhile: its records would be taken for those of a new one."""
        for number in numbers:
            for directory in self._live():
                path = directory.path_of(TopicPartition(name, number))
                if path.exists():
                    raise ValueError(f"partition {number} of topic {name} cannot be made: there is {path}")

    def _make(self, name: str, numbers: Iterable[int], options: dict[str, str]) -> None:
        """Decides that a topic has these partitions more, and makes them."""
        live = self._live()
        counts = [len(directory.partitions) for directory in live]
        make = {}
        for number in numbers:
            at = counts.index(min(counts))
            counts[at] += 1
            make[number] = str(live[at].path)
        count = max(make) + 1
        change = Change(name, delete=False, make=make)
        with self._change(str(change)):
            self._decide(self._table.with_topic(name, KnownTopic(count, options), change))
            self._carry_out()
        self._changed()

    def _decide(self, table: TopicTable) -> None:
        """Writes a table to the first directory: from here on the change is made, whatever happens. OSError."""
        write_table(self._live()[0].path, table)
        self._table = table
        self._configs = {}

    def _carry_out(self) -> None:
        """Does what the table says is to be done. OSError."""
        change = self._table.change
        assert change is not None
        if change.delete:
            self._carry_out_deletion(change.topic)
        else:
            for directory in self._live():
                mine = [n for n, path in change.make.items() if path == str(directory.path)]
                if mine:
                    directory.make(TopicPartition(change.topic, number) for number in mine)
        finished = self._table.finished()
        self._spread(self._live(), finished)
        self._table = finished
        self._leaving = ""
        self._list()

    def _carry_out_deletion(self, topic: str) -> None:
        due = self._now() + self._config.file_delete_delay_ms
        for directory in self._live():
            mine = [tp for tp in directory.partitions if tp.topic == topic]
            if mine:
                known = set(directory.deleted)
                directory.set_aside(mine)
                for name in set(directory.deleted) - known:
                    self._due[directory, name] = due

    def _finish_after_crash(self) -> None:
        change = self._table.change
        assert change is not None
        if len(self._directories) == 1:  # it may have been moved
            change = replace(change, make=dict.fromkeys(change.make, str(self.path)))
            self._table = replace(self._table, change=change)
        missing = set(change.make.values()) - {str(directory.path) for directory in self._live()}
        if missing or (change.delete and any(directory.failure for directory in self._directories)):
            where = ", ".join(sorted(missing)) or "a directory"
            self._unfinished = f"{change}: {where} is not in use"
            return
        try:
            self._carry_out()
        except OSError as e:  # `health` tells, and the next opening tries again
            self._unfinished = f"{change}: {e}"

    def _spread(self, directories: Iterable[LogDirectory], table: TopicTable) -> None:
        """Gives these directories a table. OSError."""
        for directory in directories:
            write_table(directory.path, table)

    def _remove_due(self, now: int | None) -> None:
        """Removes what was set aside and whose time has come; None: all. What cannot be removed is tried again later."""
        for (directory, name), due in list(self._due.items()):
            if now is not None and due > now:
                continue
            try:
                directory.remove(name)
            except OSError as e:
                self._not_removed[directory.path / name] = str(e)
            else:
                self._not_removed.pop(directory.path / name, None)
                del self._due[directory, name]

    # ---- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes all logs, and leaves the directories as a broker's clean shutdown does.

        The directories of deleted topics are removed. If a log cannot be closed cleanly, its error is raised, all others
        are closed all the same, and the next opening recovers the directory. A store that reads has nothing to close.
        """
        if self._closed:
            return
        if not self._is_writing:
            self._closed = True
            return
        with self._changing:
            if self._closed:
                return
            for _, log in self._open_logs.all_open():
                log._refuse_reentrance()
            self._work.stop()
            failure = self._open_logs.close()
            self._remove_due(None)
            try:
                self._leave(clean=True)
            except OSError as e:
                failure = failure or e
        self._work.wait()  # not before: it may wait for a log in which a signal handler interrupted this thread
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Closes the store without flushing, as if the process had died: the next opening recovers it."""
        if not self._closed:
            self._leave(clean=False)

    def _leave(self, *, clean: bool) -> None:
        """Gives the directories up. OSError: that of the first that could not be marked as clean."""
        self._closed = True
        self._work.stop()
        failure: OSError | None = None
        if self._is_writing and not clean:
            self._open_logs.abandon()
        for directory in self._directories:
            if directory.keeper is not None:
                try:
                    directory.keeper.leave(clean=clean and not directory.failure)
                except OSError as e:
                    failure = failure or e
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
            f"the store of {self._named()} was open for writing and never closed: the next opening must recover",
            ResourceWarning,
            source=self,
            stacklevel=2,
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"an open store cannot be pickled: give the other process its path, {self._named()}")

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        paths = ", ".join(repr(str(directory.path)) for directory in self._directories)
        state = ", closed" if self._is_writing and self._closed else ""
        return f"LogStore({paths}, {len(self)} partitions{state})"


def _check_log_options(options: Mapping[str, object]) -> None:
    """What LogWriter would refuse, before anything is touched. TypeError, ValueError."""
    choice("durability", options.get("durability", "none"), DURABILITY)
    if not isinstance(options.get("keep_cut", False), bool):
        raise TypeError(f"keep_cut must be True or False, not {options['keep_cut']!r}")
    clock: Any = options.get("clock")
    if not (clock is None or callable(clock)):
        raise TypeError(f"clock must be a function that returns the time in milliseconds, not {clock!r}")
    if options.get("leader_epoch") is not None:
        integer("leader_epoch", options["leader_epoch"], 0, MAX_EPOCH)
    for name, least in (("max_decompressed_bytes", 0), ("producer_id_expiration_ms", 1)):
        if name in options:
            integer(name, options[name], least)


def _forked() -> None:
    """A child of fork must not write: the store is its parent's."""
    for store in list(_stores):
        store._closed = True
    _stores.clear()


os.register_at_fork(after_in_child=_forked)
