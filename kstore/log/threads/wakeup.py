"""What a background thread waits on."""

import threading


class Wakeup:
    """Set by any thread, taken by one. `set` waits for nothing, so collecting garbage may do it, which can
    interrupt every thread everywhere: a threading.Event has a lock, and whoever is interrupted with it would
    wait for itself."""

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wakes who waits, now or later."""
        try:  # noqa: SIM105 - suppress() takes memory, and there may be none
            self._unset.release()
        except RuntimeError:  # it is set
            pass

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until it is set, and unsets it; False when that takes longer. None: as long as it takes."""
        return self._unset.acquire(timeout=-1 if seconds is None else seconds)
