"""Clients read what a store has, and what is appended meanwhile, whether the server writes the store or
another process does."""

import asyncio
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

import kstore
from kstore.serving.server import Server
from kstore.serving.service import KEYS, Service
from tests.serving.conftest import VALUES
from tests.serving.raw import RawClient, encoded

NONE, OUT_OF_RANGE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, POLICY_VIOLATION, INVALID_REQUEST = (
    0,
    1,
    3,
    35,
    44,
    42,
)
FENCED_EPOCH, UNKNOWN_EPOCH = 74, 75


def with_confluent(address: str, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "x"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 10)
        assert messages, "nothing within 10 s"
        assert not any(message.error() for message in messages)
        found += [message.value() for message in messages]
    consumer.close()
    return found


def with_kafka_python(address: str, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, consumer_timeout_ms=10_000)
    consumer.assign([kafka.TopicPartition("t", 0)])
    consumer.seek_to_beginning()
    found = [message.value for message, _ in zip(consumer, range(count), strict=False)]
    consumer.close()
    return found


def with_aiokafka(address: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=address) as consumer:
            consumer.assign([aiokafka.TopicPartition("t", 0)])
            await consumer.seek_to_beginning()
            return [(await asyncio.wait_for(anext(consumer), 10)).value for _ in range(count)]

    return asyncio.run(read())


@pytest.mark.parametrize("read", [with_confluent, with_kafka_python, with_aiokafka])
def test_clients(server: Server, read: Callable[[str, int], list[bytes]]) -> None:
    assert read(server.bootstrap_servers, len(VALUES)) == VALUES


def decoded(store: kstore.LogStore, data: bytes) -> list[bytes | None]:
    """The values in batches."""
    path = store.path.parent / f"{0:020}.log"
    path.write_bytes(data)
    return [record.value for record in kstore.open(path)]


def test_fetch(store: kstore.LogStore, client: RawClient) -> None:
    (found,) = client.fetch(("t", 0, 150))
    assert (found["errorCode"], found["highWatermark"], found["logStartOffset"]) == (NONE, 300, 0)
    assert found["abortedTransactions"] is None
    assert decoded(store, found["records"]) == VALUES[100:]  # from the batch that holds 150 on


def test_byte_limits(store: kstore.LogStore, client: RawClient) -> None:
    """max_bytes and partition_max_bytes end at whole batches; the first batch of all is always whole."""
    store.log("t", 1).extend(VALUES[:100])
    sizes = [len(bytes(store.log("t", 0).read(at, 1))) for at in (0, 100, 200)]
    one = len(bytes(store.log("t", 1).read(0, 1)))
    wanted = [("t", 0, 0), ("t", 1, 0)]

    def found(**limits: int) -> list[int]:
        return [len(each["records"]) for each in client.fetch(*wanted, **limits)]

    assert found() == [sum(sizes), one]
    assert found(partition_max_bytes=sizes[0] + sizes[1] + 5) == [sizes[0] + sizes[1], one]
    assert found(maxBytes=sizes[0] + 7) == [sizes[0], 0]
    assert found(maxBytes=sum(sizes) + one) == [sum(sizes), one]
    assert found(maxBytes=1) == [sizes[0], 0]
    assert found(partition_max_bytes=1) == [sizes[0], 0]
    assert found(maxBytes=0) == [sizes[0], 0]
    assert [len(each["records"]) for each in client.fetch(("t", 0, 300), ("t", 1, 0), maxBytes=1)] == [0, one]


@pytest.mark.parametrize(
    ("wanted", "options", "code"),
    [
        (("t", 0, 301), {}, OUT_OF_RANGE),
        (("t", 0, -1), {}, OUT_OF_RANGE),
        (("t", 2, 0), {}, UNKNOWN_TOPIC),
        (("u", 0, 0), {}, UNKNOWN_TOPIC),
        (("../t", 0, 0), {}, UNKNOWN_TOPIC),
        (("t", -1, 0), {}, UNKNOWN_TOPIC),
        (("t", 0, 0), {"epoch": 1}, UNKNOWN_EPOCH),
        (("t", 0, 0), {"epoch": 0}, NONE),
    ],
)
def test_errors_of_fetch(client: RawClient, wanted: tuple[str, int, int], options: dict, code: int) -> None:
    """An error is answered at once, whatever the request would wait for."""
    (found,) = client.fetch(wanted, maxWaitMs=60_000, **options)
    assert found["errorCode"] == code
    assert bool(found["records"]) == (code == NONE)


def test_fenced_epoch(store: kstore.LogStore, client: RawClient) -> None:
    store.log("t", 0).assign_leader_epoch(3)
    assert client.fetch(("t", 0, 300), epoch=2)[0]["errorCode"] == FENCED_EPOCH
    (topic,) = client.ask("Metadata", 8, {"topics": [{"name": "t"}]})["topics"]
    assert [each["leaderEpoch"] for each in topic["partitions"]] == [3, 0]


@contextmanager
def appended_later(append: Callable[[], object]) -> Iterator[None]:
    """Append in another thread, about when the request waits."""
    thread = threading.Timer(0.2, append)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("partition", [0, 1])
def test_long_poll(store: kstore.LogStore, client: RawClient, partition: int) -> None:
    """A fetch of several logs at their ends returns with the next record of any of them."""
    with appended_later(lambda: store.log("t", partition).append(b"late")):
        found = client.fetch(("t", 0, 300), ("t", 1, 0), maxWaitMs=60_000)
    assert [bool(each["records"]) for each in found] == [partition == 0, partition == 1]


def test_min_bytes(store: kstore.LogStore, client: RawClient) -> None:
    """A fetch waits until there are so many bytes."""
    value = bytes(1000)

    def append() -> None:
        for _ in range(5):
            store.log("t", 1).append(value)

    with appended_later(append):
        (found,) = client.fetch(("t", 1, 0), maxWaitMs=60_000, minBytes=4 * len(value))
    assert len(found["records"]) >= 4 * len(value)
    (found,) = client.fetch(("t", 1, 0), maxWaitMs=100, minBytes=1 << 20)
    assert 5 * len(value) <= len(found["records"]) < 1 << 20  # after the time, what there is


def test_a_new_topic(store: kstore.LogStore, client: RawClient) -> None:
    """A topic that is made while it is served, and one that is deleted and made anew: it has another id."""
    ids = set()
    for values in ([b"a"], [b"b", b"c"]):
        store.create_topic("new")
        store.extend("new", values)
        found = wait_for(lambda: client.fetch(("new", 0, 0))[0], lambda each: each["errorCode"] == NONE)
        assert found["highWatermark"] == len(values)
        (topic,) = client.ask("Metadata", 12, {"topics": [{"name": "new"}]})["topics"]
        ids.add(topic["topicId"])
        store.delete_topic("new")
        wait_for(lambda: client.fetch(("new", 0, 0))[0], lambda each: each["errorCode"] == UNKNOWN_TOPIC)
    assert len(ids - {"A" * 22}) == 2


def wait_for(ask: Callable[[], dict], is_right: Callable[[dict], bool]) -> dict:
    """Ask until the answer is right, for at most 10 s."""
    for _ in range(100):
        found = ask()
        if is_right(found):
            return found
        threading.Event().wait(0.1)
    raise AssertionError(found)


def test_truncation(store: kstore.LogStore, client: RawClient) -> None:
    assert client.fetch(("t", 0, 0))[0]["highWatermark"] == 300
    store.log("t", 0).truncate_to(100)
    wait_for(lambda: client.fetch(("t", 0, 200))[0], lambda each: each["errorCode"] == OUT_OF_RANGE)
    store.log("t", 0).delete_records(50)
    wait_for(lambda: client.fetch(("t", 0, 49))[0], lambda each: each["errorCode"] == OUT_OF_RANGE)


def offsets(client: RawClient, timestamp: int, version: int = 5, isolation: int = 0) -> tuple[int, ...]:
    partition = {"partitionIndex": 0, "timestamp": timestamp}
    topics = [{"name": "t", "partitions": [partition]}]
    answer = client.ask("ListOffsets", version, {"topics": topics, "isolationLevel": isolation})
    ((found,),) = (topic["partitions"] for topic in answer["topics"])
    return found["errorCode"], found["offset"], found["timestamp"], found["leaderEpoch"]


def test_list_offsets(store: kstore.LogStore, client: RawClient) -> None:
    last = store.log("t", 0).get(299).timestamp
    assert offsets(client, -2) == (NONE, 0, -1, 0)
    assert offsets(client, -1) == (NONE, 300, -1, 0)
    assert offsets(client, 0) == (NONE, 0, store.log("t", 0).get(0).timestamp, 0)
    assert offsets(client, last + 1) == (NONE, -1, -1, -1)
    assert offsets(client, -3, 7)[:1] + offsets(client, -3, 7)[2:3] == (NONE, last)
    assert offsets(client, -3, 5)[0] == UNSUPPORTED_VERSION
    assert offsets(client, -7, 7)[0] == UNSUPPORTED_VERSION


def test_offset_for_leader_epoch(store: kstore.LogStore, client: RawClient) -> None:
    store.log("t", 0).assign_leader_epoch(5)
    store.log("t", 0).append(b"x")

    def end_of(epoch: int) -> tuple[int, ...]:
        partitions = [{"partition": 0, "leaderEpoch": epoch}]
        answer = client.ask("OffsetForLeaderEpoch", 3, {"topics": [{"topic": "t", "partitions": partitions}]})
        ((found,),) = (topic["partitions"] for topic in answer["topics"])
        return found["errorCode"], found["leaderEpoch"], found["endOffset"]

    wait_for(lambda: {"end": end_of(5)}, lambda found: found["end"] == (NONE, 5, 301))
    assert end_of(4) == (NONE, 0, 300)
    assert end_of(6) == (NONE, -1, -1)


def batch(log: kstore.LogWriter, producer: int, sequence: int, value: bytes) -> None:
    """Append a record of a transaction."""
    options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    log.append_batches(encoded(value, transactional=True, **options))


def marker(log: kstore.LogWriter, producer: int, *, commits: bool) -> None:
    """End a transaction."""
    key, value = struct.pack(">hh", 0, commits), struct.pack(">hi", 0, 0)
    data = kstore.encode_batch(
        [(int(time.time() * 1000), key, value, ())],
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    log.append_batches(data, origin="coordinator", transaction_version=1)


def test_read_committed(store: kstore.LogStore, client: RawClient) -> None:
    log = store.log("t", 1)
    batch(log, 7, 0, b"aborted")  # 0, and its marker at 1
    marker(log, 7, commits=False)
    batch(log, 8, 0, b"committed")  # 2 and 3
    marker(log, 8, commits=True)
    batch(log, 9, 0, b"open")  # 4
    (found,) = client.fetch(("t", 1, 0), isolationLevel=1)
    assert (found["highWatermark"], found["lastStableOffset"]) == (5, 4)
    assert found["abortedTransactions"] == [{"producerId": 7, "firstOffset": 0}]
    assert b"committed" in found["records"]
    assert b"open" not in found["records"]
    assert b"open" in client.fetch(("t", 1, 0))[0]["records"]
    with appended_later(lambda: marker(log, 9, commits=True)):
        (found,) = client.fetch(("t", 1, 4), isolationLevel=1, maxWaitMs=60_000)
    assert b"open" in found["records"]  # the end of the transaction ends the wait
    assert found["lastStableOffset"] == 6


def test_metadata(store: kstore.LogStore, server: Server, client: RawClient) -> None:
    found = client.ask("Metadata", 12, {"topics": None})
    host, port = server.bootstrap_servers.split(":")
    assert [(each["host"], each["port"]) for each in found["brokers"]] == [(host, int(port))]
    assert [topic["name"] for topic in found["topics"]] == ["t"]
    topic_id = found["topics"][0]["topicId"]
    (by_id,) = client.ask("Metadata", 12, {"topics": [{"topicId": topic_id, "name": None}]})["topics"]
    assert by_id == found["topics"][0]
    for name, code in (("missing", UNKNOWN_TOPIC), ("../t", 17), ("", 17)):
        (topic,) = client.ask("Metadata", 8, {"topics": [{"name": name}]})["topics"]
        assert topic["errorCode"] == code
    (topic,) = client.ask("Metadata", 12, {"topics": [{"topicId": "B" * 21 + "A", "name": None}]})["topics"]
    assert topic["errorCode"] == 100
    assert store.topics.keys() == {"t"}  # none was created


@pytest.mark.parametrize("mode", ["r", "a"])
def test_many_unknown_names(store: kstore.LogStore, mode: str) -> None:
    """The work for each is small, however many topics there are: a request may have 100,000 names."""
    for number in range(50):
        store.create_topic(f"known-{number}")
    names = [f"unknown-{number}" for number in range(500)]
    fetched = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": 1, "currentLeaderEpoch": -1}
    looked_up = {
        "partitionIndex": 0,
        "timestamp": -1,
        "leaderEpoch": 0,
        "currentLeaderEpoch": -1,
        "partition": 0,
    }
    requests = {
        "Metadata": {"topics": [{"name": name, "topicId": "A" * 22} for name in names]},
        "Fetch": {"topics": [{"topic": name, "partitions": [fetched]} for name in names]},
        "ListOffsets": {"topics": [{"name": name, "partitions": [looked_up]} for name in names]},
        "OffsetForLeaderEpoch": {"topics": [{"topic": name, "partitions": [looked_up]} for name in names]},
        "DescribeProducers": {"topics": [{"name": name, "partitionIndexes": [0]} for name in names]},
    }
    rest = {"maxWaitMs": 0, "minBytes": 1, "maxBytes": 1, "isolationLevel": 0, "allowAutoTopicCreation": True}
    rest |= {"includeClusterAuthorizedOperations": False, "includeTopicAuthorizedOperations": False}
    service = Service(store if mode == "a" else kstore.LogStore(store.path))
    connection = SimpleNamespace(address=("127.0.0.1", 9092))
    for name, request in requests.items():
        handler = service.handlers.get(KEYS[name])
        if handler is None:
            assert (name, mode) == ("DescribeProducers", "r")
            continue
        calls: list[str] = []
        sys.setprofile(lambda frame, event, what: calls.append(event))  # noqa: B023
        answer = handler({**request, **rest}, 4, connection)
        sys.setprofile(None)
        assert answer is not None
        assert len(calls) < 100 * len(names), (name, len(calls) / len(names))
        topics = answer.get("topics", answer.get("responses"))
        found = [each for topic in topics for each in topic.get("partitions", [topic])]
        assert [each["errorCode"] for each in found] == [UNKNOWN_TOPIC] * len(names)
    service.close()


def test_operations(client: RawClient) -> None:
    """Whoever asks what it may do learns that it may do everything. The numbers are Kafka's."""
    flags = {"includeClusterAuthorizedOperations": True, "includeTopicAuthorizedOperations": True}
    found = client.ask("Metadata", 9, {"topics": [{"name": "t"}], **flags})
    assert (found["clusterAuthorizedOperations"], found["topics"][0]["topicAuthorizedOperations"]) == (
        8096,
        3576,
    )
    (group,) = client.ask("DescribeGroups", 5, {"groups": ["g"], "includeAuthorizedOperations": True})[
        "groups"
    ]
    assert group["authorizedOperations"] == 3400
    found = client.ask("DescribeCluster", 0, {"includeClusterAuthorizedOperations": False})
    assert found["clusterAuthorizedOperations"] == -(2**31)


def test_names_that_are_repeated(store: kstore.LogStore, client: RawClient) -> None:
    """A request is answered in the work and the memory of what it names, however often it names it."""
    many = 1000
    topics = client.ask("Metadata", 12, {"topics": [{"name": name} for name in ("t", "no") * many]})["topics"]
    assert [topic["name"] for topic in topics] == ["t", "no"]
    (found,) = client.fetch(*(("t", 0, 300 - at) for at in range(many)), ("t", 0, 250))
    assert (found["errorCode"], found["highWatermark"], len(found["records"]) > 0) == (NONE, 300, True)
    resource = {"resourceType": 2, "resourceName": "t", "configurationKeys": None}
    results = client.ask("DescribeConfigs", 4, {"resources": [resource] * many})["results"]
    assert [each["resourceName"] for each in results] == ["t"]
    groups = client.ask("DescribeGroups", 5, {"groups": ["g"] * many})["groups"]
    assert [each["groupId"] for each in groups] == ["g"]
    wanted = [{"partitionIndex": 0, "timestamp": -1}, {"partitionIndex": 1, "timestamp": -1}]
    asked = {"topics": [{"name": "t", "partitions": [wanted[0], *wanted]}]}
    (topic,) = client.ask("ListOffsets", 7, asked)["topics"]
    assert [each["errorCode"] for each in topic["partitions"]] == [INVALID_REQUEST, INVALID_REQUEST, NONE]


def test_descriptions(store: kstore.LogStore, server: Server) -> None:
    """Administrators see configurations and directories."""
    store.alter_topic("t", retention_ms=1000)
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    assert admin.describe_cluster().result(10).cluster_id
    configs = admin.describe_configs([ConfigResource("topic", "t"), ConfigResource("broker", "0")])
    topic, broker = (each.result(10) for each in configs.values())
    assert (topic["retention.ms"].value, topic["retention.ms"].is_default) == ("1000", False)
    assert (topic["cleanup.policy"].value, topic["cleanup.policy"].is_default) == ("delete", True)
    assert broker["log.retention.bytes"].value == "-1"
    with RawClient(server.bootstrap_servers) as client:
        (found,) = client.ask("DescribeLogDirs", 4, {"topics": None})["results"]
    assert found["logDir"] == str(store.path)
    sizes = [each["partitionSize"] for each in found["topics"][0]["partitions"]]
    assert sizes == [sum(part.size for part in store.log("t", number).segments) for number in (0, 1)]


def test_writes_are_refused(store: kstore.LogStore) -> None:
    """A server of a store that is open for reading changes nothing, and says so at once."""
    before = {path: path.stat().st_mtime_ns for path in store.path.rglob("*.log")}
    with kstore.serve(kstore.LogStore(store.path)) as server:
        address = {"bootstrap.servers": server.bootstrap_servers}
        results = []
        producer = confluent_kafka.Producer(address)
        producer.produce("t", b"x", on_delivery=lambda error, _: results.append(error.code()))
        assert producer.flush(10) == 0
        assert results == [POLICY_VIOLATION]
        admin = AdminClient(address)
        futures = [
            *admin.create_topics([NewTopic("new", 1)]).values(),
            *admin.delete_topics(["t"]).values(),
            *admin.delete_records([confluent_kafka.TopicPartition("t", 0, 5)]).values(),
        ]
        for future in futures:
            with pytest.raises(confluent_kafka.KafkaException) as caught:
                future.result(10)
            assert caught.value.args[0].code() == POLICY_VIOLATION
    assert before == {path: path.stat().st_mtime_ns for path in store.path.rglob("*.log")}
    assert store.topics.keys() == {"t"}
