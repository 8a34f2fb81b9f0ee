"""The options of topics that a broker made, changed and deleted are read from its directory."""

import kstore
from kstore.broker.cluster_metadata import read_cluster_metadata
from kstore.broker.topic_options import topic_options
from tests.broker import clients
from tests.broker.conftest import MakeNode
from tests.broker.node import Node


def alter(node: Node, kind: str, name: str, *words: str) -> None:
    """Sets or removes options of a topic, or of brokers, with Kafka's own program."""
    entity = ["--entity-type", kind, *(["--entity-name", name] if name else ["--entity-default"])]
    server = ["--bootstrap-server", node.bootstrap]
    node.tool("kafka.admin.ConfigCommand", *server, "--alter", *entity, *words)


def test_options_are_the_brokers(make_node: MakeNode) -> None:
    """With a snapshot of the metadata after half of the changes; also of a broker that was killed."""
    node = make_node(
        metadata_log_max_record_bytes_between_snapshots="2000", metadata_log_max_snapshot_interval_ms="1000"
    ).start()
    clients.create(node, "t", retention_ms="3600000", segment_bytes="1048576")
    clients.create(node, "gone", retention_ms="5")
    clients.create(node, *(f"more{number}" for number in range(30)))
    alter(node, "topics", "t", "--add-config", "retention.bytes=1029", "--delete-config", "segment.bytes")
    alter(node, "brokers", "", "--add-config", "log.retention.bytes=7")
    alter(node, "brokers", "1", "--add-config", "log.segment.delete.delay.ms=8")
    client = clients.admin(node)
    client.delete_topics(["gone"])["gone"].result(clients.LIMIT)
    clients.create(node, "gone")
    clients.produce(node, "t", [b"v"])
    for end in (node.kill, node.stop):
        end()
        path = node.partition("__cluster_metadata")
        metadata = read_cluster_metadata(path)
        assert len(list(path.glob("*.checkpoint"))) > 1
        assert metadata.topics["t"].replicas == {0: (1,)}
        assert metadata.topics["t"].id == kstore.open(node.partition("t")).topic_id()
        found = topic_options(node.partition("t"))
        assert found.source == "broker"
        assert found.options == {"retention.ms": "3600000", "retention.bytes": "1029"}
        assert found.broker_options["log.retention.bytes"] == "7"
        assert found.broker_options["log.segment.delete.delay.ms"] == "8"
        assert topic_options(node.partition("gone")).options == {}
        assert topic_options(node.partition("gone")).config().retention_bytes == 7
        node.start()
