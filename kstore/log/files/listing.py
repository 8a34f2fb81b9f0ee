"""Listing directories. If no descriptor is free, a cached one is closed and the call repeated."""

from __future__ import annotations

import contextlib
import errno
import os

from kstore.engine.io import directory
from kstore.engine.io.directory import unlink
from kstore.engine.io.file import frees_descriptor
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _Found = TypeVar("_Found")


def list_directory(path: str) -> list[str]:
    """The names in a directory. OSError."""
    return _asked(os.listdir, path)


def scan_directory(path: str) -> os._ScandirIterator[str]:
    """The result of os.scandir. OSError."""
    return _asked(os.scandir, path)


def read_directory(
    path: str, kinds: tuple[str, ...]
) -> tuple[dict[int, int], list[str], dict[int, int], int, int]:
    """The result of kstore.engine.io.directory.read_directory. OSError."""
    return _asked(lambda name: directory.read_directory(name, kinds), path)


def digest(path: str) -> int:
    """The result of kstore.engine.io.directory.digest. OSError."""
    return _asked(directory.digest, path)


def _asked(ask: Callable[[str], _Found], path: str) -> _Found:
    while True:
        try:
            return ask(path)
        except OSError as e:
            if not frees_descriptor(e.errno or 0):
                raise


def is_there(path: str) -> bool:
    """Whether a path exists. OSError if that cannot be determined. Path.exists takes three times as long."""
    try:
        os.stat(path)
    except ValueError:  # not a valid path
        return False
    except OSError as e:
        if e.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
    return True


def delete_file(path: str) -> None:
    """Delete a file if it exists. A directory of that name stays. OSError."""
    with contextlib.suppress(IsADirectoryError):
        unlink(path, missing_ok=True)
