"""The player finds what it is for: each of these defects, put in for a while, is met within a few lives."""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kstore.testing.power_cuts import State, crash_states
from kstore.testing.recorder import Trace
from tests.crash_states import store_life
from tests.crash_states.defects import DEFECTS, STORE_DEFECTS
from tests.crash_states.judge import Judge
from tests.crash_states.lives import live
from tests.crash_states.test_store_states import HERE, judge_part

FULL = "KSTORE_CRASH_STATES" in os.environ
QUICK = (
    "sealed_files_are_not_synced",
    "the_recovery_point_is_told_before_the_files_are_there",
)


def lived(scratch: Path, name: str, seed: str, before: State | None = None, setting: Any = None) -> Trace:
    """A life with this defect, after an earlier one was left in this state."""
    root = scratch / "life"
    root.mkdir()
    try:
        if before is not None:
            before.image.write_to(root)
        with pytest.MonkeyPatch.context() as patch:
            DEFECTS[name](patch)
            return live(root, seed, 30 if before is None else 15, setting, before and before.value)
    finally:
        shutil.rmtree(root)


def is_met(scratch: Path, name: str, lives: int) -> bool:
    """Whether a life with this defect, or what a power cut leaves of it, is complained of."""
    try:
        return finds(scratch, name, lives)
    except AssertionError:
        return True  # a reader beside the writer has seen something else


def finds(scratch: Path, name: str, lives: int) -> bool:
    """Whether a state of a few lives with this defect, or of lives after these, is complained of."""
    for number in range(lives):
        first = lived(scratch, name, f"d{number}")
        if complained(scratch, first, number):
            return True
        every = list(crash_states(first, most=1, moments=20, seed=number))
        for state in random.Random(number).sample(every, min(6, len(every))):
            later = lived(scratch, name, f"d{number}.{state.at}", state, first.setting)
            if complained(scratch, later, number, 30):
                return True
    return False


def complained(scratch: Path, trace: Trace, seed: int, moments: int = 120) -> bool:
    judge = Judge(scratch)
    return any(
        judge.judge(state.image, state.value, trace.setting, ordered=state.model == "ordered")
        for state in crash_states(trace, most=2, moments=moments, seed=seed)
    )


@pytest.mark.parametrize("name", DEFECTS if FULL else QUICK)
def test_a_defect_is_found(ram: Path, name: str) -> None:
    assert is_met(ram, name, 20)


@pytest.mark.parametrize("name", STORE_DEFECTS if FULL else list(STORE_DEFECTS)[:2])
def test_a_defect_of_a_store_is_found(ram: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def is_found(number: int) -> bool:
        root = ram / f"life{number}"
        root.mkdir()
        monkeypatch.chdir(root)
        with pytest.MonkeyPatch.context() as patch:
            STORE_DEFECTS[name](patch)
            trace = store_life.live(HERE, f"d{number}", 400)
        try:
            judge_part(ram, trace, f"d{number}", 0, 1)
        except AssertionError:
            return True
        return False

    assert any(is_found(number) for number in range(20))
