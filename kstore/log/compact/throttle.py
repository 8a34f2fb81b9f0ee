"""How fast a compaction may read and write."""

from __future__ import annotations

from time import monotonic, sleep

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_NAP = 0.1  # seconds: who waits longer looks in between whether it is to stop


class Throttle:
    """Waits so that no more than so many bytes a second pass, from when it was made on."""

    def __init__(self, bytes_per_second: float, stop: Callable[[], object]) -> None:
        self._rate = bytes_per_second
        self._stop = stop
        self._begun = monotonic()
        self._passed = 0
        # what is done between two looks: a fraction of a second's, so that the rate is kept evenly
        self.step = int(max(64 << 10, min(4 << 20, bytes_per_second / 8)))

    def passed(self, size: int) -> None:
        """So many bytes were read or written. `stop` is asked before and while it waits: it may raise."""
        self._passed += size
        self._stop()
        while (ahead := self._passed / self._rate - (monotonic() - self._begun)) > 0:
            sleep(min(ahead, _NAP))
            self._stop()
