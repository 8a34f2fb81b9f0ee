"""A transactional id and its transaction as an immutable value, and what requests do to it (Kafka's
TransactionMetadata and TransactionCoordinator). A function returns the new value or the error. There is no
I/O here."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from enum import IntEnum
from typing import Final, NamedTuple

from kstore.log.files.layout import TopicPartition
from kstore.serving.error_codes import ErrorCode
from kstore.serving.state_topic import Producer

NO_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**15 - 2  # the one above it is for fencing only
_EPOCH_BUMP: Final = 2  # from this transaction version on the end of a transaction raises the epoch


class TransactionState(IntEnum):
    """The state of a transaction, as a number in its record."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def shown(self) -> str:
        """The name that Kafka shows."""
        return self.name.title().replace("_", "")


PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class Transaction(NamedTuple):
    """The state of a transactional id. Times are in ms. `last_epoch` is the producer epoch before the present
    one if that was asked for by the producer, so a repeated request is known. `next_producer_id` and
    `version` come from brokers with transaction version 2."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_at: int = -1
    started_at: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1
    version: int = 0

    @property
    def producer(self) -> Producer:
        """The producer that has the transaction."""
        return Producer(self.producer_id, self.producer_epoch)

    @property
    def needs_producer_id(self) -> bool:
        """Whether the epochs of the producer id are used up."""
        return self.producer_epoch >= _LAST_EPOCH

    def is_overdue(self, now: int) -> bool:
        """Whether the transaction has run for longer than its timeout."""
        return self.state is TransactionState.ONGOING and self.started_at + self.timeout_ms < now

    def is_unused(self, now: int, expiration_ms: int) -> bool:
        """Whether the transactional id can be forgotten."""
        is_open = self.state is TransactionState.ONGOING or self.state in PREPARED
        return not is_open and self.updated_at + expiration_ms <= now


Decision = Transaction | ErrorCode


def initialize(
    known: Transaction, expected: Producer | None, timeout_ms: int, new_producer_id: int | None, now: int
) -> Decision:
    """InitProducerId: the next epoch for a producer, which fences the one before.

    expected: the producer id and epoch that the producer has, if it goes on after an error. new_producer_id:
    an unused one; it is needed if `known.needs_producer_id`. Returns CONCURRENT_TRANSACTIONS while a
    transaction is not ended; one that is ongoing must be ended with `fence` first.
    """
    if expected is not None and known.producer_epoch != NO_EPOCH:
        is_previous = expected.producer_id == known.previous_producer_id and expected.epoch >= _LAST_EPOCH
        if expected.producer_id != known.producer_id and not is_previous:
            return ErrorCode.PRODUCER_FENCED
    if known.state is TransactionState.ONGOING or known.state in PREPARED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    renewed = known._replace(
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        updated_at=now,
        started_at=-1,
        next_producer_id=-1,
        version=0,
    )
    epoch = known.producer_epoch
    if known.needs_producer_id and (expected is None or expected.epoch == epoch):
        assert new_producer_id is not None
        return renewed._replace(
            producer_id=new_producer_id,
            previous_producer_id=known.producer_id,
            producer_epoch=0,
            last_epoch=NO_EPOCH if expected is None else epoch,
        )
    if expected is None:
        return renewed._replace(producer_epoch=epoch + 1, last_epoch=NO_EPOCH)
    if epoch in (NO_EPOCH, expected.epoch):
        return renewed._replace(producer_epoch=epoch + 1, last_epoch=epoch)
    if expected.epoch == known.last_epoch:  # the answer to the first request was lost
        return renewed
    return ErrorCode.PRODUCER_FENCED


def check_producer(known: Transaction | None, producer: Producer) -> ErrorCode:
    """The error for a request of a producer in its transaction."""
    if known is None or known.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if known.state in PREPARED else ErrorCode.NONE


def add_partitions(
    known: Transaction | None, producer: Producer, added: AbstractSet[TopicPartition], now: int
) -> Decision:
    """AddPartitionsToTxn: partitions that the transaction writes. The first ones begin it. NONE if it has all
    of them already."""
    error = check_producer(known, producer)
    if error or known is None:
        return error
    is_ongoing = known.state is TransactionState.ONGOING
    if is_ongoing and added <= known.partitions:
        return ErrorCode.NONE
    return known._replace(
        state=TransactionState.ONGOING,
        partitions=known.partitions | added,
        updated_at=now,
        started_at=known.started_at if is_ongoing else now,
        version=0,
    )


def end(known: Transaction | None, producer: Producer, *, commits: bool, now: int) -> Decision:
    """EndTxn: the decision to commit or to abort. NONE if the transaction has ended so already."""
    error = check_producer(known, producer)
    if known is None or (error and error is not ErrorCode.CONCURRENT_TRANSACTIONS):
        return error
    wanted = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
    done = TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT
    if known.state is TransactionState.ONGOING:
        return known._replace(state=wanted, updated_at=now)
    if known.state in (wanted, done):
        return error
    return ErrorCode.INVALID_TXN_STATE


def fence(known: Transaction, now: int) -> Transaction:
    """Abort an ongoing transaction, with a higher epoch that no producer gets: its producer is gone, or must
    not continue."""
    return known._replace(
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=known.producer_epoch + 1,
        last_epoch=NO_EPOCH,
        updated_at=now,
    )


def complete(known: Transaction, now: int) -> Transaction:
    """The transaction after its markers were written."""
    commits = known.state is TransactionState.PREPARE_COMMIT
    done = known._replace(
        state=TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_at=now,
        next_producer_id=-1,
    )
    if known.version < _EPOCH_BUMP or known.next_producer_id < 0:
        return done
    return done._replace(
        producer_id=known.next_producer_id,
        previous_producer_id=known.producer_id,
        producer_epoch=0,
        last_epoch=known.producer_epoch,
    )
