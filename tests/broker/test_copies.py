"""A real broker starts on the copy of a broker's directory, also of one that is running or was killed."""

from pathlib import Path

import pytest

import kstore
from tests.broker import clients
from tests.broker.conftest import MakeNode
from tests.broker.node import Node


def move_in(node: Node, copy: Path) -> None:
    """Puts a copy in the place of a node's log directory."""
    [home] = node.log_dirs
    home.rename(home.with_name("before"))
    copy.rename(home)


@pytest.mark.parametrize("moment", ["stopped", "running", "killed"])
def test_a_brokers_directory(moment: str, make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node().start()
    clients.create(node, "t", partitions=2, segment_bytes="1048576")
    clients.create(node, "users", cleanup_policy="compact")
    for topic in ("t", "users"):
        clients.produce(node, topic, [b"%d" % number * 100 for number in range(9000)], codec="lz4")
    clients.produce(node, "t", [b"aborted"] * 50, transaction="one", commit=False)
    clients.produce(node, "t", [b"committed"] * 50, transaction="two")
    if moment == "stopped":  # else the broker has not written it yet
        clients.delete_before(node, "t", 100)
    clients.commit(node, "group", "t", 4321)
    clients.wait_until(lambda: clients.committed(node, "group", "t") == 4321, "the commit")
    expected = {topic: clients.records(node, topic) for topic in ("t", "users")}
    if moment != "running":
        getattr(node, {"stopped": "stop", "killed": "kill"}[moment])()
    report = kstore.copy(node.log_dirs[0], tmp_path / "copy")
    assert report.gaps == []
    assert report.left_out == {}
    node.stop()

    move_in(node, tmp_path / "copy")
    node.start()
    assert node.complaints() == []
    assert node.recovered() == []
    assert not list(node.log_dirs[0].glob("*-stray"))
    for topic, rows in expected.items():
        assert clients.records(node, topic) == rows
    assert clients.bounds(node, "t")[0] == expected["t"][0].offset
    assert clients.committed(node, "group", "t") == 4321
    clients.produce(node, "t", [b"next"])
    assert clients.records(node, "t")[-1].value == b"next"
