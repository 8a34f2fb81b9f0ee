"""Flushing in the background: sealed segments, flush.messages, flush.ms (spec 5.3, 8.8)."""

import threading
import weakref
from typing import TYPE_CHECKING

from kstore.config import MAX64
from kstore.errors import KstoreError, LogClosedError
from kstore.log.wakeup import Wakeup

if TYPE_CHECKING:
    from kstore.log.writer import LogWriter


class Flusher:
    """One thread a log, started when there is first something to do. A sync that fails stops the log, not the thread."""

    def __init__(self, log: "LogWriter", flush_ms: int) -> None:
        self._log = weakref.ref(log)
        self._flush_ms = flush_ms
        self._wake = Wakeup()
        self._changing = threading.Lock()
        self._due = self._stopped = False
        self._thread: threading.Thread | None = None
        self.failure: Exception | None = None
        if flush_ms < MAX64:
            self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="kstore-flusher", daemon=True)
        self._thread.start()

    def sealed(self) -> None:
        """A segment was sealed: bring it to the disk."""
        self._ask(due=False)

    def flush_now(self) -> None:
        """Bring everything to the disk."""
        self._ask(due=True)

    def _ask(self, *, due: bool) -> None:
        with self._changing:
            self._due = self._due or due
            if self._thread is None and not self._stopped:
                self._start()
        self._wake.set()

    def flush_every(self, flush_ms: int) -> None:
        """Another flush.ms."""
        with self._changing:
            self._flush_ms = flush_ms
            if self._thread is None and flush_ms < MAX64 and not self._stopped:
                self._start()
        self._wake.set()

    def stop(self, *, wait: bool = True) -> None:
        """Ends the thread, after what it is doing now. Who is collecting garbage must not wait: it may be anywhere, also
        inside here."""
        self._stopped = True
        self._wake.set()
        if wait and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            limit = self._flush_ms / 1000 if self._flush_ms < threading.TIMEOUT_MAX * 1000 else None
            told = self._wake.take(limit)
            if self._stopped:
                return
            with self._changing:
                due, self._due = self._due or not told, False
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
            except (OSError, KstoreError) as e:
                self.failure = e  # if the log refuses to write from here on, closing it tells
            del log
