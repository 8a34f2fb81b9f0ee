"""Forks beside threads that write: every call ends in the child, and the parent's log is untouched."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from tests.helpers.children import run, say
from tests.helpers.effort import SEED, some, times
from tests.helpers.processes import environment
from tests.interrupts.forking import OPTIONS, calls, child
from tests.interrupts.state import require


@pytest.mark.parametrize("how", ["append", "appender", "all"])
def test_forks_beside_threads(ram: Path, how: str) -> None:
    command = [sys.executable, "-m", "tests.interrupts.forking", ram, str(SEED), how, str(times(6))]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )
    more = [line for line in done.stderr.splitlines() if not line.startswith("in the child")]
    assert (done.returncode, done.stdout, more) == (0, "sound\n", []), f"SEED={SEED}\n{done.stderr[-3000:]}"


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    """All files. The lock's is not opened: to close it would release the lock, as POSIX has it."""
    return {
        str(path.relative_to(directory)): (
            path.stat().st_mtime_ns,
            b"" if path.name == ".lock" else path.read_bytes(),
        )
        for path in directory.rglob("*")
        if path.is_file() and path.parent.name != "beside-0"  # which is no log of the parent's
    }


def test_children_leave_everything_as_it_is(ram: Path) -> None:
    """Calls, close and the end of a child, while records wait in an appender and nothing is synced."""

    def work() -> None:
        log = kstore.open(ram / "t-0", "a", **OPTIONS)
        out = log.appender(linger_ms=1_000_000)
        for i in range(40):
            log.append(b"%d" % i)
        log.roll()
        log.flush()
        log.append(b"40")
        ticket = out.append(b"waits")
        names = list(calls(log, out, ram))
        for which in some(range(len(names)), 16, "calls of children"):
            before = contents(ram)
            pid = os.fork()
            if pid == 0:
                child(log, out, ram, which)
                os._exit(0)
            status = os.waitpid(pid, 0)[1]
            require(status == 0, f"the child that calls {names[which]} ended with status {status}")
            after = contents(ram)
            changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
            require(not changed, f"the child that calls {names[which]} has changed {changed}")
            pid = os.fork()
            if pid == 0:
                try:
                    kstore.open(ram / "t-0", "a")
                except kstore.LogLockedError:
                    os._exit(0)
                except BaseException as e:  # noqa: BLE001
                    say(f"another process: {type(e).__name__}: {e}")
                os._exit(1)
            locked_out = os.waitpid(pid, 0)[1] == 0
            require(locked_out, f"after {names[which]} another process was not kept out")
        require(log.append(b"41") == 41, "the parent does not go on")
        out.flush()
        require(ticket.wait() == 42, "the parent's appender does not go on")
        log.close()
        with kstore.open(ram / "t-0") as read:
            require(read.recovery.clean, "not clean")
            values = [r.value for r in read.records()]
        require(values == [*(b"%d" % i for i in range(42)), b"waits"], "other records")

    ended = run(work)
    assert not ended.wrong, ended.wrong + "\n" + ended.text[-3000:]
    lines = [line for line in ended.text.splitlines() if line and not line.startswith("in the child")]
    assert not lines, "\n".join(lines[-30:])
