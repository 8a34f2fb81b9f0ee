"""A consumer that repeats its fetch at the end of a partition is answered by one thread for all. It gets the
same answers, and each record at once."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

import kstore
from kstore.engine.io.synchronization import EventFd
from kstore.serving.connection import Connection, Limits
from kstore.serving.idle_fetches import IdleFetch, IdleFetches
from kstore.serving.protocol.apis import FETCH
from kstore.serving.server import Server
from kstore.serving.service import Service
from tests.helpers.processes import run_python
from tests.helpers.waiting import until
from tests.serving.raw import RawClient

END = ("t", 0, 300)


@contextmanager
def counting(store: kstore.LogStore) -> Iterator[tuple[Server, list[int]]]:
    """A server, and the fetches that its handler was called for."""
    service = Service(store)
    handlers, handled = dict(service.handlers), []

    def fetch(values: dict[str, Any], version: int, connection: Connection) -> dict[str, Any] | None:
        handled.append(version)
        return service.handlers[FETCH](values, version, connection)

    handlers[FETCH] = fetch
    with Server("127.0.0.1", 0, handlers, Limits(), service.close) as server:
        yield server, handled


@pytest.fixture(params=["r", "a"])
def served(store: kstore.LogStore, request: pytest.FixtureRequest) -> Iterator[tuple[Server, list[int]]]:
    with counting(store if request.param == "a" else kstore.LogStore(store.path)) as found:
        yield found


def log(store: kstore.LogStore) -> kstore.LogWriter:
    return cast("kstore.LogWriter", store.log("t", 0))


def poll(client: RawClient, times: int = 1, version: int = 11) -> None:
    """Fetch at the end, and find nothing."""
    for _ in range(times):
        (found,) = client.fetch(END, version=version, maxWaitMs=50)
        assert (found["errorCode"], found["highWatermark"], found["records"]) == (0, 300, b"")


@pytest.mark.parametrize("version", [4, 11])
def test_repeated_fetches(store: kstore.LogStore, served: tuple[Server, list[int]], version: int) -> None:
    """Idle consumers cost no call of the handler; the next record ends the wait of all of them."""
    server, handled = served
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.bootstrap_servers)) for _ in range(3)]
        for client in clients:
            poll(client, 20, version)
        assert len(handled) < 10
        for client in clients:
            client.send_fetch(END, version=version, maxWaitMs=50)
        log(store).append(b"late")
        for client in clients:
            (found,) = client.receive_fetch(version)
            while not found["records"]:  # the append came after the answer
                (found,) = client.fetch(END, version=version, maxWaitMs=50)
            assert found["highWatermark"] == 301


def test_the_next_record_ends_a_long_wait(store: kstore.LogStore, served: tuple[Server, list[int]]) -> None:
    server, handled = served
    options = {"maxWaitMs": 2_000}
    with RawClient(server.bootstrap_servers) as client:
        assert client.fetch(END, **options)[0]["records"] == b""
        client.send_fetch(END, **options)
        until(lambda: any(each.name == "kstore-serve-idle" for each in threading.enumerate()))
        log(store).append(b"late")
        assert client.receive_fetch()[0]["records"]
        assert len(handled) == 2


def test_changes_end_the_wait(store: kstore.LogStore) -> None:
    """A topic that is deleted, and a partition that is truncated, are errors at the next fetch."""
    with counting(store) as (server, _), RawClient(server.bootstrap_servers) as client:
        poll(client, 3)
        log(store).truncate_to(200)
        assert client.fetch(END, maxWaitMs=50)[0]["errorCode"] == 1
        log(store).extend([b"v"] * 100)
        poll(client, 3)
        store.delete_topic("t")
        assert client.fetch(END, maxWaitMs=50)[0]["errorCode"] == 3


def test_a_shared_store(tmp_path: Path) -> None:
    """Appends of other processes are not reported, so partitions are read again each half second."""
    append = "import sys, kstore\nkstore.LogStore(sys.argv[1], mode='a', shared=True).append('t', b'late')"
    with kstore.LogStore(tmp_path, mode="a", shared=True, background=False) as store:
        assert store.is_shared
        store.create_topic("t")
        with counting(store) as (server, _), RawClient(server.bootstrap_servers) as client:
            for _ in range(2):
                assert client.fetch(("t", 0, 0), maxWaitMs=600)[0]["records"] == b""
            assert run_python(append, tmp_path).returncode == 0
            assert client.fetch(("t", 0, 0), maxWaitMs=600)[0]["records"]


def test_other_requests(store: kstore.LogStore) -> None:
    """Another request after a repeated fetch, one that comes before its answer, and a fetch in two pieces."""
    with counting(store) as (server, _), RawClient(server.bootstrap_servers) as client:
        poll(client, 3)
        assert client.ask("Metadata", 8, {"topics": [{"name": "t"}]})["topics"][0]["name"] == "t"
        poll(client, 3)
        client.send_fetch(END, maxWaitMs=50)
        client.sock.sendall(struct.pack(">ihhihi", 14, 3, 1, 77, -1, 0))  # Metadata of no topic
        assert client.receive_fetch()[0]["errorCode"] == 0
        assert client.frame()[:4] == struct.pack(">i", 77)
        partitions = [{"partition": 0, "fetchOffset": 300, "partitionMaxBytes": 1 << 20}]
        values = {"maxWaitMs": 50, "minBytes": 1, "topics": [{"topic": "t", "partitions": partitions}]}
        for cut in (1, 4, 30, 70):
            for _ in range(3):
                assert client.ask("Fetch", 11, values)["errorCode"] == 0
            data = client.encoded("Fetch", 11, values)
            client.sock.sendall(data[:cut])
            client.sock.sendall(data[cut:])
            assert client.receive("Fetch", 11)["errorCode"] == 0


def test_clients_that_go(store: kstore.LogStore) -> None:
    """Their connections end; closing the server ends the others."""
    with counting(store) as (server, _), ExitStack() as stack:
        clients = [stack.enter_context(RawClient(server.bootstrap_servers)) for _ in range(4)]
        for client in clients:
            poll(client, 3)
        clients[0].sock.close()
        for client in clients[1:3]:
            client.send_fetch(END, maxWaitMs=50)
        clients[1].sock.close()
        server.close()
        with pytest.raises(ConnectionError):
            clients[3].frame()


def test_a_client_that_takes_nothing() -> None:
    """What it does not take is left to the thread of its connection; the answer stays whole."""
    ours, theirs = socket.socketpair()
    answer = struct.pack(">ii", 1 << 22, 5) + bytes((1 << 22) - 4)
    fetches, event = IdleFetches(), EventFd()
    fetch = IdleFetch(ours, event, b"request", answer, struct.pack(">i", 9), 0.01)
    with ours, theirs:
        with fetches.holding(fetch):
            until(lambda: not fetch.is_idle)
        fetches.close()
        found = b""
        while len(found) + len(fetch.unsent) < len(answer):
            found += theirs.recv(1 << 20)
    assert found + fetch.unsent == answer[:4] + struct.pack(">i", 9) + answer[8:]
