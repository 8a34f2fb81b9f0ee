"""Threads that work for a log."""

import threading
from pathlib import Path

import pytest

import kstore
from kstore.log.threads.background import Background
from kstore.log.threads.wakeup import Wakeup
from tests.store.test_background_threads import until


def test_who_starts_a_thread_finds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython's Event is left locked then, and the thread that was started would wait for it for ever."""

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        event._cond.acquire()  # type: ignore[attr-defined]
        raise MemoryError

    done = threading.Lock()
    done.acquire()
    thread = Background(target=done.release, name="kstore-tried", daemon=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", wait)
        thread.start()
        assert done.acquire(timeout=30)
    thread.wait()
    assert thread.is_over
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_just_begun_finds_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is over, so nobody waits for it, and the next occasion begins another one."""

    def no_memory(_: Wakeup) -> None:
        monkeypatch.undo()
        raise MemoryError

    monkeypatch.setattr(Wakeup, "set", no_memory)
    thread = Background(target=lambda: None, name="kstore-tried", daemon=True)
    thread.start()
    until(lambda: thread.is_begun and thread._started.is_set() and not thread.is_alive())
    assert thread.is_over


def test_a_thread_that_never_runs_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(self: threading.Thread) -> None:
        raise MemoryError

    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=400) as log:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_memory)
            for _ in range(3):
                log.append(b"v" * 150)
        log.append(b"v" * 150)
        assert log.flush() == 4
    assert kstore.open(tmp_path / "t-0").recovery.clean
