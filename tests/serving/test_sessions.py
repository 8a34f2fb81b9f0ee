"""Groups and transactions of real clients, from the first request to the last."""

import asyncio
import time
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
import pytest

import kstore
from kstore.serving.server import Server
from kstore.testing import broker
from tests.serving.conftest import VALUES


def consumer_of(address: str, group: str, **options: object) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            **options,
        }
    )


def with_confluent(address: str, group: str, count: int) -> list[bytes]:
    consumer = consumer_of(address, group)
    consumer.subscribe(["t"])
    found = [message.value() for message in consumer.consume(count, 20)]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def with_kafka_python(address: str, group: str, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        "t", bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    found = [next(consumer).value for _ in range(count)]
    consumer.commit()
    consumer.close()
    return found


def with_aiokafka(address: str, group: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=address, group_id=group, **options
        ) as consumer:
            found = [(await asyncio.wait_for(anext(consumer), 20)).value for _ in range(count)]
            await consumer.commit()
            return found

    return asyncio.run(read())


def test_groups_go_on(written: Server) -> None:
    """One group, read by one client after the other; each goes on where the one before has committed."""
    found = []
    for read in (with_confluent, with_kafka_python, with_aiokafka, with_confluent):
        found += read(written.bootstrap_servers, "group", 50)
    assert found == VALUES[:200]


def test_members_share_the_partitions(store: kstore.LogStore, written: Server) -> None:
    store.create_topic("shared", 4)
    first, second = (consumer_of(written.bootstrap_servers, "sharing") for _ in range(2))

    def settle(*members: confluent_kafka.Consumer) -> list[int]:
        """How many partitions each member has, once they have all."""
        for _ in range(300):
            for member in members:
                member.poll(0.1)
            counts = [len(member.assignment()) for member in members]
            if sum(counts) == 4 and all(counts):
                return counts
        raise AssertionError(counts)

    first.subscribe(["shared"])
    assert settle(first) == [4]
    second.subscribe(["shared"])
    assert settle(first, second) == [2, 2]
    first.close()
    assert settle(second) == [4]
    second.close()


def committed(address: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    consumer = consumer_of(address, str(time.monotonic_ns()), **{"isolation.level": isolation})
    consumer.assign([confluent_kafka.TopicPartition("t", 1, 0)])
    found = [message.value() for message in consumer.consume(count, 20)]
    assert consumer.consume(1, 0.3) == []
    consumer.close()
    return found


def test_transactions(store: kstore.LogStore, written: Server) -> None:
    """What is committed is read, what is aborted is not; positions count with the transaction they are sent
    in."""
    address = written.bootstrap_servers
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "mover"})
    producer.init_transactions(20)
    source = consumer_of(address, "moving")
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce("t", b"%d" % number, partition=1)
        positions = [confluent_kafka.TopicPartition("t", 0, 10 + number)]
        producer.send_offsets_to_transaction(positions, source.consumer_group_metadata(), 20)
        producer.flush()
        if commits:
            producer.commit_transaction(20)
        else:
            producer.abort_transaction(20)
            (position,) = source.committed([confluent_kafka.TopicPartition("t", 0)], 20)
            assert position.offset == 10
    assert committed(address, 2) == [b"0", b"2"]
    assert committed(address, 3, "read_uncommitted") == [b"0", b"1", b"2"]
    (position,) = source.committed([confluent_kafka.TopicPartition("t", 0)], 20)
    assert position.offset == 12
    source.close()
    log = store.log("t", 1)
    assert [record.value for record in log.records(isolation="read_committed")] == [b"0", b"2"]
    assert log.last_stable_offset() == log.log_end_offset == 6


def abort_with_kafka_python(address: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=address, transactional_id="kp")
    producer.init_transactions()
    for commits in (True, False):
        producer.begin_transaction()
        producer.send("t", b"%d" % commits, partition=1).get(20)
        producer.commit_transaction() if commits else producer.abort_transaction()
    producer.close()


def abort_with_aiokafka(address: str) -> None:
    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id="ak") as producer:
            async with producer.transaction():
                await producer.send_and_wait("t", b"1", partition=1)
            await producer.begin_transaction()
            await producer.send_and_wait("t", b"0", partition=1)
            await producer.abort_transaction()

    asyncio.run(write())


@pytest.mark.parametrize("write", [abort_with_kafka_python, abort_with_aiokafka])
def test_transactions_of_others(written: Server, write: Callable[[str], None]) -> None:
    write(written.bootstrap_servers)
    assert committed(written.bootstrap_servers, 1) == [b"1"]


def test_a_producer_that_was_replaced(written: Server) -> None:
    old, new = (
        confluent_kafka.Producer({"bootstrap.servers": written.bootstrap_servers, "transactional.id": "one"})
        for _ in range(2)
    )
    old.init_transactions(20)
    old.begin_transaction()
    old.produce("t", b"old", partition=1)
    old.flush()
    new.init_transactions(20)  # aborts what is open
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        old.commit_transaction(20)
    assert caught.value.args[0].fatal()
    new.begin_transaction()
    new.produce("t", b"new", partition=1)
    new.commit_transaction(20)
    assert committed(written.bootstrap_servers, 1) == [b"new"]


def test_a_transaction_that_takes_too_long() -> None:
    """It is aborted once its time is over by the clock."""
    with broker({"t": 2}) as running:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": running.bootstrap_servers,
                "transactional.id": "slow",
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce("t", b"slow", partition=1)
        producer.flush()
        log = running.store.log("t", 1)
        running.advance(59)
        assert log.last_stable_offset() == 0
        running.advance(60)
        assert log.last_stable_offset() == log.log_end_offset == 2
        assert list(log.records(isolation="read_committed")) == []


def test_a_member_that_is_silent() -> None:
    """Its partitions go to the others once its session is over by the clock."""
    with broker({"t": 2}) as running:
        options = {"session.timeout.ms": 40_000, "heartbeat.interval.ms": 30_000}
        silent = consumer_of(running.bootstrap_servers, "g", **options)
        silent.subscribe(["t"])
        while len(silent.assignment()) < 2:
            silent.poll(0.1)
        other = consumer_of(running.bootstrap_servers, "g", **options)
        other.subscribe(["t"])
        other.poll(1)
        assert other.assignment() == []
        running.advance(41)
        for _ in range(200):
            other.poll(0.1)
            if other.assignment():
                break
            running.advance(41)
        assert len(other.assignment()) == 2
        silent.close()
        other.close()
