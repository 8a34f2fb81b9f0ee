"""One thread that answers the fetches of idle consumers. Without it, each fetch wakes the thread of its
connection twice."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kstore.engine.io.synchronization import EventFd

if TYPE_CHECKING:
    from collections.abc import Iterator

# from one look at all consumers to the next: those that are due together share a wake-up
_ROUND_SECONDS = 0.01
_MOST = 1 << 16  # bytes that are read at once


class IdleFetch:
    """A Fetch request that a connection repeats, and its answer as long as the partitions do not change.

    request: its frame without the correlation id. answer: that of the request before, with its size.
    correlation_id: that of the request that waits for its answer until `due`, None if there is none.
    received: bytes of the client that follow. unsent: bytes for the client that it did not take yet.
    """

    def __init__(
        self,
        sock: socket.socket,
        event: EventFd,
        request: bytes,
        answer: bytes,
        correlation_id: bytes,
        seconds: float,
    ) -> None:
        self.sock = sock
        self._event = event
        self._request = request
        self._answer = answer
        self._seconds = seconds
        self.correlation_id: bytes | None = correlation_id
        self.due = time.monotonic() + seconds
        self.received = self.unsent = b""
        self.is_held = True

    @property
    def is_idle(self) -> bool:
        """Whether the answer is right, and the connection's thread sleeps."""
        return self.is_held and not self._event.is_set

    def end(self) -> None:
        """The thread of the connection goes on."""
        self._event.set()

    def respond(self) -> None:
        """Send the answer to the request that waits."""
        assert self.correlation_id is not None
        answer = self._answer[:4] + self.correlation_id + self._answer[8:]
        self.correlation_id = None
        try:
            sent = self.sock.send(answer, socket.MSG_DONTWAIT)
        except OSError:  # the client takes nothing now, or has gone
            sent = 0
        if sent < len(answer):
            self.unsent = answer[sent:]
            self.end()

    def receive(self) -> bool:
        """Take the next request, which then waits, if it is the same one. Else the connection's thread does,
        also one that comes before the answer."""
        if self.correlation_id is not None:
            self.respond()
            self.end()
            return False
        try:
            data = self.sock.recv(_MOST, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if len(data) == len(self._request) + 8 and data[4:8] + data[12:] == self._request:
            self.correlation_id = data[8:12]
            self.due = time.monotonic() + self._seconds
            return True
        self.received = data
        self.end()
        return False


class IdleFetches:
    """Answers fetches that are held here when they are due, and takes the next ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake = EventFd()
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._due: list[tuple[float, int, IdleFetch]] = []  # a heap; some may have been answered
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def holding(self, fetch: IdleFetch) -> Iterator[None]:
        """Answer a fetch within a `with` block, until its event is set."""
        with self._lock:
            self._selector.register(fetch.sock, selectors.EVENT_READ, fetch)
            self._add(fetch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kstore-serve-idle", daemon=True)
                self._thread.start()
        self._wake.set()
        try:
            yield
        finally:
            with self._lock:
                fetch.is_held = False
                if not self._is_closed:
                    self._selector.unregister(fetch.sock)

    def _add(self, fetch: IdleFetch) -> None:
        heappush(self._due, (fetch.due, id(fetch), fetch))

    def _run(self) -> None:
        while True:
            seconds = self._due[0][0] - time.monotonic() if self._due else None
            found = self._selector.select(seconds)
            with self._lock:
                if self._is_closed:
                    return
                self._wake.clear()
                for key, _ in found:
                    if key.data is not None and key.data.is_idle and key.data.receive():
                        self._add(key.data)
                now = time.monotonic()
                while self._due and self._due[0][0] <= now:
                    due, _, fetch = heappop(self._due)
                    if fetch.is_idle and fetch.due == due and fetch.correlation_id is not None:
                        fetch.respond()
            time.sleep(_ROUND_SECONDS)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._selector.close()
