"""The player finds what it is for: each of these defects, put in for a while, is met within a few lives."""

import os
import shutil
from pathlib import Path

import pytest

from tests.crash_states.defects import DEFECTS
from tests.crash_states.judge import Judge
from tests.crash_states.lives import live
from tests.crash_states.player import states

FULL = "KSTORE_CRASH_STATES" in os.environ
QUICK = (
    "sealed_files_are_not_synced",
    "the_recovery_point_is_told_before_the_files_are_there",
)


def finds(scratch: Path, name: str, lives: int) -> bool:
    """Whether a state of a few lives with this defect is complained of."""
    for number in range(lives):
        root = scratch / f"life{number}"
        root.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            DEFECTS[name](patch)
            trace = live(root, f"d{number}", 30)
        shutil.rmtree(root)
        judge = Judge(scratch)
        for state in states(trace, most=2, moments=120, seed=number):
            if judge.judge(state.image, state.value, trace.setting):
                return True
    return False


@pytest.mark.parametrize("name", DEFECTS if FULL else QUICK)
def test_a_defect_is_found(ram: Path, name: str) -> None:
    assert finds(ram, name, 20)
