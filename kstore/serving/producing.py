"""Produce: batches of clients, checked and appended as by a broker."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from kstore.errors import InvalidRecordError, KstoreError
from kstore.log.files.layout import TopicPartition
from kstore.serving.cluster import INTERNAL
from kstore.serving.error_codes import ErrorCode, code_of

if TYPE_CHECKING:
    from kstore.serving.connection import Connection
    from kstore.serving.partitions import Partitions

_ACKS: Final = (-1, 0, 1)
_HEADER: Final = 12  # bytes before those that the length of a batch counts
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7  # the version of Produce
_ADMIN_CLIENT: Final = "__admin_client"  # who may write internal topics, as in Kafka


class Producing:
    """Appends what clients produce."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def produce(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any] | None:
        """Append the batch of each partition, as durably as the store's `durability` says. No answer if `acks`
        is 0; a client that wants none gets its connection closed after an error, as in Kafka."""
        answers = [
            {
                "name": topic["name"],
                "partitionResponses": [
                    self._append(topic["name"], each, values["acks"], version, connection)
                    for each in topic["partitionData"]
                ],
            }
            for topic in values["topicData"]
        ]
        if values["acks"] == 0:
            if any(each["errorCode"] for topic in answers for each in topic["partitionResponses"]):
                connection.close()
            return None
        return {"responses": answers}

    def _append(
        self, topic: str, data: dict[str, Any], acks: int, version: int, connection: Connection
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {"index": data["index"], "errorCode": ErrorCode.NONE, "baseOffset": -1}
        if acks not in _ACKS:
            return answer | {"errorCode": ErrorCode.INVALID_REQUIRED_ACKS}
        if topic in INTERNAL and connection.client_id != _ADMIN_CLIENT:
            return answer | {"errorCode": ErrorCode.INVALID_TOPIC_EXCEPTION}
        try:
            log = self._partitions.writer(TopicPartition(topic, data["index"]))
            code = _check(data["records"], version)
            if code:
                return answer | {"errorCode": code}
            appended = log.append_batches(data["records"])
            return answer | {"baseOffset": appended.first_offset, "logStartOffset": log.log_start_offset}
        except InvalidRecordError as error:
            wrong = [
                {"batchIndex": index, "batchIndexErrorMessage": reason} for index, reason in error.errors
            ]
            answer |= {"errorCode": code_of(error), "recordErrors": wrong, "errorMessage": str(error)}
        except (KstoreError, OSError) as error:
            answer |= {"errorCode": code_of(error), "errorMessage": str(error)}
        except ValueError:  # no topic can have such a name
            answer["errorCode"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return answer


def _check(records: memoryview | None, version: int) -> ErrorCode:
    """A request has one whole batch of the present format for a partition."""
    if not records or len(records) <= _ATTRIBUTES_AT:
        return ErrorCode.INVALID_RECORD
    length = _HEADER + int.from_bytes(records[8:12], "big", signed=True)
    if length > len(records):
        return ErrorCode.CORRUPT_MESSAGE
    if length < len(records) or records[_MAGIC_AT] != 2:
        return ErrorCode.INVALID_RECORD
    if records[_ATTRIBUTES_AT] & 7 == _ZSTD and version < _ZSTD_SINCE:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE


def init_producer_id(values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any]:
    """An id for an idempotent producer, which no other has."""
    if values["transactionalId"] is not None:
        return {"errorCode": ErrorCode.INVALID_REQUEST}
    return {"producerId": secrets.randbits(62), "producerEpoch": 0}
