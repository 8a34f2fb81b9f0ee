"""The partitions that a reader of topics wants, as they are now."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING
from kstore.store.topic_catalog import Current

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kstore.log.files.layout import TopicPartition
    from kstore.log.partition import PartitionLog
    from kstore.store.store_directory import StoreDirectory
    from kstore.store.topic_catalog import TopicCatalog


class WantedPartitions:
    """The paths of the partitions of some topics. topics: None for all whose names do not begin with "__"."""

    def __init__(self, catalog: TopicCatalog, topics: Sequence[str] | None) -> None:
        self.paths: dict[TopicPartition, str] = {}
        self._topics = topics
        self._current = Current(catalog)
        self._listed: Mapping[TopicPartition, StoreDirectory] = {}
        self.list()
        self._first = set(self.paths)

    def list(self) -> None:
        """Lists the partitions that there are now. OSError, KstoreError."""
        partitions = self._current.catalog().partitions
        if partitions is not self._listed:
            self.paths = {
                tp: partitions[tp].path_of(tp) for tp in sorted(partitions) if self._wants(tp.topic)
            }
            self._listed = partitions

    def _wants(self, topic: str) -> bool:
        return topic in self._topics if self._topics is not None else not topic.startswith("__")

    def refuse_missing(self, topics: Iterable[str]) -> None:
        """LogNotFoundError for a topic that there is not, LogFailedError for one whose partitions are all
        missing."""
        catalog = self._current.known
        for name in sorted(set(topics) - {tp.topic for tp in self.paths}):
            catalog.require_all(catalog.topic(name), "read by a cursor")

    def topic_id(self, tp: TopicPartition) -> str | None:
        """The id of the topic of a partition that there is; "" if it has none. OSError."""
        return self._current.topic_id(tp.topic) if tp in self.paths else None

    def opened(self, tp: TopicPartition) -> PartitionLog:
        """A partition, for reading. LogNotFoundError, CorruptFileError, OSError."""
        return self._listed[tp].open_to_read(tp)

    def was_there(self, tp: TopicPartition) -> bool:
        """Whether a partition was there when the reader began. All records of others are new."""
        return tp in self._first

    def gone(self, tp: TopicPartition) -> None:
        """A partition was deleted, and maybe made anew: then all of it is new. OSError, KstoreError."""
        self._first.discard(tp)
        self._current.look_again()
