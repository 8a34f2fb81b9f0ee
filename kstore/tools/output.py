"""The file of --output: written completely or not at all, and never a file of a log."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from kstore.errors import LogNotFoundError
from kstore.log.files import layout
from kstore.log.recovery.presence import require_partition

_OF_A_LOG_DIRECTORY = (
    layout.META_PROPERTIES,
    layout.LOCK,
    layout.CLEAN_SHUTDOWN,
    layout.RECOVERY_POINTS,
    layout.LOG_STARTS,
    layout.HIGH_WATERMARKS,
    layout.CLEANER_OFFSETS,
)


def check_output(path: str) -> None:
    """Refuse a file that a log may use. ValueError, OSError."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"--output {path}: there is no directory {target.parent}")
    if target.is_dir():
        raise IsADirectoryError(f"--output {path} is a directory: name a file")
    if _is_partition(target.parent):
        raise ValueError(f"--output {path} is inside a partition directory: choose a file elsewhere")
    if target.name in _OF_A_LOG_DIRECTORY:
        raise ValueError(f"--output {path} has the name of a file that a log directory needs: choose another")


def _is_partition(directory: Path) -> bool:
    try:
        require_partition(directory, may_be_empty=False)
    except LogNotFoundError:
        return False
    return True


@contextlib.contextmanager
def open_output(path: str, *, text: bool) -> Iterator[IO[str] | IO[bytes]]:
    """A file that replaces `path` when the block ends without an error. After an error, `path` is unchanged.
    A device or a pipe cannot be replaced and is written directly."""
    check_output(path)
    target = os.path.realpath(path)  # keeps a symbolic link
    owner = -1, -1
    try:
        found = os.stat(path)
        mode, owner = found.st_mode, (found.st_uid, found.st_gid)
    except FileNotFoundError:
        mode = stat.S_IFREG | 0o666 & ~_umask()
    if not stat.S_ISREG(mode):
        with _opened(path, text) as out:  # /dev/stdout may be a pipe without a path of its own
            yield out
        return
    number, temporary = tempfile.mkstemp(
        prefix=f".{Path(target).name[:100]}.", suffix=".tmp", dir=Path(target).parent
    )
    try:
        with _opened(number, text) as out:
            with contextlib.suppress(PermissionError):  # without the right to change the owner
                os.fchown(number, *owner)
            os.fchmod(number, stat.S_IMODE(mode))
            yield out
        os.replace(temporary, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _opened(file: str | int, text: bool) -> IO[str] | IO[bytes]:
    if text:
        return open(file, "w", encoding="utf-8", newline="")
    return open(file, "wb")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
