"""Produce: batches of clients, checked and appended as by a broker."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Any, Final

from kstore.errors import InvalidRecordError, KstoreError
from kstore.log.files.layout import TopicPartition
from kstore.serving.cluster import INTERNAL
from kstore.serving.error_codes import ErrorCode, code_of
from kstore.serving.state_topic import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstore.serving.connection import Connection
    from kstore.serving.partitions import Partitions
    from kstore.serving.transactions.coordinator import TransactionCoordinator

_ACKS: Final = (-1, 0, 1)
_HEADER_SIZE: Final = 61
_HEADER: Final = 12  # bytes before those that the length of a batch counts
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22
_ZSTD: Final = 4
_ZSTD_SINCE: Final = 7  # the version of Produce
_TRANSACTIONAL: Final = 1 << 4  # of the attributes
_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_AT: Final = 43
_ADMIN_CLIENT: Final = "__admin_client"  # who may write internal topics, as in Kafka


class Producing:
    """Appends what clients produce. `transactions` are None if the store is open for reading."""

    def __init__(self, partitions: Partitions, transactions: TransactionCoordinator | None) -> None:
        self._partitions = partitions
        self._transactions = transactions

    def produce(self, values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any] | None:
        """Append the batch of each partition, as durably as the store's `durability` says. No answer if
        `acks` is 0; a client that wants none gets its connection closed after an error, as in Kafka."""
        answers = [
            {
                "name": topic["name"],
                "partitionResponses": [
                    self._append(topic["name"], each, values, version, connection)
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
        self, topic: str, data: dict[str, Any], values: dict[str, Any], version: int, connection: Connection
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {"index": data["index"], "errorCode": ErrorCode.NONE, "baseOffset": -1}
        acks, transactional_id = values["acks"], values["transactionalId"]
        if acks not in _ACKS:
            return answer | {"errorCode": ErrorCode.INVALID_REQUIRED_ACKS}
        if topic in INTERNAL and connection.client_id != _ADMIN_CLIENT:
            return answer | {"errorCode": ErrorCode.INVALID_TOPIC_EXCEPTION}
        tp = TopicPartition(topic, data["index"])
        try:
            log = self._partitions.writer(tp)
            code = _check(data["records"], version)
            if code:
                return answer | {"errorCode": code}
            with self._transaction(transactional_id, data["records"], tp) as code:
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

    @contextlib.contextmanager
    def _transaction(
        self, transactional_id: str | None, records: memoryview, tp: TopicPartition
    ) -> Iterator[ErrorCode]:
        """Keep the transaction of a batch open meanwhile. Gives the error if it has none with this
        partition."""
        if not records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
            yield ErrorCode.NONE
        elif transactional_id is None or self._transactions is None:
            yield ErrorCode.INVALID_TXN_STATE
        else:
            producer = Producer(*_PRODUCER.unpack_from(records, _PRODUCER_AT))
            with self._transactions.appending(transactional_id, producer, [tp]) as codes:
                yield codes[tp]


def _check(records: memoryview | None, version: int) -> ErrorCode:
    """A request has one whole batch of the present format for a partition."""
    if not records or len(records) < _HEADER_SIZE:
        return ErrorCode.INVALID_RECORD
    length = _HEADER + int.from_bytes(records[8:12], "big", signed=True)
    if length > len(records):
        return ErrorCode.CORRUPT_MESSAGE
    if length < len(records) or records[_MAGIC_AT] != 2:
        return ErrorCode.INVALID_RECORD
    if records[_ATTRIBUTES_AT] & 7 == _ZSTD and version < _ZSTD_SINCE:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE
