"""A bar on stderr, where that is a terminal, for work that takes more than a moment."""

import sys
import time
from typing import Self


class Progress:
    """Shows how much of `total` is done. Use as a context; `update` may be called as often as one likes."""

    WIDTH = 30
    DELAY, INTERVAL = 0.5, 0.1

    def __init__(self, total: int, what: str) -> None:
        self.total = total
        self.what = what
        self.shown = False
        self.enabled = sys.stderr.isatty() and total > 0
        self._next = time.monotonic() + self.DELAY

    def update(self, done: int) -> None:
        if not self.enabled or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.INTERVAL
        self.shown = True
        share = min(done / self.total, 1.0)
        bar = "#" * round(share * self.WIDTH)
        print(f"\r{self.what} [{bar:<{self.WIDTH}}] {share:4.0%}", end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
