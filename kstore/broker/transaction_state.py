"""The transactions that a broker coordinates, from its topic __transaction_state (spec 11.1)."""

from __future__ import annotations

import os
from pathlib import Path

from kstore.broker.cluster_metadata import find_cluster_metadata
from kstore.errors import CorruptRecordError, KstoreError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.log_dir_state import read_checkpoint
from kstore.log.files.manifest import read_manifest
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
TOPIC = "__transaction_state"
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

    @property
    def is_under_way(self) -> bool:
        """Whether the coordinator is to end it."""
        return self.state in _UNDER_WAY

    def ends(self, tp: TopicPartition, producer_epoch: int) -> bool:
        """Whether the coordinator is to end the transaction of a producer in a partition."""
        return self.is_under_way and tp in self.partitions and self.producer_epoch >= producer_epoch


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
    paths = state_partitions(directories)
    for path in paths.values():
        with PartitionLog(path) as log:
            for record in log.records():
                _take_in(found, record.key, record.value, log.path, record.offset)
    return {each.producer_id: each for each in found.values()} if paths else None


def state_partitions(directories: Iterable[StrPath]) -> dict[TopicPartition, str]:
    """The paths of the partitions of __transaction_state in log directories. OSError."""
    paths = (path for directory in directories for path in sorted(Path(directory).glob(f"{TOPIC}-*")))
    return {tp: str(path.resolve()) for path in paths if (tp := layout.partition_named(path.name))}


def what_lacks(directories: Iterable[StrPath]) -> str:
    """Why partitions of __transaction_state are missing in log directories of one store or broker, in words;
    "" if none is. The metadata of the cluster, checkpoints, and tables of topics name them. OSError."""
    directories = [str(directory) for directory in directories]
    try:
        metadata = find_cluster_metadata(directories)
        tables = [read_manifest(directory).table.topics.get(TOPIC) for directory in directories]
    except KstoreError as e:
        return f"how many partitions {TOPIC} has is not known: {e}"
    there = state_partitions(directories)
    numbers = {tp.partition for tp in there}
    if metadata is not None and TOPIC in metadata.topics:
        numbers.update(metadata.topics[TOPIC].replicas)
    for directory, table in zip(directories, tables, strict=True):
        numbers.update(range(table.count) if table is not None else ())
        for name in (layout.RECOVERY_POINTS, layout.HIGH_WATERMARKS):
            if os.path.exists(f"{directory}/{name}"):
                named = read_checkpoint(f"{directory}/{name}").offsets
                numbers.update(tp.partition for tp in named if tp.topic == TOPIC)
    lacking = [n for n in range(max(numbers, default=-1) + 1) if TopicPartition(TOPIC, n) not in there]
    if lacking:
        more = f" and {len(lacking) - 1} more partitions" * (len(lacking) > 1)
        return (
            f"{TopicPartition(TOPIC, lacking[0])}{more} of the coordinator's topic are in no directory given"
        )
    signs = (layout.META_PROPERTIES, layout.METADATA, f"{layout.CLUSTER_METADATA}-0")
    for directory in directories if not there else ():
        if any(os.path.exists(f"{directory}/{sign}") for sign in signs):
            return f"{directory} is a broker's, and no partition of {TOPIC} is in it"
    return ""


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
