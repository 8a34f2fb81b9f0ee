"""What the searches of crash states share: recording a workload, judging what a power cut leaves."""

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from kstore.testing import State, Trace, crash_states
from tests.crash_states import store_workload, workload
from tests.crash_states.judge import Judge
from tests.helpers.effort import SEED

T = TypeVar("T")
STEPS = 30  # operations of a workload; of one after a power cut half as many
STORE_CALLS = 400  # system calls of a store's workload, at least
# a store's files name its directories: in each scratch directory the same names
HERE = Path("/proc/self/cwd")


def record_log(scratch: Path, seed: str, before: Trace | None = None, left: State | None = None) -> Trace:
    """The record of a workload, or of one that begins with what a power cut left of another."""
    root = Path(tempfile.mkdtemp(dir=scratch))
    try:
        if before is None or left is None:
            return workload.record(root, seed, STEPS)
        left.image.write_to(root)
        return workload.record(root, seed, STEPS // 2, before.setting, left.value)
    finally:
        shutil.rmtree(root)


def some_power_cut(trace: Trace, seed: str) -> State:
    """A state that a power cut may leave of a log; in one of two, a write is torn."""
    states = list(crash_states(trace, most=4, moments=30, seed=seed))
    torn = [state for state in states if "torn" in state.text or "zeros" in state.text]
    rng = random.Random(seed)
    return rng.choice(torn if torn and rng.random() < 0.5 else states)


def judge_log(scratch: Path, trace: Trace, states: Iterable[State], life: str) -> int:
    """Judges states of a log; how many. AssertionError for the first that is wrong."""
    judge = Judge(scratch)
    count = 0
    for count, state in enumerate(states, 1):  # noqa: B007 - it is returned
        wrong = judge.judge(state.image, state.value, trace.setting, ordered=state.model == "ordered")
        assert not wrong, explain(trace, state, life, wrong)
    return count


def record_store(scratch: Path, seed: str) -> Trace:
    """The record of a workload of a store."""
    return _within(scratch, lambda: store_workload.record(HERE, seed, STORE_CALLS))


def judge_store(scratch: Path, trace: Trace, states: Iterable[State], life: str) -> int:
    """Judges states of a store; how many. AssertionError for the first that is wrong."""
    seen: set[tuple[bytes, int]] = set()
    count = 0
    for count, state in enumerate(states, 1):  # noqa: B007 - it is returned
        key = (state.image.digest(), id(state.value))
        if key in seen:
            continue
        seen.add(key)

        def judge(state: State = state) -> list[str]:
            state.image.write_to(HERE)
            return store_workload.complaints(HERE, state.value)

        wrong = _within(scratch, judge)
        assert not wrong, explain(trace, state, life, wrong)
    return count


def _within(scratch: Path, work: Callable[[], T]) -> T:
    """Calls it in a new working directory."""
    before, root = Path.cwd(), Path(tempfile.mkdtemp(dir=scratch))
    os.chdir(root)
    try:
        return work()
    finally:
        os.chdir(before)
        shutil.rmtree(root)


def explain(trace: Trace, state: State, life: str, wrong: list[str]) -> str:
    """Where it went wrong, and how to try it again."""
    calls = [f"  {at} {call}" for at, call in enumerate(trace.calls[: state.at + 1])][-40:]
    return "\n".join(
        [
            f"SEED={SEED}, workload {life}, {trace.setting}",
            f"after call {state.at}, {state.value}",
            f"{state.model}: {state.text}",
            *wrong,
            *calls,
        ]
    )
