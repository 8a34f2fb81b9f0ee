"""A thread that works for a log in the background, and whose end others wait for."""

import _thread
import os
import sys
import threading
from time import monotonic

from kstore.log.threads.wakeup import Wakeup

_PATIENCE = 0.05  # s: between two looks at whether it is outside
BEGINS = 1.0  # s: what has not begun by then found no memory for it


class _Started:
    """Whether a thread has begun, in place of the Event that every Thread has. Nobody waits for it. So it has
    no lock, which whoever finds no memory while he waits would leave locked: the thread would stand before it
    for ever."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float | None = None) -> None:
        """Thread.start() returns at once."""

    def _at_fork_reinit(self) -> None:
        """There is no lock."""


class Background(threading.Thread):
    """A daemon thread, unless `daemon` is False.

    A signal handler may raise an exception in whoever starts it, and may wait for its end while the thread
    that it interrupts waits, too. Thread.start and Thread.join cannot do that: they take locks, and whoever
    is interrupted with one leaves it locked, or waits for itself. So another thread starts it, where no
    handler runs.
    """

    outside = False  # inside code of others, such as handlers of logging, which may wait for whoever waits for this thread
    is_begun = False
    _is_over = False
    _process = -1  # where it runs
    _runs: dict[str, bool] = {}  # noqa: RUF012 - empty, until the thread begins, or somebody gives it up: one step

    def start(self) -> None:
        """RuntimeError if there can be no more threads; so at the end of the interpreter, when it would never
        run."""
        if sys.is_finalizing():
            raise RuntimeError("can't start new thread at interpreter shutdown")
        self._started = _Started()
        self._begun = Wakeup()
        self._over = Wakeup()
        self._runs = {}
        # From here on these are only set, which takes no memory.
        self._is_over = self.is_begun = self.outside = False
        self._process = os.getpid()
        self._until = monotonic() + BEGINS
        _thread.start_new_thread(self._start, ())
        self.is_begun = True

    def _start(self) -> None:
        try:
            super().start()
        except (RuntimeError, MemoryError):  # there can be no more threads
            self._give_up()
            self._over.set()

    def _give_up(self) -> bool:
        """It will not run, though it may yet begin. False if it has begun."""
        return not self._runs.setdefault("", False)

    def has_begun(self) -> bool:
        """Whether it runs, which takes a moment after start(). If it does not then, it never will: a new
        thread that finds no memory ends without a word to anybody."""
        while not self._runs and monotonic() < self._until:
            self._begun.wait(_PATIENCE)
        return not self._give_up()

    def run(self) -> None:
        """What it was made for."""
        self.is_begun = True
        if not self._runs.setdefault("", True):
            return
        try:  # from here on it has begun: if it ends for want of memory at once, that must be known, too
            self._begun.set()
            super().run()
        finally:
            self._is_over = True
            self._over.set()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or will never run: without memory, in a child of fork, and at the end of the
        interpreter."""
        return (
            self._is_over
            or not self._runs.get("", True)
            or (not self._runs and self.is_begun and monotonic() > self._until and self._give_up())
            or sys.is_finalizing()
            or self._process != os.getpid()
        )

    def wait(self) -> None:
        """Waits until it is over, or outside."""
        if self is threading.current_thread() or not self.is_begun or self._give_up():
            return  # what has not begun by now may have found no memory for it, and would be waited for in vain
        try:
            while not (self.is_over or self.outside):
                self._over.wait(_PATIENCE)
        finally:
            self._over.set()  # others may wait, too
