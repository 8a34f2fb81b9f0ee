"""The topics and options in __cluster_metadata-0, a partition that each node of a KRaft cluster has (spec
11.1).

A snapshot, a .checkpoint file, has all records that were in force at the offset in its name; the log has
those after it.
"""

from __future__ import annotations

import base64
import os
from types import MappingProxyType
from uuid import UUID

from kstore.engine.io.file import read_whole
from kstore.engine.record.batch import RecordBatch
from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.partition import PartitionLog
from kstore.messages.errors import DecodeError
from kstore.messages.schema import Table
from kstore.messages.tables import METADATA
from kstore.messages.topics import read_framed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from kstore.engine.record.batch import Record
    from kstore.typed import StrPath

_TABLE = Table(METADATA)
_TOPIC, _BROKER = 2, 4  # types of resources in ConfigRecord
_EMPTY: Mapping[str, str] = MappingProxyType({})
_SUFFIX = ".checkpoint"


class MetadataTopic(NamedTuple):
    """A topic of a cluster: its id, the replicas (node ids) of each partition, and the ids of their log
    directories as in meta.properties, none before Kafka 3.7."""

    id: UUID
    replicas: Mapping[int, tuple[int, ...]]
    log_directories: Mapping[int, tuple[str, ...]]


class ClusterMetadata(NamedTuple):
    """The metadata of a cluster as one node has it, before offset `end_offset` of the metadata log.

    `topic_options`: the options that were set for each topic. `broker_options`: the dynamic options of
    brokers by node id, those for all brokers under "". Names and values are Kafka's, as text.
    """

    path: str
    end_offset: int
    topics: Mapping[str, MetadataTopic]
    topic_options: Mapping[str, Mapping[str, str]]
    broker_options: Mapping[str, Mapping[str, str]]

    def options_of_topic(self, name: str) -> Mapping[str, str]:
        """The options that were set for a topic."""
        return self.topic_options.get(name, _EMPTY)

    def options_of_broker(self, node_id: str) -> Mapping[str, str]:
        """The dynamic options of a broker: its own, else those for all brokers."""
        return {**self.broker_options.get("", _EMPTY), **self.broker_options.get(node_id, _EMPTY)}


NO_METADATA = ClusterMetadata("", 0, MappingProxyType({}), MappingProxyType({}), MappingProxyType({}))


def find_cluster_metadata(directories: Iterable[StrPath]) -> ClusterMetadata | None:
    """The metadata in the first of these log directories that has any, or None. CorruptFileError, OSError."""
    for directory in directories:
        path = f"{directory}/{layout.CLUSTER_METADATA}-0"
        if os.path.isdir(path):
            return read_cluster_metadata(path)
    return None


def read_cluster_metadata(path: StrPath) -> ClusterMetadata:
    """The metadata in a directory __cluster_metadata-0: the newest snapshot and the records after it.
    CorruptFileError, OSError."""
    image = _Image()
    snapshots = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIX))
    start = 0
    if snapshots:
        start = int(snapshots[-1].partition("-")[0])
        file = f"{path}/{snapshots[-1]}"
        for batch in _batches_in(file):
            for record in () if batch.is_control else batch.records():
                image.replay(record, file)
    with PartitionLog(path) as log:
        end = max(start, log.log_end_offset)
        for record in log.records(max(start, log.log_start_offset)) if start < end else ():
            image.replay(record, log.path)
    return ClusterMetadata(str(path), end, image.topics, image.options[_TOPIC], image.options[_BROKER])


def _batches_in(file: str) -> Iterator[RecordBatch]:
    data, position = read_whole(file), 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if not 61 <= size <= len(data) - position:
            raise CorruptRecordError(
                "size field of a batch",
                file=file,
                position=position + 8,
                expected="a whole batch",
                found=size,
            )
        yield RecordBatch(data[position : position + size], file=file, position=position)
        position += size


class _Image:
    """The effect of the records so far. Those of a transaction count when it ends."""

    def __init__(self) -> None:
        self.topics: dict[str, MetadataTopic] = {}
        self.options: dict[int, dict[str, dict[str, str]]] = {_TOPIC: {}, _BROKER: {}}
        self._names: dict[str, str] = {}  # of topics, by id
        self._pending: list[tuple[str, Any]] | None = None

    def replay(self, record: Record, file: str) -> None:
        """Takes in a record. CorruptRecordError."""
        try:
            message, _, values = read_framed(_TABLE, record.value)
        except DecodeError as e:
            raise CorruptRecordError(
                "record of metadata",
                file=file,
                position=-1,
                offset=record.offset,
                expected="a message",
                found=e.reason,
            ) from e
        if message.name == "BEGIN_TRANSACTION_RECORD":
            self._pending = []
        elif message.name in ("END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"):
            pending, self._pending = self._pending or [], None
            for each in pending if message.name.startswith("END") else ():
                self._apply(*each)
        elif self._pending is not None:
            self._pending.append((message.name, values))
        else:
            self._apply(message.name, values)

    def _apply(self, name: str, values: Any) -> None:
        match name:
            case "TOPIC_RECORD":
                self._names[values["topicId"]] = values["name"]
                self.topics[values["name"]] = MetadataTopic(_uuid(values["topicId"]), {}, {})
            case "REMOVE_TOPIC_RECORD":
                topic = self._names.pop(values["topicId"], "")
                self.topics.pop(topic, None)
                self.options[_TOPIC].pop(topic, None)
            case "PARTITION_RECORD" | "PARTITION_CHANGE_RECORD":
                topic = self._names.get(values["topicId"], "")
                if topic:
                    number, known = values["partitionId"], self.topics[topic]
                    replicas, places = dict(known.replicas), dict(known.log_directories)
                    if values["replicas"] is not None:
                        replicas[number] = tuple(values["replicas"])
                        places[number] = ()
                    if values.get("directories") is not None:
                        places[number] = tuple(values["directories"])
                    self.topics[topic] = known._replace(replicas=replicas, log_directories=places)
            case "CONFIG_RECORD" if values["resourceType"] in self.options:
                options = self.options[values["resourceType"]].setdefault(values["resourceName"], {})
                options.pop(values["name"], None)
                if values["value"] is not None:
                    options[values["name"]] = values["value"]


def _uuid(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
