"""How soon another process reads what was appended."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

import kstore
from benchmarks.data import Data
from benchmarks.interleave import Race
from benchmarks.peers import InProcess

ECHO = """
import sys, kstore
with kstore.open(sys.argv[1]) as there, kstore.open(sys.argv[2], "a") as back:
    records = there.follow(0, records=True)
    print(flush=True)
    for record in records:
        if record.value == b"end":
            break
        back.append(record.value)
"""
ECHO_SOCKET = """
import socket, sys
sock = socket.socket(fileno=int(sys.argv[1]))
while data := sock.recv(1000):
    sock.sendall(data)
"""
MOST_NS = 200_000  # from append to read
COUNT = 500  # there and back, a turn
VALUE = b"." * 100


@pytest.fixture
def there_and_back(data: Data) -> Iterator[tuple[kstore.LogWriter, "kstore.Follower[kstore.Record]"]]:
    """A log that a process follows, which appends to another what it reads, and a follower of that."""
    shutil.rmtree(data.work / "follow", ignore_errors=True)
    paths = [data.work / "follow" / name for name in ("there-0", "back-0")]
    with kstore.open(paths[0], "a") as there:
        process = subprocess.Popen(
            [sys.executable, "-c", ECHO, *map(str, paths)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(kstore.__file__).parents[1])},
        )
        assert process.stdout is not None
        process.stdout.readline()
        yield there, kstore.open(paths[1]).follow(0, records=True)
        there.append(b"end")
        process.communicate(timeout=30)


@pytest.fixture
def echo() -> Iterator[socket.socket]:
    """A process that sends back what it gets."""
    ours, theirs = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, "-c", ECHO_SOCKET, str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )
    theirs.close()
    with ours:
        yield ours
    process.wait(10)


def bench_follow(
    race: Race, there_and_back: "tuple[kstore.LogWriter, kstore.Follower[kstore.Record]]", echo: socket.socket
) -> None:
    """From append() in one process to the Record in another, half of the way there and back (100 bytes; the
    goal is 200,000 ns). socket: the same bytes between the same two Python processes over a socket pair: what
    waking costs."""
    there, back = there_and_back

    def by_kstore(_: None) -> tuple[int, int]:
        for _ in range(COUNT):
            there.append(VALUE)
            next(back)
        return 2 * COUNT, COUNT

    def by_socket(_: None) -> tuple[int, int]:
        for _ in range(COUNT):
            echo.sendall(VALUE)
            echo.recv(1000)
        return 2 * COUNT, COUNT

    figure = race(
        "follow",
        "append",
        InProcess("kstore", lambda *_: None, by_kstore),
        InProcess("socket", lambda *_: None, by_socket),
        rounds=min(race.rounds, 11),
    )
    assert median(figure.samples["kstore"]) <= MOST_NS
