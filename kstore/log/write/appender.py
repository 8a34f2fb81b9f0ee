"""log.appender(): small appends of many threads become few batches."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from functools import partial

from kstore.arguments import number
from kstore.engine.append.record_accumulator import RecordAccumulator
from kstore.errors import ReentrantCallError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.worker import APPENDS, Job

if TYPE_CHECKING:
    from types import TracebackType
    from typing import NoReturn, Self

    from kstore.engine.append.record_appender import RecordAppender

MAX_LINGER_MS = 86_400_000  # a day
_appenders: weakref.WeakSet[Appender] = weakref.WeakSet()


class Appender(RecordAccumulator):
    """Gathers records of many threads and appends them in batches. log.appender() makes one.

    append() returns a Ticket at once; its wait() returns the offset when the record is in the log. A batch is
    appended when it has `batch_bytes`, or after `linger_ms` by a thread, even if the program has dropped the
    appender and its log by then. Use it in a `with` statement, or close it: records that still wait are lost
    if the process dies.
    """

    def __init__(
        self,
        log: RecordAppender,
        others: set[Appender],
        path: str,
        *,
        linger_ms: float = 5.0,
        batch_bytes: int = 16384,
    ) -> None:
        """others: the appenders of the log; closing takes this one out."""
        self._linger = number("linger_ms", linger_ms, 0, MAX_LINGER_MS) / 1000
        self._is_stopped = False
        # Holds this object from the first record of a batch until that is appended: whoever drops the
        # appender and its log loses no record. The job itself holds it weakly.
        self._held: list[Appender] = []
        self._job = Job(APPENDS, partial(_append_due, weakref.ref(self), self._held))
        self._others = others
        self._path = path
        _appenders.add(self)

    def _began(self) -> None:
        self._held.append(self)
        self._job.ask(self._linger)

    def close(self) -> None:
        """Appends the records that were gathered, and ends. OSError if they cannot be written.

        ReentrantCallError from within the appender: nothing is done; from within its log: it is closed, but
        what was gathered is not appended.
        """
        if self._is_stopped:
            return
        may_wait = True
        try:
            self._close()
        except ReentrantCallError:
            may_wait = False  # for a job that waits for what this thread is inside of; the log calls again
            raise
        finally:
            if self._is_closed:
                self._held.clear()
                self._job.stop(wait=may_wait)
                if may_wait:
                    self._others.discard(self)
                self._is_stopped = may_wait  # last: if it is interrupted, another close() goes on

    def after_fork(self) -> None:
        """In a child of fork, the log is its parent's, and so is what was gathered for it."""
        self._leave_to_parent()
        self._is_stopped = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_stopped else f"linger_ms={self._linger * 1000:g}"
        return f"<Appender of {self._path}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an appender cannot be pickled: it belongs to the process that has the log open for writing"
        )


def _append_due(of: weakref.ref[Appender], held: list[Appender]) -> float | None:
    own = of()
    held.clear()  # `own` holds it
    # Whoever appends, flushes or waits next meets what went wrong, be it in the log's clock.
    with contextlib.suppress(Exception):
        if own is not None and own._append_due():
            held.append(own)
            return own._linger
    return None


def _forked() -> None:
    for appender in list(_appenders):
        appender.after_fork()
    _appenders.clear()


def _flush_all() -> None:
    """At the end of the interpreter: what was gathered is appended, though the appender was not closed."""
    for appender in list(_appenders):
        with contextlib.suppress(Exception):
            appender.flush()


os.register_at_fork(after_in_child=_forked)
atexit.register(_flush_all)
