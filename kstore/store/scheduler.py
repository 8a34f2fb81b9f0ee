"""A thread that works for a store, and when each of its tasks is due."""

import contextlib
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from kstore.arguments import MAX64
from kstore.engine.io.mutex import Mutex
from kstore.errors import ReentrantCallError
from kstore.log.threads.background import Background
from kstore.log.threads.wakeup import Wakeup

Task = Callable[[Any, int], None]  # of a store, at a time
_FIRST_MS = 30_000  # until a task first runs, as Kafka's log.initial.task.delay.ms
_LEAST_MS = 10  # between two runs, though an interval may be 0
_AGAIN_MS = 1000  # after a clock that failed
_MOST_MS = 60_000  # of real waiting, because the store's clock may jump
_NO_MORE = "it could not begin, for want of memory or because there can be no more threads"


class Scheduler:
    """Runs tasks of a store, each once an interval: a function gives it, in ms of the store's clock.

    The thread does not keep the store, nor the interpreter, alive. `attempt` makes the context in which a
    task runs, and which lets no error out.
    """

    def __init__(
        self,
        store: Any,
        tasks: Mapping[Task, Callable[[Any], int]],
        attempt: Callable[[Any, str, object], AbstractContextManager[None]],
    ) -> None:
        self._wake = wake = Wakeup()
        self._store = weakref.ref(store, lambda _: wake.set())
        self._tasks = tasks
        self._attempt = attempt
        self._due: dict[Task, int] = {}
        self._running = Mutex()
        self._starting = Mutex()
        self.missing = ""  # why there is no thread, though there ought to be one
        self._thread: Background | None = None
        self.is_stopped = False

    def start(self) -> None:
        """Begins the thread if there is none, else lets it look at the intervals again. `missing` if it could
        not begin."""
        with contextlib.suppress(ReentrantCallError), self._starting:  # else whom this interrupts does it
            self.missing = "" if self.is_stopped or self._begin() else _NO_MORE
        self._wake.set()

    def _begin(self) -> bool:
        """Whether there is a thread, perhaps one that an interrupted call has begun."""
        with contextlib.suppress(RuntimeError, MemoryError):  # no more threads, or no memory for one
            if self._thread is None or not self._thread.is_begun or self._thread.is_over:
                self.missing = "it was interrupted when it was to begin, and will be begun again"
                self._thread = Background(target=self._run, name="kstore-store", daemon=True)
                self._thread.start()
            return self._thread.has_begun()
        return False

    def stop(self) -> None:
        """Ends the thread, after what it is doing now."""
        self.is_stopped = True
        self._wake.set()

    def wait(self) -> None:
        """Waits until the thread has ended."""
        if self._thread is not None:
            self._thread.wait()

    def run_due(self, now: int) -> int:
        """Does what is due, on this thread. Returns for how many ms nothing more will be."""
        left, store = _MOST_MS, self._store()
        if (
            store is None or store._closed
        ):  # in a child of fork the lock may be held by a thread that is not there
            return left
        with self._running:
            for task, interval_of in self._tasks.items():
                if self.is_stopped:
                    break
                interval = max(interval_of(store), _LEAST_MS)
                if interval >= MAX64:
                    self._due.pop(task, None)
                    continue
                due = min(self._due.get(task, now + _FIRST_MS), now + interval)
                if due <= now:
                    due = now + interval
                    with self._attempt(store, task.__name__, "the store"):
                        task(store, now)
                self._due[task] = due
                left = min(left, due - now)
        return left

    def _run(self) -> None:
        left = 0
        while True:
            self._wake.wait(left / 1000)
            store = self._store()
            if self.is_stopped or store is None or store._closed:
                self._wake.set()  # an interrupt while it was started may have left another thread that waits for this
                return
            left = _AGAIN_MS
            try:
                with self._attempt(store, "clock", "the store"):
                    left = self.run_due(store._now())
                store._work.begin_missing(store)
                store._work.tell()
            except BaseException:  # noqa: BLE001, S110 - there was no memory to say what failed: it is tried again
                pass
            del store
