"""How far a long call is, for who asked to be told."""

from __future__ import annotations

from collections.abc import Callable

ProgressCallback = Callable[[int, int], object]  # of how many bytes were gone through, and how many there are


def check_progress(progress: ProgressCallback | None) -> None:
    """TypeError unless it is a function or None."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress is a function of two numbers, not {progress!r}")


class Meter:
    """Counts bytes that were gone through, and tells `progress` of them."""

    def __init__(self, progress: ProgressCallback | None) -> None:
        self._progress = progress
        self._done = self._total = 0
        self._told: tuple[int, int] | None = None

    def expect(self, size: int) -> None:
        """So many more are to come."""
        self._total = self._done + size

    def passed(self, size: int) -> None:
        """So many more were gone through. What `progress` raises is passed on."""
        self._done += size
        self._tell(min(self._done, self._total))

    def end(self) -> None:
        """All is done: the last call of `progress` has the total, if there was any call."""
        if self._told not in (None, (self._total, self._total)):
            self._tell(self._total)

    def _tell(self, done: int) -> None:
        self._told = done, self._total
        if self._progress is not None:
            self._progress(*self._told)
