"""One writer a directory: between threads, processes and forks (spec 1.8)."""

import fcntl
import threading
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.processes import Program

HOLD = """
import sys, kstore
log = kstore.open(sys.argv[1], "a")
log.append(b"x")
print("ready", flush=True)
sys.stdin.readline()
log.close()
"""
BROKER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_another_process(tmp_path: Path) -> None:
    """It is refused, and the error names the process. Readers need no lock; a dead process has none."""
    path = tmp_path / "t-0"
    with Program(HOLD, path) as other:
        with pytest.raises(kstore.LogLockedError, match=str(other.pid)) as caught:
            kstore.open(path, "a")
        assert caught.value.pid == other.pid
        assert [r.value for r in kstore.open(path)] == [b"x"]
        # each log has a lock of its own, outside a log directory
        kstore.open(tmp_path / "beside-0", "a").close()
        other.kill()
    assert (path / ".lock").exists()
    with kstore.open(path, "a") as log:
        assert not log.recovery.clean
        assert log.append(b"y") == 1


def test_a_log_directory(tmp_path: Path) -> None:
    """One process has all of its partitions. Waiting ends with an error, or when the other one closes."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    with Program(HOLD, tmp_path / "a-0") as other:
        attempts: list[Any] = [
            lambda wait: kstore.open(tmp_path / "b-0", "a", wait=wait),
            lambda wait: kstore.LogStore(tmp_path, mode="a", wait=wait),
        ]
        for attempt in attempts:
            for wait in (0, 0.05):
                with pytest.raises(kstore.LogLockedError, match=str(other.pid)):
                    attempt(wait)
        closer = threading.Timer(0.3, other.end)
        closer.start()
        with kstore.open(tmp_path / "a-0", "a", wait=60) as a, kstore.open(tmp_path / "b-0", "a") as b:
            assert a.recovery.clean
            assert (a.append(b"y"), b.append(b"2")) == (1, 0)
        closer.join()
    assert not (tmp_path / ".lock").exists()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with Program(HOLD, tmp_path / "a-0") as other:
        closer = threading.Timer(0.3, other.end)
        closer.start()
        with kstore.LogStore(tmp_path, mode="a", wait=60) as store:
            assert store.append("a", b"z") == (0, 3)
        closer.join()


def test_a_running_broker_is_left_alone(tmp_path: Path) -> None:
    """A broker holds the same kind of lock on the log directory's .lock."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    with (
        Program(BROKER, tmp_path / ".lock") as broker,
        pytest.raises(kstore.LogLockedError, match=str(broker.pid)),
    ):
        kstore.open(tmp_path / "t-0", "a")
    kstore.open(tmp_path / "t-0", "a").close()


def test_a_lock_file_that_is_removed_meanwhile(tmp_path: Path) -> None:
    """A process that has locked a file which its owner has just removed must try again."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    stale = (directory / ".lock").open("w")
    fcntl.lockf(stale, fcntl.LOCK_EX)
    (directory / ".lock").unlink()
    with kstore.open(directory, "a") as log:
        log.append(b"x")
        assert (directory / ".lock").exists()
    stale.close()


def test_a_store_that_waits_for_one_directory_holds_no_other(tmp_path: Path) -> None:
    """Or two stores with the same directories in another order would wait for each other. What is given back
    is as clean as it was."""
    for name in ("a", "b"):
        with kstore.LogStore(tmp_path / name, mode="a") as store:
            store.create_topic(name)
    with kstore.LogStore(tmp_path / "b", mode="a"):
        with pytest.raises(kstore.LogLockedError):
            kstore.LogStore(tmp_path / "a", tmp_path / "b", mode="a")
        assert kstore.LogStore(tmp_path / "a").closed_cleanly
        opened: list[kstore.LogStore] = []
        waiting = threading.Thread(
            target=lambda: opened.append(kstore.LogStore(tmp_path / "a", tmp_path / "b", mode="a", wait=60))
        )
        waiting.start()
        with kstore.LogStore(tmp_path / "a", mode="a", wait=60) as store:
            store.append("a", b"v")
    waiting.join()
    with opened[0] as store:
        assert store.partitions == [("a", 0), ("b", 0)]
        assert store.log("a").log_end_offset == 1
