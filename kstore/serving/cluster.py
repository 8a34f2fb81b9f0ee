"""What clients ask first: which versions, which node, which topics."""

from __future__ import annotations

import base64
import contextlib
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kstore.errors import KstoreError
from kstore.log.files import layout
from kstore.log.files.checkpoints import read_epochs, topic_id_text
from kstore.serving.error_codes import ErrorCode, attempt, code_of
from kstore.serving.protocol.apis import APIS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kstore.serving.connection import Connection, Handler
    from kstore.serving.partitions import Partitions
    from kstore.store.descriptions import TopicDescription

NO_ID: Final = "A" * 22  # Kafka's zero UUID
_NOT_ASKED: Final = -(2**31)
# All operations that there are, a bit for the code of each: without access rules a client may do everything.
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
GROUP_OPERATIONS: Final = 0b1101_0100_1000
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def topic_id_of(topic: TopicDescription) -> str:
    """The id of a topic as it is sent; NO_ID if it has none."""
    return NO_ID if topic.id is None else topic_id_text(topic.id)


def allowed(is_asked: bool, operations: int) -> int:
    """The operations that a client may do, if it asks for them."""
    return operations if is_asked else _NOT_ASKED


def epoch_at(path: Path) -> int:
    """The latest leader epoch of a partition, from its directory; 0 if none is known. OSError."""
    with contextlib.suppress(FileNotFoundError, KstoreError):
        return max((epoch for epoch, _ in read_epochs(path / layout.LEADER_EPOCHS)), default=0)
    return 0


class Cluster:
    """The one node of the cluster, and its topics.

    `create`: creates a topic that a client asks for; None: topics are not created automatically.
    """

    create: Callable[[str], None] | None = None

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        store = partitions.store
        meta = store.meta()
        self.node_id = int(meta.get("node.id", meta.get("broker.id", 0)))
        own = uuid.uuid5(uuid.NAMESPACE_URL, store.path.absolute().as_uri()).bytes
        self._cluster_id = meta.get("cluster.id") or base64.urlsafe_b64encode(own).decode().rstrip("=")

    def node(self, connection: Connection) -> dict[str, Any]:
        """Where a client finds the node: at the address that it connected to."""
        host, port = connection.address
        return {"host": host, "port": port}

    def find_coordinator(
        self, values: dict[str, Any], version: int, connection: Connection
    ) -> dict[str, Any]:
        """The coordinator of every group and transaction is this node."""
        found = {"nodeId": self.node_id, **self.node(connection), "errorCode": ErrorCode.NONE}
        keys = values["coordinatorKeys"] if version >= 4 else ()
        return {
            **found,
            "errorMessage": None,
            "coordinators": [{**found, "key": key, "errorMessage": None} for key in keys],
        }

    def describe_cluster(
        self, values: dict[str, Any], version: int, connection: Connection
    ) -> dict[str, Any]:
        """The node, which is also the controller."""
        broker = {"brokerId": self.node_id, **self.node(connection)}
        return {
            "clusterId": self._cluster_id,
            "controllerId": self.node_id,
            "brokers": [broker],
            "clusterAuthorizedOperations": allowed(
                values["includeClusterAuthorizedOperations"], CLUSTER_OPERATIONS
            ),
        }

    def metadata(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """The topics that a client names, or all, with their partitions."""
        wanted = values["topics"]
        known = self._partitions.topics(each["name"] for each in wanted or () if each["name"])
        if wanted is None:
            topics = [self._topic(name) for name in known]
        else:
            may_create = self.create is not None and values["allowAutoTopicCreation"]
            # Kafka answers a topic once, however often a request names it.
            named = dict.fromkeys((each["name"], each["topicId"]) for each in wanted)
            has_ids = any(name is None or topic_id != NO_ID for name, topic_id in named)
            by_id = self.topics_by_id(known) if has_ids else {}
            topics = [self._wanted(*each, known, by_id, may_create) for each in named]
        for each in topics:
            each["topicAuthorizedOperations"] = allowed(
                values["includeTopicAuthorizedOperations"] and not each["errorCode"], TOPIC_OPERATIONS
            )
        return {
            "brokers": [{"nodeId": self.node_id, **self.node(connection)}],
            "clusterId": self._cluster_id,
            "controllerId": self.node_id,
            "topics": topics,
            "clusterAuthorizedOperations": allowed(
                values["includeClusterAuthorizedOperations"], CLUSTER_OPERATIONS
            ),
        }

    def _wanted(
        self,
        name: str | None,
        topic_id: str,
        known: Mapping[str, object],
        by_id: Mapping[str, str],
        may_create: bool,
    ) -> dict[str, Any]:
        if name is None or topic_id != NO_ID:
            name = by_id.get(topic_id)
            if name is None:
                return {"errorCode": ErrorCode.UNKNOWN_TOPIC_ID, "name": None, "topicId": topic_id}
            return self._topic(name)
        if not layout.is_valid_topic(name):
            return {"errorCode": ErrorCode.INVALID_TOPIC_EXCEPTION, "name": name}
        if name not in known:
            if not may_create or self.create is None:
                return {"errorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": name}
            found = attempt(partial(self.create, name))
            if found["errorCode"] not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return {"errorCode": found["errorCode"], "name": name}
        return self._topic(name)

    def topics_by_id(self, known: Iterable[str]) -> dict[str, str]:
        """The known topics by their ids; NO_ID is the first one without."""
        return {self._id_of(each): each for each in reversed([*known])}

    def _id_of(self, name: str) -> str:
        try:
            return topic_id_of(self._partitions.store.describe(name))
        except (KstoreError, OSError):
            return NO_ID

    def _topic(self, name: str) -> dict[str, Any]:
        try:
            found = self._partitions.store.describe(name)
            paths = sorted(found.partitions.items())
            return {
                "errorCode": ErrorCode.NONE,
                "name": name,
                "topicId": topic_id_of(found),
                "isInternal": name in INTERNAL,
                "partitions": [self._partition(number, path) for number, path in paths],
            }
        except (KstoreError, OSError, ValueError) as error:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(error, ValueError) else code_of(error)
            return {"errorCode": code, "name": name}

    def _partition(self, number: int, path: Path) -> dict[str, Any]:
        return {
            "errorCode": ErrorCode.NONE,
            "partitionIndex": number,
            "leaderId": self.node_id,
            "leaderEpoch": epoch_at(path),
            "replicaNodes": [self.node_id],
            "isrNodes": [self.node_id],
        }


def api_versions(handlers: Mapping[int, Handler]) -> Handler:
    """The handler that lists the APIs that have one."""

    def answer(values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        offered = [APIS[key] for key in sorted(handlers)]
        keys = [
            {"apiKey": each.key, "minVersion": each.lowest, "maxVersion": each.highest} for each in offered
        ]
        return {"apiKeys": keys}

    return answer
