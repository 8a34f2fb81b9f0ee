"""The coordinator of transactions over a store: what readers see, what a restart completes, and its records."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.files.layout import TopicPartition
from kstore.messages.topics import decode_transactions
from kstore.serving import state_topic
from kstore.serving.error_codes import ErrorCode
from kstore.serving.groups.coordinator import GroupCoordinator
from kstore.serving.state_topic import Producer
from kstore.serving.transactions.coordinator import TransactionCoordinator
from kstore.serving.transactions.producer_ids import FIRST
from tests.helpers.clock import Clock
from tests.serving.requests import call

TIMEOUT = 60_000


class Client:
    """A producer with a transactional id."""

    def __init__(self, server: "Server", transactional_id: str = "t") -> None:
        self.server = server
        self.transactional_id = transactional_id
        self.sequence: dict[int, int] = {}

    def values(self, **others: Any) -> dict[str, Any]:
        return {
            "transactionalId": self.transactional_id,
            "producerId": self.producer.producer_id,
            "producerEpoch": self.producer.epoch,
            **others,
        }

    def init(self, **others: Any) -> int:
        values = {"transactionalId": self.transactional_id, "transactionTimeoutMs": TIMEOUT, **others}
        answer = call(self.server.transactions.init_producer_id, **values)
        if not answer["errorCode"]:
            self.producer = Producer(answer["producerId"], answer["producerEpoch"])
        code: int = answer["errorCode"]
        return code

    def add(self, *partitions: int, topic: str = "orders", version: int | None = None) -> list[int]:
        answer = call(
            self.server.transactions.add_partitions_to_txn,
            version,
            v3AndBelowTransactionalId=self.transactional_id,
            v3AndBelowProducerId=self.producer.producer_id,
            v3AndBelowProducerEpoch=self.producer.epoch,
            v3AndBelowTopics=[{"name": topic, "partitions": list(partitions)}],
        )
        (found,) = answer["resultsByTopicV3AndBelow"]
        return [each["partitionErrorCode"] for each in found["resultsByPartition"]]

    def send(self, value: bytes, partition: int = 0) -> ErrorCode:
        """Appends a record as a server's Produce does."""
        tp = TopicPartition("orders", partition)
        with self.server.transactions.appending(self.transactional_id, self.producer, [tp]) as errors:
            if not errors[tp]:
                sequence = self.sequence.get(partition, 0)
                log = self.server.store.log(*tp)
                assert isinstance(log, kstore.LogWriter)
                log.append_batches(
                    kstore.encode_batch(
                        [(self.server.clock(), None, value, None)],
                        producer_id=self.producer.producer_id,
                        producer_epoch=self.producer.epoch,
                        base_sequence=sequence,
                        transactional=True,
                    )
                )
                self.sequence[partition] = sequence + 1
        return errors[tp]

    def commit_offset(self, offset: int, group: str = "g") -> int:
        position = {"partitionIndex": 0, "committedOffset": offset, "committedMetadata": ""}
        topics = [{"name": "orders", "partitions": [position]}]
        answer = call(self.server.transactions.txn_offset_commit, **self.values(groupId=group, topics=topics))
        code: int = answer["topics"][0]["partitions"][0]["errorCode"]
        return code

    def add_offsets(self, group: str = "g") -> int:
        code: int = call(self.server.transactions.add_offsets_to_txn, **self.values(groupId=group))[
            "errorCode"
        ]
        return code

    def end(self, *, commits: bool, version: int | None = None) -> int:
        answer = call(self.server.transactions.end_txn, version, **self.values(committed=commits))
        code: int = answer["errorCode"]
        return code


class Server:
    """A store with both coordinators."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.start()

    def start(self) -> None:
        self.store = kstore.LogStore(self.path, mode="a", clock=self.clock, background=False)
        self.groups = GroupCoordinator(self.store, self.clock, partitions=3)
        self.transactions = TransactionCoordinator(self.store, self.groups, self.clock, partitions=3)

    def restart(self, *, crash: bool = False) -> None:
        if crash:
            self.store.abandon()
        self.store.close()
        self.start()

    def committed(self, partition: int = 0) -> list[bytes | None]:
        log = self.store.log("orders", partition)
        return [record.value for record in log.records(isolation="read_committed")]

    def offset(self, *, stable: bool = False) -> tuple[int, int]:
        topics = [{"name": "orders", "partitionIndexes": [0]}]
        answer = call(self.groups.offset_fetch, groupId="g", topics=topics, requireStable=stable)
        (found,) = answer["topics"][0]["partitions"]
        return found["committedOffset"], found["errorCode"]

    def state(self, transactional_id: str = "t") -> dict[str, Any]:
        answer = call(self.transactions.describe_transactions, transactionalIds=[transactional_id])
        return dict(answer["transactionStates"][0])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path, Clock())
    server.store.create_topic("orders", 3)
    yield server
    server.store.close()


@pytest.fixture
def client(server: Server) -> Client:
    client = Client(server)
    assert client.init() == 0
    return client


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("crash", [None, False, True])
def test_a_transaction_is_whole_or_absent(
    server: Server, client: Client, commits: bool, crash: bool | None
) -> None:
    assert client.add(0, 1) == [0, 0]
    assert client.send(b"x") == client.send(b"y", 1) == 0
    assert client.add_offsets() == client.commit_offset(17) == 0
    assert server.committed() == []
    assert server.offset() == (-1, 0)
    assert server.offset(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert server.state()["topics"][0]["topic"] == "__consumer_offsets"
    if crash is not None:
        server.restart(crash=crash)
        assert server.offset(stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert client.end(commits=commits) == 0
    for _ in range(2):
        assert server.committed() == ([b"x"] if commits else [])
        assert server.committed(1) == ([b"y"] if commits else [])
        assert server.offset(stable=True) == (17 if commits else -1, 0)
        assert server.state()["transactionState"] == ("CompleteCommit" if commits else "CompleteAbort")
        server.restart()


def test_ids_are_never_given_twice(server: Server, client: Client) -> None:
    seen = {client.producer.producer_id}
    for _ in range(3):
        for _ in range(1200):
            answer = call(server.transactions.init_producer_id, transactionalId=None, transactionTimeoutMs=0)
            assert answer["producerEpoch"] == 0
            assert answer["producerId"] >= FIRST
            assert answer["producerId"] not in seen
            seen.add(answer["producerId"])
        server.restart(crash=True)


def test_a_second_producer_fences_the_first(server: Server, client: Client) -> None:
    client.add(0)
    client.send(b"lost")
    other = Client(server)
    assert other.init() == ErrorCode.CONCURRENT_TRANSACTIONS  # the transaction of the first is aborted
    assert other.init() == 0
    assert other.producer.epoch == client.producer.epoch + 2
    assert client.send(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.add(0) == [ErrorCode.PRODUCER_FENCED]
    assert client.add(0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert client.end(commits=True) == ErrorCode.PRODUCER_FENCED
    assert client.end(commits=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.add_offsets() == ErrorCode.PRODUCER_FENCED
    assert client.commit_offset(1) == ErrorCode.INVALID_PRODUCER_EPOCH
    producer = {"producerId": client.producer.producer_id, "producerEpoch": client.producer.epoch}
    assert client.init(**producer) == ErrorCode.PRODUCER_FENCED
    other.add(0)
    assert other.send(b"kept") == 0
    assert other.end(commits=True) == 0
    assert server.committed() == [b"kept"]


def test_a_timeout_aborts(server: Server, client: Client) -> None:
    client.add(0)
    client.send(b"slow")
    client.add_offsets()
    client.commit_offset(3)
    server.clock.sleep(TIMEOUT)
    server.transactions.tick()
    assert server.state()["transactionState"] == "Ongoing"
    server.clock.sleep(1)
    server.transactions.tick()
    assert server.state()["transactionState"] == "CompleteAbort"
    assert server.store.log("orders").last_stable_offset() == server.store.log("orders").log_end_offset
    assert server.offset(stable=True) == (-1, 0)
    assert client.end(commits=True) == ErrorCode.PRODUCER_FENCED
    assert client.init() == 0


def test_only_partitions_of_the_transaction_are_written(server: Server, client: Client) -> None:
    assert client.send(b"x") == ErrorCode.INVALID_TXN_STATE
    client.add(0)
    assert client.send(b"x", 1) == ErrorCode.INVALID_TXN_STATE
    assert client.commit_offset(1) == ErrorCode.INVALID_TXN_STATE
    assert client.add(0, 7) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    stranger = Client(server, "unknown")
    stranger.producer = client.producer
    assert stranger.send(b"x") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stranger.add(0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert stranger.end(commits=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"transactionalId": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactionTimeoutMs": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transactionTimeoutMs": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producerId": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_that_are_refused(server: Server, values: dict[str, Any], error: ErrorCode) -> None:
    assert Client(server).init(**values) == error


def test_a_marker_that_fails_is_written_later(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision holds, though one partition cannot be written at the moment; nothing new begins meanwhile."""
    client.add(0, 1)
    client.send(b"x")
    client.send(b"y", 1)
    with monkeypatch.context() as patch:
        log = server.store.log

        def failing(topic: str, partition: int = 0) -> kstore.PartitionLog:
            if (topic, partition) == ("orders", 1):
                raise OSError("no space left")
            return log(topic, partition)

        patch.setattr(server.store, "log", failing)
        assert client.end(commits=True) == 0
        server.transactions.tick()
        assert server.state()["transactionState"] == "PrepareCommit"
        assert client.end(commits=True) == ErrorCode.CONCURRENT_TRANSACTIONS
        assert client.add(0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert Client(server).init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert server.committed(1) == []
    server.transactions.tick()
    assert server.committed(0) == [b"x"]
    assert server.committed(1) == [b"y"]
    assert client.add(0) == [0]


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("commits", [True, False])
def test_a_kill_before_each_record_of_a_coordinator(
    tmp_path: Path, commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was written before, the transaction is then whole or absent, and the producer goes on."""
    encode, outcomes = state_topic.encode_batch, []
    for last in range(12):
        server = Server(tmp_path / str(last), Clock())
        server.store.create_topic("orders", 3)
        client = Client(server)
        client.init()
        calls = iter(range(100))

        def counted(*args: Any, calls: Iterator[int] = calls, last: int = last, **options: Any) -> bytes:
            if next(calls) == last:
                raise _Killed
            return encode(*args, **options)

        with monkeypatch.context() as patch, suppress(_Killed):
            patch.setattr(state_topic, "encode_batch", counted)
            client.add(0, 1)
            client.send(b"x")
            client.send(b"y", 1)
            client.add_offsets()
            client.commit_offset(5)
            client.end(commits=commits)
        server.restart(crash=True)
        if server.state()["transactionState"] == "Ongoing":
            assert client.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        outcome = server.committed(0), server.committed(1), server.offset(stable=True)
        assert outcome in (([b"x"], [b"y"], (5, 0)), ([], [], (-1, 0)))
        outcomes.append(outcome[2][0])
        assert client.init() == 0
        client.add(0)
        client.sequence = {}
        client.send(b"next")
        assert client.end(commits=True) == 0
        assert server.committed(0)[-1] == b"next"
        server.store.close()
    assert outcomes == [-1] * 4 + [5 if commits else -1] * 8


def test_a_deleted_topic_does_not_hold_up_its_transaction(server: Server, client: Client) -> None:
    client.add(0)
    client.send(b"x")
    server.store.create_topic("others")
    assert client.add(0, topic="others") == [0]
    server.store.delete_topic("orders")
    assert client.end(commits=True) == 0
    assert server.state()["transactionState"] == "CompleteCommit"


def test_transactional_ids_are_forgotten_after_a_week(server: Server, client: Client) -> None:
    server.clock.sleep(7 * 86_400_000)
    server.transactions.tick()
    assert server.state()["errorCode"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    server.restart()
    assert call(server.transactions.list_transactions)["transactionStates"] == []
    assert client.init() == 0
    assert client.producer.epoch == 0


def test_descriptions(server: Server, client: Client) -> None:
    client.add(0)
    client.send(b"x")
    other = Client(server, "other")
    other.init()
    listed = call(server.transactions.list_transactions, stateFilters=["Ongoing", "Odd"])
    assert [each["transactionalId"] for each in listed["transactionStates"]] == ["t"]
    assert listed["unknownStateFilters"] == ["Odd"]
    listed = call(server.transactions.list_transactions, producerIdFilters=[other.producer.producer_id])
    assert [each["transactionalId"] for each in listed["transactionStates"]] == ["other"]
    topics = [{"name": "orders", "partitionIndexes": [0, 9]}]
    answer = call(server.transactions.describe_producers, topics=topics)
    here, missing = answer["topics"][0]["partitions"]
    assert missing["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert here["activeProducers"] == [
        {
            "producerId": client.producer.producer_id,
            "producerEpoch": 0,
            "lastSequence": 0,
            "lastTimestamp": server.clock.now,
            "coordinatorEpoch": -1,
            "currentTxnStartOffset": 0,
        }
    ]


def test_records_are_those_of_kafka(server: Server, client: Client) -> None:
    client.add(1, 0)
    client.end(commits=True)
    texts = [
        decode_transactions(record.key, record.value)
        for number in range(3)
        for record in server.store.open("__transaction_state", number).records()
    ]
    now, pid = server.clock.now, client.producer.producer_id
    assert {key for key, _ in texts} == {'{"type":"0","data":{"transactionalId":"t"}}'}
    added = '[{"topic":"orders","partitionIds":[0,1]}]'
    assert [value for _, value in texts] == [
        f'{{"version":"0","data":{{"producerId":{pid},"producerEpoch":0,"transactionTimeoutMs":{TIMEOUT},'
        f'"transactionStatus":{status},"transactionPartitions":{partitions},'
        f'"transactionLastUpdateTimestampMs":{now},"transactionStartTimestampMs":{start}}}}}'
        for status, partitions, start in [
            (0, "null", -1),
            (1, added, now),
            (2, added, now),
            (4, "[]", now),
        ]
    ]
