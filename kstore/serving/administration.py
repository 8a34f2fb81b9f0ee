"""Topics and their partitions, created, extended and deleted by clients."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from kstore.config import in_python
from kstore.errors import InvalidConfigError, KstoreError
from kstore.kinds import as_text
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.serving.cluster import NO_ID, topic_id_of
from kstore.serving.error_codes import ErrorCode, RefusedError, attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from kstore.serving.cluster import Cluster
    from kstore.serving.connection import Connection
    from kstore.serving.partitions import Partitions


class Administration:
    """Changes topics as clients ask. `on_delete` is called with each topic that was deleted."""

    on_delete: Callable[[str], None] | None = None

    def __init__(self, partitions: Partitions, cluster: Cluster) -> None:
        self._partitions = partitions
        self._store = partitions.store
        self._cluster = cluster

    def create_topics(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """Create topics, each with its partitions and its configuration."""
        named = Counter(each["name"] for each in values["topics"])

        def create(wanted: dict[str, Any]) -> dict[str, Any]:
            name = wanted["name"]
            if named[name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
            count = self._partition_count(wanted)
            self._check_new(name)
            config = in_python({each["name"]: _text(each) for each in wanted["configs"]})
            found: dict[str, Any] = {"numPartitions": count, "replicationFactor": 1, "configs": []}
            if not values["validateOnly"]:
                found["topicId"] = topic_id_of(self._store.create_topic(name, count, **config))
            return found

        return {
            "topics": [{"name": each["name"], **attempt(partial(create, each))} for each in values["topics"]]
        }

    def create_automatically(self, name: str) -> None:
        """Create a topic that a client asks for, with one partition. RefusedError; KstoreError, OSError."""
        self._check_new(name)
        self._store.create_topic(name)

    def _check_new(self, name: str) -> None:
        if not layout.is_valid_topic(name):
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no topic can have the name {name!r}")
        known = self._partitions.topics()
        if name in known:
            raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"there is a topic {name}")
        alike = name.replace(".", "_")
        if name == layout.CLUSTER_METADATA or any(alike == each.replace(".", "_") for each in known):
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"another topic is too much like {name}")

    def _partition_count(self, wanted: dict[str, Any]) -> int:
        """The number of partitions of a new topic: given, assigned, or 1."""
        if wanted["assignments"]:
            numbers = sorted(each["partitionIndex"] for each in wanted["assignments"])
            if numbers != list(range(len(numbers))) or any(
                each["brokerIds"] != [self._cluster.node_id] for each in wanted["assignments"]
            ):
                raise RefusedError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"every partition is on the one node, {self._cluster.node_id}",
                )
            return len(numbers)
        if wanted["replicationFactor"] not in (-1, 1):
            raise RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, "there is one node, so one replica")
        count: int = wanted["numPartitions"]
        if count == -1:
            return 1
        if count < 1:
            raise RefusedError(ErrorCode.INVALID_PARTITIONS, "a topic has at least one partition")
        return count

    def delete_topics(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """Delete topics, by name or by id."""
        known = self._partitions.topics()
        wanted = values["topics"] if version >= 6 else [{"name": name} for name in values["topicNames"]]
        by_id = self._cluster.topics_by_id(known) if any(each["name"] is None for each in wanted) else {}
        answers = []
        for each in wanted:
            name, topic_id = each["name"], each.get("topicId", NO_ID)
            if name is None:
                name = by_id.get(topic_id)
                if name is None:
                    answers.append(
                        {"name": None, "topicId": topic_id, "errorCode": ErrorCode.UNKNOWN_TOPIC_ID}
                    )
                    continue
            answers.append({"name": name, "topicId": topic_id, **attempt(partial(self._delete, name, known))})
        return {"responses": answers}

    def _delete(self, name: str, known: dict[str, list[int]]) -> None:
        if name not in known and self._store.mode == "a":
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        self._store.delete_topic(name)
        if self.on_delete is not None:
            self.on_delete(name)

    def create_partitions(
        self, values: dict[str, Any], version: int, connection: Connection
    ) -> dict[str, Any]:
        """Give topics more partitions."""

        def extend(wanted: dict[str, Any]) -> None:
            name, count = wanted["name"], wanted["count"]
            present = len(self._partitions.topics().get(name, ()))
            if not present:
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            if count <= present:
                raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"topic {name} has {present} partitions")
            if not values["validateOnly"]:
                self._store.add_partitions(name, count)

        return {
            "results": [{"name": each["name"], **attempt(partial(extend, each))} for each in values["topics"]]
        }

    def delete_records(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """Delete the records of partitions below an offset, -1 for all."""

        def delete(topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
            try:
                log = self._partitions.writer(TopicPartition(topic, wanted["partitionIndex"]))
                if wanted["offset"] < -1:
                    raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE, "a negative offset")
                return {"lowWatermark": log.delete_records(wanted["offset"])}
            except ValueError as error:
                if isinstance(error, KstoreError | OSError):
                    raise
                raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from None

        def answer(topic: str, wanted: dict[str, Any]) -> dict[str, Any]:
            found = attempt(partial(delete, topic, wanted))
            found.pop("errorMessage")
            return {"partitionIndex": wanted["partitionIndex"], "lowWatermark": -1, **found}

        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [answer(topic["name"], each) for each in topic["partitions"]],
                }
                for topic in values["topics"]
            ]
        }


def _text(config: dict[str, Any]) -> str:
    value = config["value"]
    if value is None:
        raise InvalidConfigError(f"{config['name']} has no value", name=config["name"])
    return as_text(value)
