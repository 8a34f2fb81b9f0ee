"""Sources of the views of a reader that follows a log: a writer of this process, or a directory that any
process may write."""

from __future__ import annotations

import os

from kstore.engine.io.synchronization import MODIFY, Inotify
from kstore.errors import LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.log_dir_state import directory_of
from kstore.log.recovery.refresh import with_tail

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from kstore.engine.io.synchronization import EventFd
    from kstore.log.view.log_view import LogView

_CHECKPOINTS = (layout.LOG_STARTS, layout.RECOVERY_POINTS)
_OWN_FILES = (layout.MANIFEST, layout.LEADER_EPOCHS)


class WriterSource:
    """A log that this process writes: every change sets the event that was armed. `view(known)` returns the
    log as it is now, which is `known` if nothing has changed."""

    watch: Inotify | None = None
    reports_changes = True  # each of them

    def __init__(
        self,
        path: str,
        view: Callable[[LogView | None], LogView],
        notify: Callable[[EventFd], None],
        has_ended: Callable[[], bool],
    ) -> None:
        self.path = path
        self.known = view(None)
        self._view = view
        self._notify = notify
        self._has_ended = has_ended

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._has_ended()

    def begin(self) -> None:
        """Report changes from here on."""

    def arm(self, event: EventFd) -> None:
        """Set the event at the next change."""
        self._notify(event)

    def mark_stale(self) -> None:
        """A writer reports each change, so nothing is read again."""

    def view(self) -> LogView:
        """The log as it is now; the view before, if nothing has changed."""
        self.known = self._view(self.known)
        return self.known


class DirectorySource:
    """A directory that any process may write. After `begin`, inotify reports changes, if the system has an
    instance left; else each view reads the directory again.

    If only the last segment has grown, only its new bytes are read."""

    ended = False

    def __init__(self, view: LogView) -> None:
        self.path = view.path
        self.known = view
        self.watch: Inotify | None = None
        self._directory = _directory_at(self.path)
        self._partition = -1  # its number in the watch
        self._is_stale = self._has_grown = True

    @property
    def reports_changes(self) -> bool:
        """Whether the watch reports every change."""
        return self.watch is not None

    def begin(self) -> None:
        """Report changes from here on. LogNotFoundError."""
        if self.watch is not None:
            return
        try:
            watch = Inotify()
            self._partition = watch.add(self.path)
            around = directory_of(self.path)  # its checkpoint has the log start offset
            if around != self.path:
                watch.add(around)
        except FileNotFoundError:
            raise LogNotFoundError(f"no partition directory at {self.path}") from None
        except OSError:
            return  # none is left
        self.watch = watch
        self._is_stale = True  # what happened before

    def arm(self, event: EventFd) -> None:
        """The watch reports changes."""

    def mark_stale(self) -> None:
        """Have the next view read the directory: a change may not have been reported."""
        self._is_stale = True

    def view(self) -> LogView:
        """The log as it is now; the view before, if nothing has changed. LogNotFoundError if the partition
        was deleted, or deleted and made again; CorruptFileError, OSError."""
        self._read_events()
        known = self.known
        if self._has_grown and not self._is_stale:
            tail = with_tail(known.snapshot)
            if tail is not None:
                self._has_grown = False
                if tail is not known.snapshot:
                    self.known = known.view(tail)
                return self.known
        if self._is_stale or self._has_grown or self.watch is None:
            fresh = known.view()
            has_changed = fresh.refresh()
            if _directory_at(self.path) != self._directory:  # its offsets are others
                raise LogNotFoundError(f"{self.path} was deleted, or made anew, since it was opened")
            if has_changed:
                self.known = fresh
            self._is_stale = self._has_grown = False  # last: whoever is interrupted looks again
        return self.known

    def _read_events(self) -> None:
        """Note the changes that the watch reports."""
        if self.watch is None:
            return
        last = self.known.snapshot.segments[-1].path if self.known.snapshot.segments else ""
        is_stale, self._is_stale = self._is_stale, True  # an interrupt loses the rest
        for directory, bits, name in self.watch.read_events():
            if directory != self._partition:
                is_stale = is_stale or directory < 0 or name in _CHECKPOINTS
            elif name.endswith(".log"):
                if bits == MODIFY and last.endswith(f"/{name}"):
                    self._has_grown = True
                else:
                    is_stale = True
            elif not name or name in _OWN_FILES or name in _CHECKPOINTS:
                is_stale = True
        self._is_stale = is_stale


Source: TypeAlias = WriterSource | DirectorySource


def _directory_at(path: str) -> tuple[int, int]:
    """Which directory a name stands for now. LogNotFoundError, OSError."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise LogNotFoundError(f"no partition directory at {path}") from None
    return found.st_dev, found.st_ino
