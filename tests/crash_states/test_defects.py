"""The search finds each of these defects, planted into the record of workloads, before long."""

import bisect
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path

import pytest

from kstore.testing import Call, State, Trace, crash_states
from tests.crash_states.defects import DEFECTS, STORE_DEFECTS, Plant, planted
from tests.crash_states.searching import judge_log, judge_store, record_log, record_store, some_power_cut
from tests.helpers.effort import EFFORT, times

WORKLOADS = 200  # at most
STATES = 120  # of a workload
NEAR = 30  # calls after one that a defect has changed
# Few workloads show the others: EFFORT above 1 tries all of them.
QUICK = ("sealed files are not synced", "the recovery point is stored before files are synced")
QUICK_STORE = ("the table of topics is renamed before it is synced",)


def near_changes(before: Sequence[Call], trace: Trace, seed: int) -> list[State]:
    """States soon after a change that a defect has made to the record, and as many later ones."""
    places = {id(call): place for place, call in enumerate(before)}
    numbers = [-1, *(places[id(call)] for call in trace.calls)]
    changed = [at for at in range(len(trace.calls)) if numbers[at + 1] != numbers[at] + 1]
    if not changed:
        return []
    near, later = [], []
    for state in crash_states(trace, most=1, moments=times(150), seed=seed):
        last = bisect.bisect_right(changed, state.at)
        if last:
            (near if state.at - changed[last - 1] < NEAR else later).append(state)
    rng = random.Random(seed)
    return [s for part in (near, later) for s in rng.sample(part, min(len(part), STATES // 2))]


def logs(scratch: Path) -> Iterator[Trace]:
    """Records of workloads, two of three after a power cut."""
    for number in count():
        seed = f"defect {number}"
        if number % 3 == 0:
            first = record_log(scratch, seed)
            yield first
        else:
            yield record_log(scratch, seed, first, some_power_cut(first, seed))


def stores(scratch: Path) -> Iterator[Trace]:
    return (record_store(scratch, f"defect {number}") for number in count())


def is_found(
    scratch: Path,
    plant: Plant,
    workloads: Callable[[Path], Iterator[Trace]],
    judge: Callable[[Path, Trace, list[State], str], int],
) -> bool:
    for number, trace in enumerate(islice(workloads(scratch), WORKLOADS)):
        with_defect = planted(trace, plant)
        try:
            judge(scratch, with_defect, near_changes(trace.calls, with_defect, number), str(number))
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("name", DEFECTS if EFFORT > 1 else QUICK)
def test_a_defect_of_a_log_is_found(ram: Path, name: str) -> None:
    assert is_found(ram, DEFECTS[name], logs, judge_log)


@pytest.mark.parametrize("name", STORE_DEFECTS if EFFORT > 1 else QUICK_STORE)
def test_a_defect_of_a_store_is_found(ram: Path, name: str) -> None:
    assert is_found(ram, STORE_DEFECTS[name], stores, judge_store)
