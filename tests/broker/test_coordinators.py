"""Groups and transactions go on from a real Kafka to kstore's server on its directory, and back."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Producer, TopicPartition

import kstore
from tests.broker import clients
from tests.broker.node import Node

LIMIT = 60


class Served:
    """kstore's server on a node's directories, for the functions of clients.py."""

    def __init__(self, node: Node, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.tool = node.tool
        self.command = node.command


@contextmanager
def served(node: Node) -> Iterator[Node]:
    with kstore.LogStore(*node.log_dirs, mode="a") as store, kstore.serve(store) as server:
        yield Served(node, server.bootstrap_servers)  # type: ignore[misc]


def transact(node: Node, name: str, value: bytes, group: str, offset: int, end: str = "commit") -> Producer:
    """A transaction with one record and one offset of a group, which is committed, aborted or left open."""
    producer = Producer({"bootstrap.servers": node.bootstrap, "log_level": 0, "transactional.id": name})
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "log_level": 0, "group.id": group})
    producer.init_transactions(LIMIT)
    producer.begin_transaction()
    producer.produce("t", value, partition=0)
    place = [TopicPartition("t", 0, offset)]
    producer.send_offsets_to_transaction(place, consumer.consumer_group_metadata(), LIMIT)
    consumer.close()
    assert producer.flush(LIMIT) == 0
    if end == "commit":
        producer.commit_transaction(LIMIT)
    elif end == "abort":
        producer.abort_transaction(LIMIT)
    return producer


def values(node: Node) -> list[bytes | None]:
    return [row.value for row in clients.records(node, "t")]


def test_groups_and_transactions_go_on(node: Node) -> None:
    clients.create(node, "t")
    expected: list[bytes | None] = [b"%d" % number for number in range(20)]
    clients.produce(node, "t", [b"%d" % number for number in range(20)])
    clients.commit(node, "librdkafka", "t", 3)
    clients.commit(node, "java", "t", 5)
    open_ones = []
    for step, on_kstore in enumerate((False, True, False)):
        if step == 0:
            open_ones.append(step_of(node, step, expected))
        elif on_kstore:
            node.kill()
            with served(node) as server:
                open_ones.append(step_of(server, step, expected))
        else:
            node.start()
            assert node.recovered() == []
            assert node.complaints() == []
            open_ones.append(step_of(node, step, expected))
    node.stop()
    assert not [path for home in node.log_dirs for path in home.glob("*-stray")]


def step_of(node: Node, step: int, expected: list[bytes | None]) -> Producer:
    """Goes on where the step before ended, and leaves a transaction open."""
    if step:
        assert clients.committed(node, "committed", "t") == step - 1
        assert clients.committed(node, "aborted", "t") is None
        assert clients.committed(node, "open", "t") is None
    rows = clients.read_group(node, "librdkafka", "t", 2)
    assert [row.value for row in rows] == expected[3 + 2 * step : 5 + 2 * step]
    java = clients.values_java(node, "t", 2, "java")
    assert [each.encode() for each in java] == expected[5 + 2 * step : 7 + 2 * step]
    transact(node, "one", b"committed %d" % step, "committed", step)
    transact(node, "two", b"aborted %d" % step, "aborted", step, "abort")
    clients.produce_java(node, "t", [f"java {step}"])
    expected += [b"committed %d" % step, b"java %d" % step]
    left = transact(node, "three", b"open %d" % step, "open", step, "leave")
    assert values(node)[: len(expected)] == expected
    return left
