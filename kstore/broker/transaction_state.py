"""The transactions that a broker coordinates, from its topic __transaction_state (spec 11.1)."""

from __future__ import annotations

from pathlib import Path

from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.messages.errors import DecodeError
from kstore.messages.reader import Reader
from kstore.messages.schema import Table
from kstore.messages.tables import TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from kstore.typed import StrPath

STATES = (
    "empty",
    "ongoing",
    "prepare_commit",
    "prepare_abort",
    "complete_commit",
    "complete_abort",
    "dead",
    "prepare_epoch_fence",
)  # by their numbers in a record
_TABLE = Table(TRANSACTIONS)
_SHOWN = tuple(state.title().replace("_", "") for state in STATES)
_UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class CoordinatedTransaction(NamedTuple):
    """The last transaction of a transactional id, as its coordinator has it. `state` is Kafka's name, such as
    "Ongoing"; times are in ms, those of day since 1970."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    partitions: frozenset[TopicPartition]
    start_ms: int
    last_update_ms: int
    timeout_ms: int

    def ends(self, tp: TopicPartition, producer_epoch: int) -> bool:
        """Whether the coordinator is to end the transaction of a producer in a partition."""
        return self.state in _UNDER_WAY and tp in self.partitions and self.producer_epoch >= producer_epoch


class TransactionLog(NamedTuple):
    """A record of __transaction_state. `fields`: those of its value, with Kafka's names; None if the
    transactional id was removed."""

    transactional_id: str
    version: int
    fields: dict[str, Any] | None


def transaction_log_in(key: bytes | None, value: bytes | None) -> TransactionLog | None:
    """The content of a record of __transaction_state; None if it is of another type. DecodeError."""
    source = Reader(key or b"")
    kind = source.number(2)
    if kind not in _TABLE.records:
        return None
    about, message = _TABLE.records[kind]
    assert about is not None
    names: Any = about.read_version(source, kind)
    if value is None:
        return TransactionLog(names["transactionalId"], -1, None)
    source = Reader(value)
    version = source.number(2)
    return TransactionLog(names["transactionalId"], version, message.read_version(source, version))


def read_transaction_state(directories: Iterable[StrPath]) -> dict[int, CoordinatedTransaction] | None:
    """The transactions in the partitions of __transaction_state in these log directories, by producer id;
    None if there is no such partition. CorruptFileError, OSError."""
    found: dict[str, CoordinatedTransaction] = {}
    paths = {
        path.resolve()
        for directory in directories
        for path in Path(directory).glob("__transaction_state-*")
        if layout.is_partition_name(path.name)
    }
    for path in paths:
        with PartitionLog(path) as log:
            for record in log.records():
                _take_in(found, record.key, record.value, log.path, record.offset)
    return {each.producer_id: each for each in found.values()} if paths else None


def _take_in(
    found: dict[str, CoordinatedTransaction], key: bytes | None, value: bytes | None, file: str, offset: int
) -> None:
    try:
        content = transaction_log_in(key, value)
    except DecodeError as e:
        raise CorruptRecordError(
            "record of a transaction",
            file=file,
            position=-1,
            offset=offset,
            expected="a message",
            found=e.reason,
        ) from e
    if content is None:
        return
    name, _, values = content
    if values is None:
        found.pop(name, None)
        return
    status = values["transactionStatus"]
    found[name] = CoordinatedTransaction(
        name,
        values["producerId"],
        values["producerEpoch"],
        _SHOWN[status] if 0 <= status < len(_SHOWN) else f"unknown {status}",
        frozenset(
            TopicPartition(each["topic"], number)
            for each in values["transactionPartitions"] or ()
            for number in each["partitionIds"]
        ),
        values["transactionStartTimestampMs"],
        values["transactionLastUpdateTimestampMs"],
        values["transactionTimeoutMs"],
    )
