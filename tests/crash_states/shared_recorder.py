"""A recorder of several processes."""

import contextlib
import os
import random
import signal
import threading
import time
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from kstore.testing import Recorder
from kstore.testing.recorder import Call


class SharedRecorder(Recorder):
    """Records the calls of children of fork, too, each before the child goes on.

    A child calls `tell` with a value. `marked` makes of it what is marked. With `deaths`, so many children kill
    themselves, at calls chosen by `rng`. Calls that their other threads have made are recorded before.
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
        self._dies = False
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
            with self._order:
                super()._take(name, path, inode, position, detail)
        else:
            self._send(name, path, inode, position, detail)

    def _send(self, *message: Any) -> None:
        with self._sending:
            self._connection.send(message)
            dies = self._connection.recv()
        if self._dies:
            time.sleep(60)  # no further call of this thread
        if dies:
            self._dies = True
            time.sleep(0.1)  # the other threads tell what they have done
            os.kill(os.getpid(), signal.SIGKILL)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        begun: list[Call] = []  # syncs that have not ended
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                name, path, inode, position, detail = connection.recv()
                with self._order:
                    count = len(self.trace.calls)
                    self._record(name, path, inode, position, detail)
                    for call in self.trace.calls[count:]:
                        if call.name.startswith("syncs"):
                            begun.append(call)
                        elif call.name.startswith("sync"):
                            begun.remove(next(each for each in begun if each[1:3] == call[1:3]))
                    dies = self._deaths > 0 and self._rng.random() < 0.01
                    self._deaths -= dies
                connection.send(dies)
        with self._order:
            self._forget(begun)

    def _forget(self, begun: list[Call]) -> None:
        """Syncs that a killed child has begun never end: the end of another one's must not be taken for it."""
        value = None
        for at, call in enumerate(self.trace.calls):
            if call.name == "mark":
                value = call.value
            elif any(call is each for each in begun):
                self.trace.calls[at] = Call("mark", value=value)

    def _record(self, name: str, path: str, inode: int, position: int, detail: Any) -> None:
        if name == "durable":
            self._known = {**self._known, position: detail}
            self.mark(self._known)
        elif name == "map":  # the descriptor is the child's
            with Path(path).open("rb") as file:
                super()._take(name, path, inode, position, file.fileno())
        elif name != "unmap":  # others may still have it
            super()._take(name, path, inode, position, detail)
