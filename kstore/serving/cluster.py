"""What clients ask first: which versions, which node, which topics."""

from __future__ import annotations

import base64
import contextlib
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kstore.errors import KstoreError
from kstore.log.files import layout
from kstore.log.files.checkpoints import read_epochs, read_topic_id, topic_id_text
from kstore.serving.error_codes import ErrorCode, code_of
from kstore.serving.protocol.apis import APIS
from kstore.serving.refusals import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from kstore.serving.connection import Connection, Handler
    from kstore.serving.partitions import Partitions

NO_ID: Final = "A" * 22  # Kafka's zero UUID
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def topic_id_at(path: Path) -> str:
    """The id of a topic, from the directory of one of its partitions; NO_ID if it has none. OSError."""
    with contextlib.suppress(FileNotFoundError, KstoreError):
        return topic_id_text(read_topic_id(path / layout.METADATA))
    return NO_ID


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
        return {"clusterId": self._cluster_id, "controllerId": self.node_id, "brokers": [broker]}

    def metadata(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """The topics that a client names, or all, with their partitions."""
        known = self._partitions.topics()
        wanted = values["topics"]
        if wanted is None:
            topics = [self._topic(name) for name in known]
        else:
            may_create = self.create is not None and values["allowAutoTopicCreation"]
            topics = [self._wanted(each, known, may_create) for each in wanted]
        return {
            "brokers": [{"nodeId": self.node_id, **self.node(connection)}],
            "clusterId": self._cluster_id,
            "controllerId": self.node_id,
            "topics": topics,
        }

    def _wanted(
        self, wanted: dict[str, Any], known: Mapping[str, object], may_create: bool
    ) -> dict[str, Any]:
        name, topic_id = wanted["name"], wanted["topicId"]
        if name is None or topic_id != NO_ID:
            name = self.topic_with_id(topic_id, known)
            if name is None:
                return {"errorCode": ErrorCode.UNKNOWN_TOPIC_ID, "name": None, "topicId": topic_id}
            return self._topic(name)
        if not layout.is_valid_topic(name):
            return {"errorCode": ErrorCode.INVALID_TOPIC_EXCEPTION, "name": name}
        if name not in known and may_create and self.create is not None:
            found = attempt(partial(self.create, name))
            if found["errorCode"] not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return {"errorCode": found["errorCode"], "name": name}
        return self._topic(name)

    def topic_with_id(self, topic_id: str, known: Iterable[str]) -> str | None:
        """The one of the known topics that has an id."""
        return next((each for each in known if self._id_of(each) == topic_id), None)

    def _id_of(self, name: str) -> str:
        try:
            return next((topic_id_at(path) for path in self._partitions.paths(name).values()), NO_ID)
        except (KstoreError, OSError):
            return NO_ID

    def _topic(self, name: str) -> dict[str, Any]:
        try:
            paths = self._partitions.paths(name)
            return {
                "errorCode": ErrorCode.NONE,
                "name": name,
                "topicId": next(map(topic_id_at, paths.values()), NO_ID),
                "isInternal": name in INTERNAL,
                "partitions": [self._partition(number, path) for number, path in sorted(paths.items())],
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
