"""The records of __transaction_state."""

from __future__ import annotations

import struct
from typing import Any, Final

from kstore.broker.transaction_state import transaction_log_in
from kstore.engine.record.batch import Record
from kstore.errors import CorruptRecordError
from kstore.log.files.layout import TopicPartition
from kstore.messages.errors import DecodeError
from kstore.messages.schema import Table
from kstore.messages.tables import TRANSACTIONS
from kstore.serving.state_topic import StateRecord
from kstore.serving.transactions.transaction import Transaction, TransactionState

_KEY, _VALUE = Table(TRANSACTIONS).records[0]
_KEY_TYPE: Final = 0
_VERSION: Final = struct.Struct(">h")


def transaction_key(transactional_id: str) -> bytes:
    """The key of the records of a transactional id."""
    assert _KEY is not None
    return _VERSION.pack(_KEY_TYPE) + _KEY.write_version({"transactionalId": transactional_id}, _KEY_TYPE)


def transaction_record(transaction: Transaction) -> StateRecord:
    """The record of a transaction: of version 0 as long as it has no field of version 1, as a broker without
    a finalized transaction version writes it."""
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(transaction.partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    is_empty = transaction.state is TransactionState.EMPTY
    values: dict[str, Any] = {
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "transactionTimeoutMs": transaction.timeout_ms,
        "transactionStatus": int(transaction.state),
        "transactionPartitions": None
        if is_empty
        else [{"topic": topic, "partitionIds": numbers} for topic, numbers in by_topic.items()],
        "transactionLastUpdateTimestampMs": transaction.updated_at,
        "transactionStartTimestampMs": transaction.started_at,
        "previousProducerId": transaction.previous_producer_id,
        "nextProducerId": transaction.next_producer_id,
        "clientTransactionVersion": transaction.version,
    }
    version = int(transaction.version > 0)
    value = _VERSION.pack(version) + _VALUE.write_version(values, version)
    return transaction_key(transaction.transactional_id), value


def transaction_in(record: Record, file: str) -> tuple[str, Transaction | None]:
    """The transactional id of a record and its transaction, None if it was removed. CorruptRecordError."""
    try:
        content = transaction_log_in(record.key, record.value)
        if content is None:
            raise DecodeError("another type of record")
        name, version, values = content
        if values is None:
            return name, None
        if not 0 <= version <= _VALUE.highest:
            raise DecodeError(f"version {version}")
        return name, _transaction_of(name, values)
    except ValueError as e:
        raise CorruptRecordError(
            "record of a transaction",
            file=file,
            offset=record.offset,
            expected="a TransactionLog",
            found=str(e),
        ) from None


def _transaction_of(transactional_id: str, values: Any) -> Transaction:
    return Transaction(
        transactional_id,
        values["producerId"],
        values["producerEpoch"],
        timeout_ms=values["transactionTimeoutMs"],
        state=TransactionState(values["transactionStatus"]),
        partitions=frozenset(
            TopicPartition(topic["topic"], number)
            for topic in values["transactionPartitions"] or ()
            for number in topic["partitionIds"]
        ),
        updated_at=values["transactionLastUpdateTimestampMs"],
        started_at=values["transactionStartTimestampMs"],
        previous_producer_id=values["previousProducerId"],
        next_producer_id=values["nextProducerId"],
        version=max(values["clientTransactionVersion"], 0),
    )
