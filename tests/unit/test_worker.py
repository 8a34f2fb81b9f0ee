"""Jobs of a worker: each that was asked for is done when it is due, whatever interrupts who asks."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kstore.log.worker import Job, Worker, after_job
from tests.helpers.effort import times
from tests.helpers.waiting import threads_doing, until


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("kstore-test")
    yield worker
    worker.end()
    until(lambda: not threads())


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kstore-test"]


def test_in_the_order_in_which_they_are_due(worker: Worker) -> None:
    done: list[str] = []
    for name, seconds in (("late", 0.2), ("soon", 0.1), ("never", 0.15), ("moved", 1e6)):
        job = Job(worker, lambda name=name: done.append(name))  # type: ignore[misc]
        job.ask(seconds)
        if name == "never":
            job.stop()
    job.ask(0.3)
    until(lambda: "moved" in done)
    assert done == ["soon", "late", "moved"]
    assert len(threads()) == 1
    job.stop()  # the last one: the thread ends at once
    until(lambda: not threads(), 0.5)


def test_again(worker: Worker) -> None:
    left = [0.001, 0.001, None]
    Job(worker, lambda: left.pop(0)).ask()
    until(lambda: not left)


def test_a_job_that_raises_ends_no_other(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_type))
    done: list[str] = []

    def fail() -> None:
        raise SystemExit

    Job(worker, fail).ask()
    Job(worker, lambda: done.append("")).ask(0.01)
    until(lambda: done)
    assert raised == [SystemExit]


def test_who_stops_a_job_waits_for_it_but_not_for_what_comes_after(worker: Worker) -> None:
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go_on.wait(60)
        seen.append("work")
        assert after_job(lambda: until(lambda: "stopped" in seen))
        job.stop()  # within itself, it waits not

    job = Job(worker, work)
    job.ask()
    begun.wait(60)
    threading.Timer(0.05, go_on.set).start()
    job.stop()
    seen.append("stopped")
    assert seen == ["work", "stopped"]
    assert not after_job(go_on.set)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # in a weak reference's callback
def test_nothing_is_missed_beside_threads_that_end_and_signals(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals interrupt who asks at any point; their handlers ask, and raise."""
    monkeypatch.setattr("kstore.log.worker._IDLE", 0.0)
    asked, done = [0, 0], [0, 0]
    is_armed = False

    class Interrupt(Exception):
        pass

    def ask(number: int, *, count: int = 1) -> None:
        for _ in range(count):
            value = asked[number] + 1

            def work(value: int = value) -> None:
                done[number] = max(done[number], value)

            Job(worker, work).ask()
            asked[number] = value

    def handler(*_: object) -> None:
        nonlocal is_armed
        ask(1)
        if is_armed:
            is_armed = False
            raise Interrupt

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with threads_doing(lambda: ask(0, count=times(300))):
            end = time.monotonic() + 0.5 * times(1)
            while time.monotonic() < end:
                with contextlib.suppress(Interrupt):
                    try:
                        is_armed = True
                        signal.setitimer(signal.ITIMER_REAL, 0.0003)
                        ask(1, count=50)
                    finally:
                        is_armed = False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    ask(1)  # what was interrupted before it had begun a thread is done with the next
    until(lambda: done == asked)


def test_a_child_of_fork_has_its_own(worker: Worker) -> None:
    done: list[str] = []
    goes_on = threading.Event()
    Job(worker, goes_on.wait).ask()
    Job(worker, lambda: done.append("the parent's")).ask()  # due, behind the other
    child = os.fork()
    if child == 0:
        Job(worker, lambda: done.append("the child's")).ask(0.1)
        until(lambda: done)
        os._exit(done != ["the child's"])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    goes_on.set()
    assert code == 0
    until(lambda: done == ["the parent's"])


def test_a_thread_that_begins_late(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    start, done = threading.Thread.start, threading.Event()

    def late(thread: threading.Thread) -> None:
        time.sleep(1.5)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    Job(worker, done.set).ask()
    assert done.wait(10)


def test_a_thread_that_does_not_begin(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(MemoryError, match="kstore-test could not begin"):
            Job(worker, lambda: None).ask()
    until(lambda: told)
