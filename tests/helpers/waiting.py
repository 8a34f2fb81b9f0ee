"""Other threads, and waiting for what they do."""

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
