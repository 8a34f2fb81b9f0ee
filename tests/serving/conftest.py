"""A store with a topic, and a server of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.serving.server import Server
from tests.serving.raw import RawClient

VALUES = [b"v%d" % number for number in range(300)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kstore.LogStore]:
    """A store with the topic t, of two partitions: 300 records in three batches in partition 0."""
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("t", 2)
        for at in range(0, 300, 100):
            store.log("t", 0).extend(VALUES[at : at + 100])
        yield store


@pytest.fixture(params=["r", "a"])
def server(store: kstore.LogStore, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the store, or of its directory, which the store goes on to write."""
    served = store if request.param == "a" else kstore.LogStore(store.path)
    with kstore.serve(served) as server:
        yield server


@pytest.fixture
def written(store: kstore.LogStore) -> Iterator[Server]:
    """A server that writes."""
    with kstore.serve(store) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[RawClient]:
    with RawClient(server.bootstrap_servers) as client:
        yield client
