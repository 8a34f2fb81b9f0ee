"""The helpers of a scan on several threads: they come when there is work, and go."""

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.read import parallel_scan as team
from kstore.log.read import scan_splits as splits
from tests.helpers.processes import environment

ROWS = 20_000


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kstore.PartitionLog:
    monkeypatch.setattr(splits, "SPLIT_BYTES", 64 << 10)
    with kstore.open(tmp_path / "t-0", "a", index_interval_bytes=1) as writer:
        for first in range(0, ROWS, 100):
            writer.extend([b"%100d" % offset for offset in range(first, first + 100)])
    return kstore.open(tmp_path / "t-0")


def helpers() -> int:
    return sum(thread.name == "kstore-scan" for thread in threading.enumerate())


def soon(holds: Callable[[], bool]) -> bool:
    """Whether it holds, at last."""
    until = time.monotonic() + 60
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    return holds()


def there(count: int) -> bool:
    return soon(lambda: helpers() == count)


def gone() -> bool:
    return there(0)


def test_a_scan_that_nobody_goes_on_with_keeps_no_thread(
    log: kstore.PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And goes on when somebody does, with helpers again."""
    monkeypatch.setattr(team, "IDLE", 1)  # a machine may stand still for longer than they wait otherwise
    batches = iter(log.scan(["offset"], batch_rows=100, threads=3))
    first = next(batches)
    assert there(2)
    assert gone()
    offsets = first.column("offset").values.tolist()
    offsets += next(batches).column("offset").values.tolist()
    while helpers() == 0:  # it goes on with what it has, until it wants more
        offsets += next(batches).column("offset").values.tolist()
        time.sleep(0.01)
    assert there(2)
    for batch in batches:
        offsets += batch.column("offset").values.tolist()
    assert offsets == list(range(ROWS))
    assert gone()


def test_no_memory_for_a_batch_loses_none(log: kstore.PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decoded ahead of its turn, and could not be kept, is decoded again."""
    failed = []

    class Full(deque[Any]):
        """What has no room for a second batch, but for the first one."""

        def append(self, batch: object) -> None:
            if self and len(failed) < 3:
                failed.append(batch)
                raise MemoryError
            super().append(batch)

    monkeypatch.setattr(team, "deque", Full)
    batches = iter(log.scan(["offset"], batch_rows=100, threads=3))
    offsets = next(batches).column("offset").values.tolist()
    assert soon(lambda: bool(failed))  # the helpers have begun with what comes next
    for batch in batches:
        offsets += batch.column("offset").values.tolist()
    assert offsets == list(range(ROWS))


@pytest.mark.parametrize("processors", [1, 2])
def test_helpers_run_elsewhere_where_they_may(
    log: kstore.PartitionLog, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the process may use one processor, all share it. The caller's own choice stays as it was."""
    monkeypatch.setattr(team, "IDLE", 60)
    before = os.sched_getaffinity(0)
    if len(before) < processors:
        pytest.skip(f"{len(before)} processor(s) here")
    allowed = set(sorted(before)[:processors])
    os.sched_setaffinity(0, allowed)
    try:
        batches = iter(log.scan(["offset"], batch_rows=100, threads=2))
        next(batches)
        assert there(1)
        (helper,) = [thread for thread in threading.enumerate() if thread.name == "kstore-scan"]
        # It stands in the list before it runs.
        assert soon(lambda: helper.native_id is not None and len(os.sched_getaffinity(helper.native_id)) == 1)
        assert helper.native_id is not None
        assert os.sched_getaffinity(helper.native_id) <= allowed
        assert os.sched_getaffinity(0) == allowed
    finally:
        os.sched_setaffinity(0, before)
    assert sum(map(len, batches)) == ROWS - 100


def run(code: str, log: kstore.PartitionLog) -> tuple[int, str, str]:
    """What a program gives that makes an iterator of the log's batches."""
    begin = """
import os, sys, threading
import kstore
from kstore.log.read import scan_splits as splits
from kstore.log.read import parallel_scan as team
splits.SPLIT_BYTES = 64 << 10
batches = iter(kstore.open(sys.argv[1]).scan(["offset"], batch_rows=100, threads=2))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", begin + code, str(log.path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_an_interpreter_ends_in_the_midst_of_a_scan(log: kstore.PartitionLog) -> None:
    assert run("next(batches)", log) == (0, "", "")


def test_a_forked_process_goes_on_without_helpers(log: kstore.PartitionLog) -> None:
    """Even where one has begun with what comes next: it is not there any more."""
    code = """
begun, forked = threading.Event(), threading.Event()
decode = team.ParallelScan._decode


def decode_late(self, share, other=None):
    if threading.current_thread() is not threading.main_thread():
        begun.set()
        forked.wait()
    decode(self, share, other)


team.ParallelScan._decode = decode_late
rows = len(next(batches))
begun.wait()
child = os.fork()
forked.set()
rows += sum(map(len, batches))
if child == 0:
    os._exit(rows == 20_000)
print(rows, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run(code, log) == (0, f"{ROWS} 1\n", "")
