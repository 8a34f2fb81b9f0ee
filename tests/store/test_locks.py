"""The lock of a store's directories, against stores, logs, forks and copies; and exchanged directories."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore import LogStore
from tests.helpers.files import contents
from tests.helpers.processes import environment, run_python
from tests.helpers.store_clock import StoreClock
from tests.helpers.waiting import until
from tests.store.stores import opened, values

OTHER = """
import sys, kstore
try:
    kstore.LogStore(sys.argv[1], mode="a").close()
except kstore.LogLockedError:
    print("locked")
"""


def is_locked(path: Path) -> bool:
    """Whether another process finds it locked."""
    done = run_python(OTHER, path)
    assert not done.stderr
    return done.stdout.strip() == "locked"


def test_one_store_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with opened(path) as store:
        store.create_topic("t")
        with pytest.raises(kstore.LogLockedError):
            opened(path)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                opened(path)
            except kstore.LogLockedError as e:
                code = 0 if e.pid == os.getppid() else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        # this closes a descriptor of .lock, and the system drops an fcntl lock then
        shutil.copytree(path, tmp_path / "copy")
        assert is_locked(path)
        store.append("t", b"v")
        with pytest.raises(kstore.LogLockedError, match=r"t-0 .* store\.log\(topic, partition\)"):
            kstore.open(path / "t-0", "a")
        assert values(LogStore(path)) == [b"v"]
    assert not is_locked(path)
    kstore.open(path / "t-0", "a").close()


ORPHAN = """
import os, sys, time, kstore
store = kstore.LogStore(sys.argv[1], mode="a", background=False)
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
os._exit(1)  # as a kill does it
"""


def test_a_child_that_outlives_the_writer_has_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "data"
    command = [sys.executable, "-P", "-W", "ignore", "-c", ORPHAN, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as made:
        assert made.stdout is not None
        child = int(made.stdout.readline())
        try:
            made.wait()
            until(lambda: not is_locked(path))
        finally:
            os.kill(child, 9)


def test_a_child_of_fork_has_no_store(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.create_topic("t", 2)
        store.append("t", b"parent", b"k")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store.append("t", b"child", b"k")
            except kstore.LogClosedError:
                store.close()
                del store
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        store.append("t", b"parent", b"k")
        assert values(store, "t", 0) + values(store, "t", 1) == [b"parent"] * 2
    assert LogStore(tmp_path).closed_cleanly


def test_a_log_beside_the_store(tmp_path: Path) -> None:
    """The same process has opened a partition by itself. Its topic is not deleted, and the directory is clean
    only when the log is closed, too."""
    with opened(tmp_path) as store:
        store.create_topic("t", 2)
        beside = kstore.open(tmp_path / "t-1", "a")
        beside.append(b"v")
        with pytest.raises(kstore.LogLockedError, match="t-1"):
            store.delete_topic("t")
        assert store.health().ok
        assert store.topics == {"t": [0, 1]}
        store.log("t", 0)
    assert not LogStore(tmp_path).closed_cleanly
    beside.close()
    again = LogStore(tmp_path)
    assert again.closed_cleanly
    assert again.open("t", 1).recovery.clean
    assert again.open("t", 1).log_end_offset == 1


def test_a_close_that_fails_gives_the_lock_up(tmp_path: Path) -> None:
    data, away = tmp_path / "d", tmp_path / "away"
    store = opened(data)
    store.create_topic("t")
    store.append("t", b"v")
    data.rename(away)
    data.write_text("a file in its place")
    with pytest.raises(kstore.LogFailedError):
        store.close()
    assert store.is_closed
    data.unlink()
    away.rename(data)
    with opened(data) as again:
        assert again.append("t", b"w") == (0, 1)


# ---- another directory in its place ------------------------------------------------------------------------


OTHER_STORE = """
import kstore, sys
with kstore.LogStore(sys.argv[1], mode="a", background=False) as store:
    store.create_topic("other", 2, retention_ms=777000)
    store.append("other", b"value")
"""
CALLS: list[Callable[[LogStore], object]] = [
    lambda store: store.create_topic("new"),
    lambda store: store.alter_topic("t", retention_ms=5),
    lambda store: store.add_partitions("t", 4),
    lambda store: store.delete_topic("t"),
    lambda store: store.flush(),
    lambda store: store.append("t", b"value"),
    lambda store: store.close(),
]


@pytest.mark.parametrize("kind", ["a copy", "another store", "nothing"])
def test_a_renamed_directory(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    with opened(path) as store:
        store.create_topic("t", 2)
        store.create_topic("gone")
    clock = StoreClock()
    store = opened(path, clock=clock, file_delete_delay_ms=3_600_000)
    store.delete_topic("gone")
    path.rename(tmp_path / "old")
    if kind == "a copy":
        shutil.copytree(tmp_path / "old", path)
    elif kind == "another store":
        assert run_python(OTHER_STORE, path).returncode == 0
    before = contents(path, "**/*")
    for call in CALLS:
        with pytest.raises(kstore.LogFailedError, match="was renamed or removed while it was open"):
            call(store)
        if not store.is_closed:
            store.retain()
            clock.pass_on(store, 300_000, runs=3)
        assert contents(path, "**/*") == before
    assert store.is_closed
    with opened(path) as again:  # the lock of the old one is given up
        again.create_topic("new")
