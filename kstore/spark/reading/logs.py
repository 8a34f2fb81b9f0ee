"""The logs of the directories that a job reads. Needs no Spark."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, get_args

from kstore.arguments import choice
from kstore.errors import CorruptFileError, LogChangedError, LogNotFoundError
from kstore.log.files.checkpoints import topic_id_text
from kstore.log.files.layout import TopicPartition
from kstore.log.files.manifest import read_manifest
from kstore.log.files.topic_table import TopicTable
from kstore.log.follow.position import Position, diverged_at, position_in
from kstore.log.partition import PartitionLog
from kstore.spark.errors import coded, failure
from kstore.spark.paths import no_log_directory
from kstore.store import LogStore

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
_T = TypeVar("_T")


@dataclass(slots=True)
class Logs:
    """The logs of one or more log directories, opened once each; `refresh` takes in what was written
    since."""

    roots: tuple[str, ...]
    isolation: Isolation = "read_uncommitted"
    _stores: dict[str, LogStore] = field(default_factory=dict)
    _places: dict[TopicPartition, str] = field(default_factory=dict)
    _open: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    _tables: dict[str, TopicTable] = field(default_factory=dict)
    _topic_ids: dict[TopicPartition, str] = field(default_factory=dict)

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
                    store = self._stores[root] = LogStore(root)
                else:
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
                    if not log.refresh():
                        raise

    def refresh(self) -> None:
        """Brings the open logs up to date; those that are gone are forgotten."""
        self._tables.clear()
        self._topic_ids.clear()
        for tp, log in list(self._open.items()):
            with coded(tp):
                try:
                    log.refresh()
                except FileNotFoundError:
                    del self._open[tp]

    # ---- one log -------------------------------------------------------------------------------------------

    def end(self, tp: TopicPartition) -> int:
        """The offset after the last record that may be read."""
        if self.isolation == "read_committed":
            return self.read(tp, PartitionLog.last_stable_offset)
        return self.open(tp).log_end_offset

    def position(self, tp: TopicPartition, offset: int) -> Position:
        """The position at an offset of a log."""
        return position_in(self.open(tp).snapshot, offset)

    def diverged_at(self, tp: TopicPartition, position: Position) -> int:
        """From which offset on, below a position, a log holds others than the records before it; -1 if it
        holds them."""
        return diverged_at(self.open(tp).snapshot, position, self.isolation)

    def topic_id(self, tp: TopicPartition) -> str:
        """The id of a topic: a broker's, else the store's. A later topic of that name has another id. "" if
        the id is not known."""
        if tp not in self._topic_ids:
            try:
                of_broker = self.open(tp).topic_id()
                own = self._id_in_table(tp) if of_broker is None else topic_id_text(of_broker)
            except (CorruptFileError, OSError):
                own = ""
            self._topic_ids[tp] = own
        return self._topic_ids[tp]

    def _id_in_table(self, tp: TopicPartition) -> str:
        root = self.root_of(tp)
        if root not in self._tables:
            self._tables[root] = read_manifest(root).table
        known = self._tables[root].topics.get(tp.topic)
        return "" if known is None else known.id
