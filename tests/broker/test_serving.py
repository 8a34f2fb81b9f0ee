"""A real broker goes on with what clients wrote to `kstore.serve`, and the reverse: records, positions of
groups, producers and transactions."""

import time
from contextlib import suppress

import confluent_kafka

import kstore
from tests.broker.clients import admin, create
from tests.broker.conftest import MakeNode
from tests.broker.node import Node

LIMIT = 60


def move(address: str, numbers: range, *, commits: bool = True) -> None:
    """A transaction of records in `out`, with the position of the group `movers` in `in`."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": "mover"})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "movers"})
    producer.init_transactions(LIMIT)
    producer.begin_transaction()
    for number in numbers:
        producer.produce("out", b"%d" % number, partition=0)
    positions = [confluent_kafka.TopicPartition("in", 0, numbers.stop)]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), LIMIT)
    producer.flush(LIMIT)
    if commits:
        producer.commit_transaction(LIMIT)
    consumer.close()


def read(address: str, group: str, count: int) -> list[bytes]:
    """The next records of `out` for a group, whose position is committed."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["out"])
    found = [message.value() for message in consumer.consume(count, LIMIT)]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def position(address: str, expected: int) -> int:
    """The position of the group `movers`, asked for until it is the expected one: a broker that has just
    started loads it first, and a server that only reads notices a commit within a second."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "movers"})
    found = -1
    until = time.monotonic() + LIMIT
    while found != expected and time.monotonic() < until:
        with suppress(confluent_kafka.KafkaException):
            (place,) = consumer.committed([confluent_kafka.TopicPartition("in", 0)], LIMIT)
            found = int(place.offset)
        time.sleep(0.1)
    consumer.close()
    return found


def values(numbers: range) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_in_turns(make_node: MakeNode) -> None:
    """A broker begins, kstore serves its directory, and the broker goes on, twice over."""
    node: Node = make_node().start()
    create(node, "in", "out")
    move(node.bootstrap, range(10))
    assert read(node.bootstrap, "readers", 5) == values(range(5))
    node.stop()
    for first in (10, 30):
        with kstore.LogStore(node.log_dirs[0], mode="a") as store, kstore.serve(store) as server:
            assert position(server.bootstrap_servers, first) == first
            move(server.bootstrap_servers, range(first, first + 10))
            assert position(server.bootstrap_servers, first + 10) == first + 10
            assert read(server.bootstrap_servers, "readers", 10) == values(range(first - 5, first + 5))
        node.start()
        assert node.recovered() == []
        assert node.complaints() == []
        assert position(node.bootstrap, first + 10) == first + 10
        move(node.bootstrap, range(first + 10, first + 20))
        assert read(node.bootstrap, "readers", 10) == values(range(first + 5, first + 15))
        node.stop()


def test_an_open_transaction(make_node: MakeNode) -> None:
    """One that a client of kstore left open is aborted when its producer begins anew on the broker."""
    node = make_node().start()
    create(node, "in", "out")
    move(node.bootstrap, range(1))
    node.stop()
    with kstore.LogStore(node.log_dirs[0], mode="a") as store, kstore.serve(store) as server:
        move(server.bootstrap_servers, range(1, 5), commits=False)
    node.start()
    move(node.bootstrap, range(5, 7))
    assert read(node.bootstrap, "all", 3)[:1] == values(range(1))
    assert position(node.bootstrap, 7) == 7
    assert admin(node).list_topics(timeout=LIMIT).topics.keys() >= {"in", "out"}
    node.stop()
    log = kstore.LogStore(node.log_dirs[0]).log("out")
    committed = [record.value for record in log.records(isolation="read_committed")]
    assert committed == values(range(1)) + values(range(5, 7))


def test_beside_a_broker(make_node: MakeNode) -> None:
    """Clients read the directory of a broker that runs, with its new records and the positions of its
    groups."""
    node = make_node().start()
    create(node, "in", "out")
    move(node.bootstrap, range(10))
    assert read(node.bootstrap, "readers", 10) == values(range(10))
    with kstore.serve(kstore.LogStore(node.log_dirs[0])) as server:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": server.bootstrap_servers, "group.id": "readers"}
        )
        consumer.assign([confluent_kafka.TopicPartition("out", 0, 0)])
        assert [each.value() for each in consumer.consume(10, LIMIT)] == values(range(10))
        move(node.bootstrap, range(10, 15))
        assert [each.value() for each in consumer.consume(5, LIMIT)] == values(range(10, 15))
        (found,) = consumer.committed([confluent_kafka.TopicPartition("out", 0)], LIMIT)
        assert found.offset == 10
        consumer.close()
        assert position(server.bootstrap_servers, 15) == 15
