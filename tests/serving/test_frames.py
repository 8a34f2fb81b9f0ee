"""No bytes crash the server or make it hang: it answers, or closes the connection; others are served on."""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kstore
from kstore.serving.connection import Limits
from kstore.serving.protocol.apis import APIS, Api
from kstore.serving.server import Server
from kstore.serving.service import Service
from tests.helpers.effort import times
from tests.helpers.waiting import until
from tests.messages.values import values_of
from tests.serving.raw import RawClient

SMALL = Limits(frame_bytes=1 << 20, other_bytes=1 << 16, memory_bytes=1 << 20, connections=64, idle_seconds=1)
_KEYS = st.sampled_from(sorted(APIS)) | st.integers(-(2**15), 2**15 - 1)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with small limits, of a store that clients may write."""
    options = {"mode": "a", "background": False}
    with kstore.LogStore(tmp_path_factory.mktemp("fuzz") / "data", **options) as store:
        store.create_topic("t", 2)
        service = Service(store, create_topics=True, state_partitions=1)
        with Server("127.0.0.1", 0, service.handlers, SMALL, service.close) as server:
            yield server


def is_alive(server: Server) -> bool:
    with RawClient(server.bootstrap_servers) as client:
        return bool(client.ask("ApiVersions", 0, {})["apiKeys"])


def exchanged(server: Server, data: bytes) -> bytes:
    """Send bytes and no more; return what comes back until the server closes the connection."""
    host, _, port = server.bootstrap_servers.rpartition(":")
    found = b""
    with socket.create_connection((host, int(port)), timeout=20) as sock, suppress(ConnectionError):
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        while part := sock.recv(1 << 16):
            found += part
    return found


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@settings(max_examples=times(100))
@given(st.data())
def test_any_bytes(small: Server, data: st.DataObject) -> None:
    """Any bytes behind a header of any API."""
    key, version = data.draw(_KEYS), data.draw(st.integers(-1, 15))
    header = struct.pack(">hhih", key, version, 1, -1)
    exchanged(small, frame(header + data.draw(st.binary(max_size=200))))
    assert is_alive(small)


@settings(max_examples=times(100))
@given(st.data())
def test_damaged_requests(small: Server, data: st.DataObject) -> None:
    """A request with values that nobody sends, with some bytes changed or cut off."""
    api = data.draw(
        st.sampled_from([each for each in APIS.values() if each.name not in ("JoinGroup", "SyncGroup")])
    )
    version = data.draw(st.integers(api.lowest, api.highest))
    body = bytearray(api.request.write_version(data.draw(values_of(api.request, version)), version))
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2)):
        if at < len(body):
            body[at] = value
    if api.name == "Fetch":  # else it waits for up to 24 days
        body[4:8] = bytes(4)
    header = struct.pack(">hhih", api.key, version, 1, -1) + b"\0" * (version >= api.request.flexible)
    exchanged(small, frame(header + bytes(body[: data.draw(st.none() | st.integers(0, len(body)))])))
    assert is_alive(small)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, (1 << 20) + 1, 2**31 - 1])
def test_sizes(small: Server, size: int) -> None:
    """A frame of a size that is not allowed is not waited for."""
    assert exchanged(small, struct.pack(">i", size) + bytes(100)) == b""
    assert exchanged(small, struct.pack(">ih", (1 << 16) + 1, 3) + bytes(100)) == b""
    assert is_alive(small)


def test_another_protocol(small: Server) -> None:
    assert exchanged(small, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == b""


def test_huge_counts(small: Server) -> None:
    """A count of elements that the request does not have."""
    for count in (2**31 - 1, 1000):
        header = struct.pack(">hhih", 3, 1, 1, -1)
        assert exchanged(small, frame(header + struct.pack(">i", count))) == b""
    assert is_alive(small)


def test_too_many_connections(small: Server) -> None:
    """Connections above the limit are closed; when others end, there is room again."""
    clients = [RawClient(small.bootstrap_servers) for _ in range(SMALL.connections)]
    for client in clients:
        client.ask("ApiVersions", 0, {})
    with RawClient(small.bootstrap_servers) as client, pytest.raises(ConnectionError):
        client.ask("ApiVersions", 0, {})
    for client in clients:
        client.sock.close()
    for _ in range(100):
        with suppress(ConnectionError):
            if is_alive(small):
                return
    raise AssertionError("no connection is accepted any more")


def test_idle_connections(small: Server) -> None:
    with RawClient(small.bootstrap_servers) as client, pytest.raises(ConnectionResetError):
        client.frame()


def test_large_requests_share_the_memory(small: Server) -> None:
    """A request waits until there is room for it; one that never comes whole does not stop the others."""
    with RawClient(small.bootstrap_servers) as first, RawClient(small.bootstrap_servers) as second:
        first.sock.sendall(struct.pack(">i", 1 << 20) + bytes(1000))
        first.sock.close()
        records = kstore.encode_batch([(-1, None, bytes(900_000), ())])
        partitions = [{"index": 0, "records": records}]
        answer = second.ask(
            "Produce", 8, {"acks": 1, "topicData": [{"name": "t", "partitionData": partitions}]}
        )
        assert answer["responses"][0]["partitionResponses"][0]["errorCode"] == 0


def test_clients_that_go_while_they_wait_for_memory(small: Server) -> None:
    """Their connections end at once, although another client still holds the memory."""
    announced = struct.pack(">i", 1 << 20) + bytes(1000)
    first = RawClient(small.bootstrap_servers)
    first.sock.sendall(announced)
    for client in [RawClient(small.bootstrap_servers) for _ in range(SMALL.connections - 1)]:
        client.ask("ApiVersions", 0, {})  # so that the server has read what the first one sent
        client.sock.sendall(announced)
        client.sock.close()

    def is_served() -> bool:
        first.sock.sendall(b"\0")  # it is not idle
        with suppress(ConnectionError):
            return is_alive(small)
        return False

    with first:
        until(is_served)


def test_a_client_that_goes_while_it_waits(small: Server) -> None:
    with RawClient(small.bootstrap_servers) as client:
        client.send_fetch(("t", 1, 0), maxWaitMs=600_000)
    assert is_alive(small)  # leaving the fixture would take 10 minutes otherwise


@pytest.mark.parametrize("name", ["..", "../t", "a/b", "", "x" * 250, "t\0", "."])
def test_names_are_no_paths(small: Server, name: str) -> None:
    with RawClient(small.bootstrap_servers) as client:
        (topic,) = client.ask("Metadata", 8, {"topics": [{"name": name}]})["topics"]
        assert topic["errorCode"] == 17
        (found,) = client.fetch((name, 0, 0))
        assert found["errorCode"] == 3
        wanted = {"name": name, "numPartitions": 1, "replicationFactor": 1}
        (topic,) = client.ask("CreateTopics", 4, {"topics": [wanted]})["topics"]
        assert topic["errorCode"] == 17
        (topic,) = client.ask("DeleteTopics", 3, {"topicNames": [name]})["responses"]
        assert topic["errorCode"] == 3


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_refusals_are_answered(small: Server, api: Api) -> None:
    """A request of empty values is answered in each version, also one that a coordinator refuses."""
    names = {field.name for field in api.request.fields}
    for version in range(api.lowest, api.highest + 1):
        for group, timeout in (("", 10_000), ("g", 1_000), ("g", 3_600_000), ("g", 10_000)):
            values = {"groupId": group, "sessionTimeoutMs": timeout, "memberId": "unknown", "acks": 1}
            with RawClient(small.bootstrap_servers) as client:
                client.ask(api.name, version, {name: values[name] for name in names & values.keys()})
