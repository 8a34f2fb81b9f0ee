"""A broker that starts on a directory after kstore finds what it would have left itself."""

from pathlib import Path

import pytest

import kstore
from tests.broker import clients
from tests.broker.conftest import MakeNode
from tests.broker.node import Node

# four of them with a negative Java hash
GROUPS = ("billing", "mailer", "statistics", "kip848", "workers", "reports")


def committed(node: Node) -> dict[str, int | None]:
    return {group: clients.committed(node, group, "t") for group in GROUPS}


def write_positions(partition: Path) -> dict[str, int]:
    """Commits a position for each group with kstore; what was committed."""
    expected = {}
    for number, group in enumerate(GROUPS):
        with kstore.open(partition).cursor(group) as cursor, cursor.batch(number + 1):
            expected[group] = number + 1
    return expected


def test_every_exported_group_is_found(node: Node) -> None:
    """Also the groups whose name has a negative hash in Java."""
    clients.create(node, "t")
    clients.produce(node, "t", [b"%d" % n for n in range(20)])
    clients.commit(node, "first", "t", 1)  # makes __consumer_offsets
    node.stop()
    expected = write_positions(node.partition("t"))
    with kstore.LogStore(node.log_dirs[0], mode="a") as store:
        store.export_cursors(node.log_dirs[0])
    node.start()
    assert committed(node) == expected


def test_an_export_to_two_log_directories(make_node: MakeNode) -> None:
    """Positions go into the partitions of __consumer_offsets that are there, in whichever directory."""
    node = make_node(directories=2).start()
    clients.create(node, "t")
    clients.produce(node, "t", [b"%d" % n for n in range(20)])
    clients.commit(node, "first", "t", 1)
    node.stop()
    expected = write_positions(node.partition("t"))
    with kstore.LogStore(*node.log_dirs, mode="a") as store:
        store.export_cursors(node.log_dirs[0], partitions=5)
    node.start()
    assert strays(node) == []
    assert committed(node) == expected


def test_an_export_to_a_broker_without_groups_is_refused(node: Node) -> None:
    """It has no topic __consumer_offsets yet: its start would set aside partitions without a topic id."""
    clients.create(node, "t")
    clients.produce(node, "t", [b"1"] * 20)
    node.stop()
    write_positions(node.partition("t"))
    with (
        kstore.LogStore(node.log_dirs[0], mode="a") as store,
        pytest.raises(ValueError, match="__consumer_offsets"),
    ):
        store.export_cursors(node.log_dirs[0])
    node.start()
    assert strays(node) == []


def test_leader_epochs_stay_the_brokers(node: Node) -> None:
    """Cursors and unclean stops of kstore begin no leader epoch; a consumer that is there goes on."""
    clients.create(node, "t")
    clients.produce(node, "t", [b"%d" % n for n in range(5)])
    node.stop()
    partition = node.partition("t")
    before = (partition / "leader-epoch-checkpoint").read_text()
    for number in range(4):
        with kstore.open(partition).cursor("reader") as cursor, cursor.batch(100) as batch:
            assert batch
        log = kstore.open(partition, "a")
        log.append(b"kstore %d" % number)
        log.abandon()
    kstore.LogStore(node.log_dirs[0], mode="a").close()
    assert (partition / "leader-epoch-checkpoint").read_text() == before
    node.start()
    assert node.complaints() == []
    with clients.JavaGroup(node, "java", "t") as group:
        assert len(group.take(9)) == 9
    clients.produce(node, "t", [b"more %d" % n for n in range(5)])
    with clients.JavaGroup(node, "java", "t") as group:
        assert group.take(5) == [f"more {n}" for n in range(5)]


def test_the_log_start_of_a_tiered_topic_stays(make_node: MakeNode, tmp_path: Path) -> None:
    """Records that were deleted from remote storage do not come back, though the local log begins later."""
    node = make_node(
        remote_log_storage_system_enable="true",
        remote_log_storage_manager_class_name="org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        remote_log_metadata_manager_listener_name="PLAINTEXT",
        remote_log_manager_task_interval_ms="500",
        rlmm_config_remote_log_metadata_topic_num_partitions="1",
        rlmm_config_remote_log_metadata_topic_replication_factor="1",
        rsm_config_dir=str(tmp_path / "remote"),
    ).start()
    clients.create(
        node,
        "t",
        remote_storage_enable="true",
        segment_bytes="1048576",
        local_retention_bytes="1",
        retention_ms="-1",
    )
    for _ in range(8):
        clients.produce(node, "t", [b"v" * 1000] * 1_000)
    clients.wait_until(lambda: local_start(node) > 3_000, "the first segments to leave the local log")
    clients.delete_before(node, "t", 3_000)
    assert clients.bounds(node, "t") == (3_000, 8_000)
    node.stop()
    checkpoint = node.log_dirs[0] / "log-start-offset-checkpoint"
    before = checkpoint.read_text()
    assert "t 0 3000" in before
    with kstore.LogStore(node.log_dirs[0], mode="a") as store:
        store.append("t", b"one more")
    assert checkpoint.read_text() == before
    node.start()
    assert clients.bounds(node, "t") == (3_000, 8_001)


def local_start(node: Node) -> int:
    return min(int(path.stem) for path in node.partition("t").glob("*.log"))


def strays(node: Node) -> list[str]:
    return sorted(path.name for home in node.log_dirs for path in home.glob("*-stray"))
