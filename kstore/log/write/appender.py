"""log.appender(): small appends of many threads become few batches."""

import atexit
import contextlib
import os
import weakref
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from kstore.arguments import number
from kstore.engine.append.record_accumulator import RecordAccumulator
from kstore.errors import LogClosedError, ReentrantCallError
from kstore.log.threads.background import Background
from kstore.log.threads.wakeup import Wakeup

MAX_LINGER_MS = 86_400_000  # a day
_appenders: "weakref.WeakSet[Appender]" = weakref.WeakSet()


class _Log(Protocol):
    """What an appender asks of its log, beside taking batches."""

    path: str
    _appenders: "set[Appender] | None"


class Appender(RecordAccumulator):
    """Gathers records of many threads and appends them in batches. log.appender() makes one.

    append() returns a Ticket at once; its wait() returns the offset when the record is in the log. A batch is
    appended when it has `batch_bytes`, or after `linger_ms` by a thread of this object, even if the program
    has dropped the appender and its log by then. Use it in a `with` statement, or close it: records that
    still wait are lost if the process dies.
    """

    def __init__(self, log: Any, *, linger_ms: float = 5.0, batch_bytes: int = 16384) -> None:
        self._linger = number("linger_ms", linger_ms, 0, MAX_LINGER_MS) / 1000
        if log._closed:
            raise LogClosedError(f"{log.path} is closed")
        self._batch = Wakeup()  # a batch is being gathered
        self._stopped = Wakeup()
        self._is_stopped = False
        # Holds this object from the first record of a batch until the thread has appended it: whoever drops
        # the appender and its log loses no record. The thread itself holds it weakly, and ends with it.
        self._held: list[Appender] = []
        self._thread = Background(
            target=_linger,
            args=(weakref.ref(self), self._held, self._batch, self._stopped),
            name="kstore-appender",
            daemon=True,
        )
        self._thread.start()
        if not self._thread.has_begun():
            raise MemoryError("the thread that appends after linger_ms could not begin")
        self._log: _Log = log
        _appenders.add(self)

    def _began(self) -> None:
        self._held.append(self)
        self._batch.set()

    def close(self) -> None:
        """Appends the records that were gathered, and ends. OSError if they cannot be written.

        ReentrantCallError from within the appender: nothing is done; from within its log: it is closed, but
        what was gathered is not appended.
        """
        if self._is_stopped:
            return
        try:
            self._close()
        except ReentrantCallError:
            if self._is_closed:
                self._stop()  # and wait not: its thread may wait for what this one is inside of
            raise
        except BaseException:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        self._stop()
        self._thread.wait()
        if isinstance(self._log._appenders, set):
            self._log._appenders.discard(self)
        self._is_stopped = True  # last: if it is interrupted, another close() goes on

    def _stop(self) -> None:
        self._stopped.set()
        self._batch.set()
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_stopped else f"linger_ms={self._linger * 1000:g}"
        return f"<Appender of {self._log.path}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an appender cannot be pickled: it belongs to the process that has the log open for writing"
        )

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self._stop()


def _linger(
    appender: "weakref.ref[Appender]", held: "list[Appender]", batch: Wakeup, stopped: Wakeup
) -> None:
    while batch.wait():
        own = appender()
        if own is None:
            return
        held.clear()  # `own` holds it; a batch that begins from here on holds it anew
        gathered = own._open_batch
        if stopped.wait(own._linger):
            return
        # Whoever appends, flushes or waits next meets what went wrong, be it in the log's clock: this thread
        # must not die.
        with contextlib.suppress(Exception):
            own._flush_batch(gathered)
        del own


def _forked() -> None:
    """In a child of fork, the log is its parent's, and so is what was gathered for it."""
    for appender in list(_appenders):
        appender._leave_to_parent()
        appender._is_stopped = True
    _appenders.clear()


def _flush_all() -> None:
    """At the end of the interpreter: what was gathered is appended, though nobody closed the appender."""
    for appender in list(_appenders):
        with contextlib.suppress(Exception):
            appender.flush()


os.register_at_fork(after_in_child=_forked)
atexit.register(_flush_all)
