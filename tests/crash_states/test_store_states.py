"""After a power cut at any moment of a store's life, its topics, records and committed positions are what was promised.

`KSTORE_CRASH_STATES`, `KSTORE_CRASH_MOMENTS` and `KSTORE_CRASH_SEED` are as in test_crash_states.py.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kstore.testing.power_cuts import crash_states
from kstore.testing.recorder import Trace
from tests.crash_states.store_life import complaints, live
from tests.crash_states.test_crash_states import A_DAY, LIVES, MOMENTS, MOST, SEED
from tests.helpers.children import JOBS, run_all, say

CALLS = 700 if LIVES else 400
HERE = Path(
    "/proc/self/cwd"
)  # a change of topics names directories: they must have the same names in every process


def judge_part(scratch: Path, trace: Trace, seed: str, part: int, parts: int) -> int:
    """Opens every state of one part, by content; how many there were."""
    seen: set[tuple[bytes, int]] = set()
    count = 0
    for state in crash_states(trace, most=MOST, moments=MOMENTS, seed=seed):
        digest = state.image.digest()
        if digest[0] % parts != part:
            continue
        count += 1
        if (digest, id(state.value)) in seen:
            continue
        seen.add((digest, id(state.value)))
        root = scratch / f"left-{part}"
        root.mkdir()
        os.chdir(root)
        state.image.write_to(root)
        wrong = complaints(HERE, state.value)
        shutil.rmtree(root)
        if wrong:
            calls = [f"  {at} {call}" for at, call in enumerate(trace.calls[: state.at + 1])][-40:]
            head = f"KSTORE_CRASH_SEED={SEED}, life {seed}, after call {state.at}, {state.value}"
            raise AssertionError("\n".join([head, f"{state.model}: {state.text}", *wrong, *calls]))
    return count


@pytest.mark.parametrize("number", range(LIVES or 2))
def test_a_store(
    ram: Path, monkeypatch: pytest.MonkeyPatch, number: int, tried: Callable[[int], None]
) -> None:
    seed = f"{SEED}.{number}.store"
    (ram / "life").mkdir()
    monkeypatch.chdir(ram / "life")
    trace = live(HERE, seed, CALLS)
    assert len(trace.calls) >= CALLS

    def work(part: int, parts: int) -> Callable[[], None]:
        return lambda: say(f"states {judge_part(ram, trace, seed, part, parts)}")

    parts = JOBS if LIVES else 1
    count = 0
    for _, ended in run_all([(part, work(part, parts)) for part in range(parts)], limit=A_DAY):
        assert not ended.wrong, ended.text
        count += int(ended.text.rpartition("states ")[2])
    assert count > 50
    tried(count)
