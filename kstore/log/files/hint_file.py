"""A file that only tells where something is, and goes when that changes."""

import contextlib

from kstore.engine.io.file import unlink


def drop_hint(path: str) -> None:
    """Removes it. What is no file stays: nobody believes it, and a log is not out of use for it. OSError."""
    with contextlib.suppress(IsADirectoryError):
        unlink(path, missing_ok=True)
