"""The coordinator of transactions: requests of Kafka's protocol, as values by the names of its fields."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any, Final

from kstore.errors import InvalidProducerEpochError, KstoreError, LogNotFoundError
from kstore.log.files.layout import TopicPartition
from kstore.log.writer import LogWriter
from kstore.serving.error_codes import ErrorCode
from kstore.serving.failures import Answer, Handler, answering, by_partition
from kstore.serving.groups.coordinator import TOPIC as OFFSETS_TOPIC
from kstore.serving.groups.coordinator import GroupCoordinator
from kstore.serving.state_topic import Producer, StateTopic, append_marker
from kstore.serving.transactions.producer_ids import ProducerIds
from kstore.serving.transactions.records import transaction_in, transaction_key, transaction_record
from kstore.serving.transactions.transaction import (
    PREPARED,
    Decision,
    Transaction,
    TransactionState,
    add_partitions,
    check_producer,
    complete,
    end,
    fence,
    initialize,
)
from kstore.store import LogStore

TOPIC: Final = "__transaction_state"


class _Slot:
    """A transactional id, with the lock that its owner holds for each step."""

    def __init__(self, transaction: Transaction | None = None) -> None:
        self.lock = RLock()
        self.transaction = transaction


class TransactionCoordinator:
    """Producer ids and transactions. The methods that are named after requests take a request's values, its
    version and its connection, and return the values of the answer. Threads may call them.

    A decision is in the log before it is carried out: after a crash, the next coordinator writes the markers
    that are missing. clock: the time in ms. partitions: the number of partitions of __transaction_state if it
    is created. max_timeout_ms, expiration_ms: Kafka's transaction.max.timeout.ms and
    transactional.id.expiration.ms.
    """

    def __init__(
        self,
        store: LogStore,
        groups: GroupCoordinator,
        clock: Callable[[], int],
        *,
        partitions: int = 50,
        max_timeout_ms: int = 900_000,
        expiration_ms: int = 604_800_000,
    ) -> None:
        self.topic = StateTopic(store, TOPIC, partitions)
        self._store = store
        self._groups = groups
        self._clock = clock
        self._max_timeout_ms = max_timeout_ms
        self._expiration_ms = expiration_ms
        self._ids = ProducerIds(store.path)
        self._lock = Lock()
        loaded = self._loaded()
        self._slots = {each.transactional_id: _Slot(each) for each in loaded}
        self._above = max((each.producer_id for each in loaded), default=0)
        self.tick()

    def _loaded(self) -> Collection[Transaction]:
        found: dict[str, Transaction] = {}
        for partition in self.topic.partitions():
            for batch in self.topic.batches(partition):
                for record in () if batch.is_control else batch.records():
                    transactional_id, transaction = transaction_in(record, batch.file)
                    if transaction is None:
                        found.pop(transactional_id, None)
                    else:
                        found[transactional_id] = transaction
        return found.values()

    def handlers(self) -> dict[str, Handler]:
        """The handlers of requests, by API."""
        return {
            "InitProducerId": answering(self.init_producer_id),
            "AddPartitionsToTxn": answering(self.add_partitions_to_txn, _added),
            "AddOffsetsToTxn": answering(self.add_offsets_to_txn),
            "TxnOffsetCommit": answering(self.txn_offset_commit, by_partition),
            "EndTxn": answering(self.end_txn),
            "ListTransactions": answering(self.list_transactions),
            "DescribeTransactions": self.describe_transactions,
            "DescribeProducers": self.describe_producers,
        }

    # ---- requests of producers -----------------------------------------------------------------------------

    def init_producer_id(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """InitProducerId: a new producer id; with a transactional id, its next epoch, once its transaction
        has ended."""
        transactional_id = values["transactionalId"]
        expected = Producer(values["producerId"], values["producerEpoch"])
        timeout_ms = values["transactionTimeoutMs"]
        decision: Decision
        if transactional_id is None:
            decision = Transaction("", self._ids.next(self._above), producer_epoch=0)
        elif not transactional_id or (expected.producer_id < 0) != (expected.epoch < 0):
            decision = ErrorCode.INVALID_REQUEST
        elif not 0 < timeout_ms <= self._max_timeout_ms:
            decision = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        else:
            self.topic.create()
            with self._lock:
                slot = self._slots.setdefault(transactional_id, _Slot())
            given = None if expected.producer_id < 0 else expected
            decision = self._initialize(slot, transactional_id, given, timeout_ms)
        if isinstance(decision, Transaction):
            return {
                "errorCode": 0,
                "producerId": decision.producer_id,
                "producerEpoch": decision.producer_epoch,
            }
        return {"errorCode": _told(decision, version, 4), "producerId": -1, "producerEpoch": -1}

    def _initialize(
        self, slot: _Slot, transactional_id: str, expected: Producer | None, timeout_ms: int
    ) -> Decision:
        with slot.lock:
            known = slot.transaction
            new_id = None
            if known is None or known.needs_producer_id:
                new_id = self._ids.next(self._above)
            if known is None:
                assert new_id is not None
                known = Transaction(transactional_id, new_id)
            decision = initialize(known, expected, timeout_ms, new_id, self._clock())
            if isinstance(decision, Transaction):
                self._write(slot, decision)
            elif decision is ErrorCode.CONCURRENT_TRANSACTIONS:
                if known.state is TransactionState.ONGOING:
                    self._write(slot, fence(known, self._clock()))
                self._finish(slot)
            return decision

    def add_partitions_to_txn(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """AddPartitionsToTxn, before a producer writes in them. All partitions are added, or none."""
        topics = values["v3AndBelowTopics"]
        wanted = {TopicPartition(each["name"], at) for each in topics for at in each["partitions"]}
        known = self._store.topics
        missing = {tp for tp in wanted if tp.partition not in known.get(tp.topic, ())}
        error = ErrorCode.OPERATION_NOT_ATTEMPTED
        if not missing:
            producer = Producer(values["v3AndBelowProducerId"], values["v3AndBelowProducerEpoch"])
            error = self._add(values["v3AndBelowTransactionalId"], producer, wanted)

        answer = _added(values, error, version)
        for topic in answer["resultsByTopicV3AndBelow"]:
            for each in topic["resultsByPartition"]:
                if TopicPartition(topic["name"], each["partitionIndex"]) in missing:
                    each["partitionErrorCode"] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return answer

    def add_offsets_to_txn(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """AddOffsetsToTxn, before a producer commits offsets of a group."""
        if not values["groupId"]:
            return {"errorCode": int(ErrorCode.INVALID_GROUP_ID)}
        producer = Producer(values["producerId"], values["producerEpoch"])
        added = {self._partition_of_group(values["groupId"])}
        return {"errorCode": _told(self._add(values["transactionalId"], producer, added), version, 2)}

    def txn_offset_commit(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """TxnOffsetCommit: offsets that count once the transaction is committed."""
        producer = Producer(values["producerId"], values["producerEpoch"])
        tp = self._partition_of_group(values["groupId"])
        with self.appending(values["transactionalId"], producer, [tp]) as errors:
            if not errors[tp]:
                return self._groups.commit_in_transaction(values, producer)
        # a client repeats the request while the markers of the transaction before it are written
        error = errors[tp]
        if error is ErrorCode.CONCURRENT_TRANSACTIONS:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return by_partition(values, error)

    def end_txn(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """EndTxn. Its answer comes after the markers, except those that cannot be written now."""
        slot = self._slots.get(values["transactionalId"])
        producer = Producer(values["producerId"], values["producerEpoch"])
        if slot is None:
            return {"errorCode": int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)}
        with slot.lock:
            decision = end(slot.transaction, producer, commits=values["committed"], now=self._clock())
            if isinstance(decision, Transaction):
                self._write(slot, decision)
                self._finish(slot)
                decision = ErrorCode.NONE
        return {"errorCode": _told(decision, version, 2)}

    @contextmanager
    def appending(
        self, transactional_id: str, producer: Producer, partitions: Iterable[TopicPartition]
    ) -> Iterator[dict[TopicPartition, ErrorCode]]:
        """Keep the transaction of a producer from ending while its batches are appended. Gives the error of
        each partition: INVALID_TXN_STATE if it is not in the transaction."""
        with self._lock:
            slot = self._slots.get(transactional_id)
        with contextlib.nullcontext() if slot is None else slot.lock:
            known = None if slot is None else slot.transaction
            error = check_producer(known, producer)
            if error is ErrorCode.PRODUCER_FENCED:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            is_ongoing = known is not None and known.state is TransactionState.ONGOING
            added = known.partitions if known is not None and is_ongoing else frozenset()
            yield {
                tp: error or (ErrorCode.NONE if tp in added else ErrorCode.INVALID_TXN_STATE)
                for tp in partitions
            }

    # ---- descriptions --------------------------------------------------------------------------------------

    def list_transactions(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """ListTransactions, of the wanted states, producers and ages."""
        names = {state.shown for state in TransactionState}
        states, ids = set(values["stateFilters"]), set(values["producerIdFilters"])
        now, duration = self._clock(), values["durationFilter"]
        found = [
            {
                "transactionalId": each.transactional_id,
                "producerId": each.producer_id,
                "transactionState": each.state.shown,
            }
            for each in self._all()
            if (not states or each.state.shown in states)
            and (not ids or each.producer_id in ids)
            and (duration < 0 or now - each.started_at > duration)
        ]
        return {
            "errorCode": 0,
            "unknownStateFilters": sorted(states - names),
            "transactionStates": found,
        }

    def describe_transactions(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """DescribeTransactions."""
        known = {each.transactional_id: each for each in self._all()}
        return {
            "transactionStates": [_described(each, known.get(each)) for each in values["transactionalIds"]]
        }

    def describe_producers(self, values: dict[str, Any], version: int, connection: Any) -> Answer:
        """DescribeProducers: the idempotent producers of partitions."""
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "partitions": [self._producers(topic["name"], at) for at in topic["partitionIndexes"]],
                }
                for topic in values["topics"]
            ]
        }

    def _producers(self, topic: str, partition: int) -> Answer:
        answer: Answer = {
            "partitionIndex": partition,
            "errorCode": 0,
            "errorMessage": None,
            "activeProducers": [],
        }
        tp = TopicPartition(topic, partition)
        log = self._log(tp) if tp in self._store else None
        if log is None:
            return {**answer, "errorCode": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
        active = [
            {
                "producerId": each.producer_id,
                "producerEpoch": each.producer_epoch,
                "lastSequence": each.batches[-1].last_sequence if each.batches else -1,
                "lastTimestamp": each.last_timestamp,
                "coordinatorEpoch": each.coordinator_epoch,
                "currentTxnStartOffset": -1
                if each.current_txn_first_offset is None
                else each.current_txn_first_offset,
            }
            for each in log.producers().values()
        ]
        return {**answer, "activeProducers": active}

    # ---- others --------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Do what is due: abort transactions after their timeout, write markers that could not be written,
        forget unused transactional ids. The owner calls it about once a second, and after a test has moved
        the clock. What fails is tried again by the next call."""
        with self._lock:
            slots = list(self._slots.items())
        for transactional_id, slot in slots:
            with contextlib.suppress(OSError, KstoreError), slot.lock:
                known, now = slot.transaction, self._clock()
                if known is not None and known.is_overdue(now):
                    self._write(slot, fence(known, now))
                    self._finish(slot)
                elif known is not None and known.state in PREPARED:
                    self._complete(slot, known)
                elif known is not None and known.is_unused(now, self._expiration_ms):
                    partition = self.topic.partition_of(transactional_id)
                    self.topic.append(partition, [(transaction_key(transactional_id), None)], now)
                    slot.transaction = None

    def _add(self, transactional_id: str, producer: Producer, added: set[TopicPartition]) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        with self._lock:
            slot = self._slots.get(transactional_id)
        if slot is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        with slot.lock:
            decision = add_partitions(slot.transaction, producer, added, self._clock())
            if isinstance(decision, Transaction):
                self._write(slot, decision)
                return ErrorCode.NONE
            return decision

    def _write(self, slot: _Slot, transaction: Transaction) -> None:
        """Append a new state; then it counts."""
        partition = self.topic.partition_of(transaction.transactional_id)
        self.topic.append(partition, [transaction_record(transaction)], self._clock())
        slot.transaction = transaction

    def _finish(self, slot: _Slot) -> None:
        """Carry out a decision that is in the log. It holds also if that fails now; `tick` tries again."""
        known = slot.transaction
        if known is not None and known.state in PREPARED:
            with contextlib.suppress(OSError, KstoreError):
                self._complete(slot, known)

    def _complete(self, slot: _Slot, known: Transaction) -> None:
        epoch = self.topic.log(self.topic.partition_of(known.transactional_id)).leader_epoch
        commits, version = known.state is TransactionState.PREPARE_COMMIT, known.version
        for tp in known.partitions:
            with contextlib.suppress(InvalidProducerEpochError):  # a later epoch has ended it there
                if tp.topic == OFFSETS_TOPIC:
                    self._groups.end_transaction(
                        tp.partition, known.producer, commits=commits, epoch=epoch, version=version
                    )
                elif (log := self._log(tp)) is not None:
                    append_marker(
                        log, known.producer, commits=commits, epoch=epoch, now=self._clock(), version=version
                    )
        self._write(slot, complete(known, self._clock()))

    def _log(self, tp: TopicPartition) -> LogWriter | None:
        """The log of a partition; None if the topic was deleted."""
        try:
            log = self._store.log(*tp)
        except LogNotFoundError:
            return None
        assert isinstance(log, LogWriter)
        return log

    def _all(self) -> list[Transaction]:
        with self._lock:
            return [slot.transaction for slot in self._slots.values() if slot.transaction is not None]

    def _partition_of_group(self, group_id: str) -> TopicPartition:
        self._groups.topic.create()
        return TopicPartition(OFFSETS_TOPIC, self._groups.topic.partition_of(group_id))


def _told(error: ErrorCode, version: int, knows_fenced: int) -> int:
    """The code for a client: requests before a version know another one for a fenced producer."""
    is_old = error is ErrorCode.PRODUCER_FENCED and version < knows_fenced
    return int(ErrorCode.INVALID_PRODUCER_EPOCH if is_old else error)


def _added(values: dict[str, Any], error: ErrorCode, version: int = 3) -> Answer:
    return {
        "resultsByTopicV3AndBelow": [
            {
                "name": topic["name"],
                "resultsByPartition": [
                    {"partitionIndex": at, "partitionErrorCode": _told(error, version, 2)}
                    for at in topic["partitions"]
                ],
            }
            for topic in values["v3AndBelowTopics"]
        ]
    }


def _described(transactional_id: str, known: Transaction | None) -> Answer:
    if known is None:
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return {
            "errorCode": int(missing),
            "transactionalId": transactional_id,
            "transactionState": "",
            "transactionTimeoutMs": 0,
            "transactionStartTimeMs": 0,
            "producerId": 0,
            "producerEpoch": 0,
            "topics": [],
        }
    topics: dict[str, list[int]] = {}
    for tp in sorted(known.partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return {
        "errorCode": 0,
        "transactionalId": transactional_id,
        "transactionState": known.state.shown,
        "transactionTimeoutMs": known.timeout_ms,
        "transactionStartTimeMs": known.started_at,
        "producerId": known.producer_id,
        "producerEpoch": known.producer_epoch,
        "topics": [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()],
    }
