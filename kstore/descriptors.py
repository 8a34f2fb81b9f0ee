"""How many files of segments a process keeps open."""

from __future__ import annotations

from kstore.arguments import integer
from kstore.engine.io import file
from kstore.light_typing import NamedTuple


class OpenFiles(NamedTuple):
    """How many .log files are open for reading, and how many may be."""

    open: int
    limit: int


def open_files() -> OpenFiles:
    """How many .log files all logs of this process keep open for reading, and how many they may.

    A file is opened when it is first read, and closed when others are needed more: those that were not used
    lately go first. So a log may have more segments than a process may have descriptors, and a process more
    logs open for reading. What a slice, an iterator or a follower is reading stays open beside these. A
    LogWriter holds 5 descriptors, or 4 and one for all in a log directory: for its locks, and for the
    segment that it appends to.
    """
    return OpenFiles(*file.open_files())


def limit_open_files(limit: int | None) -> None:
    """Sets how many .log files all logs of this process keep open for reading.

    None, the default: half of RLIMIT_NOFILE, or fewer if that would be more than three quarters of it
    together with the files that are held otherwise. Those above the limit are closed at once. With 0 each is
    closed when the next one is needed.
    """
    file.limit_open_files(None if limit is None else integer("limit", limit))
