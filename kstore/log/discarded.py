"""Files of segments that the log has let go (spec 9.3)."""

import os
from collections.abc import Iterable

from kstore.engine.file import rename, unlink
from kstore.engine.segment import Segment
from kstore.log import layout
from kstore.log.snapshots import Snapshots

SUFFIX = ".deleted"


class Discarded:
    """Files that were given the suffix .deleted, and go when their time has come, oldest first."""

    def __init__(self) -> None:
        self._files: list[tuple[int, str]] = []  # (when it may go, path)

    def add(self, segments: Iterable[Segment], snapshots: Snapshots, due_ms: int) -> None:
        """Renames the files of segments, and the snapshots at their bases. OSError."""
        for segment in segments:
            segment.file()  # readers that have it go on reading
            paths = [segment.path_of(kind) for kind in layout.SEGMENT_KINDS]
            snapshot = snapshots.set_aside(segment.base_offset)
            for path in [*paths, *([snapshot] if snapshot else [])]:
                if os.path.exists(path):  # noqa: PTH110
                    rename(path, path + SUFFIX)
                    self._files.append((due_ms, path + SUFFIX))

    def unlink(self, now_ms: int) -> None:
        """Removes those whose time has come. OSError."""
        while self._files and self._files[0][0] <= now_ms:
            unlink(self._files[0][1], missing_ok=True)
            self._files.pop(0)
