"""Nodes of a real Kafka for the tests of this folder, which are skipped where it cannot be had."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.broker.node import Node, missing
from tests.helpers.processes import environment

HERE = Path(__file__).parent
CLIENTS = ("confluent_kafka", "aiokafka")  # `make nightly` installs them, `make test` does without
collect_ignore_glob = [] if all(map(find_spec, CLIENTS)) else ["test_*.py"]


class MakeNode(Protocol):
    def __call__(self, directories: int = 1, **properties: str) -> Node: ...


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)
            item.add_marker(pytest.mark.timeout(1800))  # the first one fetches Kafka


@pytest.fixture(scope="session", autouse=True)
def needs() -> None:
    """Skips the tests where Java or Kafka's jars are missing."""
    if why := missing():
        pytest.skip(why)


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes nodes, not started yet, with properties by Kafka's names with underscores, and kills them."""
    with ExitStack() as stack:

        def make(directories: int = 1, **properties: str) -> Node:
            given: dict[str, Any] = {name.replace("_", "."): value for name, value in properties.items()}
            made = Node(tmp_path / f"node{len(list(tmp_path.glob('node*')))}", directories, given)
            stack.callback(made.kill)
            return made

        yield make


@pytest.fixture
def node(make_node: MakeNode) -> Node:
    """A node that runs, with one log directory."""
    return make_node().start()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a new broker with Kafka's limit of a batch."""
    home = tmp_path_factory.mktemp("broker")
    with Node(home / "node", properties={"message.max.bytes": "1048588"}) as node:
        yield node.bootstrap


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a new `kstore serve --write`."""
    store: Path = tmp_path_factory.mktemp("served") / "store"
    command = [sys.executable, "-P", "-m", "kstore", "serve", "--write", str(store)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    )
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    assert process.wait(60) == 0
    process.stdout.close()
