"""Removing local directories that show remote ones."""

from __future__ import annotations

import os
import shutil

from kstore.engine.io.sources import SOURCES, directory_around
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.typed import StrPath


def discard(path: StrPath) -> None:
    """Removes the local directory of a remote log or store, given its `path`: nothing may read it from then
    on. A directory that is not removed exists until the process ends."""
    shown = os.fspath(path)
    directory = directory_around(shown)
    if directory is not None:
        SOURCES.pop(directory, None)
    shutil.rmtree(os.path.dirname(shown), ignore_errors=True)
