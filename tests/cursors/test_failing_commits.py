"""Every file operation of a commit fails once, or is the last of the process: the old position is there, or
the new one."""

import contextlib
import errno
import itertools
import operator
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.faults import calls_made, fail_call, trace_calls
from kstore.log.cursors import member_lock
from kstore.log.cursors.group_file import GroupFile
from kstore.log.cursors.member_lock import LockFile
from kstore.log.files import manifest
from tests.helpers.calls import some_calls, some_points
from tests.helpers.effort import some
from tests.helpers.injector import Injector
from tests.helpers.processes import run_python
from tests.helpers.reading import cursor_at_end, read_to_end
from tests.helpers.waiting import descriptors, until_closed

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


def _commit(jobs: kstore.Cursor) -> None:
    jobs.seek(1501)
    jobs.commit()


def _undurable(jobs: kstore.Cursor) -> None:
    jobs.seek(1501)
    jobs.commit(durable=False)


def _forget(jobs: kstore.Cursor) -> None:
    jobs.forget()


# what is done, and how many commits there were: none, some, and so many that the file is written anew
STORIES: dict[str, tuple[Callable[[kstore.Cursor], None], int]] = {
    "first": (_commit, 0),
    "next": (_commit, 3),
    "undurable": (_undurable, 3),
    "anew": (_commit, 500),
    "forget": (_forget, 3),
}


def position(path: Path) -> int | None:
    found = kstore.open(path).cursors().get("g")
    return None if found is None else found.offset


def outcomes(directory: Path, story: str) -> tuple[int | None, int | None, int]:
    """The position before and after, and how many calls it takes, from the opening of the cursor on."""
    work, commits = STORIES[story]
    path = filled(directory, commits)
    before = position(path)
    log = kstore.open(path)
    fail_call(0, own=True)
    with log.cursor("g") as jobs:
        work(jobs)
    calls = calls_made()
    return before, position(path), calls


def goes_on(path: Path) -> None:
    with cursor_at_end(path) as jobs:
        jobs.commit(1901)
    assert position(path) == 1901
    with kstore.open(path, "a") as log:
        assert log.recovery.findings == []


@pytest.mark.parametrize("story", STORIES)
def test_killed_at_every_call(ram: Path, story: str) -> None:
    before, after, calls = outcomes(ram / "whole", story)
    assert before != after
    seen = set()
    for how in ("kill", "kill_half"):
        for nth in some_calls(calls, 2, (story, how)):
            path = filled(ram / f"{how}{nth}", STORIES[story][1])
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    log = kstore.open(path)
                    fail_call(nth, how=how, own=True)
                    with log.cursor("g") as jobs:
                        STORIES[story][0](jobs)
                os._exit(0)
            assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
            seen.add(position(path))
            goes_on(path)
    assert seen == {before, after}


@pytest.mark.parametrize(("error", "how"), [(errno.EIO, "error"), (errno.ENOSPC, "half")])
@pytest.mark.parametrize("story", STORIES)
def test_any_call_fails(ram: Path, story: str, error: int, how: str) -> None:
    before, after, calls = outcomes(ram / "whole", story)
    for nth in range(1, calls + 1):
        path = filled(ram / f"t{nth}", STORIES[story][1])
        log = kstore.open(path)
        fail_call(nth, error, how, own=True)
        try:
            with log.cursor("g") as jobs:
                STORIES[story][0](jobs)
        except OSError as e:
            assert e.errno == error  # noqa: PT017
            fail_call(0)
            assert position(path) in (before, after)
        else:
            fail_call(0)
            assert position(path) == after
        goes_on(path)


def test_after_a_failed_sync_the_file_is_another(ram: Path) -> None:
    """A second sync of the same file could say that all is well, and it is not."""
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
        assert "sync" in names
        jobs.commit(101)
        assert (ram / FILE).stat().st_ino != inode
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


def _interrupted(kind: str, nth: int, error: type[BaseException], work: Callable[[], object]) -> bool:
    """Does the work, which is interrupted at its nth point. False if it has fewer."""

    def stop() -> None:
        raise error

    with contextlib.suppress(error), Injector(kind, nth, stop) as injector:
        work()
    return injector.done


@pytest.mark.parametrize(("kind", "error"), [("line", MemoryError), ("check", KeyboardInterrupt)])
def test_a_signal_that_raises(ram: Path, kind: str, error: type[BaseException]) -> None:
    """Wherever it comes in a commit: the position is the old or the new one, nobody is kept out, and it goes
    on."""
    path = filled(ram, 3)
    jobs = kstore.open(path).cursor("g")
    seen = set()
    for nth in some_points(12, kind):
        jobs.seek(0)
        jobs.commit()
        read_to_end(jobs)
        stopped = _interrupted(kind, nth, error, lambda: jobs.commit(11))
        found = position(path)
        assert found in (0, 11)
        seen.add(found)
        child = os.fork()
        if child == 0:
            signal.alarm(20)  # ends it, if it waits for a lock that was left locked
            with contextlib.suppress(BaseException):
                with cursor_at_end(path, "h") as other:
                    other.commit(2)
                GroupFile(str(ram), "g", LockFile.of(str(ram))).read()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        jobs.commit(11)
        assert position(path) == 11
        if not stopped:
            break
    assert nth > 60
    assert seen == {0, 11}
    jobs.close()


def test_a_signal_in_the_commit_of_a_batch(ram: Path) -> None:
    """What is on the disk then is not taken back by the next batch, which is shorter."""
    path = filled(ram, 20)

    with kstore.open(path).cursor("g") as jobs:
        seen = set()
        for nth in some_points(3, "batch"):
            jobs.seek(0)
            jobs.commit()
            batch = jobs.batch(8)
            batch.__enter__()
            stopped = _interrupted("check", nth, KeyboardInterrupt, partial(batch.__exit__, None, None, None))
            found = position(path)
            seen.add(found)
            del batch
            with jobs.batch(3) as records:
                assert records[0].offset == found
            assert position(path) == records[0].offset + 3
            if not stopped:
                break
    assert seen == {0, 8}


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


def test_a_signal_in_the_reading_of_a_batch(ram: Path) -> None:
    """Nothing is said to be cut off."""
    path = filled(ram, 0)
    with kstore.open(path).cursor("g", start=1000) as jobs:
        for nth in some_points(12, "reading"):
            jobs.seek(1000)
            stopped = _interrupted("line", nth, KeyboardInterrupt, lambda: jobs.batch(2).__enter__())
            assert next(iter(jobs)).offset == 1000
            jobs.commit(1001, durable=False)
            if not stopped:
                break
    assert nth > 60


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in __del__
@pytest.mark.parametrize("kind", ["line", "check"])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_a_signal_while_it_is_iterated(ram: Path, kind: str, many: bool, columns: bool) -> None:
    """What the position is behind was given."""
    path = filled(ram, 0)
    made: Any = kstore.LogStore(ram).cursor("g", [path.name[:-2]]) if many else kstore.open(path).cursor("g")
    with made as jobs:
        for nth in some_points(6, (kind, many, columns)):
            jobs.seek(0)
            given: list[object] = []
            source = iter(jobs.scan(["offset"], batch_rows=3) if columns else jobs)
            take = partial(given.extend, itertools.islice(source, 1))
            stopped = _interrupted(kind, nth, KeyboardInterrupt, take)
            [at] = jobs.positions().values() if many else [jobs.position]
            assert at == (len(given) * 3 if columns else len(given)), nth
            if not stopped:
                break
    assert nth > 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in __del__
@pytest.mark.parametrize("kind", ["line", "check"])
def test_a_signal_at_opening_and_closing(ram: Path, kind: str) -> None:
    """Nobody is kept out afterwards, and no descriptor stays open."""
    path = filled(ram, 3)
    log = kstore.open(path)

    def work() -> None:
        log.cursor("g").close()

    work()
    open_files = descriptors()
    for nth in some_points(12, kind):
        stopped = _interrupted(kind, nth, KeyboardInterrupt, work)
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException), kstore.open(path).cursor("g"):
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, nth
        if not stopped:
            break
    until_closed(open_files)


@pytest.mark.parametrize("where", ["keep_byte", "LockFile.claim", "LockFile.lock"])
def test_an_interrupted_opening_keeps_no_lock(ram: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Also while somebody keeps the exception, as a prompt does: its traceback has what was made so far."""
    path = filled(ram, 3)
    name = f"kstore.log.cursors.member_lock.{where}"
    real = operator.attrgetter(where)(member_lock)

    def interrupted(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(name, interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            kstore.open(path).cursor("g")
    code = f"import kstore; kstore.open({str(path)!r}).cursor('g').close()"
    assert run_python(code).returncode == 0
    kstore.open(path).cursor("g").close()
    assert kept.value.__traceback__ is not None


def test_an_interrupted_close_is_none(ram: Path) -> None:
    """is_closed is false as long as the group is locked."""
    path = filled(ram, 3)
    nth, stopped, seen = 0, True, set()
    while stopped:
        nth += 1
        jobs = kstore.open(path).cursor("g")
        stopped = _interrupted("line", nth, KeyboardInterrupt, jobs.close)
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
