"""The end of a log that is open for writing: closing it, or giving it up."""

from __future__ import annotations

import os
import warnings
import weakref

from kstore.arguments import MAX64
from kstore.errors import KstoreError, LogFailedError, visible
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.later import later

if TYPE_CHECKING:
    from kstore.engine.append.log_end import LogEnd
    from kstore.log.files.log_directory import PartitionLease
    from kstore.log.maintenance import Maintenance
    from kstore.log.segments.segment_set import SegmentSet
    from kstore.log.write.appenders import Appenders
    from kstore.log.write.flusher import Flusher
    from kstore.log.write.other_writers import begin_to_leave
else:
    later(globals(), {"kstore.log.write.other_writers": "begin_to_leave"})

_closers: weakref.WeakSet[LogCloser] = weakref.WeakSet()


class Opened(NamedTuple):
    """What there is once the segments of a log are open."""

    segments: SegmentSet
    maintenance: Maintenance
    flusher: Flusher


class LogCloser:
    """What a log that is open for writing gives back when it is closed: its lease, its jobs, its appenders.

    It belongs to one LogWriter. `has_left`: nothing is left to give back.
    """

    opened: Opened | None = None

    def __init__(self, path: str, lease: PartitionLease, log_end: LogEnd, appenders: Appenders) -> None:
        self._path = path
        self._lease = lease
        self._log_end = log_end
        self._appenders = appenders
        self.has_left = False

    def begin(self, opened: Opened) -> None:
        """The log is open from here on."""
        self.opened = opened
        _closers.add(self)

    def close(self) -> None:
        """Closes the log, as LogWriter.close does."""
        if self.has_left:
            return
        if self.opened is not None:
            self.opened.maintenance.refuse_reentrance()
        session = self._lease.session
        try:
            self._close(self._appenders.close())
        finally:
            if session is not None and not self.has_left:  # interrupted: others must not wait for it
                session.enter()

    def _close(self, failure: Exception | None) -> None:
        """failure: what closing the appenders has raised."""
        if self.opened is None:
            self.abandon()
            return
        segments, maintenance, flusher = self.opened
        is_last = True
        if self._lease.session is not None:
            is_last, failed_flush = begin_to_leave(segments)
            failure = failed_flush or failure
        lost = ""
        with self._log_end.held(looks=False):
            # it has left if it was garbage, and came back
            if not (self._log_end.is_closed or self._lease.has_left):
                lost = segments.lost_files()
            self._log_end.close()
        maintenance.wait_for_rewriting()
        self._stop_jobs()
        self._log_end.drain()  # a sync under way has taken files that are on the disk before the marker is
        with self._log_end.held(looks=False):
            if self.has_left:
                return
            if self._lease.is_settled:  # an interrupt has kept it locked
                self._leave(clean=False)
                return
            if self._lease.is_moved:
                self._log_end.refuse(self._lease.fate)
            refusal = self._log_end.refusal
            try:
                if refusal is None and is_last:
                    segments.close_cleanly()
                elif refusal is None:
                    segments.deleted.unlink(MAX64)
            except (OSError, KstoreError):
                self._leave(clean=False)
                raise
            self._leave(clean=refusal is None and is_last)
        reports = segments.reports
        if refusal is not None and not self._log_end.is_deleted:
            text = "%s: not closed cleanly, so its next opening recovers it: %s"
            reports.warning(text, self._path, refusal)
        reports.pass_on()
        if lost:
            raise LogFailedError(f"{self._path} is closed, but {lost}")
        if flusher.failure is not None and refusal is not None:
            raise LogFailedError(f"{self._path} is not closed cleanly: {refusal}") from flusher.failure
        if failure is not None:
            raise failure

    def abandon(self) -> None:
        """Closes the log without flushing, as LogWriter.abandon does."""
        if self.has_left:
            return
        maintenance = None if self.opened is None else self.opened.maintenance
        if maintenance is not None:
            maintenance.rewriter.running.refuse_reentrance()
        with self._log_end.held(looks=False):
            self._log_end.close()
        if maintenance is not None:
            maintenance.wait_for_rewriting()
        self._stop_jobs(wait=False)
        self._leave(clean=False)

    def finalize(self, writer: object) -> None:
        """The writer is garbage: gives everything back, and warns if it was not closed."""
        if self.has_left:
            return
        # in a forked child it is the parent's
        forgotten = not (self._log_end.is_closed or self._lease.has_left)
        gathered = self._appenders.gathered_count if forgotten else 0
        self._log_end.close()
        self._stop_jobs(wait=False)
        self._log_end.unshare()
        self._lease.leave_unclean()
        if forgotten:  # last, because a filter may make it an exception
            lost = f", and {gathered} records that its appenders had gathered are lost" if gathered else ""
            warnings.warn(
                f"{visible(self._path)} was open for writing and never closed: the next opening must "
                f"recover{lost}",
                ResourceWarning,
                source=writer,
                stacklevel=3,
            )

    def after_fork(self) -> None:
        """In a child of fork nothing is written: the log is the parent's."""
        self._log_end.after_fork()
        self._appenders.after_fork()
        if self.opened is not None:
            self.opened.maintenance.after_fork()

    def _stop_jobs(self, *, wait: bool = True) -> None:
        if self.opened is not None:
            self.opened.maintenance.stop(wait=wait)
            self.opened.flusher.stop(wait=wait)

    def _leave(self, *, clean: bool) -> None:
        """Gives the directory up."""
        _closers.discard(self)
        self._log_end.unshare()
        try:
            self._lease.leave(clean=clean)
        finally:
            self.has_left = self._lease.has_left


def _forked() -> None:
    """A child of fork must not write: the log is its parent's."""
    for closer in list(_closers):
        closer.after_fork()
    _closers.clear()


os.register_at_fork(after_in_child=_forked)
