"""A thread that works for a log in the background, and whose end others wait for."""

import sys
import threading

from kstore.log.write.wakeup import Wakeup

_PATIENCE = 0.05  # s: between two looks at whether it is outside


class Background(threading.Thread):
    """A daemon thread.

    A signal handler may wait for its end while the thread that it interrupts waits, too. Thread.join cannot do that: it
    takes a lock, and whoever is interrupted with it waits for itself.
    """

    outside = False  # inside code of others, such as handlers of logging, which may wait for whoever waits for this thread
    _is_over = False

    def start(self) -> None:
        """RuntimeError if there can be no more threads; so at the end of the interpreter, when it would never run."""
        if sys.is_finalizing():
            raise RuntimeError("can't start new thread at interpreter shutdown")
        self._over = Wakeup()
        self.daemon = True
        super().start()

    def run(self) -> None:
        """What it was made for."""
        try:
            super().run()
        finally:
            self._is_over = True
            self._over.set()

    def wait(self) -> None:
        """Waits until it is over, or outside. It returns at once in a child of fork and at the end of the interpreter, where
        it will never be over."""
        if self is threading.current_thread() or self.ident is None:
            return
        try:
            while not (self._is_over or self.outside or sys.is_finalizing()) and self.is_alive():
                self._over.wait(_PATIENCE)
        finally:
            self._over.set()  # others may wait, too
