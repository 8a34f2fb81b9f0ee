"""Other threads, and waiting for what they do."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Returns when the condition holds. AssertionError after `seconds`, far more than it takes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def until_waiting(thread: int) -> None:
    """Returns when a thread, by its ident, waits in kstore for what is appended next."""
    until(lambda: sys._current_frames()[thread].f_code.co_name == "wait_readable")


def until_closed(most: int) -> None:
    """Returns when this process has that many descriptors at most: another thread may have one just now."""
    until(lambda: descriptors() <= most)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


@contextmanager
def threads_doing(*works: Callable[[], object], ended: threading.Event | None = None) -> Iterator[None]:
    """Each of these in its own thread. The end of the block joins them, and raises their first exception."""
    failures: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as e:  # noqa: BLE001 - for the main thread
            failures.append(e)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        if ended is not None:
            ended.set()
        for thread in threads:
            thread.join()
    for failure in failures:
        raise failure
