"""The writer dies: by SIGKILL at every system call of its life, and at random moments of a busy one."""

import contextlib
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.engine.io.file import calls_made, fail_call
from tests.faults.story import OPTIONS, Story
from tests.helpers.processes import environment

KILLS = int(os.environ.get("KSTORE_CRASHES", "60"))  # `make crash` asks for more
KILLS_OF_ONE_LOG = 60  # a larger one takes longer to read again than to kill its writer


def live_and_die(directory: Path, nth: int, how: str) -> Story | None:
    """Tells the story in a child that dies at its nth system call; what it had acknowledged, None if it lived."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            story = Story(directory)
            fail_call(nth, how=how)
            for _ in story.steps():
                log, story.log = story.log, None
                os.write(writing, pickle.dumps(story))
                story.log = log
        os._exit(0)
    os.close(writing)
    told = Story(directory)
    with os.fdopen(reading, "rb") as pipe, contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            told = pickle.load(pipe)
    status = os.waitpid(child, 0)[1]
    told.number += 50  # it may have begun more than it could tell of
    return told if os.WIFSIGNALED(status) else None


@pytest.mark.parametrize("how", ["kill", "kill_half"])
def test_killed_at_every_call(ram: Path, how: str, tried: Callable[[int], None]) -> None:
    fail_call(0)
    Story(ram / "whole-0").tell()
    total = calls_made()
    for nth in range(1, total):
        story = live_and_die(ram / f"t{nth}-0", nth, how)
        if story is None:
            continue  # threads make the number of calls differ a little
        if not (ram / f"t{nth}-0").exists():
            continue
        if not list((ram / f"t{nth}-0").glob("*.log")):  # killed before there was one
            assert not story.acked
            continue
        story.check(kstore.open(ram / f"t{nth}-0"))
        with kstore.open(ram / f"t{nth}-0", "a", **OPTIONS) as log:
            story.check(log)
            end = log.append(b"00000" + b"." * 40)
        again = kstore.open(ram / f"t{nth}-0")
        assert again.recovery.clean
        assert not again.recovery.findings
        assert again.get(end).offset == end
        story.check(again)
    tried(total - 1)


@pytest.mark.parametrize("durability", ["none", "group", "each"])
def test_killed_at_random_moments(ram: Path, durability: str, tried: Callable[[int], None]) -> None:
    rng = random.Random(7)
    kills = max(KILLS // 3, 1)
    for begun in range(0, kills, KILLS_OF_ONE_LOG):
        rounds = range(begun, min(begun + KILLS_OF_ONE_LOG, kills))
        kill_again_and_again(ram / f"busy{begun}-0", durability, rounds, rng)
    tried(kills)


def kill_again_and_again(directory: Path, durability: str, rounds: range, rng: random.Random) -> None:
    """One log: what was acknowledged stays for good, the rest is a prefix of what was tried. It is removed at the end."""
    acked: dict[int, int] = {}
    for round_ in rounds:
        process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("writer.py")),
                str(directory),
                durability,
                str(round_),
            ],
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert process.stdout is not None
        process.stdout.readline()  # it is under way
        time.sleep(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read()
        process.stdout.close()
        process.wait()
        for line in rest.decode().splitlines(keepends=True):
            if line.endswith("\n"):
                offset, number = line.split()
                acked[int(offset)] = int(number)
        if round_ % 4 == 3 or round_ == rounds[-1]:
            check(kstore.open(directory), acked)
    with kstore.open(directory, "a") as log:
        check(log, acked)
    shutil.rmtree(directory)


def check(log: kstore.PartitionLog, acked: dict[int, int]) -> None:
    there = {record.offset: int((record.value or b"").partition(b"-")[0]) for record in log}
    assert list(there) == list(range(log.log_end_offset))
    for offset, number in acked.items():
        assert there.get(offset) == number, offset
