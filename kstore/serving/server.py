"""The socket that clients connect to, with a thread for each connection."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kstore.serving.connection import Connection, Limits, MemoryBudget
from kstore.serving.idle_fetches import IdleFetches

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from kstore.serving.connection import Handler

_JOIN_SECONDS = 10  # for all threads to end after their connections


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address, as text of numbers."""
    return host == "::1" or host.startswith("127.")


def _send_unpaced(listener: socket.socket) -> None:
    """Let the connections that it accepts send as fast as the client takes. BBR, the default of some
    machines, spreads what it sends over time, for a network that is not there: 1 MiB takes twice as
    long."""
    with suppress(OSError):  # a system that has not even this one
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")


class Server:
    """A server for Kafka clients. kstore.serve() creates one.

    `bootstrap_servers`: the address for clients, as "host:port". Closing the server, or leaving its `with`
    block, ends all connections. Its store stays open.
    """

    def __init__(
        self,
        host: str,
        port: int,
        handlers: Mapping[int, Handler],
        limits: Limits,
        on_close: Callable[[], None],
    ) -> None:
        self._handlers = handlers
        self._limits = limits
        self._budget = MemoryBudget(max(limits.memory_bytes, limits.frame_bytes))
        self._idle_fetches = IdleFetches()
        self._on_close = on_close
        self._connections: dict[Connection, threading.Thread] = {}
        self._lock = threading.Lock()
        self._is_closed = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128)
        self.host, self.port = self._listener.getsockname()[:2]
        if is_loopback(self.host):
            _send_unpaced(self._listener)
        self._thread = threading.Thread(target=self._accept, name=f"kstore-serve-{self.port}", daemon=True)
        self._thread.start()

    @property
    def bootstrap_servers(self) -> str:
        """The address of the server for a client: "127.0.0.1:40123"."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_closed(self) -> bool:
        """Whether the server was closed."""
        return self._is_closed

    def disconnect(self) -> None:
        """End all connections. Clients may connect again."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.close()

    def close(self) -> None:
        """End all connections, and accept no others. Requests that are handled are completed first."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if not is_first:
            return
        self._listener.shutdown(socket.SHUT_RDWR)  # accept() returns
        self._thread.join()
        self._listener.close()
        self.disconnect()
        self._on_close()  # whoever waits for others is answered
        with self._lock:
            threads = list(self._connections.values())
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        self._idle_fetches.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._is_closed:
                    return
                threading.Event().wait(0.1)  # no descriptor is left: a connection that ends frees one
                continue
            with self._lock:
                if self._is_closed or len(self._connections) >= self._limits.connections:
                    sock.close()
                    continue
                try:
                    self._begin(sock)
                except OSError:  # the client has gone
                    sock.close()

    def _begin(self, sock: socket.socket) -> None:
        connection = Connection(sock, self._handlers, self._limits, self._budget, self._idle_fetches)
        name = f"kstore-serve-{self.port}-{sock.fileno()}"
        thread = threading.Thread(target=self._run, args=(connection,), name=name, daemon=True)
        self._connections[connection] = thread
        thread.start()

    def _run(self, connection: Connection) -> None:
        try:
            connection.run()
        finally:
            with self._lock:
                del self._connections[connection]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Server at {self.bootstrap_servers}{', closed' if self._is_closed else ''}>"
