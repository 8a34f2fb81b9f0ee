"""The partitions that log directories should have, by the table of a store or the metadata of a cluster."""

from __future__ import annotations

import os

from kstore.broker.cluster_metadata import find_cluster_metadata
from kstore.checking.codes import found
from kstore.errors import CorruptCheckpointError, KstoreError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.checkpoints import read_topic_id, topic_id_text
from kstore.log.files.layout import TopicPartition
from kstore.log.files.lock import is_locked
from kstore.log.files.manifest import read_manifest
from kstore.properties import read_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from uuid import UUID

    from kstore.checking.finding import Finding

# ids of no directory: none; UNASSIGNED (a new partition) and MIGRATING (before 3.7) of Kafka's DirectoryId
_NOWHERE = ("", "A" * 22, "A" * 20 + "Ag")


class Assigned(NamedTuple):
    """What is known about the partitions of log directories of one store or broker.

    `replicas`: for each partition that the metadata of the cluster assigns to the node of these directories,
    the id of its directory, "" if the metadata has none. `topics`: all topics that the metadata or the table
    knows, None if there is neither. `ids`: the topic ids in the metadata.
    """

    paths: tuple[str, ...]
    replicas: Mapping[TopicPartition, str]
    topics: frozenset[str] | None
    directory_ids: frozenset[str]
    ids: Mapping[str, UUID]

    @classmethod
    def read(cls, paths: Sequence[str]) -> Assigned:
        """What the directories say. What is damaged in them is passed over, because it is a finding
        already."""
        properties = [_properties_in(path) for path in paths]
        nodes = {each["node.id"] for each in properties if "node.id" in each}
        ids = frozenset(each["directory.id"] for each in properties if "directory.id" in each)
        try:
            metadata = find_cluster_metadata(paths)
        except (KstoreError, OSError):
            metadata = None
        if metadata is None:
            return cls(tuple(paths), {}, _topics_of_tables(paths), ids, {})
        replicas = {
            TopicPartition(name, number): places[at] if at < len(places) else ""
            for name, topic in metadata.topics.items()
            for number, nodes_of in topic.replicas.items()
            for places in [topic.log_directories[number]]
            for at, node in enumerate(map(str, nodes_of))
            if node in nodes
        }
        known = {name: topic.id for name, topic in metadata.topics.items()}
        return cls(tuple(paths), replicas, frozenset(known), ids, known)

    def is_removed(self, tp: TopicPartition) -> bool:
        """Whether a partition was removed from these directories, by what the metadata or the table says, or
        is in another one of them."""
        if any(os.path.isdir(f"{path}/{tp}") for path in self.paths):
            return True
        if self.replicas:
            return tp not in self.replicas or self._is_elsewhere(tp)
        return self.topics is not None and tp.topic not in self.topics

    def missing(self) -> Iterator[Finding]:
        """The findings about partitions that the metadata assigns to these directories, and that are in
        none."""
        is_live = any(map(is_locked, self.paths))
        for tp, directory in sorted(self.replicas.items()):
            if self._is_elsewhere(tp) or any(os.path.isdir(f"{path}/{tp}") for path in self.paths):
                continue
            text = "the metadata of the cluster assigns the partition to this node, and it is in no log "
            text += "directory that was given"
            is_unsure = directory in _NOWHERE and bool(self.directory_ids)
            severity = "suspicious" if is_live or is_unsure else ""
            yield found("partition_missing", f"{self.paths[0]}/{tp}", text, severity=severity)

    def other_ids(self, partitions: Iterable[tuple[str, TopicPartition]]) -> Iterator[Finding]:
        """The findings about partitions of this node, with their paths, that have not the topic id of the
        metadata."""
        for path, tp in partitions:
            file = f"{path}/{layout.METADATA}"
            if tp not in self.replicas:
                continue
            try:
                found_id = read_topic_id(file)
            except FileNotFoundError:
                found_id = None
            except (CorruptCheckpointError, OSError):  # a finding already
                continue
            if found_id != (expected := self.ids[tp.topic]):
                here = (
                    "it is missing" if found_id is None else f"it has the topic id {topic_id_text(found_id)}"
                )
                text = (
                    f"{here}; in the metadata of the cluster, {tp.topic} has {topic_id_text(expected)}. "
                    "A broker sets the partition aside as stray, and begins an empty one"
                )
                remedy = f"write the two lines 'version: 0' and 'topic_id: {topic_id_text(expected)}' into it"
                yield found("topic_id_differs", file, text, remedy=remedy)

    def _is_elsewhere(self, tp: TopicPartition) -> bool:
        """Whether the metadata has a partition in a directory that was not given."""
        directory = self.replicas[tp]
        return directory not in _NOWHERE and directory not in self.directory_ids


def _properties_in(path: str) -> Mapping[str, str]:
    try:
        return read_properties(f"{path}/{layout.META_PROPERTIES}")
    except (KstoreError, OSError, ValueError):
        return {}


def _topics_of_tables(paths: Sequence[str]) -> frozenset[str] | None:
    topics: set[str] = set()
    number = 0
    for path in paths:
        try:
            table = read_manifest(path).table
        except (KstoreError, OSError):
            continue
        number += table.number
        topics.update(table.topics)
    return frozenset(topics) if number else None
