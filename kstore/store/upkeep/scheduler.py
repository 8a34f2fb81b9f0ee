"""When the tasks of a store are run: each once an interval, as one job of a worker."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable

from kstore.arguments import MAX64
from kstore.engine.io.synchronization import Mutex
from kstore.light_typing import TYPE_CHECKING
from kstore.log.worker import Job
from kstore.store.open_partitions import OpenPartitions
from kstore.store.topic_catalog import TopicCatalog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kstore.log.worker import Worker
    from kstore.store.upkeep.failures import Failures

_FIRST_MS = 30_000  # until a task first runs, as Kafka's log.initial.task.delay.ms
_LEAST_MS = 10  # between two runs, though an interval may be 0
_AGAIN_MS = 1000  # after a clock that failed
_MOST_MS = 60_000  # of real waiting, because the store's clock may jump
_NO_THREAD = "it could not begin: no memory, no more threads, or the call was interrupted"

Task = Callable[[OpenPartitions, int], None]  # at a time
Interval = Callable[[TopicCatalog], int]  # in ms of the store's clock; MAX64: never


class Scheduler:
    """The job that runs tasks of a store, each once an interval. The job does not keep the store alive."""

    def __init__(
        self,
        logs: OpenPartitions,
        worker: Worker,
        tasks: Mapping[Task, Interval],
        failures: Failures,
        *,
        may_run: Callable[[Task, TopicCatalog], bool],
    ) -> None:
        """may_run: whether this process runs a task, of those that share the store."""
        self._job = Job(worker, self._run)
        self._logs = weakref.ref(logs, lambda _: self.stop(wait=False))
        self._tasks = tasks
        self._may_run = may_run
        self._failures = failures
        self._due: dict[Task, int] = {}
        self._running = Mutex()
        self.missing = ""  # why there is no thread, though there ought to be one

    @property
    def is_stopped(self) -> bool:
        """Whether what runs has to end."""
        return self._job.is_stopped

    def start(self) -> None:
        """Runs what is due, now and later. `missing` if there is no thread for it."""
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
        left, logs = _MOST_MS, self._logs()
        if logs is None or self.is_stopped:
            return left
        with self._running:
            for task, interval_of in self._tasks.items():
                if self.is_stopped:
                    break
                interval = max(interval_of(logs.catalog), _LEAST_MS)
                if interval >= MAX64:
                    self._due.pop(task, None)
                    continue
                due = min(self._due.get(task, now + _FIRST_MS), now + interval)
                if due <= now:
                    due = now + interval
                    with self._failures.noted(task.__name__):
                        if self._may_run(task, logs.catalog):
                            logs.catalog.look()  # other processes may have changed what a topic keeps
                            task(logs, now)
                self._due[task] = due
                left = min(left, due - now)
        return left

    def _run(self) -> float | None:
        logs = self._logs()
        if logs is None:
            return None
        left = _AGAIN_MS
        with self._failures.noted("clock"):
            left = self.run_due(logs.catalog.now())
        self._failures.report()
        return left / 1000
