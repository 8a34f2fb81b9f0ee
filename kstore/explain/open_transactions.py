"""Open transactions, with the transactional ids that a broker's coordinator knows."""

from __future__ import annotations

from kstore.broker.transaction_state import read_transaction_state, what_lacks
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.files.log_dir_state import name_of
from kstore.log.partition import PartitionLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kstore.broker.transaction_state import CoordinatedTransaction
    from kstore.typed import StrPath


class OpenPartition(NamedTuple):
    """A partition with records of an open transaction: the offset of the first one, from which on readers of
    committed records wait, and timestamps in ms since 1970."""

    path: str
    topic: str
    partition: int
    first_offset: int
    first_timestamp: int
    last_timestamp: int


class OpenTransaction(NamedTuple):
    """A transaction without a marker of its end.

    `transactional_id`, `coordinator_state` (such as "Ongoing"), `start_ms` and `timeout_ms` are those of the
    coordinator, None if it does not know the producer, or if there is no __transaction_state. `is_hanging`:
    True if no coordinator is to end it, so that it stays open until it is aborted by hand; None if that is
    not known. `is_new`: whether the coordinator has committed the last transaction of the producer, and this
    one begins later and behind its marker, so that the coordinator does not know it.
    """

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    coordinator_state: str | None
    start_ms: int | None
    timeout_ms: int | None
    is_hanging: bool | None
    partitions: tuple[OpenPartition, ...]
    is_new: bool = False

    @property
    def is_committed(self) -> bool:
        """Whether the coordinator has decided to commit the last transaction of the producer."""
        return self.coordinator_state in ("PrepareCommit", "CompleteCommit")

    @property
    def since_ms(self) -> int:
        """Since when it is open, in ms since 1970: by the coordinator, else by its first record."""
        return self.start_ms or min(each.first_timestamp for each in self.partitions)


def transactions(
    logs: Iterable[PartitionLog], log_directories: Iterable[StrPath] = ()
) -> list[OpenTransaction]:
    """List the transactions that are open in these logs, the oldest first.

    logs: partitions of one store or broker. log_directories: where its partitions of __transaction_state are,
    from which transactional ids are read. CorruptFileError, OSError.
    """
    directories = list(log_directories)
    found: dict[tuple[int, int], list[OpenPartition]] = {}
    for log in logs:
        for key, partition in open_in(log):
            found.setdefault(key, []).append(partition)
    if not (found and directories):
        return with_coordinator(found, None)
    return with_coordinator(found, read_transaction_state(directories), is_whole=not what_lacks(directories))


def open_in(log: PartitionLog) -> list[tuple[tuple[int, int], OpenPartition]]:
    """The open transactions of one log, as (producer id, epoch) and the partition. CorruptFileError."""
    found, name = [], name_of(log.path)
    for state in log.producers().values():
        first = state.current_txn_first_offset
        if first is not None:
            batch = next(log.from_file_start().batches(first), None)
            begun = state.last_timestamp if batch is None else batch.base_timestamp
            place = OpenPartition(log.path, name.topic, name.partition, first, begun, state.last_timestamp)
            found.append(((state.producer_id, state.producer_epoch), place))
    return found


def is_behind(place: OpenPartition, about: CoordinatedTransaction) -> bool:
    """Whether the open transaction of a producer begins later than the one that its coordinator has
    committed, and behind the marker of that one. Reads the log only if the timestamps say so.
    CorruptFileError, OSError."""
    if about.state != "CompleteCommit" or place.first_timestamp <= about.last_update_ms:
        return False
    with PartitionLog(place.path) as log:
        return any(
            (batch.is_control, batch.producer_id, batch.producer_epoch)
            == (True, about.producer_id, about.producer_epoch)
            for batch in log.batches(0, place.first_offset)
        )


def with_coordinator(
    found: Mapping[tuple[int, int], list[OpenPartition]],
    known: Mapping[int, CoordinatedTransaction] | None,
    *,
    is_whole: bool = True,
) -> list[OpenTransaction]:
    """Open transactions, the oldest first. known: what coordinators have, None if that is not known.
    is_whole: whether all of it is known."""
    opened = []
    for (producer_id, epoch), partitions in found.items():
        hanging = True if known is not None and is_whole else None  # if no coordinator knows the producer
        transaction = OpenTransaction(producer_id, epoch, None, None, None, None, hanging, tuple(partitions))
        about = None if known is None else known.get(producer_id)
        if about is not None:
            hanging = not all(about.ends(name_of(each.path), epoch) for each in partitions)
            transaction = transaction._replace(
                transactional_id=about.transactional_id,
                coordinator_state=about.state,
                start_ms=None if hanging else about.start_ms,
                timeout_ms=about.timeout_ms,
                is_hanging=hanging,
                is_new=all(is_behind(each, about) for each in partitions),
            )
        opened.append(transaction)
    return sorted(opened, key=lambda each: each.since_ms)
