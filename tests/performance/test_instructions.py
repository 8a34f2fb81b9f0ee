"""Instructions a record, against what was recorded: they depend neither on the clock nor on what else is running.

To record anew, after a change that is meant to cost what it does:

    KSTORE_RECORD_INSTRUCTIONS=1 make test ARGS=tests/performance
"""

import json
import os
import platform
import sys
from pathlib import Path

import pytest

from tests.performance import counting, work

LIMITS = Path(__file__).with_name("instructions.json")
HEADROOM = 1.3  # what another compiler, libc or release of Python may add
RECORD = bool(os.environ.get("KSTORE_RECORD_INSTRUCTIONS"))
WHERE = f"{platform.machine()}, Python {sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    if not counting.is_possible():
        pytest.skip("no valgrind here (Debian: apt-get install valgrind)")
    if WHERE not in _recorded() and not RECORD:
        pytest.skip(f"nothing recorded for {WHERE}")
    taken = counting.count(tmp_path_factory.mktemp("instructions"))
    if RECORD:
        every = _recorded() | {WHERE: {name: round(each, 1) for name, each in taken.items()}}
        LIMITS.write_text(json.dumps(every, indent=2, sort_keys=True) + "\n")
    return taken


def _recorded() -> dict[str, dict[str, float]]:
    recorded: dict[str, dict[str, float]] = json.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    return recorded


@pytest.mark.parametrize("name", work.NAMES)
def test_a_record_takes_no_more_instructions_than_recorded(name: str, counted: dict[str, float]) -> None:
    taken, before = counted[name], _recorded()[WHERE][name]
    assert taken <= before * HEADROOM, f"{name}: {taken:.0f} instructions a record, recorded {before:.0f}"
    assert taken > before / 2, (
        f"{name}: {taken:.0f} instructions a record, not {before:.0f}: record the better figure"
    )
