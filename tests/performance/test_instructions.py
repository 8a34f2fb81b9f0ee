"""Instructions per record, against the recorded counts: they depend neither on the clock nor on the machine's
load.

Record them again after a change that is meant to cost what it does:

    .venv/bin/python -m pytest tests/performance --record-instructions
"""

import json
import platform
import sys
from pathlib import Path

import pytest

from tests.performance import counting, work

RECORDED = Path(__file__).with_name("instructions.json")
HEADROOM = 1.3  # for another compiler, libc or release of Python
WHERE = f"{platform.machine()}, Python {sys.version_info.major}.{sys.version_info.minor}"


def recorded() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(RECORDED.read_text())
    return found


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> dict[str, float]:
    records = pytestconfig.getoption("record_instructions")
    if not counting.is_possible():
        pytest.skip("valgrind is not installed (Debian: apt-get install valgrind)")
    if WHERE not in recorded() and not records:
        pytest.skip(f"no counts are recorded for {WHERE}: see --record-instructions")
    counts = counting.count(tmp_path_factory.mktemp("instructions"))
    if records:
        every = recorded() | {WHERE: {name: round(each, 1) for name, each in counts.items()}}
        RECORDED.write_text(json.dumps(every, indent=2, sort_keys=True) + "\n")
    return counts


@pytest.mark.parametrize("name", work.NAMES)
def test_a_record_takes_no_more_instructions_than_recorded(name: str, counted: dict[str, float]) -> None:
    now, before = counted[name], recorded()[WHERE][name]
    assert now <= before * HEADROOM, f"{name}: {now:.0f} instructions a record, recorded {before:.0f}"
    assert now > before / 2, (
        f"{name}: {now:.0f} instructions a record, not {before:.0f}: record the new count"
    )
