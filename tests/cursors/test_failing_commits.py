"""Every file operation of a commit fails once, or is the last of the process: the old position is there, or
the new one."""

import contextlib
import errno
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.faults import calls_made, fail_call, trace_calls
from kstore.log.cursors import member_lock
from kstore.log.files import manifest
from tests.helpers.effort import some
from tests.helpers.injector import Injector
from tests.helpers.reading import cursor_at_end, read_to_end

FILE = "kstore-cursors-g.positions"


pytestmark = pytest.mark.usefixtures("sound_calls")


def filled(directory: Path, commits: int) -> Path:
    path = directory / "t-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 2000)
        if commits:
            with log.cursor("g") as jobs:
                read_to_end(jobs)
                for i in range(commits):
                    jobs.commit(i + 1, durable=False)
    return path


def position(path: Path) -> int | None:
    found = kstore.open(path).cursors().get("g")
    return None if found is None else found.offset


def test_after_a_failed_sync_the_file_is_another(ram: Path) -> None:
    """A second sync of the same file could say that all is well, and it is not: also one of another member,
    which does not know of the failure."""
    path = filled(ram, 3)
    with cursor_at_end(path) as jobs:
        inode = (ram / FILE).stat().st_ino
        names: list[str] = []
        trace_calls(lambda call, *_: names.append(call))
        fail_call(0, own=True)
        jobs.commit(11)
        trace_calls(None)
        for nth in range(1, calls_made() + 1):
            fail_call(nth, errno.EIO, own=True)
            with contextlib.suppress(OSError):
                jobs.commit(11 + nth)
            fail_call(0)
            if (ram / FILE).stat().st_ino != inode:
                assert position(path) == 11 + nth
        assert "sync" in names
        assert (ram / FILE).stat().st_ino != inode
        jobs.commit(101)
    assert position(path) == 101


def test_on_a_full_disk_it_goes_on_when_there_is_room(ram: Path) -> None:
    path = filled(ram, 3)
    with cursor_at_end(path) as jobs:
        for _ in range(3):
            for nth in range(1, 20):
                fail_call(nth, errno.ENOSPC, "half", own=True)
                with contextlib.suppress(OSError):
                    jobs.commit(6)
                fail_call(0)
                assert position(path) in (3, 6)
        jobs.commit(8)
    assert position(path) == 8


def test_no_memory_to_leave_a_batch(tmp_path: Path) -> None:
    """Its records are given once more."""
    testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
    with kstore.open(filled(tmp_path, 0)).cursor("g") as jobs:
        for i in range(3):

            def work() -> None:
                with jobs.batch(3):
                    testcapi.set_nomemory(0, 0)
                    raise ZeroDivisionError

            try:
                with pytest.raises((ZeroDivisionError, MemoryError)):
                    work()
            finally:
                testcapi.remove_mem_hooks()
            assert jobs.position == 3 * i
            assert next(iter(jobs)).offset == 3 * i
            with jobs.batch(2) as records:
                assert [record.offset for record in records] == [3 * i + 1, 3 * i + 2]


def test_an_interrupted_close_is_none(ram: Path) -> None:
    """is_closed is false as long as the group is locked."""

    def stop() -> None:
        raise KeyboardInterrupt

    path = filled(ram, 3)
    nth, stopped, seen = 0, True, set()
    while stopped:
        nth += 1
        jobs = kstore.open(path).cursor("g")
        with contextlib.suppress(KeyboardInterrupt), Injector("line", nth, stop) as injector:
            jobs.close()
        stopped = injector.done
        seen.add(jobs.is_closed)
        if jobs.is_closed:
            kstore.open(path).cursor("g").close()
        jobs.close()
        assert jobs.is_closed
        kstore.open(path).cursor("g").close()
    assert seen == {False, True}


def test_damage_is_an_error(ram: Path) -> None:
    """No flipped bit gives another position than one that was committed last."""
    path = filled(ram, 3)
    file = ram / FILE
    whole = file.read_bytes()
    assert position(path) == 3
    size = len(whole) // 3
    for at in some(range(len(whole)), 60, "damage"):
        for bit in (0, 7):
            file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            with pytest.raises(kstore.CorruptRecordError, match=FILE):
                kstore.open(path).cursors()
            with pytest.raises(kstore.CorruptRecordError, match=FILE):
                kstore.open(path).cursor("g")
            assert len(file.read_bytes()) == len(whole)  # nothing was cut off
    file.write_bytes(whole[size:])  # the beginning may be missing: a file that was written anew has none
    assert position(path) == 3
    file.write_bytes(whole[:size] + whole[2 * size :])
    with pytest.raises(kstore.CorruptRecordError, match="offset of a batch"):
        position(path)
    file.write_bytes(b"something else, and long enough to be a batch or two" * 3)
    with contextlib.suppress(kstore.CorruptRecordError):
        assert position(path) is None


def test_a_torn_end_is_cut_off(ram: Path) -> None:
    path = filled(ram, 3)
    file = ram / FILE
    whole = file.read_bytes()
    size = len(whole) // 3
    for cut in range(2 * size + 1, len(whole)):
        for torn in (whole[:cut], whole[: 2 * size] + bytes(cut - 2 * size)):
            file.write_bytes(torn)
            assert position(path) == 2
            with cursor_at_end(path) as jobs:
                jobs.commit(6)
            assert position(path) == 6


def test_a_damaged_id(ram: Path) -> None:
    path = filled(ram, 3)
    file = path / "kstore.json"
    good = file.read_bytes()
    for damaged in (b"", good[:-1], good * 2, b"x" * 32 + b"\n", b"\xff\n"):
        file.write_bytes(damaged)
        for call in (lambda: kstore.open(path).cursor("g"), kstore.open(path).cursors):
            with pytest.raises(kstore.CorruptCheckpointError, match="manifest"):
                call()


@pytest.mark.parametrize(("module", "name"), [(member_lock, "File"), (manifest, "write_whole")])
@pytest.mark.parametrize(("code", "told"), [(errno.EACCES, True), (errno.EROFS, True), (errno.EIO, False)])
def test_the_error_says_what_needed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, code: int, told: bool
) -> None:
    """Whoever only reads the log does not expect that something is written."""

    def refuse(path: str, *args: object, **options: object) -> None:
        raise OSError(code, "refused", path)

    kstore.open(tmp_path / "t-0", "a").close()
    log = kstore.open(tmp_path / "t-0")
    with monkeypatch.context() as patched:
        patched.setattr(module, name, refuse)
        with pytest.raises(OSError, match="refused") as caught:
            log.cursor("group")
    assert any("a cursor keeps" in note for note in getattr(caught.value, "__notes__", [])) == told
    log.cursor("group").close()
