"""Programs of other people on a broker: confluent-kafka (librdkafka), aiokafka, and Kafka's own in Java."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as Place
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.node import Node

LIMIT = 60  # seconds for what must come


class Row(NamedTuple):
    """A record as any reader sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def admin(node: Node) -> AdminClient:
    return AdminClient(_quiet(node))


def create(node: Node, *names: str, partitions: int = 1, **options: str) -> None:
    """Makes topics; options by Kafka's names with underscores."""
    config = {name.replace("_", "."): value for name, value in options.items()}
    client = admin(node)  # its futures end with it
    made = client.create_topics([NewTopic(name, partitions, 1, config=config) for name in names])
    for future in made.values():
        future.result(LIMIT)


def produce(
    node: Node,
    topic: str,
    values: Iterable[bytes],
    codec: str = "none",
    transaction: str = "",
    commit: bool = True,
) -> None:
    """Records with librdkafka, to partition 0; with a name in a transaction that is committed or aborted."""
    options = {"transactional.id": transaction} if transaction else {"enable.idempotence": True}
    producer = Producer(_quiet(node) | options | {"compression.type": codec, "linger.ms": 5})
    failed: list[object] = []
    if transaction:
        producer.init_transactions(LIMIT)
        producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=b"k%d" % (number % 7),
            partition=0,
            headers={"n": b"%d" % number},
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(LIMIT) == 0
    assert not failed, failed
    if transaction and commit:
        producer.commit_transaction(LIMIT)
    elif transaction:
        producer.abort_transaction(LIMIT)


def produce_async(node: Node, topic: str, values: Iterable[bytes], codec: str | None = None) -> None:
    """Records with aiokafka, to partition 0."""

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=node.bootstrap, compression_type=codec) as producer:
            for sent in [await producer.send(topic, value, b"k", partition=0) for value in values]:
                await sent

    asyncio.run(main())


def produce_java(node: Node, topic: str, values: Iterable[str]) -> None:
    """Records with Kafka's console producer."""
    lines = "".join(f"key:{value}\n" for value in values)
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    main = "org.apache.kafka.tools.ConsoleProducer"
    node.tool(main, "--bootstrap-server", node.bootstrap, "--topic", topic, *properties, given=lines)


def records(node: Node, topic: str, number: int = 0, isolation: str = "read_committed") -> list[Row]:
    """Every record of a partition with librdkafka."""
    options = {"group.id": "unused", "enable.auto.commit": False, "isolation.level": isolation}
    options["auto.offset.reset"] = "earliest"  # the log may begin later
    place = TopicPartition(topic, number, 0)
    with consuming(node, options | {"enable.partition.eof": True}) as consumer:
        consumer.assign([place])
        return [_row(message) for message in _until_end(consumer)]


def records_async(node: Node, topic: str, number: int = 0) -> list[Row]:
    """Every record of a partition with aiokafka."""

    async def main() -> list[Row]:
        place = Place(topic, number)
        options = {"isolation_level": "read_committed", "enable_auto_commit": False}
        async with AIOKafkaConsumer(bootstrap_servers=node.bootstrap, **options) as consumer:
            consumer.assign([place])
            await consumer.seek_to_beginning(place)
            end = (await consumer.end_offsets([place]))[place]
            rows = []
            while await consumer.position(place) < end:
                for found in (await consumer.getmany(timeout_ms=1000)).values():
                    rows += [Row(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found]
            return rows

    return asyncio.run(main())


def values_java(node: Node, topic: str, count: int, group: str = "") -> list[str]:
    """The values of `count` records with Kafka's console consumer, from the start or the group's position."""
    given = ("--group", group) if group else ("--partition", "0", "--offset", "earliest")
    limits = ("--max-messages", str(count), "--timeout-ms", str(LIMIT * 1000))
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    isolation = ("--isolation-level", "read_committed")
    return node.tool(
        main, "--bootstrap-server", node.bootstrap, "--topic", topic, *given, *limits, *isolation
    ).splitlines()


def read_group(node: Node, group: str, topic: str, count: int) -> list[Row]:
    """The next `count` records of a group, which then commits them; librdkafka."""
    options = {"group.id": group, "auto.offset.reset": "error", "enable.auto.commit": False}
    with consuming(node, options) as consumer:
        consumer.subscribe([topic])
        found: list[Row] = []
        until = time.monotonic() + LIMIT
        while len(found) < count and time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(_row(message))
        assert len(found) == count, f"{len(found)} of {count} records came"
        consumer.commit(asynchronous=False)
        return found


def commit(node: Node, group: str, topic: str, offset: int, number: int = 0) -> None:
    """Commits a position with librdkafka."""
    with consuming(node, {"group.id": group, "enable.auto.commit": False}) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, number, offset)], asynchronous=False)


def committed(node: Node, group: str, topic: str, number: int = 0) -> int | None:
    """What a group has committed, or None. Waits for the coordinator of a node that has just started."""
    found: list[TopicPartition] = []

    def is_told() -> bool:
        try:
            found[:] = consumer.committed([TopicPartition(topic, number)], LIMIT)
        except KafkaException as e:
            if e.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False
        return True

    with consuming(node, {"group.id": group}) as consumer:
        wait_until(is_told, f"the coordinator of {group}")
        [place] = found
        assert place.error is None, place.error
        return place.offset if place.offset >= 0 else None


@contextmanager
def consuming(node: Node, options: dict[str, object]) -> Iterator[Consumer]:
    consumer = Consumer(_quiet(node) | options)
    try:
        yield consumer
    finally:
        consumer.close()


class JavaGroup:
    """A console consumer of a group that stays: its values one by one."""

    def __init__(self, node: Node, group: str, topic: str) -> None:
        self._lines: list[str] = []
        options = (
            "--command-property",
            "auto.offset.reset=earliest",
            "--command-property",
            "auto.commit.interval.ms=100",
        )
        self._process = subprocess.Popen(
            node.command(
                "org.apache.kafka.tools.consumer.ConsoleConsumer",
                *("--bootstrap-server", node.bootstrap, "--topic", topic, "--group", group),
                *options,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def take(self, count: int) -> list[str]:
        """The next values; fewer if no more came within the limit."""
        assert self._process.stdout is not None
        watch = _Deadline(self._process)
        found = [
            line.rstrip("\n") for line in (self._process.stdout.readline() for _ in range(count)) if line
        ]
        watch.cancel()
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=LIMIT)


class _Deadline:
    """Ends a process that is silent for too long, so that whoever reads from it goes on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        import threading

        self._timer = threading.Timer(LIMIT, process.kill)
        self._timer.start()

    def cancel(self) -> None:
        self._timer.cancel()


def _quiet(node: Node) -> dict[str, object]:
    return {"bootstrap.servers": node.bootstrap, "log_level": 0}


def _until_end(consumer: Consumer) -> Iterator[Message]:
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            return
        yield message
    raise TimeoutError("the end of the partition did not come")


def _row(message: Message) -> Row:
    headers = tuple(message.headers() or ())
    return Row(message.offset(), message.timestamp()[1], message.key(), message.value(), headers)


def bounds(node: Node, topic: str, number: int = 0) -> tuple[int, int]:
    """The first offset of a partition, and the one behind its last."""
    with consuming(node, {"group.id": "unused"}) as consumer:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, number), LIMIT)
        return first, end


def delete_before(node: Node, topic: str, offset: int, number: int = 0) -> None:
    """Kafka's DeleteRecords."""
    client = admin(node)
    for future in client.delete_records([TopicPartition(topic, number, offset)]).values():
        future.result(LIMIT)


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + LIMIT
    while not is_true():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(0.1)
