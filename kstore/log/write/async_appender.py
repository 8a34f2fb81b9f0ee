"""Appending from asyncio: the event loop goes on while a thread appends, and syncs once for all tasks that
wait."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kstore.engine.append.log_end import LogEnd
from kstore.errors import KstoreError, LogClosedError, ReentrantCallError
from kstore.log.worker import Job, Worker

_MOST_CALLS = 4096  # that one sync of a log serves
_MOST_LOGS = 64  # that stay open for calls that are not yet told


# A call is going to append at the end of a log, by this object, which the store does not close meanwhile.
Touch = Callable[[LogEnd, object], None]
Work = Callable[[Touch], Any]  # appends, to logs that it hands to its argument before


class _Call:
    """A call that a task waits for, and what comes of it."""

    def __init__(self, work: Work) -> None:
        self.loop = asyncio.get_running_loop()
        self.error: BaseException | None = MemoryError("the call was not made")
        self.result: Any = None
        self.work = work
        self._is_done = False
        self._future: asyncio.Future[None] | None = None

    def run(self, appends_to: Touch) -> None:
        try:
            self.result, self.error = self.work(appends_to), None
        except BaseException as e:  # noqa: BLE001 - the task meets it
            self.error = e

    def finish(self) -> None:
        """Wakes the task, in the thread of its loop."""
        self._is_done = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def outcome(self, calls: deque[_Call]) -> Any:
        """The result. If the task is cancelled, it waits nevertheless, unless the call has not begun: it is
        to know."""
        cancelled: Any = None
        while not self._is_done:
            self._future = self.loop.create_future()
            try:
                await self._future
            except asyncio.CancelledError as e:
                if _take(calls, self):
                    e.appended = None  # type: ignore[attr-defined]
                    raise
                cancelled = e
        if cancelled is not None:
            cancelled.appended = self.result if self.error is None else None
            raise cancelled from self.error
        if self.error is not None:
            raise self.error
        return self.result


def _finish(calls: list[_Call]) -> None:
    for call in calls:
        call.finish()


def _take(queue: deque[_Call], call: _Call) -> bool:
    """Whether a call was still there."""
    with suppress(ValueError):
        queue.remove(call)
        return True
    return False


class _Turn:
    """Calls that are made one after the other, and the logs they append to: each is synced once for all of
    them."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._logs: dict[LogEnd, list[_Call]] = {}
        self._held: list[object] = []

    def has_room(self) -> bool:
        return len(self._calls) < _MOST_CALLS and len(self._logs) < _MOST_LOGS

    def make(self, call: _Call) -> None:
        self._calls.append(call)
        call.run(self._appends_to)

    def _appends_to(self, log: LogEnd, owner: object) -> None:
        """The last call appends to a log: it does not wait there until its records are durable."""
        calls = self._logs.setdefault(log, [])
        calls.append(self._calls[-1])
        if len(calls) == 1:
            self._held.append(owner)
            log.gather_here(True)

    def finish(self) -> None:
        """What was appended is as durable as the logs say, or its calls fail. Wakes the tasks."""
        for log, calls in self._logs.items():
            try:
                if log.durability:
                    with suppress(ValueError):  # it was truncated meanwhile
                        log.wait_until_durable(log.offset)
            except (OSError, KstoreError, MemoryError) as e:
                for call in calls:
                    call.error = call.error or e
            finally:
                log.gather_here(False)
        for loop in {call.loop for call in self._calls}:
            with suppress(RuntimeError):  # a loop that is closed runs no task
                loop.call_soon_threadsafe(_finish, [call for call in self._calls if call.loop is loop])


class AsyncAppender:
    """Makes calls that append to logs, in the order in which they come, on a worker of its own: syncs of
    several logs go on side by side."""

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque()
        self._worker = Worker("kstore-async")
        self._job = Job(self._worker, self._make_calls)
        self._is_closed = False

    async def append(self, name: str, work: Work) -> Any:
        """The result of a call, when what it appended is as durable as its logs say. `name` is that of what
        is closed."""
        call = _Call(work)
        self._calls.append(call)
        if self._is_closed and _take(self._calls, call):  # else close() waits for it
            raise LogClosedError(f"{name} is closed")
        try:
            self._job.ask()
        except (RuntimeError, MemoryError):  # no more threads
            if _take(self._calls, call):  # else a thread of an earlier call makes it
                raise
        return await call.outcome(self._calls)

    def _make_calls(self) -> None:
        while self._calls:
            turn = _Turn()
            try:
                while self._calls and turn.has_room():
                    with suppress(IndexError):  # its task was cancelled
                        turn.make(self._calls.popleft())
            finally:
                turn.finish()

    def close(self) -> None:
        """Takes no more calls, and waits until all are made."""
        if self._worker.is_here():
            raise ReentrantCallError("the log was called from within itself: by what it appends")
        self._is_closed = True
        while self._calls and self._worker.is_at_work():
            time.sleep(0.001)
        self._worker.wait_for(self._job)
