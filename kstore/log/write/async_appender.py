"""Appending from asyncio: the event loop goes on while a thread appends, and syncs once for all tasks that
wait."""

import _thread
import asyncio
import atexit
import os
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from kstore.engine.io.mutex import Mutex
from kstore.errors import LogClosedError, ReentrantCallError
from kstore.log.threads import background
from kstore.log.threads.wakeup import Wakeup

_MOST_CALLS = 4096  # that one sync of a log serves
_MOST_LOGS = 64  # that stay open for calls that are not yet told
_appenders: "weakref.WeakSet[AsyncAppender]" = weakref.WeakSet()


class Log(Protocol):
    """What is asked of a log."""

    _durability: str

    @property
    def _end_offset(self) -> int: ...
    def _gather_here(self, begins: bool, /) -> None: ...
    def wait_until_durable(self, offset: int, /) -> None: ...


Work = Callable[[Callable[[Any], Any]], Any]  # appends, to logs that it hands to its argument before


class _Call:
    """A call that a task waits for, and what comes of it."""

    def __init__(self, work: Work) -> None:
        self.loop = asyncio.get_running_loop()
        self.error: BaseException | None = MemoryError("the call was not made")
        self.result: Any = None
        self.work = work
        self._is_done = False
        self._future: asyncio.Future[None] | None = None

    def run(self, appends_to: Callable[[Any], Any]) -> None:
        try:
            self.result, self.error = self.work(appends_to), None
        except BaseException as e:  # noqa: BLE001 - the task meets it
            self.error = e

    def finish(self) -> None:
        """Wakes the task, in the thread of its loop."""
        self._is_done = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def outcome(self, withdraw: Callable[[], bool]) -> Any:
        """The result. If the task is cancelled, it waits nevertheless, unless the call has not begun: it is
        to know."""
        cancelled: Any = None
        while not self._is_done:
            self._future = self.loop.create_future()
            try:
                await self._future
            except BaseException as e:
                if not withdraw() and isinstance(e, asyncio.CancelledError):
                    cancelled = e
                    continue
                e.appended = None  # type: ignore[attr-defined]
                raise
        if cancelled is not None:
            cancelled.appended = self.result if self.error is None else None
            raise cancelled from self.error
        if self.error is not None:
            raise self.error
        return self.result


def _tell(calls: list[_Call]) -> None:
    """Wakes the tasks; in a loop that is closed nobody waits any more."""
    for loop in {call.loop for call in calls}:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_finish, [call for call in calls if call.loop is loop])


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
    """Calls that were made one after the other, and the logs they appended to: each is synced once for all of
    them."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self._logs: dict[Log, list[_Call]] = {}

    def has_room(self) -> bool:
        return len(self.calls) < _MOST_CALLS and len(self._logs) < _MOST_LOGS

    def appends_to(self, log: Log) -> Log:
        """The last call appends to a log: it does not wait there until its records are durable."""
        calls = self._logs.setdefault(log, [])
        calls.append(self.calls[-1])
        if len(calls) == 1:
            log._gather_here(True)
        return log

    def finish(self) -> None:
        """What was appended is as durable as the logs say, or its calls fail."""
        for log, calls in self._logs.items():
            try:
                if log._durability != "none":
                    with suppress(ValueError):  # it was truncated meanwhile
                        log.wait_until_durable(log._end_offset)
            except BaseException as e:  # noqa: BLE001 - the tasks meet it
                for call in calls:
                    call.error = call.error or e
            finally:
                log._gather_here(False)


class AsyncAppender:
    """Makes calls that append to logs, in the order in which they come, on a thread that ends when none is
    left."""

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque()
        self._guard = Mutex()
        # Empty, until the thread begins, or somebody gives it up: one step. None when there is none.
        self._runs: dict[str, bool] | None = None
        self._until = 0.0  # what has not begun by then found no memory for it
        self._is_closed = False
        self._thread = 0
        _appenders.add(self)

    async def append(self, name: str, work: Work) -> Any:
        """The result of a call, when what it appended is as durable as its logs say. `name` is that of what
        is closed."""
        call = _Call(work)
        try:
            with self._guard:
                if self._is_closed:
                    raise LogClosedError(f"{name} is closed")
                self._calls.append(call)
                if self._runs is None or not self._runs.setdefault("", False):
                    self._begin()
        except BaseException:  # no more threads, say
            _take(self._calls, call)
            raise
        return await call.outcome(partial(_take, self._calls, call))

    def _begin(self) -> None:
        """Begins the thread. MemoryError if it found none to begin with, which Python tells nobody;
        RuntimeError."""
        begun = Wakeup()
        runs: dict[str, bool] = {}
        self._until = time.monotonic() + background.BEGINS
        self._runs = runs
        _thread.start_new_thread(self._run, (runs, begun))
        begun.wait(background.BEGINS)
        if not runs.setdefault("", False):
            raise MemoryError("the thread that appends could not begin")

    def _run(self, runs: dict[str, bool], begun: Wakeup) -> None:
        if not runs.setdefault("", True):
            return
        self._thread = _thread.get_ident()
        begun.set()
        made: list[_Call] = []  # their tasks are not told yet
        while True:
            try:
                _tell(made)
                with self._guard:
                    if not self._calls:
                        self._runs = None
                        return
                turn = _Turn()
                made = turn.calls
                self._make_turn(turn)
            except BaseException:  # noqa: BLE001 - no memory: until there is, this thread must not die, as tasks wait for it
                time.sleep(0.001)

    def _make_turn(self, turn: _Turn) -> None:
        try:
            self._make_calls(turn)
            turn.finish()
        except BaseException as e:  # noqa: BLE001 - no memory: tasks whose records may not be durable meet it
            for call in turn.calls:
                call.error = call.error or e

    def _make_calls(self, turn: _Turn) -> None:
        with suppress(IndexError):  # none is left
            while turn.has_room():
                turn.calls.append(self._calls[0])  # before it is taken from the queue: it is never in neither
                if _take(self._calls, turn.calls[-1]):
                    turn.calls[-1].run(turn.appends_to)
                else:  # its task was cancelled
                    turn.calls.pop()

    def close(self) -> None:
        """Takes no more calls, and waits until all are made."""
        if self._runs and self._thread == _thread.get_ident():
            raise ReentrantCallError("the log was called from within itself: by what it appends")
        self._is_closed = True
        while (runs := self._runs) is not None and runs.get("", time.monotonic() < self._until):
            time.sleep(0.001)


def _close_all() -> None:
    """Before the interpreter ends: a thread that it stopped in the middle of a sync would keep every other
    from it."""
    for appender in list(_appenders):
        appender.close()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_appenders.clear)  # their threads are the parent's
