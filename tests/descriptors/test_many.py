"""More segments, and more logs, than a process may have descriptors.

`KSTORE_MANY=100000` tries so many segments of one log, and a tenth as many logs, and prints how long each step took
(pytest -s).
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.processes import environment

MANY = int(os.environ.get("KSTORE_MANY", "0"))
LIMIT = 256 if MANY else 64


@pytest.mark.timeout(0 if MANY else 300)
@pytest.mark.parametrize(
    ("script", "count"), [("many_segments.py", MANY or 400), ("many_logs.py", MANY // 10 or 150)]
)
def test_many(ram: Path, script: str, count: int, tried: Callable[[int], None]) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            str(Path(__file__).with_name(script)),
            str(ram / "many"),
            str(count),
            str(LIMIT),
        ],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=None if MANY else 240,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    tried(count)
