"""A store becomes a part of a real broker, which finds each record, log start and position as in the store."""

import shlex
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.broker import clients
from tests.broker.conftest import MakeNode
from tests.broker.node import Node

GROUPS = ("billing", "mailer", "statistics", "kip848", "workers")
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}


def make_store(path: Path) -> None:
    """A store with log starts, compaction, unclean stops, and groups."""
    for _ in range(3):  # each begins a leader epoch
        store = kstore.LogStore(path, mode="a", background=False)
        if not store.topics:
            store.create_topic("orders", 3, retention_ms=-1, max_message_bytes=2_000_000)
            store.create_topic("users", 1, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
            store.create_topic("idle", 1, retention_ms=-1)
        numbers = [b"%d" % number for number in range(2000)]
        store.extend("orders", numbers, numbers)
        store.extend("users", numbers, [b"%d" % (number % 50) for number in range(2000)])
        store.log("users").roll()  # type: ignore[attr-defined]
        store.flush()
        store.abandon()
    with kstore.LogStore(path, mode="a", background=False) as store:
        store.log("users").compact()  # type: ignore[attr-defined]
        store.log("orders", 1).delete_records(777)  # type: ignore[attr-defined]
        for position, group in enumerate(GROUPS):
            with store.cursor(group, ["orders"]) as cursor:
                records = iter(cursor)
                for _ in range(position * 500 + 1):
                    cursor.commit(next(records))
        with store.cursor("late", ["idle"]) as cursor:
            assert cursor is not None


def told(path: Path) -> dict[str, Any]:
    with kstore.LogStore(path) as store:
        logs = {tp: store.log(*tp) for tp in store.partitions if not tp.topic.startswith("__")}
        return {
            "bounds": {tp: (log.log_start_offset, log.log_end_offset) for tp, log in logs.items()},
            "rows": {
                tp: [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in log]
                for tp, log in logs.items()
            },
            "positions": {
                group: {tp: position.offset for tp, position in positions.items()}
                for group, positions in store.cursors().items()
            },
        }


def run(node: Node, commands: tuple[str, ...]) -> None:
    """Runs the printed commands as a user would."""
    for command in commands:
        name, *arguments = shlex.split(command)
        node.tool(TOOLS[name], *arguments)


def check(node: Node, expected: dict[str, Any]) -> None:
    assert node.complaints() == []
    assert node.recovered() == []
    assert not [path for home in node.log_dirs for path in home.iterdir() if path.name.endswith("-stray")]
    for tp, bounds in expected["bounds"].items():
        assert clients.bounds(node, *tp) == bounds, tp
        assert [tuple(row) for row in clients.records(node, *tp)] == expected["rows"][tp], tp
    for group, positions in expected["positions"].items():
        for tp, offset in positions.items():
            assert clients.committed(node, group, *tp) == offset, (group, tp)


@pytest.mark.parametrize("directories", [1, 2])
def test_a_store(directories: int, make_node: MakeNode, tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    expected = told(tmp_path / "store")
    node = make_node(directories=directories).start()
    with pytest.raises(kstore.LogLockedError):
        kstore.adopt(tmp_path / "store", node.log_dirs)
    node.stop()
    plan = kstore.adopt(tmp_path / "store", node.log_dirs, bootstrap_server=node.bootstrap)
    assert [command.split()[0] for command in plan.commands] == [
        *["kafka-topics.sh"] * 3,
        "kafka-consumer-groups.sh",
    ]
    assert not plan.is_ready
    node.start()
    run(node, plan.commands)
    node.stop()

    planned = kstore.adopt(tmp_path / "store", node.log_dirs, dry_run=True)
    assert planned.commands == ()
    done = kstore.adopt(tmp_path / "store", node.log_dirs)
    assert (done.partitions, done.positions) == (planned.partitions, planned.positions)
    assert told(tmp_path / "store") == expected
    again = kstore.adopt(tmp_path / "store", node.log_dirs)
    assert again.positions == {}
    assert "orders-0 is adopted already" in again.notes
    assert not list(tmp_path.rglob("*-delete"))

    node.start()
    check(node, expected)
    for tp in expected["bounds"]:
        clients.produce(node, tp.topic, [b"more"])
    node.stop()
    node.start()
    assert node.complaints() == []
    with kstore.open(node.partition("users")) as log:
        assert {epoch for epoch, _ in log.leader_epochs}.issuperset({0})


def test_other_options(make_node: MakeNode, tmp_path: Path) -> None:
    """A topic that was made without its options is not adopted before they are set."""
    with kstore.LogStore(tmp_path / "store", mode="a", background=False) as store:
        store.create_topic("t", 2, retention_ms=-1, cleanup_policy="compact,delete")
        store.extend("t", [b"v"] * 10, [b"k"] * 10)
    node = make_node().start()
    clients.create(node, "t")
    node.stop()
    plan = kstore.adopt(tmp_path / "store", node.log_dirs[0], bootstrap_server=node.bootstrap)
    assert [command.split()[0] for command in plan.commands] == ["kafka-topics.sh", "kafka-configs.sh"]
    node.start()
    run(node, plan.commands)
    node.stop()
    assert kstore.adopt(tmp_path / "store", node.log_dirs[0]).commands == ()
    expected = told(tmp_path / "store")
    node.start()
    check(node, expected)
