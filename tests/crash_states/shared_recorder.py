"""A recorder of several processes."""

import contextlib
import os
import random
import signal
import threading
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from kstore.testing import Recorder


class SharedRecorder(Recorder):
    """Records the calls of children of fork, too, each before the child goes on.

    A child calls `tell` with a value. `marked` makes of it what is marked. With `deaths`, so many children are
    killed, at calls chosen by `rng`.
    """

    def __init__(self, root: str, rng: random.Random, deaths: int) -> None:
        super().__init__(root)
        self._rng, self._deaths = rng, deaths
        self._pid = os.getpid()
        self._listener = Listener(family="AF_UNIX")
        self._sending = threading.Lock()
        self._connection: Any = None
        self._order = threading.Lock()
        self._known: dict[int, str] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def begin_in_child(self) -> None:
        """A child of fork begins."""
        self._sending = threading.Lock()
        self._connection = Client(self._listener.address)

    def tell(self, offset: int, value: str) -> None:
        """A record is durable; called by a child."""
        self._send("durable", "", 0, offset, value)

    def _take(self, name: str, path: str, inode: int, position: int, detail: Any) -> None:
        if os.getpid() == self._pid:
            super()._take(name, path, inode, position, detail)
        else:
            self._send(name, path, inode, position, detail)

    def _send(self, *message: Any) -> None:
        with self._sending:
            self._connection.send((os.getpid(), *message))
            self._connection.recv()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                child, name, path, inode, position, detail = connection.recv()
                with self._order:
                    self._record(name, path, inode, position, detail)
                    if self._deaths and self._rng.random() < 0.01:
                        self._deaths -= 1
                        os.kill(child, signal.SIGKILL)
                        return
                connection.send(None)

    def _record(self, name: str, path: str, inode: int, position: int, detail: Any) -> None:
        if name == "durable":
            self._known = {**self._known, position: detail}
            self.mark(self._known)
        elif name == "map":  # the descriptor is the child's
            with Path(path).open("rb") as file:
                super()._take(name, path, inode, position, file.fileno())
        elif name != "unmap":  # others may still have it
            super()._take(name, path, inode, position, detail)
