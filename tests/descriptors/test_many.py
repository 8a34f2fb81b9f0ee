"""More segments, and more logs, than a process may have descriptors. At EFFORT=250 there are 100,000 segments
in one log, and 10,000 logs in each of two directories; `pytest -s` prints how long each step took."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.effort import EFFORT, times
from tests.helpers.processes import environment

LIMIT = 64 if EFFORT < 10 else 256


@pytest.mark.timeout(300 if EFFORT < 10 else 0)
@pytest.mark.parametrize(
    ("script", "count"), [("many_segments.py", times(400)), ("many_logs.py", max(100, times(40)))]
)
def test_many(ram: Path, script: str, count: int, tried: Callable[[int], None]) -> None:
    program = Path(__file__).with_name(script)
    done = subprocess.run(
        [sys.executable, "-P", str(program), str(ram / "many"), str(count), str(LIMIT)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240 if EFFORT < 10 else None,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    tried(count)
