"""Commits of several members at once."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.faults import trace_calls
from kstore.log.cursors import member_lock
from tests.cursors.test_cursors import HOLDER, in_a_child
from tests.helpers.processes import Program
from tests.helpers.reading import cursor_at_end

FILE = "kstore-cursors-g.positions"


pytestmark = pytest.mark.usefixtures("sound_calls")


def filled(directory: Path, partitions: int = 1) -> Path:
    for number in range(partitions):
        with kstore.open(directory / f"t-{number}", "a") as log:
            log.extend([b"v"] * 2000)
    return directory / "t-0"


def position(path: Path) -> int | None:
    found = kstore.open(path).cursors().get("g")
    return None if found is None else found.offset


def committed(path: Path) -> kstore.Cursor:
    jobs = cursor_at_end(path)
    jobs.commit(4)
    return jobs


def test_a_commit_has_the_leader_epoch_of_its_record(ram: Path) -> None:
    path = ram / "t-0"
    for epoch, count in ((3, 10), (7, 50)):
        with kstore.open(path, "a", leader_epoch=epoch) as log:
            log.extend([b"v"] * count)
    with cursor_at_end(path) as jobs:
        for offset in (0, 9, 10, 59):
            jobs.commit(offset + 1, durable=False)
            found = kstore.open(path).cursors()["g"]
            assert found == jobs.committed
            assert found[:2] == (offset + 1, 3 if offset < 10 else 7)


def test_one_whose_lock_was_lost_refuses(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one has taken the partition, and has committed nothing yet."""
    # as where there are no locks that stay
    monkeypatch.setattr(member_lock, "keep_byte", lambda *_, **__: True)
    path = filled(ram)
    jobs = committed(path)
    (ram / "kstore-cursors.lock").read_bytes()  # the system drops the locks of this process
    code = HOLDER.replace("if record.offset == 4:\n        jobs.commit(record)", "if True:")
    with Program(code, path) as child:
        with pytest.raises(kstore.CursorLockedError):
            jobs.commit(9, durable=False)
        assert position(path) == 4
        child.kill()
    jobs.commit(9, durable=False)  # it had committed nothing
    assert position(path) == 9
    (ram / "kstore-cursors.lock").read_bytes()

    def takes_it() -> None:
        with cursor_at_end(path) as other:
            other.commit(21, durable=False)

    assert in_a_child(takes_it) == 0
    with pytest.raises(kstore.CursorLockedError):
        jobs.commit(31, durable=False)
    assert position(path) == 21
    jobs.close()


def test_a_forked_child_keeps_nobody_out(ram: Path) -> None:
    """A process forks while it writes a commit, and is killed: its lock does not live on in the child."""
    path = filled(ram)
    reads, writes = os.pipe()

    def fork(call: str, *_: Any) -> None:
        if call == "write":
            if os.fork() == 0:
                os.write(writes, b"%d" % os.getpid())
            signal.pause()

    parent = os.fork()
    if parent == 0:
        jobs = committed(path)
        trace_calls(fork)
        jobs.commit(5)
    child = int(os.read(reads, 20))
    try:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        with cursor_at_end(path) as jobs:
            jobs.commit(8)
        assert position(path) == 8
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(reads)
        os.close(writes)


def test_a_partition_that_was_deleted(ram: Path) -> None:
    path = filled(ram)
    with cursor_at_end(path) as jobs:
        jobs.commit(4, durable=False)
        path.rename(path.with_name("old"))
        with pytest.raises(kstore.LogNotFoundError):
            jobs.commit(5)
        with pytest.raises(kstore.LogNotFoundError):
            jobs.commit(6, durable=False)


def test_members_in_processes_commit_at_once(ram: Path) -> None:
    """They write one file in turn, and no commit is lost."""
    filled(ram, 4)

    def work(number: int) -> None:
        with cursor_at_end(ram / f"t-{number}") as jobs:
            for offset in range(1000 + number):
                jobs.commit(offset + 1, durable=False)

    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                work(number)
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    assert [position(ram / f"t-{number}") for number in range(4)] == [1000, 1001, 1002, 1003]


def test_one_sync_serves_all_that_commit_together(ram: Path) -> None:
    """While the first one syncs, the others write; the next sync is for all of them."""
    filled(ram, 4)
    cursors = [cursor_at_end(ram / f"t-{number}") for number in range(4)]
    for cursor in cursors:
        cursor.commit(2)
    size = (ram / FILE).stat().st_size
    batch = size // 4
    begun, syncs = threading.Event(), []

    def told(call: str, path: str, *_: Any) -> None:
        if call == "syncs" and path.endswith(FILE):
            syncs.append(path)
            begun.set()
            if len(syncs) == 1:
                for _ in range(1000):
                    if (ram / FILE).stat().st_size >= size + 4 * batch:
                        return
                    time.sleep(0.01)

    trace_calls(told)
    threads = [threading.Thread(target=cursor.commit, args=(11,)) for cursor in cursors]
    threads[0].start()
    assert begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join()
    trace_calls(None)
    assert len(syncs) == 2
    for number, cursor in enumerate(cursors):
        cursor.close()
        assert position(ram / f"t-{number}") == 11


def test_a_long_file_is_written_anew(ram: Path) -> None:
    path = filled(ram)
    with committed(path) as jobs, cursor_at_end(path, "h") as others:
        others.commit(9)
        inode = (ram / FILE).stat().st_ino
        for number in range(2000):
            jobs.commit(11, durable=False, metadata=f"{number:04096}")
        assert (ram / FILE).stat().st_ino != inode
        assert (ram / FILE).stat().st_size < 3 << 20
    found = kstore.open(path).cursors()
    assert (found["g"].metadata, found["h"].offset) == (f"{1999:04096}", 9)


OTHER = """
import sys, kstore
with kstore.open(sys.argv[1]).cursor("g") as jobs:
    print("here", flush=True)
    input()
    jobs.seek(8)
    jobs.commit()
    print("done", flush=True)
    sys.stdin.read()
"""


def test_a_file_in_whose_place_another_member_puts_another(ram: Path) -> None:
    """The file that a member knows still ends where it ended, but it is not the one that counts."""
    path = filled(ram, 2)
    with Program(OTHER, ram / "t-1") as child, committed(path) as jobs:
        for offset in range(4, 700):  # enough for a durable commit to write the file anew
            jobs.commit(offset + 1, durable=False)
        inode = (ram / FILE).stat().st_ino
        assert child.tell() == "done"
        assert (ram / FILE).stat().st_ino != inode
        jobs.commit(702, durable=False)
        assert (position(path), position(ram / "t-1")) == (702, 8)
