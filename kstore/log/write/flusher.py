"""Flushing in the background: sealed segments, flush.messages, flush.ms (spec 5.3, 8.8)."""

import contextlib
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Protocol

from kstore.arguments import MAX64
from kstore.errors import KstoreError, LogClosedError, LogFailedError
from kstore.log.worker import MAINTENANCE, Job
from kstore.log.write.reports import Reports


class Flushed(Protocol):
    """What the flusher asks of its log."""

    _flusher: "Flusher | None"
    _reports: Reports

    @property
    def _lost_index(self) -> str | None: ...
    def flush(self) -> int: ...
    def _sync_sealed(self) -> None: ...
    def _store_recovery_point(self) -> None: ...


class Flusher:
    """The jobs that bring a log to the disk. A sync that fails stops the log: `failure`.

    The jobs do not keep the log alive.
    """

    interval: float | None = None  # s

    def __init__(self, log: Flushed) -> None:
        self.failure: Exception | None = None
        self._flush_all = Job(MAINTENANCE, partial(_flush, weakref.ref(log)))
        self._sync_sealed = Job(MAINTENANCE, partial(_sync, weakref.ref(log)))

    def flush_every(self, flush_ms: int) -> None:
        """Begins with it, or with another flush.ms. RuntimeError, MemoryError: there is no thread for it."""
        self.interval = flush_ms / 1000 if flush_ms < MAX64 else None
        if self.interval is not None:
            self._flush_all.ask(self.interval)

    def sealed(self) -> None:
        """A segment was sealed: bring it to the disk."""
        with contextlib.suppress(RuntimeError, MemoryError):  # the next time, or the next flush does it
            self._sync_sealed.ask()

    def flush_now(self) -> None:
        """Bring everything to the disk."""
        with contextlib.suppress(RuntimeError, MemoryError):
            self._flush_all.ask()

    def stop(self, *, wait: bool = True) -> None:
        """Ends the jobs, after what is done now."""
        self._flush_all.stop(wait=wait)
        self._sync_sealed.stop(wait=wait)


def _flush(of: "weakref.ref[Flushed]") -> float | None:
    log = of()
    if log is None or log._flusher is None:
        return None
    with _noting(log):
        log.flush()
    return log._flusher.interval


def _sync(of: "weakref.ref[Flushed]") -> None:
    log = of()
    if log is not None:
        with _noting(log):
            log._sync_sealed()
            log._store_recovery_point()


@contextlib.contextmanager
def _noting(log: Flushed) -> Iterator[None]:
    """Keeps what closing the log tells. If the log refused to write before, the program knows why; only that
    an index was lost may be met here first."""
    try:
        yield
    except LogClosedError:
        pass  # closing syncs everything itself
    except (OSError, KstoreError, MemoryError) as e:
        if log._flusher is not None and (not isinstance(e, LogFailedError) or log._lost_index is not None):
            log._flusher.failure = e
    log._reports.pass_on()
