"""The lock of Python code: who would wait for himself, straight or by way of others, is refused."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.mutex import Mutex
from kstore.errors import ReentrantCallError
from kstore.log.threads.wakeup import Wakeup


@contextmanager
def held_elsewhere(mutex: Mutex) -> Iterator[threading.Event]:
    """Another thread has it until the end, or until the event is set."""
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with mutex:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    try:
        yield leave
    finally:
        leave.set()
        thread.join()


def test_nobody_waits_for_an_outer_lock_inside_an_inner_one() -> None:
    """Whoever has the outer one may be waiting for the inner one: only a signal handler comes to this."""
    inner, another, outer = Mutex(inner=True), Mutex(inner=True), Mutex()
    with held_elsewhere(outer), inner, pytest.raises(ReentrantCallError), outer:
        pass
    with inner, another, outer:  # no need to wait
        pass
    with held_elsewhere(another) as leave, inner:
        leave.set()
        with another:
            pass


def test_later_does_not_wait() -> None:
    mutex = Mutex()
    called: list[int] = []
    with held_elsewhere(mutex):
        mutex.later(lambda: called.append(1))
        assert called == []
    assert called == [1]
    with mutex:
        mutex.later(lambda: called.append(2))
        mutex.later(lambda: called.append(3), wait=True)  # it would wait for itself
        assert called == [1]
    assert called == [1, 2, 3]
    mutex.later(lambda: called.append(4))
    mutex.later(lambda: called.append(5), wait=True)
    assert called == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("durability", ["group", "each"])
def test_a_handler_inside_a_change_of_the_directory(tmp_path: Path, durability: Any) -> None:
    """What it appends to another log could not be waited for: the thread that syncs may need the directory. So nothing is
    appended."""
    (tmp_path / "meta.properties").touch()
    with (
        kstore.open(tmp_path / "a-0", "a") as changed,
        kstore.open(tmp_path / "b-0", "a", durability=durability) as other,
    ):
        with changed._log_dir._writing:
            with pytest.raises(ReentrantCallError):
                other.append(b"v")
            with pytest.raises(ReentrantCallError):
                other.extend([b"v"])
            changed.append(b"not waited for")
        assert other.log_end_offset == 0
        assert other.append(b"v") == 0


def test_who_syncs_for_all_may_wait_for_the_log(tmp_path: Path) -> None:
    """Another thread appends at that moment: nobody is called from within himself."""
    inside, leave = threading.Event(), threading.Event()
    waits = False

    def clock() -> int:
        if waits and threading.current_thread() is thread:
            inside.set()
            leave.wait()
        return 10**12

    with kstore.open(tmp_path / "t-0", "a", clock=clock) as log:
        log.append(b"v")
        thread = threading.Thread(target=log.append, args=(b"v",))
        waits = True
        thread.start()
        inside.wait()
        threading.Timer(0.1, leave.set).start()
        log.wait_until_durable(1)
        thread.join()
        assert log.durable_offset >= 1


@pytest.mark.parametrize("ends", ["well", "raising"])
def test_it_is_left_though_there_is_no_memory(ends: str) -> None:
    """Not even for a tuple of what was raised, of which CPython keeps a few."""
    testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
    mutex = Mutex()
    error = KeyError("a body that fails")
    kept = [(at, at, at) for at in range(5000)]

    def use() -> None:
        with mutex:
            testcapi.set_nomemory(0, 0)
            if ends == "raising":
                raise error

    try:
        use()
    except (KeyError, MemoryError):
        pass
    finally:
        testcapi.remove_mem_hooks()
    assert len(kept) == 5000
    entered: list[bool] = []

    def enter() -> None:
        with mutex:
            entered.append(True)

    enter()  # ReentrantCallError, if this thread still has it
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(60)
    assert entered == [True, True]


def test_a_wakeup_takes_no_memory() -> None:
    """Else a thread would not hear that its log is garbage, and stay for good."""
    testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
    wakeup = Wakeup()
    testcapi.set_nomemory(0, 0)
    try:
        wakeup.set()
    finally:
        testcapi.remove_mem_hooks()
    assert wakeup.wait(0)
