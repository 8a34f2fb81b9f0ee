"""Garbage may be collected in any thread at any moment, also in the threads that go with what is garbage."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

import kstore
from kstore.log.files.log_dir_state import LogDirState
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
    until = time.monotonic() + 60
    while threading.active_count() < 2 and time.monotonic() < until:  # it is started in the background
        time.sleep(0.01)
    dropped = True
    until = time.monotonic() + 60
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


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("beside", [False, True])
def test_a_lock_goes_with_its_log_without_memory_to_give_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    def no_memory(_: object) -> None:
        raise MemoryError

    (tmp_path / ".lock").touch()  # both partitions keep their state here
    kept = kstore.open(tmp_path / "t-1", "a") if beside else None
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"x")
    with monkeypatch.context() as patch:
        patch.setattr(LogDirState, "leave_unclean", no_memory)
        patch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps the log alive
        del log
        gc.collect()
    if kept is not None:
        kept.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()  # one was never closed
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert not log.recovery.clean
        assert [bytes(record.value) for record in log] == [b"x"]
