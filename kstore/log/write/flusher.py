"""Flushing in the background: sealed segments, flush.messages, flush.ms (spec 5.3, 8.8)."""

import atexit
import contextlib
import threading
import weakref
from typing import Protocol

from kstore.arguments import MAX64
from kstore.errors import KstoreError, LogClosedError, LogFailedError
from kstore.log.threads.background import Background
from kstore.log.threads.wakeup import Wakeup
from kstore.log.write.reports import Reports


class Flushed(Protocol):
    """What the flusher asks of its log."""

    _reports: Reports

    @property
    def _lost_index(self) -> str | None: ...
    def flush(self) -> int: ...
    def _sync_sealed(self) -> None: ...
    def _store_recovery_point(self) -> None: ...


_flushers: "weakref.WeakSet[Flusher]" = weakref.WeakSet()


class Flusher:
    """One thread a log, started when there is first something to do. A sync that fails stops the log, not the
    thread.

    Its methods take no lock, so a signal handler may call them at any moment. All but `stop` are called with
    the mutex of the log held.
    """

    def __init__(self, log: Flushed, flush_ms: int) -> None:
        self._wake = wake = Wakeup()
        # The thread ends with the log, also when an interrupt kept the log's finalizer from stopping it.
        self._log = weakref.ref(log, lambda _: wake.set())
        self._flush_ms = flush_ms
        self._due = self._stopped = False
        self._thread: Background | None = None
        self.failure: Exception | None = None
        _flushers.add(self)
        if flush_ms < MAX64:
            self._start()
            self._check_begun()

    def _check_begun(self) -> None:
        """MemoryError if the thread could not begin. Nobody would miss it: it counts the time by itself."""
        if self._thread is None or not self._thread.is_begun or not self._thread.has_begun():
            raise MemoryError("the thread that flushes by flush_ms could not begin")

    def _start(self) -> None:
        if not self._stopped and (self._thread is None or not self._thread.is_begun or self._thread.is_over):
            self._thread = Background(target=self._run, name="kstore-flusher", daemon=True)
            with contextlib.suppress(
                RuntimeError
            ):  # no more threads: the next time, or whoever flushes, does it
                self._thread.start()

    def sealed(self) -> None:
        """A segment was sealed: bring it to the disk."""
        self._start()
        self._wake.set()

    def flush_now(self) -> None:
        """Bring everything to the disk."""
        self._due = True
        self._start()
        self._wake.set()

    def flush_every(self, flush_ms: int) -> None:
        """Another flush.ms."""
        self._flush_ms = flush_ms
        if flush_ms < MAX64:
            self._start()
        self._wake.set()

    def stop(self, *, wait: bool = True) -> None:
        """Ends the thread, after what it is doing now. Who is collecting garbage must not wait: it may be
        anywhere, also inside here."""
        self._stopped = True
        self._wake.set()
        if wait and self._thread is not None:
            self._thread.wait()

    def _run(self) -> None:
        while True:
            limit = self._flush_ms / 1000 if self._flush_ms < threading.TIMEOUT_MAX * 1000 else None
            due = not self._wake.wait(limit)
            if self._stopped:
                self._wake.set()  # an interrupt while it was started may have left another thread that waits for this
                return
            if self._due:
                self._due, due = False, True
            log = self._log()
            if log is None:
                return
            try:
                if due:
                    log.flush()
                else:
                    log._sync_sealed()
                    log._store_recovery_point()
            except LogClosedError:
                pass  # closing syncs everything itself
            except (OSError, KstoreError, MemoryError) as e:
                # If the log refuses to write from here on, closing it tells. But if it refused already, who
                # caused that was told; only that an index was lost may be met here first.
                if not isinstance(e, LogFailedError) or log._lost_index is not None:
                    self.failure = e
            reports = log._reports
            del log
            reports.pass_on()


def _stop_all() -> None:
    """Before the interpreter ends: a thread that it stopped in the middle of a sync would keep every other
    from it."""
    for flusher in list(_flushers):
        flusher.stop()


atexit.register(_stop_all)
