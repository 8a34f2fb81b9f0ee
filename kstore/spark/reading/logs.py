"""The logs of the directories that a job reads. Needs no Spark."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, get_args

from kstore.arguments import choice
from kstore.errors import CorruptFileError, LogChangedError, LogNotFoundError
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.position import Position, diverged_at, position_in, topic_id_of
from kstore.log.partition import PartitionLog
from kstore.spark.errors import coded, failure
from kstore.spark.paths import is_remote, no_log_directory
from kstore.spark.reading.places import opened_store
from kstore.store import LogStore

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
_T = TypeVar("_T")


@dataclass(slots=True)
class Logs:
    """The logs of one or more log directories, opened once each; `refresh` takes in what was written
    since. Those below a URL are listed again at most once a second."""

    roots: tuple[str, ...]
    isolation: Isolation = "read_uncommitted"
    _stores: dict[str, LogStore] = field(default_factory=dict)
    _places: dict[TopicPartition, str] = field(default_factory=dict)
    _open: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    _topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    _listed: dict[str, float] = field(default_factory=dict)  # when a URL was, in seconds

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
            for tp in self._partitions_in(root):
                if tp in places:
                    raise failure(
                        "KSTORE_INVALID_OPTION",
                        f"two of the directories hold this partition, {places[tp]} and {root}",
                        tp,
                    )
                places[tp] = root
        self._places = places
        return sorted(places)

    def _partitions_in(self, root: str) -> list[TopicPartition]:
        """The partitions in a log directory, as it is now."""
        store = self._stores.get(root)
        with coded(file=root):
            try:
                if store is None:
                    store = self._stores[root] = opened_store(root)
                    self._listed[root] = time.monotonic()
                elif not is_remote(root):
                    store.refresh()
            except LogNotFoundError:
                raise no_log_directory(root) from None
            return store.partitions

    def root_of(self, tp: TopicPartition) -> str:
        """The log directory in which a partition lies."""
        if tp not in self._places:
            self.names()
        try:
            return self._places[tp]
        except KeyError:
            raise failure("KSTORE_TOPIC_NOT_FOUND", "no such partition there", tp, file=self.place) from None

    def open(self, tp: TopicPartition) -> PartitionLog:
        """The log of a partition, as it was when it was first asked for or last refreshed."""
        log = self._open.get(tp)
        if log is None:
            root = self.root_of(tp)
            # before: if the topic is created again in between, the id is the older one's
            self._topic_ids[tp] = self._topic_id_now(tp)
            with coded(tp):
                log = self._open[tp] = self._stores[root].open(*tp)
        return log

    def read(self, tp: TopicPartition, work: Callable[[PartitionLog], _T], offset: int | None = None) -> _T:
        """What `work` finds in a log; in the log as it is now, if a file was replaced or deleted meanwhile.
        Errors get their code, and name the offset if they name none."""
        log = self.open(tp)
        with coded(tp, offset=offset):
            while True:
                try:
                    return work(log)
                except (LogChangedError, CorruptFileError):
                    if not self._refresh(tp, log):
                        raise

    def refresh(self) -> None:
        """Brings the open logs up to date; those that are gone are forgotten."""
        now = time.monotonic()
        old = [root for root in self._stores if is_remote(root) and now - self._listed[root] >= 1]
        for root in old:
            del self._stores[root]
            for tp in [tp for tp in self._open if self._places[tp] == root]:
                self._open.pop(tp).close()
        if old:
            self.names()
        for tp, log in list(self._open.items()):
            with coded(tp):
                try:
                    self._refresh(tp, log)
                except FileNotFoundError:
                    del self._open[tp]

    def _refresh(self, tp: TopicPartition, log: PartitionLog) -> bool:
        if is_remote(self.root_of(tp)):
            return False
        self._topic_ids[tp] = self._topic_id_now(tp)
        return log.refresh()

    def _topic_id_now(self, tp: TopicPartition) -> str:
        root = self.root_of(tp)
        return topic_id_of(f"{self._stores[root].path if is_remote(root) else root}/{tp}")

    # ---- one log -------------------------------------------------------------------------------------------

    def end(self, tp: TopicPartition) -> int:
        """The offset after the last record that may be read."""
        if self.isolation == "read_committed":
            return self.read(tp, PartitionLog.last_stable_offset)
        return self.open(tp).log_end_offset

    def position(self, tp: TopicPartition, offset: int) -> Position:
        """The position at an offset of a log."""
        return position_in(self.open(tp).snapshot, offset)._replace(topic_id=self.topic_id(tp))

    def diverged_at(self, tp: TopicPartition, position: Position) -> int:
        """From which offset on, below a position, a log holds others than the records before it; -1 if it
        holds them."""
        return diverged_at(self.open(tp).snapshot, position, self.isolation)

    def topic_id(self, tp: TopicPartition) -> str:
        """The id of the topic of an open log; "" if it is not known."""
        self.open(tp)
        return self._topic_ids[tp]
