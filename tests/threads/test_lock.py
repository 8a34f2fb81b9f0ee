"""One writer a directory: between threads, processes and forks (spec 1.8)."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import environment

HOLD = """
import sys, kstore
log = kstore.open(sys.argv[1], "a")
log.append(b"x")
print("ready", flush=True)
sys.stdin.readline()
log.close()
"""


def hold(directory: Path) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def let_go(process: "subprocess.Popen[bytes]") -> None:
    process.communicate(b"\n", timeout=120)


def test_another_process_is_refused_and_told_the_pid(tmp_path: Path) -> None:
    other = hold(tmp_path / "t-0")
    with pytest.raises(kstore.LogLockedError, match=str(other.pid)) as caught:
        kstore.open(tmp_path / "t-0", "a")
    assert caught.value.pid == other.pid
    assert [r.value for r in kstore.open(tmp_path / "t-0")] == [b"x"]  # reading needs no lock
    let_go(other)
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert log.append(b"y") == 1


def test_the_same_process_is_refused(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a"):
        with pytest.raises(kstore.LogLockedError, match=str(os.getpid())):
            kstore.open(tmp_path / "t-0", "a")
        refused: list[bool] = []

        def attempt() -> None:
            try:
                kstore.open(tmp_path / "t-0", "a")
            except kstore.LogLockedError:
                refused.append(True)

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()
        assert refused == [True]
    kstore.open(tmp_path / "t-0", "a").close()


def test_partitions_beside_each_other(tmp_path: Path) -> None:
    """In no log directory each has a lock of its own; in one, a process has them all."""
    other = hold(tmp_path / "a-0")
    kstore.open(tmp_path / "b-0", "a").close()
    let_go(other)
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "meta.properties").write_text("version=1\n")
    other = hold(logs / "a-0")
    with pytest.raises(kstore.LogLockedError):
        kstore.open(logs / "b-0", "a")
    let_go(other)
    with kstore.open(logs / "a-0", "a") as a, kstore.open(logs / "b-0", "a") as b:
        a.append(b"1")
        b.append(b"2")
    assert not (logs / ".lock").exists()
    assert (logs / ".kafka_cleanshutdown").exists()
    assert kstore.open(logs / "a-0").recovery.clean


def test_a_running_broker_is_left_alone(tmp_path: Path) -> None:
    """A broker holds the same kind of lock on the log directory's .lock."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX);"
        "print('ready', flush=True); sys.stdin.readline()"
    )
    broker = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert broker.stdout is not None
    broker.stdout.readline()
    with pytest.raises(kstore.LogLockedError, match=str(broker.pid)):
        kstore.open(tmp_path / "t-0", "a")
    broker.communicate(b"\n", timeout=120)
    kstore.open(tmp_path / "t-0", "a").close()


def test_a_dead_writers_lock_is_no_lock(tmp_path: Path) -> None:
    other = hold(tmp_path / "t-0")
    other.kill()
    other.communicate()
    assert (tmp_path / "t-0" / ".lock").exists()
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert not log.recovery.clean
        assert log.append(b"y") == 1


def test_a_child_of_fork_does_not_write(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"parent")
    child = os.fork()
    if child == 0:
        try:
            log.append(b"child")
            os._exit(1)
        except kstore.LogFailedError:
            os._exit(0)
        except BaseException:  # noqa: BLE001
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    log.append(b"parent again")
    log.close()
    assert [r.value for r in kstore.open(tmp_path / "t-0")] == [b"parent", b"parent again"]


def test_the_lock_file_that_was_removed_meanwhile_is_not_trusted(tmp_path: Path) -> None:
    """Whoever locks a file that its owner has just removed must try again."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    stale = (directory / ".lock").open("w")
    fcntl.lockf(stale, fcntl.LOCK_EX)
    (directory / ".lock").unlink()
    with kstore.open(directory, "a") as log:
        log.append(b"x")
        assert (directory / ".lock").exists()
    stale.close()


GARBAGE = """
import gc, sys, time, weakref
import kstore
from kstore.log.files import log_dir_state as home
from kstore.log.files import lock

gc.disable()


def forget(name):
    log = kstore.open(f"{sys.argv[1]}/{name}", "a", flush_ms=60_000)
    log.append(b"x")
    log.itself = log  # only the collector will find it
    return weakref.ref(log)


def collect():
    while any(ref() for ref in forgotten):  # the flusher of a log holds it for an instant as it begins
        gc.collect()
        time.sleep(0.001)


def collecting(function):
    def called(*args):
        collect()
        return function(*args)
    return called


forgotten = [forget("t-0"), forget("u-0")]
lock._locked = collecting(lock._locked)  # called when no log of the directory has its lock
with kstore.open(f"{sys.argv[1]}/v-0", "a"):
    collect()
    for name in "t-0", "u-0":
        kstore.open(f"{sys.argv[1]}/{name}", "a").close()
forgotten = [forget("t-0"), forget("u-0")]
home.read_state = collecting(home.read_state)
with kstore.open(f"{sys.argv[1]}/v-0", "a"):
    assert not any(ref() for ref in forgotten)
    for name in "t-0", "u-0":
        kstore.open(f"{sys.argv[1]}/{name}", "a").close()
print("done")
"""


@pytest.mark.parametrize("shared", [False, True])
def test_garbage_collected_while_a_lock_is_taken(tmp_path: Path, shared: bool) -> None:
    """A log that was never closed gives up its lock in the middle of another's opening, in directories of their own or
    in one: neither waits for itself."""
    if shared:
        (tmp_path / "meta.properties").touch()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GARBAGE, str(tmp_path)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.parametrize("how", ["log", "store"])
def test_waiting_for_another_writer(tmp_path: Path, how: str) -> None:
    """Programs that write in turn: each waits until the one before it has closed."""
    kstore.LogStore(tmp_path, mode="a").close()  # which makes it a log directory
    other = hold(tmp_path / "t-0")
    closer = threading.Timer(0.3, let_go, [other])
    closer.start()
    if how == "log":
        with kstore.open(tmp_path / "t-0", "a", wait=60) as log:
            assert log.append(b"y") == 1
            assert log.recovery.clean
    else:
        with kstore.LogStore(tmp_path, mode="a", wait=60) as store:
            assert store.append("t", b"y") == (0, 1)
    closer.join()


def test_waiting_ends(tmp_path: Path) -> None:
    kstore.LogStore(tmp_path, mode="a").close()
    other = hold(tmp_path / "t-0")
    for wait in (0, 0.05):
        with pytest.raises(kstore.LogLockedError, match=str(other.pid)):
            kstore.open(tmp_path / "t-0", "a", wait=wait)
        with pytest.raises(kstore.LogLockedError, match=str(other.pid)):
            kstore.LogStore(tmp_path, mode="a", wait=wait)
    let_go(other)
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="wait"):
            kstore.open(tmp_path / "u-0", "a", wait=wrong)
    with pytest.raises(TypeError, match="wait"):
        kstore.LogStore(tmp_path, mode="a", wait="10")  # type: ignore[arg-type]
    assert not (tmp_path / "u-0").exists()


def test_a_store_that_waits_for_one_directory_holds_no_other(tmp_path: Path) -> None:
    """Or two stores with the same directories in another order would wait for each other. What is given back is as clean
    as it was."""
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
