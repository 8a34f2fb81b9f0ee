"""Groups of a directory that is only read: what its groups have committed, without members."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kstore.errors import LogNotFoundError
from kstore.log.files.layout import TopicPartition
from kstore.serving.cluster import GROUP_OPERATIONS, allowed
from kstore.serving.error_codes import ErrorCode
from kstore.store.consumer_offsets import committed_in

if TYPE_CHECKING:
    from kstore.log.cursors.offset_commits import OffsetAndMetadata
    from kstore.serving.connection import Connection
    from kstore.store import LogStore

_SECONDS: Final = 1.0  # for which positions that were read are used
_Positions = dict[str, dict[TopicPartition, "OffsetAndMetadata"]]


class RecordedGroups:
    """Answers requests about groups: positions in __consumer_offsets, and those of kstore's own cursors of
    groups that it does not name. Requests that would change a group are refused."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._read_at = -_SECONDS
        self._positions: _Positions = {}

    def _known(self) -> _Positions:
        with self._lock:
            if monotonic() - self._read_at >= _SECONDS:
                found = dict(self._store.cursors())
                for path in self._store.paths:
                    try:
                        found |= committed_in(path)
                    except LogNotFoundError:
                        continue  # no __consumer_offsets
                self._positions, self._read_at = found, monotonic()
            return self._positions

    def list_groups(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """All groups that have committed."""
        states = {each.lower() for each in values["statesFilter"]}
        types = {each.lower() for each in values["typesFilter"]}
        are_wanted = states <= {"empty"} and types <= {"classic"}
        groups = [
            {"groupId": each, "protocolType": "consumer", "groupState": "Empty", "groupType": "classic"}
            for each in (self._known() if are_wanted else ())
        ]
        return {"groups": groups}

    def describe_groups(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """Groups, each without members."""
        known = self._known()
        operations = allowed(values["includeAuthorizedOperations"], GROUP_OPERATIONS)
        return {
            "groups": [
                {
                    "groupId": each,
                    "groupState": "Empty" if each in known else "Dead",
                    "protocolType": "consumer" if each in known else "",
                    "authorizedOperations": operations,
                }
                for each in dict.fromkeys(values["groups"])
            ]
        }

    def offset_fetch(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """The positions of a group in the partitions that a client names, or in all."""
        positions = self._known().get(values["groupId"], {})
        wanted: dict[str, list[int]] = {}
        if values["topics"] is None:
            for tp in sorted(positions):
                wanted.setdefault(tp.topic, []).append(tp.partition)
        else:
            wanted = {each["name"]: each["partitionIndexes"] for each in values["topics"]}

        def answer(tp: TopicPartition) -> dict[str, Any]:
            found = positions.get(tp)
            if found is None:
                return {"partitionIndex": tp.partition, "committedOffset": -1, "metadata": ""}
            return {
                "partitionIndex": tp.partition,
                "committedOffset": found.offset,
                "committedLeaderEpoch": found.leader_epoch,
                "metadata": found.metadata,
            }

        return {
            "topics": [
                {"name": name, "partitions": [answer(TopicPartition(name, each)) for each in numbers]}
                for name, numbers in wanted.items()
            ]
        }

    def join_group(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """A group cannot have members here."""
        return {"errorCode": ErrorCode.POLICY_VIOLATION, "protocolName": "" if version < 7 else None}

    def offset_commit(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """Nothing is committed here."""
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [
                        {
                            "partitionIndex": each["partitionIndex"],
                            "errorCode": ErrorCode.POLICY_VIOLATION,
                        }
                        for each in topic["partitions"]
                    ],
                }
                for topic in values["topics"]
            ]
        }


def init_producer_id(values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
    """A producer has nothing to do here."""
    return {"errorCode": ErrorCode.POLICY_VIOLATION, "producerEpoch": -1}
