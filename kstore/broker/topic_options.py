"""The options of a topic in a log directory, whoever keeps them: kstore or a broker."""

from __future__ import annotations

from kstore.broker.cluster_metadata import find_cluster_metadata
from kstore.config import LogConfig
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import checkpoints, layout
from kstore.log.files.log_dir_state import kept_options, locate
from kstore.properties import read_properties

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from kstore.broker.cluster_metadata import ClusterMetadata
    from kstore.typed import StrPath


class TopicOptions(NamedTuple):
    """The options of a topic, in Kafka's notation.

    `options`: those that were set for the topic. `broker_options`: the dynamic options of the broker, by the
    names in server.properties. `source`: "log" (saved in the partition), "store" (in the table of a LogStore)
    or "broker" (in __cluster_metadata; options that kstore has saved in the partition have precedence).
    """

    options: dict[str, str]
    broker_options: dict[str, str]
    source: Literal["log", "store", "broker"]

    def config(
        self, changes: Mapping[str, str] | None = None, server_properties: Mapping[str, str] | None = None
    ) -> LogConfig:
        """The configuration of the topic: `changes`, then its options, then the broker's dynamic options,
        then those of its server.properties. InvalidConfigError."""
        topic = self.options | dict(changes or {})
        broker = dict(server_properties or {}) | self.broker_options
        return LogConfig.from_server_properties(broker, topic) if broker else LogConfig.from_topic(topic)


def topic_options(path: StrPath, metadata: ClusterMetadata | None = None) -> TopicOptions:
    """The options of the topic of a partition, given the metadata of its broker. Without `metadata` they are
    read from the log directory around the partition, if it is a broker's. CorruptFileError, OSError."""
    kept = kept_options(path)
    if kept.of_store:
        return TopicOptions(kept.options, {}, "store")
    place = locate(path)
    if metadata is None and not place.is_alone:
        metadata = find_cluster_metadata([place.directory])
    if metadata is None:
        return TopicOptions(kept.options, {}, "log")
    known = {option.kafka_name for option in LogConfig.describe()}  # a later Kafka has more
    found: dict[str, str] = {}
    topic = metadata.topics.get(place.name.topic)
    if topic is not None and _topic_id(path) in (None, topic.id):  # else the partition is of a deleted topic
        options = metadata.options_of_topic(place.name.topic)
        found = {name: value for name, value in options.items() if name in known}
    broker = dict(metadata.options_of_broker(_node_id(place.directory)))
    return TopicOptions(found | kept.options, broker, "broker")


def directories_of_broker(path: StrPath, server_properties: Mapping[str, str]) -> list[str]:
    """The log directories in which the metadata of a broker may be: that of a partition, and those that the
    broker's server.properties names."""
    found = [locate(path).directory]
    for name in ("metadata.log.dir", "log.dirs", "log.dir"):
        found += [each.strip() for each in server_properties.get(name, "").split(",") if each.strip()]
    return found


def _topic_id(path: StrPath) -> object:
    try:
        return checkpoints.read_topic_id(f"{path}/{layout.METADATA}")
    except FileNotFoundError:
        return None


def _node_id(directory: str) -> str:
    try:
        return read_properties(f"{directory}/{layout.META_PROPERTIES}").get("node.id", "")
    except FileNotFoundError:
        return ""
