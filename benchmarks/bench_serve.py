"""A server of Kafka's protocol in a process of its own: fetches of 1 MiB by one client, each after the answer
to the one before; and what the process needs to start, in memory, and for consumers that wait."""

import contextlib
import os
import selectors
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess

SIZE = 1 << 20
TURN = 64  # fetches
IDLE_SECONDS = 10
HEADER = 8 + 14 + 2 + 5 + 4 + 38 + 4  # of an answer with one partition of the topic "bench"
BARE = f"""
import os, socket, struct, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sock, _ = server.accept()
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # as kstore on the loopback
file = os.open(sys.argv[1], os.O_RDONLY)
while request := sock.recv(16, socket.MSG_WAITALL):
    position, size = struct.unpack(">qq", request)
    sock.sendall(struct.pack(">i", {HEADER} - 4 + size).ljust({HEADER}, b"\\0"), socket.MSG_MORE)
    while size:
        sent = os.sendfile(sock.fileno(), file, position, size)
        position, size = position + sent, size - sent
"""


class Server:
    """A server in a process of its own, and a connection to it."""

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().strip().rpartition(":")[2])
        self._sock = socket.create_connection(("127.0.0.1", self.port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._room = bytearray(2 * SIZE)

    def ask(self, request: bytes) -> int:
        """Send a request; read the answer, and return its size without the header."""
        self._sock.sendall(request)
        (left,) = struct.unpack(">i", self._sock.recv(4, socket.MSG_WAITALL))
        size = left + 4 - HEADER
        while left:
            left -= self._sock.recv_into(self._room, min(left, len(self._room)))
        return size

    @property
    def memory(self) -> int:
        """The largest size of the process in memory, in bytes."""
        (line,) = (each for each in self._file("status").splitlines() if each.startswith("VmHWM:"))
        return int(line.split()[1]) << 10

    @property
    def cpu(self) -> float:
        """The processor time of the process until now, in seconds."""
        fields = self._file("stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _file(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()

    def close(self) -> None:
        self._sock.close()
        self._process.terminate()
        self._process.wait(20)
        self._process.stdout.close()  # type: ignore[union-attr]


def fetch(offset: int, wait_ms: int = 0) -> bytes:
    """A Fetch request of version 11."""
    body = struct.pack(">hhih", 1, 11, 7, -1) + struct.pack(">iiiibii", -1, wait_ms, 1, SIZE, 0, 0, -1)
    body += struct.pack(">ih5s", 1, 5, b"bench") + struct.pack(">iiiqqi", 1, 0, -1, offset, -1, SIZE)
    body += struct.pack(">ih", 0, 0)
    return struct.pack(">i", len(body)) + body


@pytest.fixture
def parts(data: Data) -> tuple[Path, list[tuple[int, int, int]]]:
    """A directory with the topic bench, and (offset, position, size) of parts of its one segment."""
    directory = data.work / "serve"
    value = os.urandom(50) + b"x" * 50
    with kstore.open(directory / "bench-0", "a", segment_bytes=1 << 30) as log:
        while log.segments[-1].size < 128 * SIZE:
            log.extend([value] * 5_000)
        found, offset, position = [], 0, 0
        while len(found) < TURN:
            span = log.span(offset, SIZE)
            found.append((offset, position, span.size))
            position += span.size
            offset = list(span.slices[-1].batches())[-1].next_offset
    return directory, found


def bench_serve(race: Race, parts: tuple[Path, list[tuple[int, int, int]]]) -> None:
    """kstore serve: Fetch of version 11. sendfile: a loop in Python that knows position and size, sends a
    header of the same size, and calls os.sendfile."""
    directory, places = parts
    (file,) = directory.glob("bench-0/*.log")
    ours, bare = Server("-m", "kstore", "serve", str(directory)), Server("-c", BARE, str(file))

    def contestant(name: str, server: Server, request: Callable[[int, int, int], bytes]) -> InProcess[None]:
        def work(_: None) -> tuple[int, int]:
            sizes = [server.ask(request(*place)) for place in places]
            assert min(sizes) > SIZE // 2
            return sum(sizes), TURN

        return InProcess(name, lambda *_: None, work)

    try:
        race(
            "serve: fetches of 1 MiB",
            "byte",
            contestant("kstore", ours, lambda offset, position, size: fetch(offset)),
            contestant("sendfile", bare, lambda offset, position, size: struct.pack(">qq", position, size)),
            goals=(Goal("sendfile", speed=0.9),),
        )
    finally:
        ours.close()
        bare.close()


def bench_serve_process(data: Data, note: Callable[[str], None]) -> None:
    """The goals are a first record within 0.25 s of the start, 60 MB of memory, and 2 % of a processor for
    200 consumers that wait at the end of a partition, each for half a second at a time."""
    directory = data.work / "serve-process"
    kstore.open(directory / "bench-0", "a").close()
    batch = kstore.encode_batch([(-1, None, b"x" * 100, ())])
    produce = struct.pack(">hhihhhi", 0, 7, 7, -1, -1, 1, 1000) + struct.pack(">ih5sii", 1, 5, b"bench", 1, 0)
    produce += struct.pack(">i", len(batch)) + batch
    starts = []
    for _ in range(5):
        begin = time.perf_counter()
        server = Server("-m", "kstore", "serve", "--write", str(directory))
        server.ask(struct.pack(">i", len(produce)) + produce)
        starts.append(time.perf_counter() - begin)
        server.close()
    end = kstore.open(directory / "bench-0").log_end_offset
    assert end == len(starts)
    note(f"serve: start of Python to the first produced record {sorted(starts)[2]:.3f} s")
    server = Server("-m", "kstore", "serve", "--write", str(directory))
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        request = fetch(end, 500)
        for _ in range(200):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            sock.sendall(request)
            selector.register(sock, selectors.EVENT_READ)
        until, before, asked = time.monotonic() + IDLE_SECONDS, server.cpu, 0
        while time.monotonic() < until:
            for key, _ in selector.select(0.1):
                assert key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                key.fileobj.sendall(request)  # type: ignore[union-attr]
                asked += 1
        used = server.cpu - before
    note(
        f"serve: 200 idle consumers, {asked / IDLE_SECONDS:.0f} fetches a second: "
        f"{used / IDLE_SECONDS:.1%} of a processor"
    )
    note(f"serve: memory of the process at most {server.memory / 1e6:.1f} MB")
    server.close()
