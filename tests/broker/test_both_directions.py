"""The same records on both sides: written by clients through a broker, and by kstore into its directory."""

from pathlib import Path

import pytest

import kstore
from kstore.log.files.checkpoints import read_epochs
from kstore.log.files.layout import LEADER_EPOCHS
from tests.broker import clients
from tests.broker.clients import Row
from tests.broker.node import Node

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def rows(path: Path, isolation: str = "read_committed") -> list[Row]:
    """Every record of a partition, with kstore."""
    with kstore.open(path) as log:
        return [
            Row(r.offset, r.timestamp, r.key, r.value, r.headers) for r in log.records(isolation=isolation)
        ]


@pytest.fixture
def written(node: Node) -> list[str]:
    """Topics that three clients filled, with each codec, and with transactions."""
    topics = [f"codec-{codec}" for codec in CODECS] + ["async", "java", "transactions"]
    clients.create(node, *topics, segment_bytes="1048576")
    for codec in CODECS:
        clients.produce(node, f"codec-{codec}", [b"%d " % n * (n % 50) for n in range(3_000)], codec)
    clients.produce_async(node, "async", [b"%d" % n for n in range(500)], "gzip")
    clients.produce_java(node, "java", [f"value {n}" for n in range(200)])
    for number in range(6):
        values = [b"%d %d" % (number, n) for n in range(50)]
        clients.produce(node, "transactions", values, transaction=f"tx{number % 3}", commit=number % 2 == 0)
    clients.produce(node, "transactions", [b"end"])
    return topics


@pytest.mark.parametrize("how", ["running", "stop", "kill"])
def test_what_clients_wrote_is_read(node: Node, written: list[str], how: str) -> None:
    expected = {name: clients.records(node, name) for name in written}
    everything = clients.records(node, "transactions", isolation="read_uncommitted")
    if how == "stop":
        node.stop()
    elif how == "kill":
        node.kill()
    assert {name: len(found) for name, found in expected.items()} == {
        **{f"codec-{codec}": 3_000 for codec in CODECS},
        "async": 500,
        "java": 200,
        "transactions": 151,
    }
    for name, found in expected.items():
        assert rows(node.partition(name)) == found
    assert rows(node.partition("transactions"), "read_uncommitted") == everything


def test_what_kstore_wrote_is_read_by_clients(node: Node) -> None:
    """The broker starts on it without recovery or complaint, and goes on writing; so does kstore after it."""
    topics = [f"codec-{codec}" for codec in CODECS]
    clients.create(node, *topics)
    for topic in topics:
        clients.produce(node, topic, [b"from the broker %d" % n for n in range(10)])
    node.stop()
    for codec, topic in zip(CODECS, topics, strict=True):
        with kstore.open(
            node.partition(topic), "a", compression_type=codec.replace("none", "uncompressed")
        ) as log:
            log.extend([b"value %d" % n for n in range(2_000)], keys=[b"k%d" % (n % 9) for n in range(2_000)])
            log.append(b"single", b"key", headers={"h": b"v"})
    node.start()
    assert node.recovered() == []
    assert node.complaints() == []
    for topic in topics:
        clients.produce_async(node, topic, [b"once more %d" % n for n in range(10)])
        found = clients.records(node, topic)
        assert len(found) == 2_021
        assert found == rows(node.partition(topic)) == clients.records_async(node, topic)
        java = clients.values_java(node, topic, len(found))
        assert java == [(row.value or b"").decode() for row in found]
    node.stop()
    for topic in topics:
        with kstore.open(node.partition(topic), "a") as log:
            assert log.recovery.clean
            assert log.append(b"last") == 2_021


def test_groups_go_on_in_both_directions(node: Node) -> None:
    """A client's group continues as a cursor, and the cursor's position continues as a client's group."""
    clients.create(node, "t")
    clients.produce(node, "t", [b"%d" % n for n in range(30)])
    clients.commit(node, "workers", "t", 10)
    node.stop()
    with kstore.LogStore(node.log_dirs[0], mode="a") as store:
        store.import_cursors(node.log_dirs[0])
        with store.open("t", 0).cursor("workers") as cursor, cursor.batch(5) as batch:
            assert [record.offset for record in batch] == [10, 11, 12, 13, 14]
        store.export_cursors(node.log_dirs[0])
    node.start()
    assert node.complaints() == []
    assert [row.offset for row in clients.read_group(node, "workers", "t", 15)] == list(range(15, 30))


def test_the_newest_leader_epoch_is_shown_beside_a_broker(node: Node) -> None:
    """Also while nothing is appended in it."""
    clients.create(node, "t")
    clients.produce(node, "t", [b"%d" % n for n in range(5)])
    node.stop()
    node.start()
    path = node.partition("t")
    clients.wait_until(lambda: len(read_epochs(path / LEADER_EPOCHS)) == 2, "a leader of the partition")
    shown = kstore.open(path).leader_epochs
    assert [start for _, start in shown] == [0, 5]
    assert list(shown) == read_epochs(path / LEADER_EPOCHS)
