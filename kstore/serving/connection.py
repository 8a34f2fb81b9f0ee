"""A connection of a client: its frames, its requests in order, and their responses."""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import struct
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kstore.engine.io.synchronization import EventFd
from kstore.errors import KstoreError
from kstore.messages.errors import DecodeError
from kstore.messages.reader import Reader
from kstore.serving.error_codes import ErrorCode
from kstore.serving.idle_fetches import IdleFetch
from kstore.serving.protocol.apis import (
    API_VERSIONS,
    APIS,
    FETCH,
    PRODUCE,
    read_header,
    read_request,
    write_response,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kstore.log.files.layout import TopicPartition
    from kstore.serving.idle_fetches import IdleFetches
    from kstore.serving.protocol.apis import Api, Header

    Handler: TypeAlias = Callable[[dict[str, Any], int, "Connection"], dict[str, Any] | None]

_LOG = logging.getLogger("kstore.serving")
_SIZE_AND_KEY = struct.Struct(">ih")
_SMALL = 1 << 16  # bytes of a frame that needs no place in the budget, and of one read from the socket
_FRAME_SECONDS = 30  # for a frame to come whole, and for a response to be taken


class Limits(NamedTuple):
    """What clients may use: bytes of a Produce request, of another request, which takes many times its size
    once it is decoded, and of all large requests at a time; connections; seconds between two requests."""

    frame_bytes: int = 100 << 20  # Kafka's socket.request.max.bytes
    other_bytes: int = 4 << 20
    memory_bytes: int = 256 << 20
    connections: int = 1000
    idle_seconds: int = 600  # Kafka's connections.max.idle.ms


class Disconnect(Exception):
    """Raised by a handler to close the connection instead of answering."""


class MemoryBudget:
    """The bytes of large requests that all connections have in memory together."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = Lock()
        self._waiting: set[EventFd] = set()

    def take(self, size: int, event: EventFd) -> bool:
        """Take so many bytes, at most the whole budget. False if they are not free; the event is set once
        others are given back."""
        with self._lock:
            if self._left < size:
                self._waiting.add(event)
                return False
            self._left -= size
            return True

    def give_back(self, size: int) -> None:
        """Bytes that were taken are free again."""
        with self._lock:
            self._left += size
            for event in self._waiting:
                event.set()
            self._waiting.clear()


class _LastFetch(NamedTuple):
    """The last Fetch request, which idle consumers repeat: its frame without the correlation id, and its
    values; the answer with its size, if it stays right until the event is set."""

    request: bytes = b""
    values: dict[str, Any] = {}  # noqa: RUF012 - never changed
    answer: bytes = b""


class Connection:
    """One client. Its thread reads a request, answers it, and reads the next one.

    `address`: the host and the port that the client connected to. `host`: that of the client. `client_id`:
    the one in the request that is handled. `event`: what a handler arms to be woken in `wait`. `armed`: for
    which partitions it is armed; none once it was set. `quiet_seconds`: a handler sets it to how
    long its answer stays right if the event is not set.
    """

    client_id: str | None = None
    quiet_seconds = 0.0
    _seconds = 0  # that reading may take
    _last_fetch = _LastFetch()

    def __init__(
        self,
        sock: socket.socket,
        handlers: Mapping[int, Handler],
        limits: Limits,
        budget: MemoryBudget,
        idle_fetches: IdleFetches,
    ) -> None:
        self._sock = sock
        self._handlers = handlers
        self._limits = limits
        self._budget = budget
        self._idle_fetches = idle_fetches
        self._received = bytearray()  # and not handled yet
        self.host: str = sock.getpeername()[0]
        self.address: tuple[str, int] = sock.getsockname()[:2]
        self.event = EventFd()
        self.armed: set[TopicPartition] = set()
        self._poll = select.poll()
        self._poll.register(self.event, select.POLLIN)
        self._poll.register(sock, select.POLLRDHUP)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_FRAME_SECONDS))

    def run(self) -> None:
        """Serve the client until it leaves, is idle for too long, or sends what is no request."""
        try:
            while self._serve_one():
                pass
        except DecodeError as error:
            _LOG.info("closed the connection of %s: %s", self.host, error)
        except (Disconnect, OSError):
            pass  # the client has gone, or has taken nothing for too long
        except KstoreError as error:  # the file that is being sent was truncated: half a response is out
            _LOG.warning("closed the connection of %s: %s", self.host, error)
        except Exception:  # noqa: BLE001 - whatever a handler raises ends one connection only
            _LOG.exception("a request of %s failed; its connection is closed", self.host)
        finally:
            self._sock.close()

    def close(self) -> None:
        """End the connection, from another thread."""
        with contextlib.suppress(OSError):  # it has ended
            self._sock.shutdown(socket.SHUT_RDWR)

    def wait(self, seconds: float) -> bool:
        """Wait for the event, and return whether it was set; it must be armed again then. Disconnect if the
        client has gone."""
        found = self._poll.poll(max(seconds, 0) * 1000)
        for descriptor, _ in found:
            if descriptor != self.event.fileno():
                raise Disconnect
        if found:
            self.event.clear()
            self.armed.clear()
        return bool(found)

    # ---- requests ------------------------------------------------------------------------------------------

    def _serve_one(self) -> bool:
        """Handle the next request. False if the client has left."""
        size = self._next_size()
        if size < 0:
            return False
        if size <= _SMALL:
            self._handle(self._small_frame(size))
            return True
        while not self._budget.take(size, self.event):
            self.wait(self._limits.idle_seconds)
        try:
            self._handle(self._large_frame(size))
        finally:
            self._budget.give_back(size)
        return True

    def _handle(self, frame: bytes | memoryview) -> None:
        source = Reader(frame)
        header = read_header(source)
        api, handler = APIS.get(header.key), self._handlers.get(header.key)
        if api is None or handler is None:
            raise DecodeError(f"a request for API {header.key}, which is not offered")
        self.client_id = header.client_id
        version, answer = header.version, None
        if api.lowest <= version <= api.highest:
            if api.key == FETCH and isinstance(frame, bytes):
                self._handle_fetch(api, handler, header, source, frame)
                return
            answer = handler(read_request(api, version, source), version, self)
            if answer is None:
                return
        elif api.key == API_VERSIONS:  # as in Kafka, the client asks again with a version that it learns here
            version, answer = 0, {**(handler({}, 0, self) or {}), "errorCode": ErrorCode.UNSUPPORTED_VERSION}
        else:
            raise DecodeError(
                f"version {version} of {api.name}, of which {api.lowest} to {api.highest} are offered"
            )
        self._send(write_response(api, version, header.correlation_id, answer))

    def _handle_fetch(self, api: Api, handler: Handler, header: Header, source: Reader, frame: bytes) -> None:
        request, correlation_id = frame[:4] + frame[8:], header.correlation_id
        if request != self._last_fetch.request:
            self._last_fetch = _LastFetch(request, read_request(api, header.version, source))
        last = self._last_fetch
        values = last.values
        if last.answer and not self._received:
            self._last_fetch = last._replace(answer=b"")
            seconds = values["maxWaitMs"] / 1000
            idle = IdleFetch(self._sock, self.event, request, last.answer, frame[4:8], seconds)
            with self._idle_fetches.holding(idle):
                self.wait(self.quiet_seconds)
            self._received += idle.received
            self._sock.sendall(idle.unsent)
            if idle.correlation_id is None:
                return
            correlation_id = int.from_bytes(idle.correlation_id, "big", signed=True)
            values = {**values, "maxWaitMs": max(int((idle.due - monotonic()) * 1000), 0)}
        self.quiet_seconds = 0.0
        answer = handler(values, header.version, self)
        if answer is None:
            return
        pieces = write_response(api, header.version, correlation_id, answer)
        self._send(pieces)
        if self.quiet_seconds and len(pieces) == 1:
            self._last_fetch = self._last_fetch._replace(answer=len(pieces[0]).to_bytes(4, "big") + pieces[0])

    def _send(self, pieces: list[Any]) -> None:
        """Send a response. The bytes before an attachment wait for it, so that they share a packet."""
        size = 0
        for piece in pieces:
            size += len(piece) if isinstance(piece, bytearray) else piece.size
        pending = size.to_bytes(4, "big")
        for piece in pieces:
            if isinstance(piece, bytearray):
                pending += piece
                continue
            self._sock.sendall(pending, socket.MSG_MORE)
            pending = b""
            if piece.send(self._sock).size != piece.size:
                raise Disconnect  # it was not taken in time
        if pending:
            self._sock.sendall(pending)

    # ---- frames --------------------------------------------------------------------------------------------

    def _next_size(self) -> int:
        """The size of the next frame, -1 at the end of the connection. DecodeError."""
        self._allow(self._limits.idle_seconds)
        while len(self._received) < _SIZE_AND_KEY.size:
            data = self._sock.recv(_SMALL)
            if not data:
                return -1
            self._received += data
        size: int
        size, key = _SIZE_AND_KEY.unpack_from(self._received)
        most = self._limits.frame_bytes if key == PRODUCE else self._limits.other_bytes
        if not 2 <= size <= most:
            raise DecodeError(f"a request of {size} bytes for API {key}, of which {most} are allowed")
        del self._received[:4]
        return size

    def _small_frame(self, size: int) -> bytes:
        while len(self._received) < size:
            self._allow(_FRAME_SECONDS)
            data = self._sock.recv(_SMALL)
            if not data:
                raise Disconnect
            self._received += data
        frame = bytes(self._received[:size])
        del self._received[:size]
        return frame

    def _large_frame(self, size: int) -> memoryview:
        self._allow(_FRAME_SECONDS)
        frame = memoryview(bytearray(size))
        at = min(len(self._received), size)
        frame[:at] = self._received[:at]
        del self._received[:at]
        while at < size:
            got = self._sock.recv_into(frame[at:])
            if not got:
                raise Disconnect
            at += got
        return frame

    def _allow(self, seconds: int) -> None:
        """How long the next reading may take."""
        if seconds != self._seconds:
            self._seconds = seconds
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(seconds))


def _timeval(seconds: int) -> bytes:
    """A struct timeval."""
    return seconds.to_bytes(8, "little") + bytes(8)
