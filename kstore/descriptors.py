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
    """Return the number of .log files that the logs of this process have open for reading, and its limit.

    A file is opened when it is first read. At the limit, the least recently used file is closed. So a log may
    have more segments than a process may have descriptors. The files of slices, iterators and followers in
    use are open in addition. A LogWriter has 5 descriptors for its locks and its active segment, of which all
    in one log directory share one.
    """
    return OpenFiles(*file.open_files())


def limit_open_files(limit: int | None) -> None:
    """Sets how many .log files all logs of this process keep open for reading.

    None, the default: half of RLIMIT_NOFILE, or fewer if that would be more than three quarters of it
    together with the files that are held otherwise. Those above the limit are closed at once. With 0 each is
    closed when the next one is needed.
    """
    file.limit_open_files(None if limit is None else integer("limit", limit))
