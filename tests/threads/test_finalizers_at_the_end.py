"""Finalizers that append when the interpreter ends, while threads that it has stopped are inside the log."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import environment

PROGRAM = """
import builtins, os, sys, threading, time
import kstore

log = kstore.open(sys.argv[1], "a", durability=sys.argv[2])
appender = log.appender(linger_ms=1e6)

def busy():
    while True:
        log.append(b"by the thread")

class Last:
    def __del__(self, log=log, appender=appender, write=os.write):
        for append in (log.append, appender.append):
            try:
                append(b"z")
                write(1, b"appended\\n")
            except Exception as e:
                write(1, type(e).__name__.encode() + b"\\n")

threading.Thread(target=busy, daemon=True).start()
time.sleep(0.05)
builtins.last = Last()
"""


@pytest.mark.parametrize("durability", ["none", "group"])
def test_they_do_not_wait_for_ever(tmp_path: Path, durability: str) -> None:
    for n in range(5):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path / f"t-{n}"), durability],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.split()
        assert len(lines) == 2, done.stderr
        assert set(lines) <= {"appended", "LogFailedError", "LogClosedError"}
