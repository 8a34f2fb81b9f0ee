"""After a power cut at any moment of a writer's life, nothing that was promised is lost, and nothing comes back.

`KSTORE_CRASH_STATES=N` tries N lives of each kind, of at least 500 calls each, with every moment and every state of them,
on all processors; with `KSTORE_CRASH_MOMENTS=M` every state of about M moments of each life. Otherwise a few of each are
sampled. `KSTORE_CRASH_SEED` repeats the run that a failure names.
"""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from kstore.testing.power_cuts import State, crash_states
from kstore.testing.recorder import Trace
from tests.crash_states.judge import Judge
from tests.crash_states.lives import live
from tests.crash_states.promises import Promise
from tests.helpers.children import JOBS, run_all, say

LIVES = int(os.environ.get("KSTORE_CRASH_STATES", "0"))
SEED = os.environ.get("KSTORE_CRASH_SEED") or "1"  # another one for other lives
STEPS = 30
CALLS = 500 if LIVES else 0  # of one life at least
MOMENTS = int(os.environ.get("KSTORE_CRASH_MOMENTS", "0")) or (None if LIVES else 60)  # of one life
MOST = None if LIVES else 1  # states of one model at one moment
LATER = (
    (20, 5) if LIVES and MOMENTS is None else (4, 2) if LIVES else (2, 1)
)  # lives after one, second and third
A_DAY = 86_400.0  # s


def recorded(scratch: Path, seed: str, before: State | None = None, earlier: Trace | None = None) -> Trace:
    """A life after the earlier one was left in this state; its record."""
    root = Path(tempfile.mkdtemp(dir=scratch))
    try:
        if before is None or earlier is None:
            return live(root, seed, STEPS, calls=CALLS)
        before.image.write_to(root)
        value: Promise = before.value
        return live(root, seed, STEPS // 2, earlier.setting, value)
    finally:
        shutil.rmtree(root)


def check(scratch: Path, seed: str, trace: Trace) -> int:
    """Judges the states of a life; how many."""
    if not LIVES:
        return judge_part(scratch, seed, trace, 0, 1)

    def work(part: int) -> Callable[[], None]:
        return lambda: say(f"states {judge_part(scratch, seed, trace, part, JOBS)}")

    count = 0
    for _, ended in run_all([(part, work(part)) for part in range(JOBS)], limit=A_DAY):
        assert not ended.wrong, ended.text
        count += int(ended.text.rpartition("states ")[2])
    return count


def judge_part(scratch: Path, seed: str, trace: Trace, part: int, parts: int) -> int:
    """The same for one of so many parts. What has the same content is in the same part, and is opened once."""
    judge = Judge(scratch)
    count = 0
    for state in crash_states(trace, most=MOST, moments=MOMENTS, seed=seed):
        if state.image.digest()[0] % parts != part:
            continue
        count += 1
        wrong = judge.judge(state.image, state.value, trace.setting, ordered=state.model == "ordered")
        assert not wrong, report(trace, state, seed, wrong)
    return count


def report(trace: Trace, state: State, seed: str, wrong: list[str]) -> str:
    """Where it went wrong, for who mends it."""
    calls = [f"  {at} {call}" for at, call in enumerate(trace.calls[: state.at + 1])][-40:]
    return "\n".join(
        [
            f"KSTORE_CRASH_SEED={SEED}, life {seed}, {trace.setting}",
            f"after call {state.at}, {state.value}",
            f"{state.model}: {state.text}",
            *wrong,
            *calls,
        ]
    )


def some(trace: Trace, count: int, seed: str) -> Iterator[State]:
    """So many states of a life, to begin another one from."""
    every = list(crash_states(trace, most=1, moments=4 * count, seed=seed))
    return islice(random.Random(seed).sample(every, len(every)), count)


@pytest.mark.parametrize("number", range(LIVES or 4))
def test_one_life(ram: Path, number: int, tried: Callable[[int], None]) -> None:
    seed = f"{SEED}.{number}"
    trace = recorded(ram, seed)
    assert len(trace.calls) >= CALLS
    states = check(ram, seed, trace)
    assert states > 50
    tried(states)


@pytest.mark.parametrize("number", range(LIVES or 2))
def test_two_lives(ram: Path, number: int, tried: Callable[[int], None]) -> None:
    seed = f"{SEED}.{number}.two"
    first = recorded(ram, seed)
    for i, state in enumerate(some(first, LATER[0], seed)):
        states = check(ram, f"{seed}.{i}", recorded(ram, f"{seed}.{i}", state, first))
        assert states > 0
        tried(states)


@pytest.mark.parametrize("number", range(LIVES or 1))
def test_three_lives(ram: Path, number: int, tried: Callable[[int], None]) -> None:
    seed = f"{SEED}.{number}.three"
    first = recorded(ram, seed)
    for i, state in enumerate(some(first, LATER[1], seed)):
        second = recorded(ram, f"{seed}.{i}", state, first)
        for j, later in enumerate(some(second, LATER[1], seed)):
            states = check(ram, f"{seed}.{i}.{j}", recorded(ram, f"{seed}.{i}.{j}", later, second))
            assert states > 0
            tried(states)
