"""After a power cut at any moment of a workload, no durable record is lost, and no deleted one is back.

At EFFORT=1 a few states of some moments of a few workloads are judged, at EFFORT=N those of N times as many
workloads.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.testing import crash_states
from tests.crash_states.searching import judge_log, judge_store, record_log, record_store, some_power_cut
from tests.helpers.effort import SEED, times

MOMENTS = 30  # of a workload
Tried = Callable[[int], None]


@pytest.mark.parametrize("number", range(times(2)))
def test_a_log(ram: Path, number: int, tried: Tried) -> None:
    """Three workloads: the second and third begin with what a power cut left of the one before."""
    life = f"{SEED}.{number}"
    trace = record_log(ram, life)
    for cut in range(3):
        states = judge_log(ram, trace, crash_states(trace, most=1, moments=MOMENTS, seed=life), life)
        assert states > 0
        tried(states)
        if cut < 2:
            trace = record_log(ram, f"{life}.{cut}", trace, some_power_cut(trace, life))


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(times(2)))
def test_every_state_of_a_log(ram: Path, number: int, tried: Tried) -> None:
    """All that may have reached the disk, at some moments."""
    life = f"{SEED}.{number}.every"
    trace = record_log(ram, life)
    states = judge_log(ram, trace, crash_states(trace, moments=MOMENTS, seed=life), life)
    assert states > 300
    tried(states)


@pytest.mark.parametrize("number", range(times(2)))
def test_a_store(ram: Path, number: int, tried: Tried) -> None:
    life = f"{SEED}.{number}.store"
    trace = record_store(ram, life)
    states = judge_store(ram, trace, crash_states(trace, most=1, moments=MOMENTS, seed=life), life)
    assert states > 40
    tried(states)
