"""A whole cached log into a TCP connection on this machine, whose other end throws it away."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Figure, Goal, Race
from benchmarks.peers import InProcess

SINK = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
room = bytearray(1 << 20)
while head := sock.recv(8, socket.MSG_WAITALL):
    left = int.from_bytes(head, "big")
    while left:  # counted, not copied; it never sleeps, for how long waking takes is another matter
        try:
            left -= sock.recv_into(room, min(left, len(room)), socket.MSG_TRUNC | socket.MSG_DONTWAIT)
        except BlockingIOError:
            pass
    sock.sendall(b".")
"""
MOST = 128 << 20  # bytes of a turn: short ones, so that what else the machine does hits all alike


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    """A connection to the process that takes everything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen([sys.executable, "-c", SINK, str(server.getsockname()[1])])
        end, _ = server.accept()
    with end:
        yield end
    process.wait(10)


def bench_sendfile(race: Race, data: Data, sock: socket.socket) -> None:
    """Bytes until the other process has taken them all. kstore: log.send() over all segments, whole batches.
    sendfile: os.sendfile in a loop over the same files. copy: pread of 256 KiB and sendall. sendfile_cpu: the
    processor time of the sender in the same turns, of which kstore may take no more, give or take what the
    clock cannot tell."""
    log = kstore.open(data.batched.path)
    files = [segment.file() for segment in log.segments]
    sizes = [segment.size for segment in log.segments]
    size = min(MOST, log.span(0, MOST).size)
    used: dict[str, list[float]] = {}  # of each turn, nanoseconds a byte

    def counted(name: str, send: Callable[[], None]) -> InProcess[None]:
        def work(_: None) -> tuple[int, int]:
            cpu = time.process_time_ns()
            sock.sendall(size.to_bytes(8, "big"))
            send()
            used.setdefault(name, []).append((time.process_time_ns() - cpu) / size)
            assert sock.recv(1) == b"."
            return size, size

        return InProcess(name, lambda *_: None, work)

    def by_kstore() -> None:
        sent = log.send(sock, log.log_start_offset, size)
        assert sent == (size, "sendfile")

    def parts() -> Iterator[tuple[int, int]]:
        left = size
        for file, length in zip(files, sizes, strict=True):
            yield file.fileno(), min(left, length)
            left -= min(left, length)

    def by_sendfile() -> None:
        for fd, length in parts():
            at = 0
            while at < length:
                at += os.sendfile(sock.fileno(), fd, at, length - at)

    def by_copy() -> None:
        for fd, length in parts():
            for at in range(0, length, 256 << 10):
                sock.sendall(os.pread(fd, min(256 << 10, length - at), at))

    figure = race(
        "sendfile",
        "byte",
        counted("kstore", by_kstore),
        counted("sendfile", by_sendfile),
        counted("copy", by_copy),
        goals=(Goal("sendfile", speed=0.97),),
        rounds=3 * race.rounds,
    )
    laps = len(figure.samples["kstore"])
    spent = Figure("sendfile_cpu", "byte", figure.counted, goals=(Goal("sendfile", time=1.02),))
    spent.samples = {name: each[-laps:] for name, each in used.items()}  # behind those of warming up
    race.figures.append(spent)
