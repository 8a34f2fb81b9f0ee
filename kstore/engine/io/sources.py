"""What fills the files of a directory before they are read: bytes that are elsewhere, such as in an object
store."""

from __future__ import annotations

import errno

from kstore.errors import KstoreError, show_as, visible
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES: dict[str, Callable[[str], Callable[[int, int, int], None] | None]] = {}  # by directory


def read_through(
    directory: str, source: Callable[[str], Callable[[int, int, int], None] | None], shown: str
) -> None:
    """Has files below a directory that are opened for reading filled before they are read: `source(path)`
    gives a callable of a position, a size and the end of what the reader may read later, or None. They are
    not opened for writing. Messages show `shown` for the directory."""
    SOURCES[directory] = source
    show_as(directory, shown)


def filler(path: str, mode: str) -> Callable[[int, int, int], None] | None:
    """What fills a file. OSError for one that is to be written, and lies in such a directory."""
    directory = directory_around(path)
    if directory is None:
        return None
    if mode != "r":
        raise OSError(errno.EROFS, "what is remote can only be read", visible(path))
    return SOURCES[directory](path)


def directory_around(path: str) -> str | None:
    """The directory of this kind that a path names or is below; None if there is none."""
    return next((directory for directory in SOURCES if f"{path}/".startswith(f"{directory}/")), None)


def refuse_waiting(path: str) -> None:
    """KstoreError for what lies below such a directory, where nothing is appended."""
    if directory_around(path) is not None:
        raise KstoreError(f"{path} is remote: it is read as it was when it was opened; open it again")
