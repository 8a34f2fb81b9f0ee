"""The logs of the directories that a job reads. Needs no Spark."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from kstore.arguments import choice
from kstore.errors import KstoreError, LogNotFoundError
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.spark.errors import SparkSourceError, failure, translated
from kstore.spark.paths import no_log_directory
from kstore.store import LogStore

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]


@dataclass(slots=True)
class Logs:
    """The logs of one or more log directories, opened once each; `refresh` takes in what was written
    since."""

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
