"""The logs of the directories that a job reads. Needs no Spark."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Literal, TypeAlias, get_args

from kstore.arguments import choice
from kstore.errors import KstoreError, LogNotFoundError
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.spark.errors import SparkSourceError, failure, translated
from kstore.store import LogStore

Paths: TypeAlias = str | PathLike[str] | Iterable[str | PathLike[str]]
Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]


def local_path(url: str, name: str) -> str:
    """An absolute path of the file system, also from a URL such as Hadoop's file:/x and file:///x; links stay as
    executors see them. KSTORE_UNSUPPORTED."""
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(/.*)", url)
    if found is None:
        return os.path.abspath(url)  # noqa: PTH100
    if found[1].lower() != "file" or found[2] not in (None, "", "localhost"):
        raise failure("KSTORE_UNSUPPORTED", f"{name} must lie in a mounted file system", file=url)
    return os.path.abspath(found[3])  # noqa: PTH100


def roots_of(paths: Paths) -> tuple[str, ...]:
    """The absolute paths of log directories. KSTORE_INVALID_OPTION, KSTORE_UNSUPPORTED."""
    given = [fspath(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]
    if not given or not all(path.strip() for path in given):
        raise failure(
            "KSTORE_INVALID_OPTION",
            "path is missing: the log directory, as in .load(path) or .option('path', …)",
        )
    roots = tuple(local_path(path.strip(), "path") for path in given)
    if len({os.path.realpath(root) for root in roots}) < len(roots):
        raise failure("KSTORE_INVALID_OPTION", f"a log directory is named twice: {', '.join(roots)}")
    return roots


def no_log_directory(root: str) -> SparkSourceError:
    """The error for a path that holds no partitions and is not there, or is itself a partition."""
    reason = "no log directory there"
    if os.path.isdir(root):  # noqa: PTH112
        around = os.path.dirname(root)  # noqa: PTH120
        reason = (
            f"it is a partition; path is the log directory around it, {around}, and options name the topic"
        )
    return failure("KSTORE_PATH_NOT_FOUND", reason, file=root)


@dataclass(slots=True)
class Logs:
    """The logs of one or more log directories, opened once each; `refresh` takes in what was written since."""

    roots: tuple[str, ...]
    isolation: Isolation = "read_uncommitted"
    _stores: dict[str, LogStore] = field(default_factory=dict)
    _places: dict[TopicPartition, str] = field(default_factory=dict)
    _open: dict[TopicPartition, PartitionLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            choice("isolation", self.isolation, get_args(Isolation))
        except ValueError as e:
            raise failure("KSTORE_INVALID_OPTION", str(e)) from None

    @property
    def place(self) -> str:
        """Where the logs are, for errors."""
        return ", ".join(self.roots)

    def names(self) -> list[TopicPartition]:
        """The partitions that lie there, in order."""
        places: dict[TopicPartition, str] = {}
        for root in self.roots:
            try:
                found = self._store(root).partitions
            except LogNotFoundError:
                raise no_log_directory(root) from None
            except (KstoreError, OSError) as e:
                raise translated(e, file=root) from e
            for tp in found:
                if tp in places:
                    raise failure(
                        "KSTORE_INVALID_OPTION",
                        f"two of the directories hold this partition, {places[tp]} and {root}",
                        topic=tp.topic,
                        partition=tp.partition,
                    )
                places[tp] = root
        self._places = places
        return sorted(places)

    def _store(self, root: str) -> LogStore:
        """The store of a log directory, as the directory is now."""
        store = self._stores.get(root)
        if store is None:
            store = self._stores[root] = LogStore(root)
        else:
            store.refresh()
        return store

    def root_of(self, tp: TopicPartition) -> str:
        """The log directory in which a partition lies."""
        if tp not in self._places:
            self.names()
        try:
            return self._places[tp]
        except KeyError:
            raise failure(
                "KSTORE_TOPIC_NOT_FOUND",
                "no such partition there",
                topic=tp.topic,
                partition=tp.partition,
                file=self.place,
            ) from None

    def open(self, tp: TopicPartition) -> PartitionLog:
        """The log of a partition, as it was when it was first asked for or last refreshed."""
        log = self._open.get(tp)
        if log is None:
            try:
                log = self._stores[self.root_of(tp)].open(*tp)
            except SparkSourceError:
                raise
            except (KstoreError, OSError) as e:
                raise translated(e, topic=tp.topic, partition=tp.partition) from e
            self._open[tp] = log
        return log

    def refresh(self) -> None:
        """Brings the open logs up to date; those that are gone are forgotten."""
        for tp, log in list(self._open.items()):
            try:
                log.refresh()
            except FileNotFoundError:
                del self._open[tp]
            except (KstoreError, OSError) as e:
                raise translated(e, topic=tp.topic, partition=tp.partition) from e

    def end(self, tp: TopicPartition) -> int:
        """The offset after the last record that may be read."""
        log = self.open(tp)
        return log.last_stable_offset() if self.isolation == "read_committed" else log.log_end_offset
