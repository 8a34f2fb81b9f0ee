"""The exchange of two directories in one step."""

from __future__ import annotations

import errno
import os

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def exchange(a: str, b: str) -> None:
    """Gives each of two paths the name of the other, in one step: a crash leaves both as they were or both
    exchanged. OSError; with ENOSYS or EINVAL, the system or the file system cannot do it."""
    import ctypes  # Python has no function for renameat2

    libc = ctypes.CDLL(None, use_errno=True)
    try:
        renameat2 = libc.renameat2
    except AttributeError:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), a) from None
    if renameat2(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), a, None, b)
