"""The system refuses threads, or a new thread finds no memory and ends: nothing waits for it."""

from pathlib import Path

import pytest

import kstore
from tests.helpers.thread_library import run_with_library

COMMON = """
import asyncio, os, time, kstore
import numpy  # for rows(): its OpenBLAS starts threads
from kstore.log import worker
limit = worker._BEGINS
without = {"refused": refused, "lost": lost}[%r]

def no_threads(are_missing):
    without.value = are_missing
    worker._BEGINS = 0.2 if are_missing else limit  # s

def fails(call):
    no_threads(True)
    try:
        call()
    except (RuntimeError, MemoryError):
        return
    finally:
        no_threads(False)
    raise AssertionError("it had a thread")

def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)
"""
LOGS = """
fails(lambda: kstore.open(path, "a", flush_ms=1))
with kstore.open(path, "a", flush_ms=1) as log:
    log.append(b"v")
    until(lambda: log.durable_offset == 1)
    no_threads(True)
    log.configure(flush_ms=2)  # it has its thread
    no_threads(False)
with kstore.open(path, "a", internal_segment_bytes=400) as log:
    no_threads(True)
    for _ in range(3):  # each begins a segment
        log.append(b"v" * 150)
    assert log.flush() == 4
    log.append(b"v" * 150)
    log.roll()
    no_threads(False)

    def is_flushed():
        log.append(b"v")
        return log.durable_offset >= log.roll() - 1

    until(is_flushed)
    with log.appender() as out:
        fails(lambda: out.append(b"lost"))
        end = out.append(b"v").wait()
    fails(lambda: asyncio.run(log.append_async(b"lost")))
    assert asyncio.run(log.append_async(b"v")) == end + 1
with kstore.open(path + ".large", "a") as log:
    log.extend([b"." * 1000] * 12_000)
    no_threads(True)
    offsets = [offset for batch in log.scan(["offset"], threads=3) for (offset,) in batch.rows()]
    assert offsets == list(range(12_000))
"""
STORE = """
options = {"internal_segment_bytes": 500, "log_cleaner_backoff_ms": 0, "retention_ms": -1, "flush_ms": 1}
with kstore.LogStore(path + ".store", mode="a", **options) as store:
    no_threads(True)
    store.create_topic("t", cleanup_policy="compact")
    for i in range(100):
        store.append("t", b"." * 50, b"%d" % (i % 3))
    health = store.health()
    assert not health.ok
    assert list(health.background) == ["thread of the store"], health
    no_threads(False)
    assert store.health().ok
    until(lambda: sum(1 for _ in store.open("t")) < 20)
    until(lambda: store.log("t").durable_offset == 100)
"""


@pytest.mark.parametrize(
    "how", ["refused", pytest.param("lost", marks=pytest.mark.nightly)]
)  # lost: waits of a second
@pytest.mark.parametrize("program", [LOGS, STORE], ids=["logs", "store"])
def test_nothing_waits(tmp_path: Path, program: str, how: str) -> None:
    """What needs a thread is refused, what does not goes on; and later there is one."""
    done = run_with_library(COMMON % how + program, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for path in (tmp_path / "t-0", tmp_path / "t-0.store" / "t-0"):
        if path.exists():
            assert kstore.open(path).recovery.clean
