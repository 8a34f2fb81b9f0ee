"""A progress bar on stderr, if that is a terminal, for slow work."""

import sys
import time
from typing import Self

from kstore.tools.terminal import Screen


class Progress:
    """A progress bar, used in a `with` statement. `update` is cheap and may be called often."""

    WIDTH = 30
    DELAY, INTERVAL = 0.5, 0.1

    def __init__(self, total: int, what: str, *, of_bytes: bool = False) -> None:
        """of_bytes: the work is counted in bytes, and the bar shows the rate."""
        self.total = total
        self.what = what
        self._of_bytes = of_bytes
        self._begun = time.monotonic()
        self.shown = False
        self.enabled = sys.stderr.isatty()
        self._next = time.monotonic() + self.DELAY

    def update(self, done: int) -> None:
        if not self.enabled or self.total <= 0 or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.INTERVAL
        self.shown = True
        share = min(done / self.total, 1.0)
        bar = "#" * round(share * self.WIDTH)
        rate = ""
        if self._of_bytes:
            rate = f" {done / (time.monotonic() - self._begun) / 1e6:,.0f} MB/s"
        self._show(f"\r{self.what} [{bar:<{self.WIDTH}}] {share:4.0%}{rate}")

    def share(self, done: int, total: int) -> None:
        """Update the bar with a total that may change."""
        self.total = total
        self.update(done)

    def clear(self) -> None:
        """Remove the bar from the terminal until the next update."""
        if self.shown:
            self._show("\r\x1b[K")
            self.shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def _show(self, text: str) -> None:
        stream = sys.stderr.terminal if isinstance(sys.stderr, Screen) else sys.stderr
        print(text, end="", file=stream, flush=True)
