"""Garbage may be collected in any thread at any moment, also in the threads that go with what is garbage."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import environment

BEGIN = """
import gc, sys, threading, time
import kstore

gc.disable()
armed = dropped = False


def collect(frame, event, _):
    # when a thread begins to wait, with the lock of what it waits for, or in the midst of its work
    code = frame.f_code
    waits = code.co_name == "wait" and ("waiter" in code.co_varnames or code.co_filename.endswith("wakeup.py"))
    if armed and (waits or (code.co_name == "_decode" and frame.f_locals["share"].split.position)):
        while not dropped:
            time.sleep(0.001)
        gc.collect()


def drop():
    global dropped
    until = time.monotonic() + 10
    while threading.active_count() < 2 and time.monotonic() < until:  # it is started in the background
        time.sleep(0.01)
    dropped = True
    until = time.monotonic() + 10
    while threading.active_count() > 1 and time.monotonic() < until:
        time.sleep(0.01)
    print([thread.name for thread in threading.enumerate()], gc.collect())


threading.settrace(collect)
log = kstore.open(sys.argv[1], "a")
"""
APPENDER = """
appender = log.appender(linger_ms=500)
appender.itself = appender  # only the collector will find it
armed = True
appender.append(b"x")
del appender, log
drop()
"""
FLUSHER = """
log.append(b"x")
log.itself = log
armed = True
log.roll()
del log
drop()
"""
SCAN = """
from kstore.log.read import scan_splits as splits
from kstore.log.read import parallel_scan as team

splits.SPLIT_BYTES = 4096
team.ParallelScan._await = lambda self, share, later: share.wait(60)  # or there might be nothing left for the thread to do
log.extend([b"." * 100] * 2_000)
rows = {"of": iter(log.scan(threads=2, batch_rows=10))}
rows["itself"] = rows
armed = True
next(rows["of"])
log.close()
del log, rows
drop()
"""


@pytest.mark.parametrize("what", [APPENDER, FLUSHER, SCAN], ids=["appender", "flusher", "scan"])
def test_threads_end_with_what_is_garbage(tmp_path: Path, what: str) -> None:
    """None waits for itself, and none is left behind."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEGIN + what, str(tmp_path / "t-0")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("['MainThread'] 0\n", "")
