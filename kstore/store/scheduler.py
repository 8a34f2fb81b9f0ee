"""When each task of a store is due, and the job of a worker that does it."""

import contextlib
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from kstore.config import MAX64
from kstore.engine.io.mutex import Mutex
from kstore.log.worker import Job, Worker

_FIRST_MS = 30_000  # until a task first runs, as Kafka's log.initial.task.delay.ms
_LEAST_MS = 10  # between two runs, though an interval may be 0
_AGAIN_MS = 1000  # after a clock that failed
_MOST_MS = 60_000  # of real waiting, because the store's clock may jump
_NO_THREAD = (
    "it could not begin: no memory, no more threads, or the call was interrupted; it will be begun again"
)


class Clocked(Protocol):
    """What has tasks."""

    def now(self) -> int: ...


T = TypeVar("T", bound=Clocked)
Task = Callable[[T, int], None]  # at a time


class Scheduler(Generic[T]):
    """Runs tasks of something, each once an interval: a function gives it, in ms of that one's clock.

    The job does not keep it alive. `attempt` makes the context in which a task runs, and which lets no error
    out. `report` passes on what failed.
    """

    def __init__(
        self,
        of: T,
        worker: Worker,
        tasks: Mapping[Task[T], Callable[[T], int]],
        attempt: Callable[[T, str, object], AbstractContextManager[None]],
        report: Callable[[], None],
    ) -> None:
        self._job = Job(worker, self._run)
        self._of = weakref.ref(of, lambda _: self.stop(wait=False))
        self._tasks = tasks
        self._attempt = attempt
        self._report = report
        self._due: dict[Task[T], int] = {}
        self._running = Mutex()
        self.missing = ""  # why there is no thread, though there ought to be one

    @property
    def is_stopped(self) -> bool:
        """Whether what runs has to end."""
        return self._job.is_stopped

    def start(self) -> None:
        """Looks at the intervals, now and later. `missing` if there is no thread for it."""
        if self.is_stopped:
            return
        self.missing = _NO_THREAD
        with contextlib.suppress(RuntimeError, MemoryError):
            self._job.ask()
            self.missing = ""

    def stop(self, *, wait: bool) -> None:
        """Ends it. `wait`: until what is done now is done."""
        self._job.stop(wait=wait)

    def run_due(self, now: int) -> int:
        """Does what is due, on this thread. Returns for how many ms nothing more will be."""
        left, of = _MOST_MS, self._of()
        if of is None or self.is_stopped:
            return left
        with self._running:
            for task, interval_of in self._tasks.items():
                if self.is_stopped:
                    break
                interval = max(interval_of(of), _LEAST_MS)
                if interval >= MAX64:
                    self._due.pop(task, None)
                    continue
                due = min(self._due.get(task, now + _FIRST_MS), now + interval)
                if due <= now:
                    due = now + interval
                    with self._attempt(of, task.__name__, "the store"):
                        task(of, now)
                self._due[task] = due
                left = min(left, due - now)
        return left

    def _run(self) -> float | None:
        of = self._of()
        if of is None:
            return None
        left = _AGAIN_MS
        with self._attempt(of, "clock", "the store"):
            left = self.run_due(of.now())
        self._report()
        return left / 1000
