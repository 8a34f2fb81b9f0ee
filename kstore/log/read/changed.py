"""Whether to look at a log again that has changed while it was read."""

from time import sleep

from kstore.errors import LogChangedError

_LOOKS = 20  # at a place where nothing can be read


class Changed:
    """The changes that one iteration has met."""

    def __init__(self) -> None:
        self._position = -1
        self._looks = 0

    def met(self, position: int, change: LogChangedError) -> None:
        """Raises a change that is met again and again at the same position: it is none of a moment."""
        self._looks = self._looks + 1 if position == self._position else 0
        self._position = position
        if self._looks > _LOOKS:
            raise change
        if self._looks:
            sleep(0.001)
