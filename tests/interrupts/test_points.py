"""Ctrl-C and MemoryError at the points of every operation: afterwards the log goes on, or says why not; nothing is lost.

A sample of the points is tried, of all with KSTORE_INTERRUPTS=all. A failure tells how to try its point again.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interrupts.points import ALL, EVERY, SEED, explain, failures

MOST = {
    ("KeyboardInterrupt", "line"): 5,
    ("KeyboardInterrupt", "check"): 3,
    ("MemoryError", "line"): 2,
    ("MemoryError", "check"): 0,
}


@pytest.mark.parametrize("name", EVERY)
def test_interrupted(ram: Path, name: str, tried: Callable[[int], None]) -> None:
    told = []
    for (what, kind), most in MOST.items():
        if not (most or ALL):
            continue
        total, count, found = failures(EVERY[name], what, kind, ram, most)
        tried(count)
        assert total > 0 or name == "garbage"
        if found:
            told.append(explain(name, what, kind, count, found))
    assert not told, f"seed {SEED}\n" + "\n".join(told)
