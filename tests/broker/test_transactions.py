"""Open transactions are those that Kafka's own tool lists, and an abort is what that tool's abort is."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

import kstore
from kstore.__main__ import main
from tests.broker import clients
from tests.broker.node import Node
from tests.helpers.markers import transactional

LONG_AGO = 1_700_000_000_000


def transactions_tool(node: Node, *words: str) -> str:
    return node.tool(
        "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", node.bootstrap, *words
    )


def hanging(node: Node) -> list[tuple[str, int, int]]:
    """Topic, partition and producer id of each transaction that Kafka says is hanging."""
    lines = transactions_tool(node, "find-hanging", "--broker-id", "1").splitlines()
    rows = [line.split() for line in lines if line.split()[1:2] == ["0"]]
    return sorted((topic, int(number), int(producer)) for topic, number, producer, *_ in rows)


def listed(node: Node) -> list[kstore.explain.OpenTransaction]:
    logs = [kstore.open(path) for path in sorted(node.log_dirs[0].glob("[tu]-0"))]
    return kstore.explain.transactions(logs, node.log_dirs)


def last_marker(path: Path) -> kstore.RecordBatch:
    return [batch for batch in kstore.open(path).batches() if batch.is_control][-1]


def test_hanging_transactions(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    clients.create(node, "t", "u")
    for topic in ("t", "u"):
        clients.produce(node, topic, [b"plain"] * 3)
    node.stop()
    for topic in ("t", "u"):
        with kstore.open(node.partition(topic), "r+") as log:
            log.append_batches(transactional((LONG_AGO, b"k", b"hangs", None), producer=4000))
    node.start()
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "pay"})
    producer.init_transactions(clients.LIMIT)
    producer.begin_transaction()
    producer.produce("t", b"open", partition=0)
    assert producer.flush(clients.LIMIT) == 0
    old, pay = listed(node)
    assert (old.producer_id, old.transactional_id, old.is_hanging) == (4000, None, True)
    assert hanging(node) == [(p.topic, p.partition, old.producer_id) for p in old.partitions]
    assert (pay.transactional_id, pay.coordinator_state, pay.is_hanging) == ("pay", "Ongoing", False)
    assert str(pay.producer_id) in transactions_tool(node, "list")
    for words in ([], ["--dry-run"]):  # a broker has the directory
        code = main(["transactions", str(node.log_dirs[0]), "--producer-id", "4000", "--abort", *words])
        assert code == (0 if words else 1)
    start = next(p.first_offset for p in old.partitions if p.topic == "u")
    transactions_tool(node, "abort", "--topic", "u", "--partition", "0", "--start-offset", str(start))
    producer.commit_transaction(clients.LIMIT)
    node.stop()
    capsys.readouterr()
    assert main(["transactions", str(node.log_dirs[0]), "--producer-id", "4000", "--abort"]) == 0
    assert capsys.readouterr().out.count("aborted") == 1
    ours, theirs = (last_marker(node.partition(topic)) for topic in ("t", "u"))
    for field in ("size", "attributes", "producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert [r.key for r in ours.records()] == [r.key for r in theirs.records()]
    assert [r.value for r in ours.records()] == [r.value for r in theirs.records()]
    node.start()
    assert hanging(node) == []
    assert listed(node) == []
    assert node.recovered() == []
    assert [row.value for row in clients.records(node, "t")] == [b"plain"] * 3 + [b"open"]
    assert [row.value for row in clients.records(node, "u")] == [b"plain"] * 3
