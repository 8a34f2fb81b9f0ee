"""Files of segments that the log has let go (spec 9.3)."""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections import deque

from kstore.engine.io.directory import rename, unlink
from kstore.errors import CorruptFileError, LogChangedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.listing import delete_file

if TYPE_CHECKING:
    from kstore.engine.segment.segment import Segment

SUFFIX = ".deleted"


class DeletedSegments:
    """Files that were given the suffix .deleted, and go when their time has come, oldest first.

    A reader of this process that has a segment finds its .log under the new name. When that goes, the file is
    kept open for the readers that still have it: not before, because a log may let go of more segments at
    once than a process may have descriptors.
    """

    def __init__(self) -> None:
        self._files: deque[tuple[int, str]] = deque()  # (when it may go, path)
        self._read: weakref.WeakValueDictionary[str, Segment] = weakref.WeakValueDictionary()  # by path

    def set_aside(self, segment: Segment, due_ms: int) -> None:
        """Takes the .log of a segment out of the log: without it the other files are no segment. OSError.

        If a full disk has no room for the longer name, the file goes at once.
        """
        delete_file(segment.path_of(layout.KEYS))
        segment.files.remember()
        with contextlib.suppress(CorruptFileError, LogChangedError, OSError):
            _ = segment.transaction_index  # readers of this process need it even when the file is gone
        path = segment.path + SUFFIX
        self._keep(path)  # of an earlier segment with this name, which is replaced
        for kind in layout.INDEX_KINDS:  # before the .log: these are of another segment
            unlink(segment.path_of(kind) + SUFFIX, missing_ok=True)
        try:
            rename(segment.path, path)
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            segment.files.keep_open()
            unlink(segment.path)
        else:
            self._files.append((due_ms, path))
            self._read[path] = segment

    def set_all_aside(self, segment: Segment, due_ms: int) -> None:
        """Does it with all files of a segment, whose names others will have. OSError."""
        self.set_aside(segment, due_ms)
        for kind in layout.INDEX_KINDS:
            path = segment.path_of(kind)
            if os.path.exists(path):
                try:
                    rename(path, path + SUFFIX)
                except OSError as e:
                    if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                        raise
                    unlink(path)
                else:
                    self._files.append((due_ms, path + SUFFIX))

    def set_rest_aside(self, segment: Segment, snapshot: str | None, due_ms: int) -> None:
        """Does the same with its other files, and with a snapshot. Those that cannot be renamed keep their
        names until they go: they count for nothing."""
        paths = [segment.path_of(kind) for kind in layout.INDEX_KINDS]
        for path in [*paths, *([snapshot] if snapshot else [])]:
            if os.path.exists(path):
                with contextlib.suppress(OSError):
                    rename(path, path + SUFFIX)
                    path += SUFFIX
                self._files.append((due_ms, path))

    def is_due(self, now_ms: int) -> bool:
        """Whether the time of one has come."""
        first = next(iter(self._files), None)
        return first is not None and first[0] <= now_ms

    def unlink(self, now_ms: int) -> None:
        """Removes those whose time has come. OSError."""
        while self._files and self._files[0][0] <= now_ms:
            path = self._files[0][1]
            self._keep(path)
            unlink(path, missing_ok=True)
            self._files.popleft()

    def _keep(self, path: str) -> None:
        """Keeps a file whose name goes open for those that read it."""
        segment = self._read.get(path)
        if segment is not None:
            with contextlib.suppress(OSError, LogChangedError):  # those readers get an error
                segment.files.keep_open()
