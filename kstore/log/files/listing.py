"""What a directory holds, also if every descriptor is in use: then one is closed that is kept open for
reading."""

import contextlib
import errno
import os
from collections.abc import Callable
from typing import TypeVar

from kstore.engine.io import directory
from kstore.engine.io.file import frees_descriptor, unlink

_Found = TypeVar("_Found")


def list_directory(path: str) -> list[str]:
    """The names in a directory. OSError."""
    return _asked(os.listdir, path)


def scan_directory(path: str) -> "os._ScandirIterator[str]":
    """What os.scandir gives. OSError."""
    return _asked(os.scandir, path)


def read_directory(
    path: str, kinds: tuple[str, ...]
) -> tuple[dict[int, int], list[str], dict[int, int], int, int]:
    """What kstore.engine.io.directory.read_directory gives. OSError."""
    return _asked(lambda name: directory.read_directory(name, kinds), path)


def digest(path: str) -> int:
    """What kstore.engine.io.directory.digest gives. OSError."""
    return _asked(directory.digest, path)


def _asked(ask: Callable[[str], _Found], path: str) -> _Found:
    while True:
        try:
            return ask(path)
        except OSError as e:
            if not frees_descriptor(e.errno or 0):
                raise


def is_there(path: str) -> bool:
    """Whether a path leads to something. OSError where that is not known. Path.exists takes
    three times as long."""
    try:
        os.stat(path)  # noqa: PTH116
    except ValueError:  # no path at all
        return False
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
    return True


def delete_file(path: str) -> None:
    """Deletes a file, if it is there. A directory of that name stays: nothing reads it. OSError."""
    with contextlib.suppress(IsADirectoryError):
        unlink(path, missing_ok=True)
