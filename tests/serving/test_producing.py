"""Clients write: what was acknowledged is there, once; what Kafka refuses is refused with Kafka's code."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

import kstore
from kstore.serving.server import Server
from tests.serving.raw import RawClient, encoded

COUNT = 500
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def with_confluent(address: str, codec: str, **options: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "compression.type": codec, **options})
    errors: list[Any] = []
    for number in range(COUNT):
        producer.produce("new", b"%d" % number, b"k", partition=0, on_delivery=lambda e, _: errors.append(e))
    assert producer.flush(20) == 0
    assert errors == [None] * COUNT


def with_idempotence(address: str, codec: str) -> None:
    with_confluent(address, codec, **{"enable.idempotence": True})


def with_one_ack(address: str, codec: str) -> None:
    with_confluent(address, codec, acks=1)


def with_kafka_python(address: str, codec: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=address, compression_type=None if codec == "none" else codec
    )
    sent = [producer.send("new", b"%d" % number, b"k", partition=0) for number in range(COUNT)]
    assert [each.get(20).offset for each in sent] == list(range(COUNT))
    producer.close()


def with_aiokafka(address: str, codec: str) -> None:
    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, compression_type=None if codec == "none" else codec
        ) as producer:
            sent = [await producer.send("new", b"%d" % number, b"k", partition=0) for number in range(COUNT)]
            assert [(await each).offset for each in sent] == list(range(COUNT))

    asyncio.run(write())


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "write", [with_confluent, with_idempotence, with_one_ack, with_kafka_python, with_aiokafka]
)
def test_clients(
    store: kstore.LogStore, written: Server, write: Callable[[str, str], None], codec: str
) -> None:
    if (write, codec) == (with_kafka_python, "snappy"):
        pytest.skip("kafka-python needs a library for snappy that has no wheel")
    store.create_topic("new")
    write(written.bootstrap_servers, codec)
    log = store.log("new")
    assert [record.value for record in log] == [b"%d" % number for number in range(COUNT)]
    codecs = {each.codec for each in log.batches()}
    assert codec in codecs <= {codec, "none"}  # a client sends what does not get smaller as it is
    assert bool(log.producers()) == (write in (with_idempotence, with_kafka_python))


def produce(
    client: RawClient, topic: str, data: bytes | None, version: int = 8, acks: int = -1
) -> dict[str, Any]:
    values = {
        "acks": acks,
        "topicData": [{"name": topic, "partitionData": [{"index": 0, "records": data}]}],
    }
    ((answer,),) = (
        each["partitionResponses"] for each in client.ask("Produce", version, values)["responses"]
    )
    return answer


@pytest.fixture
def writer(written: Server) -> Any:
    with RawClient(written.bootstrap_servers) as client:
        yield client


BATCH = encoded(b"one", b"two")
CORRUPT = BATCH[:-1] + bytes([BATCH[-1] ^ 1])
OLD = BATCH[:16] + b"\1" + BATCH[17:]


@pytest.mark.parametrize(
    ("topic", "data", "options", "code"),
    [
        ("t", BATCH, {}, 0),
        ("t", BATCH, {"acks": 1}, 0),
        ("t", CORRUPT, {}, 2),
        ("t", BATCH[:-1], {}, 2),
        ("t", BATCH + BATCH, {}, 87),
        ("t", OLD, {}, 87),
        ("t", b"", {}, 87),
        ("t", None, {}, 87),
        ("missing", BATCH, {}, 3),
        ("../t", BATCH, {}, 3),
        ("__consumer_offsets", BATCH, {}, 17),
        ("t", BATCH, {"acks": 2}, 21),
        ("small", encoded(bytes(3000)), {}, 10),
        ("keyed", BATCH, {}, 87),
        ("timed", encoded(b"x", timestamp=1), {}, 32),
        ("t", encoded(b"x", codec="zstd"), {"version": 6}, 76),
        ("t", encoded(b"x", codec="zstd"), {"version": 7}, 0),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else str(value),
)
def test_codes(
    store: kstore.LogStore,
    writer: RawClient,
    topic: str,
    data: bytes | None,
    options: dict[str, Any],
    code: int,
) -> None:
    store.create_topic("small", max_message_bytes=2000)
    store.create_topic("keyed", cleanup_policy="compact")
    store.create_topic("timed", message_timestamp_before_max_ms=1000)
    before = {name: store.log(name).log_end_offset for name in store.topics}
    answer = produce(writer, topic, data, **options)
    assert answer["errorCode"] == code
    assert answer["baseOffset"] == (before[topic] if code == 0 else -1)
    changed = {name for name in before if store.log(name).log_end_offset != before[name]}
    assert changed == ({topic} if code == 0 else set())


def test_wrong_records_are_named(store: kstore.LogStore, writer: RawClient) -> None:
    store.create_topic("keyed", cleanup_policy="compact")
    answer = produce(writer, "keyed", kstore.encode_batch([(-1, b"k", b"a", ()), (-1, None, b"b", ())]))
    assert [each["batchIndex"] for each in answer["recordErrors"]] == [1]


def test_sequences(store: kstore.LogStore, writer: RawClient) -> None:
    """A batch that is sent again gets the offset that it has; one that is missing, or of an older epoch, is
    noticed."""

    def of(sequence: int, epoch: int = 1) -> tuple[int, int]:
        data = encoded(b"a", b"b", producer_id=7, producer_epoch=epoch, base_sequence=sequence)
        answer = produce(writer, "t", data)
        return answer["errorCode"], answer["baseOffset"]

    assert [of(0) for _ in range(3)] == [(0, 300)] * 3
    assert of(2) == (0, 302)
    assert of(0) == (0, 300)
    assert of(5) == (45, -1)
    assert of(0, epoch=0) == (47, -1)
    assert store.log("t").log_end_offset == 304


def test_no_acks(store: kstore.LogStore, written: Server, writer: RawClient) -> None:
    """Without acks there is no answer. After an error the connection ends, so that the client notices."""
    for topic in ("t", "missing"):
        partition = {"index": 0, "records": BATCH}
        writer.send("Produce", 7, {"acks": 0, "topicData": [{"name": topic, "partitionData": [partition]}]})
        if topic == "t":
            assert writer.ask("Metadata", 8, {"topics": []})["topics"] == []
    assert store.log("t").log_end_offset == 302
    with pytest.raises(ConnectionResetError):
        writer.frame()


def test_a_producer_id_for_each(writer: RawClient) -> None:
    ids = {writer.ask("InitProducerId", 1, {"transactionalId": None})["producerId"] for _ in range(10)}
    assert len(ids) == 10
    assert min(ids) >= 0


def test_topics(store: kstore.LogStore, written: Server) -> None:
    """Topics and configurations as administrators change them."""
    admin = AdminClient({"bootstrap.servers": written.bootstrap_servers})

    def result(futures: dict[Any, Any]) -> int:
        """The code of the only result."""
        (future,) = futures.values()
        try:
            future.result(10)
        except confluent_kafka.KafkaException as e:
            return int(e.args[0].code())
        return 0

    create, delete = admin.create_topics, admin.delete_topics
    assert result(create([NewTopic("new", 3, 1, config={"retention.ms": "1000"})])) == 0
    assert store.topics["new"] == [0, 1, 2]
    assert store.describe("new").options == {"retention_ms": 1000}
    assert result(create([NewTopic("new", 3, 1)])) == 36
    assert result(create([NewTopic("t.x", 1, 1)])) == 0
    assert result(create([NewTopic("t_x", 1, 1)])) == 17
    assert result(create([NewTopic("../x", 1, 1)])) == 17
    assert result(create([NewTopic("y", 1, 2)])) == 38
    assert result(create([NewTopic("y", 0, 1)])) == 37
    assert result(create([NewTopic("y", 1, 1, config={"retention.ms": "no"})])) == 40
    assert result(create([NewTopic("y", 1, 1, config={"no.such": "1"})])) == 40
    assert result(create([NewTopic("y", 1, 1)], validate_only=True)) == 0
    assert result(admin.create_partitions([NewPartitions("new", 5)])) == 0
    assert store.topics["new"] == [0, 1, 2, 3, 4]
    assert result(admin.create_partitions([NewPartitions("new", 5)])) == 37
    assert result(admin.create_partitions([NewPartitions("no", 5)])) == 3

    def alter(name: str, *changes: tuple[str, str | None, AlterConfigOpType]) -> int:
        entries = [ConfigEntry(key, value, incremental_operation=how) for key, value, how in changes]
        return result(
            admin.incremental_alter_configs([ConfigResource("topic", name, incremental_configs=entries)])
        )

    how = AlterConfigOpType
    assert alter("new", ("cleanup.policy", "compact", how.APPEND), ("segment.ms", "99999", how.SET)) == 0
    assert store.describe("new").options == {
        "retention_ms": 1000,
        "cleanup_policy": ("delete", "compact"),
        "segment_ms": 99999,
    }
    assert alter("new", ("cleanup.policy", "delete", how.SUBTRACT), ("retention.ms", None, how.DELETE)) == 0
    assert store.describe("new").options == {"cleanup_policy": ("compact",), "segment_ms": 99999}
    assert alter("new", ("segment.ms", "1", how.APPEND)) == 40
    assert alter("new", ("segment.ms", "x", how.SET)) == 40
    assert alter("no", ("segment.ms", "1", how.SET)) == 3
    assert store.describe("new").options == {"cleanup_policy": ("compact",), "segment_ms": 99999}

    def delete_records(offset: int) -> tuple[int, int]:
        (future,) = admin.delete_records([confluent_kafka.TopicPartition("t", 0, offset)]).values()
        try:
            return 0, future.result(10).low_watermark
        except confluent_kafka.KafkaException as e:
            return int(e.args[0].code()), -1

    assert delete_records(120) == (0, 120)
    assert delete_records(500) == (1, -1)
    assert store.log("t").log_start_offset == 120
    assert result(delete(["new"])) == 0
    assert result(delete(["new"])) == 3
    assert store.topics.keys() == {"t", "t.x"}


def test_whole_configurations(store: kstore.LogStore, writer: RawClient) -> None:
    store.alter_topic("t", retention_ms=5, segment_ms=70_000)
    configs = [{"name": "segment.ms", "value": "80000"}]
    resources = [{"resourceType": 2, "resourceName": "t", "configs": configs}]
    (answer,) = writer.ask("AlterConfigs", 1, {"resources": resources})["responses"]
    assert answer["errorCode"] == 0
    assert store.describe("t").options == {"segment_ms": 80_000}


@pytest.mark.parametrize("creates", [True, False])
def test_automatic_topics(store: kstore.LogStore, creates: bool) -> None:
    with kstore.serve(store, create_topics=creates) as server, RawClient(server.bootstrap_servers) as client:
        for allowed in (False, creates):
            values = {"topics": [{"name": "auto"}], "allowAutoTopicCreation": allowed}
            (topic,) = client.ask("Metadata", 8, values)["topics"]
            assert topic["errorCode"] == (0 if allowed else 3)
        (topic,) = client.ask("Metadata", 8, {"topics": [{"name": "a b"}], "allowAutoTopicCreation": True})[
            "topics"
        ]
        assert topic["errorCode"] == 17
    assert ("auto" in store.topics) == creates
