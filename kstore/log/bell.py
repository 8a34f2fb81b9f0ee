"""Something to wait on, with a descriptor, that another thread rings."""

import contextlib
import os


class Bell:
    """Readable once it was rung, until it is cleared. Its descriptor goes with the last reference, so whoever still
    means to ring it never reaches a stranger's."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._fd

    def ring(self) -> None:
        """Wakes who waits, now or later."""
        with contextlib.suppress(BlockingIOError):  # it has been rung 2^64 times
            os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """Forgets that it was rung."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._fd)
