"""Appending from asyncio: the event loop goes on while a thread appends, and syncs once for all tasks that wait."""

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

_MOST = 4096  # calls that one sync serves
_appenders: "weakref.WeakSet[AsyncAppender]" = weakref.WeakSet()


class Log(Protocol):
    """What is asked of a log."""

    path: str
    _durability: str

    @property
    def _end_offset(self) -> int: ...
    def _gather_here(self, begins: bool, /) -> None: ...
    def wait_until_durable(self, offset: int, /) -> None: ...


class _Call:
    """A call that a task waits for, and what comes of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.error: BaseException | None = MemoryError("the call was not made")
        self.result: Any = None
        self.work = work
        self._is_done = False
        self._future: asyncio.Future[None] | None = None

    def run(self) -> None:
        try:
            self.result, self.error = self.work(), None
        except BaseException as e:  # noqa: BLE001 - the task meets it
            self.error = e

    def finish(self) -> None:
        """Wakes the task, in the thread of its loop."""
        self._is_done = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def outcome(self, withdraw: Callable[[], bool]) -> Any:
        """The result. If the task is cancelled, it waits nevertheless, unless the call has not begun: it is to know."""
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


async def in_thread(work: Callable[..., Any], *args: Any) -> Any:
    """The result of a call that a thread of the loop's makes."""
    call = _Call(partial(work, *args))
    queue = deque([call])

    def run() -> None:
        if _take(queue, call):
            call.run()
            _tell([call])

    call.loop.run_in_executor(None, run)
    return await call.outcome(partial(_take, queue, call))


class AsyncAppender:
    """Makes calls that append to a log, in the order in which they come, on a thread that ends when none is left."""

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque()
        self._guard = Mutex()
        self._is_running = False
        self._is_closed = False
        self._thread = 0
        _appenders.add(self)

    async def append(self, log: Log, work: Callable[[], Any]) -> Any:
        """The result of a call that appends to the log, and what it appended is as durable as the log says."""
        call = _Call(work)
        try:
            with self._guard:
                if self._is_closed:
                    raise LogClosedError(f"{log.path} is closed")
                self._calls.append(call)
                if not self._is_running:
                    _thread.start_new_thread(self._run, (log,))
                    self._is_running = True
        except BaseException:  # no more threads, say
            _take(self._calls, call)
            raise
        return await call.outcome(partial(_take, self._calls, call))

    def _run(self, log: Log) -> None:
        self._thread = _thread.get_ident()
        while True:
            with self._guard:
                self._is_running = bool(self._calls)
                if not self._is_running:
                    return
            done: list[_Call] = []
            try:
                log._gather_here(True)
                with suppress(IndexError):
                    while len(done) < _MOST:
                        done.append(self._calls.popleft())
                        done[-1].run()
                if log._durability != "none":
                    with suppress(ValueError):  # it was truncated meanwhile
                        log.wait_until_durable(log._end_offset)
            except BaseException as e:  # noqa: BLE001 - tasks whose records may not be durable meet it
                for call in done:
                    call.error = call.error or e
            finally:
                log._gather_here(False)
                _tell(done)

    def close(self) -> None:
        """Takes no more calls, and waits until all are made."""
        if self._is_running and self._thread == _thread.get_ident():
            raise ReentrantCallError("the log was called from within itself: by what it appends")
        self._is_closed = True
        while self._is_running:
            time.sleep(0.001)


def _close_all() -> None:
    """Before the interpreter ends: a thread that it stopped in the middle of a sync would keep every other from it."""
    for appender in list(_appenders):
        appender.close()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_appenders.clear)  # their threads are the parent's
