"""The writer is killed at random moments of a busy log. tests/interrupts kills at system calls."""

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import SEED, times

KILLS_OF_ONE_LOG = 8  # a larger log takes longer to read than its writer to kill
MOST_APPENDS = 200  # before a kill


def in_child(work: Callable[[int], None]) -> tuple[int, int]:
    """Does it in a child, with a pipe to this process; the child's id, and the pipe's other end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(reading)
            work(writing)
        os._exit(0)
    os.close(writing)
    return child, reading


def write_from_threads(pipe: int, directory: Path, durability: str, seed: int) -> None:
    """Appends from four threads, and writes "offset number" for each append that has returned.

    The value of number n is n in digits, and padding.
    """
    rng = random.Random(seed)
    log = kstore.open(
        directory,
        "a",
        durability=durability,
        internal_segment_bytes=rng.choice([2000, 20_000, 1 << 20]),
        segment_index_bytes=rng.choice([128, 4096, 1 << 20]),
        index_interval_bytes=rng.choice([50, 4096]),
        compression_type=rng.choice(["producer", "producer", "lz4", "zstd"]),
        segment_jitter_ms=0,
    )
    first = log.log_end_offset * 100_000

    def work(which: int) -> None:
        own = random.Random(seed * 10 + which)
        for number in range(first + which, first + (1 << 30), 4):
            values = [b"%d" % number + b"-" * own.randrange(200)]
            if own.random() < 0.2:
                values *= own.randrange(1, 30)
                offset = log.extend(values, batch_bytes=own.choice([100, 1000]))[0]
            else:
                offset = log.append(values[0], b"%d" % number)
            os.write(pipe, "".join(f"{offset + i} {number}\n" for i in range(len(values))).encode())
            if own.random() < 0.01:
                log.roll()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("number", range(times(2)))
@pytest.mark.parametrize("durability", ["none", "group", "each"])
def test_killed_at_random_moments(
    ram: Path, durability: str, number: int, tried: Callable[[int], None]
) -> None:
    """What was acknowledged stays for good; the rest is a prefix of what was tried."""
    rng = random.Random(f"{SEED} {durability} {number}")
    directory = ram / "busy-0"
    acked: dict[int, int] = {}
    for _ in range(KILLS_OF_ONE_LOG):
        seed = rng.randrange(1 << 30)
        child, pipe = in_child(lambda to, seed=seed: write_from_threads(to, directory, durability, seed))
        with os.fdopen(pipe, "rb") as said:
            lines = [said.readline() for _ in range(rng.randrange(1, MOST_APPENDS))]
            os.kill(child, signal.SIGKILL)
            lines += said.readlines()
        os.waitpid(child, 0)
        for line in lines:
            if line.endswith(b"\n"):
                offset, value = line.split()
                acked[int(offset)] = int(value)
        check(kstore.open(directory), acked)
    with kstore.open(directory, "a") as log:
        check(log, acked)
    tried(KILLS_OF_ONE_LOG)


def check(log: kstore.PartitionLog, acked: dict[int, int]) -> None:
    there = {record.offset: int((record.value or b"").partition(b"-")[0]) for record in log}
    assert acked
    assert list(there) == list(range(log.log_end_offset))
    assert {offset: there.get(offset) for offset in acked} == acked, f"SEED={SEED}"
