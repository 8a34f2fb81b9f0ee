"""The writer is killed at system calls of a fixed story, and at random moments of a busy log."""

import contextlib
import os
import pickle
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.testing import count_calls, failing
from tests.crash.story import OPTIONS, Story
from tests.helpers.effort import SEED, some, times

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


# ---- at system calls ---------------------------------------------------------------------------------------


def story_until_death(directory: Path, nth: int, how: str) -> Story | None:
    """What a writer had acknowledged that died at its nth system call; None if it lived."""

    def work(pipe: int) -> None:
        story = Story(directory)
        with failing(nth, how=how):
            for _ in story.steps():
                log, story.log = story.log, None
                os.write(pipe, pickle.dumps(story))
                story.log = log

    child, pipe = in_child(work)
    story = Story(directory)
    with os.fdopen(pipe, "rb") as said, contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            story = pickle.load(said)
    status = os.waitpid(child, 0)[1]
    story.number += 50  # appends that had begun
    return story if os.WIFSIGNALED(status) else None


@pytest.mark.parametrize("how", ["kill", "kill_half"])
def test_killed_at_calls(ram: Path, how: str, tried: Callable[[int], None]) -> None:
    total = count_calls(lambda: Story(ram / "whole-0").tell())
    killed = 0
    for nth in some(range(1, total), 25, how):
        directory = ram / f"t{nth}-0"
        story = story_until_death(directory, nth, how)
        if story is None:
            continue  # threads make the number of calls differ a little
        killed += 1
        if not list(directory.glob("*.log")):  # killed before there was one
            assert not story.acked
            continue
        story.check(kstore.open(directory))
        with kstore.open(directory, "a", **OPTIONS) as log:
            story.check(log)
            end = log.append(b"00000" + b"." * 40)
        again = kstore.open(directory)
        assert again.recovery.clean
        assert not again.recovery.findings
        assert again.get(end).offset == end
        story.check(again)
    assert killed
    tried(killed)


# ---- at other moments --------------------------------------------------------------------------------------


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
