"""Bytes of segments to sockets: by sendfile, which copies nothing into the process, or else by copying
them."""

from __future__ import annotations

import errno
import select
import sys
from operator import index
from time import monotonic

from kstore.arguments import any_integer
from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from socket import socket
    from typing import NoReturn

    from kstore.engine.io.file import File
    from kstore.engine.segment.segment import Segment

CHUNK = 256 << 10  # of a copy: small enough to stay in the cache
# what a target answers that sendfile cannot serve
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)


class Sent(NamedTuple):
    """The result of a send: `size`, the number of bytes that were sent, and `path`, "sendfile" or "copy"."""

    size: int
    path: str


class FilePart:
    """Bytes of one segment: `size` bytes from `position` on, the batch that holds `offset` first. The file
    stays open as long as this exists, even if it is deleted."""

    def __init__(self, segment: Segment, file: File, offset: int, position: int, size: int) -> None:
        self.size = size
        self._segment = segment
        self._file = file
        self._offset = offset
        self._position = position

    def place(self, position: int) -> tuple[int, int]:
        """The descriptor of the file, and where in that a byte of the part lies."""
        return self._file.fileno(), self._segment.origin + self._position + position

    def send_to(self, target: int, position: int) -> int:
        """Sends by sendfile to a descriptor what that takes at once. CorruptRecordError, OSError."""
        sent = self._file.send(target, self.place(position)[1], self.size - position)
        return sent or self.shortened(position)

    def copy(self, position: int, size: int) -> bytes:
        """Up to `size` of the bytes. CorruptRecordError, OSError."""
        data = self._file.read(self.place(position)[1], min(size, self.size - position))
        return data or self.shortened(position)

    def whole(self) -> bytes:
        """All of the bytes. CorruptRecordError, OSError."""
        data = self.copy(0, self.size)
        return data if len(data) == self.size else self.shortened(len(data))

    def shortened(self, position: int) -> NoReturn:
        """CorruptRecordError: the file ends at this byte of the part."""
        raise CorruptRecordError(
            "the file was shortened since the slice was made",
            file=self._segment.path,
            position=self._position + position,
            offset=self._offset,
            expected=f"{self.size - position} bytes",
            found="the end of the file",
        )


def parts_from(parts: Sequence[FilePart], position: int) -> Iterator[tuple[FilePart, int]]:
    """The parts from a position of all of them on, each with where in it to begin."""
    position = any_integer("position", position)
    if position < 0 or position > sum(part.size for part in parts):
        raise ValueError(f"position {position} is outside the {sum(p.size for p in parts)} bytes to send")
    for part in parts:
        if position < part.size:
            yield part, position
        position = max(0, position - part.size)


def _is_tls(sock: object) -> bool:
    # A program with such a socket has imported ssl. While another thread imports it, the module has no such
    # class yet.
    kind = getattr(sys.modules.get("ssl"), "SSLSocket", None)
    return isinstance(kind, type) and isinstance(sock, kind)


class Target:
    """A socket, and how it takes bytes."""

    def __init__(self, sock: socket) -> None:
        if not callable(getattr(sock, "send", None)):
            raise TypeError(f"{sock!r} is no socket: it has no send()")
        self.sock = sock
        self.copies = _is_tls(sock) or not hasattr(sock, "fileno")

    def push(self, part: FilePart, position: int) -> int:
        """What it takes at once, at least one byte; BlockingIOError for none."""
        if not self.copies:
            try:
                return part.send_to(self.sock.fileno(), position)
            except OSError as e:
                if e.errno not in _CANNOT or self.sock.fileno() < 0:
                    raise
                self.copies = True
        data = part.copy(position, CHUNK)
        try:
            return self._taken(self.sock.send(data), len(data))
        except OSError as e:
            if _is_tls(self.sock) and type(e).__name__ in ("SSLWantWriteError", "SSLWantReadError"):
                raise BlockingIOError(errno.EAGAIN, "the TLS socket takes nothing now") from e
            raise

    def _taken(self, size: object, most: int) -> int:
        """The result of a send(), if it is possible: a caller's own send may count otherwise, and what
        follows would be left out."""
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise TypeError(f"send() of {self.sock!r} gave {size!r}, and not how many bytes it took")
        if not 1 <= index(size) <= most:
            raise ValueError(
                f"send() of {self.sock!r} says that it took {size} bytes of {most}; for none it raises "
                "BlockingIOError"
            )
        return index(size)


def send_parts(parts: Sequence[FilePart], sock: socket, position: int) -> Sent:
    """Sends parts one after the other; see Slice.send."""
    target = Target(sock)
    timeout = sock.gettimeout() if hasattr(sock, "gettimeout") else None
    deadline = None if timeout is None else monotonic() + timeout
    sent = 0
    for part, at in parts_from(parts, position):
        while at < part.size:
            try:
                size = target.push(part, at)
            except (BlockingIOError, TimeoutError):
                if deadline is None:
                    raise  # SO_SNDTIMEO, or a descriptor whose flags were changed
                if not _wait_writable(sock, deadline):
                    if sent or timeout == 0:
                        return result_of(target, sent)
                    raise TimeoutError(f"nothing was taken within {timeout} s") from None
                continue
            at += size
            sent += size
    return result_of(target, sent)


def result_of(target: Target, sent: int) -> Sent:
    """The result, with the way that the last bytes went."""
    return Sent(sent, "copy" if target.copies else "sendfile")


def _wait_writable(sock: socket, deadline: float) -> bool:
    left = deadline - monotonic()
    if left <= 0:
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLOUT)
    return bool(poll.poll(left * 1000))
