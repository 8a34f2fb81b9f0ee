"""A lock that the collection of garbage may interrupt."""

import contextlib
import threading
from collections import deque
from collections.abc import Callable


class Guard:
    """`with guard:` is for one thread at a time. What is to run under it may also be left to `later`.

    Garbage may be collected at any moment, also in a thread that is in here, and collecting a log that was never closed
    gives up what it holds. To wait for this very thread would be for ever, and to go in beside it would find things half
    done: so it runs when the thread is through.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._inside: int | None = None  # the thread
        self._waiting: deque[Callable[[], object]] = deque()

    def later(self, call: Callable[[], object]) -> None:
        """Calls it under the guard: now, or when this thread, interrupted in here, leaves; then its OSErrors are lost."""
        if self._inside == threading.get_ident():
            self._waiting.append(call)
        else:
            with self:
                call()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._inside = threading.get_ident()
        self._depth += 1

    def __exit__(self, *error: object) -> None:
        try:
            while self._depth == 1 and self._waiting:
                with contextlib.suppress(OSError):
                    self._waiting.popleft()()
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._inside = None
            self._lock.release()
        if self._waiting and self._inside is None:  # it came after the last look
            with self:
                pass
