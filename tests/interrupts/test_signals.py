"""SIGINT at random moments of every operation, between its system calls and within its waits."""

import os
import random
import shutil
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.helpers.children import LIMIT, run, say
from tests.interrupts.injector import InjectedInterrupt, place
from tests.interrupts.operation import Operation
from tests.interrupts.points import ALL, EVERY, SEED, interrupted_by

TRIES = 300 if ALL else 3


def in_operation(frame: FrameType | None, operation: Operation[Any]) -> bool:
    """Whether the operation has begun, and not ended."""
    while frame is not None:
        if frame.f_code is operation.act.__code__:
            return True
        frame = frame.f_back
    return False


def try_often(operation: Operation[Any], directory: Path, seed: int) -> None:
    """Sends a signal to this process after a random time, again and again, each time with another log."""
    rng = random.Random(seed)
    begun = time.perf_counter()
    world = operation.world(directory / "timed")
    begun = time.perf_counter()
    operation.act(world)
    seconds = time.perf_counter() - begun
    world.go_on()

    def handle(_: int, frame: FrameType | None) -> None:
        if in_operation(frame, operation):
            assert frame is not None
            say(f"at {place(frame)}")
            raise InjectedInterrupt("Injected")

    signal.signal(signal.SIGALRM, handle)
    for n in range(TRIES):
        say(f"try {n}")
        interrupted_by(
            operation,
            directory / str(n),
            lambda: signal.setitimer(signal.ITIMER_REAL, max(rng.random() * seconds * 1.2, 1e-6)),
            lambda: signal.setitimer(signal.ITIMER_REAL, 0),
        )
        shutil.rmtree(directory / str(n))


@pytest.mark.skipif(not ALL, reason="random moments: KSTORE_INTERRUPTS=all")
@pytest.mark.parametrize("name", EVERY)
def test_signalled(ram: Path, name: str) -> None:
    seed = int(os.environ.get("KSTORE_INTERRUPTS_SEED", "0")) or random.randrange(1 << 30)
    ended = run(lambda: try_often(EVERY[name], ram, seed), LIMIT + TRIES)
    assert not ended.wrong, (
        f"KSTORE_INTERRUPTS_SEED={seed} (default {SEED}): {ended.wrong}\n{ended.text[-3000:]}"
    )
