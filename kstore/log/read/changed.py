"""Whether to look at a log again that has changed while it was read."""

import os
from collections.abc import Callable
from time import sleep
from typing import Protocol

from kstore.errors import LogChangedError
from kstore.log.files import layout
from kstore.log.files.truncations import Truncations

_LOOKS = 20  # at a place where nothing can be read
MOST_LOOKS = 100  # at a log that is being truncated: then it is taken as it is, for the writer may have died


class Cuttable(Protocol):
    """What is asked of a view."""

    path: str
    _truncations: Truncations

    def _truncations_now(self) -> Truncations: ...


def cut_since(view: Cuttable) -> Callable[[], bool]:
    """A function that tells whether the log was truncated since the view was as it is now: what is read from
    a file then may be what came instead. OSError."""
    number = view._truncations.number
    return lambda: view._truncations_now().number != number


def cut_before(view: Cuttable) -> Callable[[int], bool]:
    """A function that tells whether the log was cut off before an offset since the view was as it is now.
    OSError."""
    number = view._truncations.number

    def is_cut_before(offset: int) -> bool:
        # a quick look, as most logs were never truncated
        if number == 0 and not os.access(f"{view.path}/{layout.TRUNCATIONS}", os.F_OK):
            return False
        return 0 <= view._truncations_now().since(number, "read_uncommitted") < offset

    return is_cut_before


def is_being_cut(view: Cuttable) -> bool:
    """Whether the log was truncated since the view was as it is now, or is just now: what is there is no
    ground to tell anything then. Waits a moment if so. OSError."""
    if not view._truncations.is_pending and not cut_since(view)():
        return False
    sleep(0.001)
    return True


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
