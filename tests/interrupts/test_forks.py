"""Forks beside threads that write: every call ends in the child, and the parent's log is untouched."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.children import say
from tests.helpers.effort import SEED, some, times
from tests.helpers.processes import environment
from tests.interrupts.attempts import EVERY, Act, attempt
from tests.interrupts.state import Refusal, fail_softly, require
from tests.interrupts.subject import other_threads


@pytest.mark.parametrize("how", ["append", "appender", "all"])
def test_forks_beside_threads(ram: Path, how: str) -> None:
    command = [sys.executable, "-m", "tests.interrupts.forking", ram, str(SEED), how, str(times(6))]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
    more = [line for line in done.stderr.splitlines() if not line.startswith("in the child")]
    assert (done.returncode, done.stdout, more) == (0, "sound\n", []), f"SEED={SEED}\n{done.stderr[-3000:]}"


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    """All files. Locks are not opened: to close one would release the lock, as POSIX has it."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mtime_ns,
            b"" if path.name.endswith(".lock") else path.read_bytes(),
        )
        for path in directory.rglob("*")
        if path.is_file()
    }


def after_a_child(subject: Any, act: Act) -> object:
    """A child of fork does it first, and closes what it has inherited: all files stay as they are."""
    until = time.monotonic() + 2  # a store's background goes on for ever
    while "kstore-maintenance" in other_threads() and time.monotonic() < until:  # it stores checkpoints
        time.sleep(0.001)
    before = contents(subject.root)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for call in (act, *([] if subject.handle is None else [subject.handle.close] * 2)):
                try:
                    call()
                except Refusal as e:
                    fail_softly(e)
            code = 0
        except BaseException as e:  # noqa: BLE001
            say(f"in the child: {type(e).__name__}: {e}")
        finally:
            os._exit(code)
    status = os.waitpid(pid, 0)[1]
    require(status == 0, f"the child ended with status {status}")
    after = contents(subject.root)
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
    require(not changed, f"the child has changed {changed}")
    return act()


# a child may open a log, and read for a group
CHANGES = [
    name for name in EVERY if not any(word in name for word in ("open", "cursor", "follow", "garbage"))
]


@pytest.mark.parametrize("name", some(CHANGES, 30, "forks"))
def test_a_child_leaves_everything_as_it_is(name: str) -> None:
    ended = attempt(name, after_a_child)
    assert not ended.wrong, f"{ended.wrong}\n{ended.text[-3000:]}"
