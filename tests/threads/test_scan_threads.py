"""Scans on several threads: these come when there is work, and go."""

import os
import threading
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import times
from tests.helpers.processes import run_python
from tests.helpers.waiting import until

ROWS = 60_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several parts for threads: each has 4 MiB."""
    path = tmp_path_factory.mktemp("scanned") / "t-0"
    with kstore.open(path, "a") as log:
        for first in range(0, ROWS, 1000):
            log.extend([b"%500d" % offset for offset in range(first, first + 1000)])
    return path


def test_a_scan_that_is_left_keeps_no_thread(path: Path) -> None:
    """It goes on when it is read on, with threads again. The caller may use the processors as before."""
    processors = os.sched_getaffinity(0)

    def helpers() -> int:
        return sum(thread.name == "kstore-scan" for thread in threading.enumerate())

    until(lambda: helpers() == 0)  # scans of earlier tests

    batches = iter(kstore.open(path).scan(["offset"], batch_rows=100, threads=3))
    offsets = next(batches).column("offset").values.tolist()
    until(lambda: helpers() == 0)
    most = 0
    for batch in batches:
        offsets += batch.column("offset").values.tolist()
        most = max(most, helpers())
        assert os.sched_getaffinity(0) == processors
    assert 0 < most <= 2
    assert offsets == list(range(ROWS))
    until(lambda: helpers() == 0)


def test_a_forked_process_goes_on_alone(path: Path) -> None:
    """Though a thread, which it has not, has begun with what comes next."""
    batches = iter(kstore.open(path).scan(["offset"], batch_rows=100, threads=2))
    rows = len(next(batches))
    child = os.fork()
    if child == 0:
        os._exit(rows + sum(map(len, batches)) != ROWS)
    assert rows + sum(map(len, batches)) == ROWS
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


INTERRUPTED = """
import signal, sys, kstore
log, turns = kstore.open(sys.argv[1]), int(sys.argv[2])
class Interrupt(BaseException): pass
def handler(*_): raise Interrupt
signal.signal(signal.SIGALRM, handler)
sys.unraisablehook = lambda _: None  # some come in the midst of a weak reference's callback
sum(map(len, log.scan(["offset"], threads=3)))  # Python leaves an interrupted import half done
for n in range(turns):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, .0002 + .001 * n / turns)
            for _ in log.scan(["offset"], threads=3, batch_rows=100): pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        pass
print(sum(len(batch) for batch in log.scan(["offset"], threads=3)))
"""


def test_interrupted_scans(path: Path) -> None:
    """No thread is left in the midst of its start, which would keep the interpreter from ending."""
    done = run_python(INTERRUPTED, path, times(100))
    assert (done.stdout, done.stderr) == (f"{ROWS}\n", "")
