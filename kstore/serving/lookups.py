"""ListOffsets and OffsetForLeaderEpoch: offsets by time and by leader epoch."""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kstore.errors import KstoreError
from kstore.log.files.layout import TopicPartition
from kstore.log.read.offset_lookup import EARLIEST, LATEST, MAX_TIMESTAMP
from kstore.serving.error_codes import ErrorCode, code_of
from kstore.serving.fetching import wrong_epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kstore.log.partition import PartitionLog
    from kstore.serving.connection import Connection
    from kstore.serving.partitions import Partitions

_MAX_TIMESTAMP_SINCE = 7  # the version of ListOffsets that has it
_READ_COMMITTED = 1


class Lookups:
    """Answers questions about offsets."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def list_offsets(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
        """The first offset with a timestamp or a later one, or one of the special offsets."""
        is_committed = values["isolationLevel"] == _READ_COMMITTED

        def find(log: PartitionLog, partition: dict[str, Any]) -> dict[str, Any]:
            timestamp = partition["timestamp"]
            end = log.last_stable_offset() if is_committed else log.log_end_offset
            if (
                timestamp < 0
                and timestamp not in (EARLIEST, LATEST)
                and (timestamp != MAX_TIMESTAMP or version < _MAX_TIMESTAMP_SINCE)
            ):
                return {"errorCode": ErrorCode.UNSUPPORTED_VERSION}
            found = log.find_timestamp(timestamp)
            if found is None:
                return {}
            offset = min(found.offset, end) if timestamp == LATEST else found.offset
            if timestamp not in (EARLIEST, LATEST) and offset >= end:
                return {}
            epoch = -1 if found.leader_epoch is None else found.leader_epoch
            return {"offset": offset, "timestamp": found.timestamp, "leaderEpoch": epoch}

        named = Counter(
            (topic["name"], each["partitionIndex"])
            for topic in values["topics"]
            for each in topic["partitions"]
        )
        return {"topics": self._each(values["topics"], "name", "partitionIndex", find, named)}

    def offset_for_leader_epoch(
        self, values: dict[str, Any], version: int, connection: Connection
    ) -> dict[str, Any]:
        """Where a leader epoch ends."""

        def find(log: PartitionLog, partition: dict[str, Any]) -> dict[str, Any]:
            epoch, end = log.end_offset_for_epoch(partition["leaderEpoch"])
            return {"leaderEpoch": epoch, "endOffset": end}

        return {"topics": self._each(values["topics"], "topic", "partition", find)}

    def _each(
        self,
        topics: list[dict[str, Any]],
        name: str,
        number: str,
        find: Callable[[PartitionLog, dict[str, Any]], dict[str, Any]],
        named: Mapping[tuple[str, int], int] = MappingProxyType({}),
    ) -> list[dict[str, Any]]:
        """The answers for the partitions of a request, whose fields have these names. `named`: how often it
        names each; as in Kafka, more than once is an error."""

        def one(topic: str, partition: dict[str, Any]) -> dict[str, Any]:
            answer = {number: partition[number]}
            if named.get((topic, partition[number]), 1) > 1:
                return answer | {"errorCode": ErrorCode.INVALID_REQUEST}
            try:
                log = self._partitions.log(TopicPartition(topic, partition[number]))
                code = wrong_epoch(log.snapshot, partition["currentLeaderEpoch"])
                return answer | ({"errorCode": code} if code else find(log, partition))
            except (KstoreError, OSError) as error:
                return answer | {"errorCode": code_of(error)}
            except ValueError:  # no topic can have such a name
                return answer | {"errorCode": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

        return [
            {name: topic[name], "partitions": [one(topic[name], each) for each in topic["partitions"]]}
            for topic in topics
        ]
