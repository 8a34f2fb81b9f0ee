"""Flushing in the background: sealed segments, flush.messages, flush.ms (spec 5.3, 8.8)."""

from __future__ import annotations

import contextlib
import weakref

from kstore.arguments import MAX64
from kstore.errors import KstoreError, LogClosedError, LogFailedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.worker import MAINTENANCE, Job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstore.log.segments.segment_set import SegmentSet


class Flusher:
    """The jobs that bring the segments of a log to the disk. A sync that fails stops the log: `failure`.

    The jobs do not keep the segments alive.
    """

    def __init__(self, segments: SegmentSet) -> None:
        self.failure: Exception | None = None
        self._interval: float | None = None  # s
        self._segments = weakref.ref(segments)
        self._all = Job(MAINTENANCE, self._flush_all)
        self._sealed = Job(MAINTENANCE, self._flush_sealed)

    def flush_every(self, flush_ms: int) -> None:
        """Begins with it, or with another flush.ms. RuntimeError, MemoryError: there is no thread for it."""
        self._interval = flush_ms / 1000 if flush_ms < MAX64 else None
        if self._interval is not None:
            self._all.ask(self._interval)

    def flush_sealed(self) -> None:
        """A segment was sealed: bring it to the disk."""
        with contextlib.suppress(RuntimeError, MemoryError):  # the next time, or the next flush does it
            self._sealed.ask()

    def flush_now(self) -> None:
        """Bring everything to the disk."""
        with contextlib.suppress(RuntimeError, MemoryError):
            self._all.ask()

    def stop(self, *, wait: bool = True) -> None:
        """Ends the jobs, after what is done now."""
        self._all.stop(wait=wait)
        self._sealed.stop(wait=wait)

    def _flush_all(self) -> float | None:
        segments = self._segments()
        if segments is None:
            return None
        with self._keeping_failures(segments):
            segments.flush()
        return self._interval

    def _flush_sealed(self) -> None:
        segments = self._segments()
        if segments is not None:
            with self._keeping_failures(segments):
                segments.log_end.sync_sealed()
                segments.advance_recovery_point()

    @contextlib.contextmanager
    def _keeping_failures(self, segments: SegmentSet) -> Iterator[None]:
        """Keeps the error that closing the log raises. If the log refused to write before, the program knows
        why; only that an index was lost may be met here first."""
        try:
            yield
        except LogClosedError:
            pass  # closing syncs everything itself
        except (OSError, KstoreError, MemoryError) as e:
            if not isinstance(e, LogFailedError) or segments.log_end.lost_index is not None:
                self.failure = e
        segments.reports.pass_on()
