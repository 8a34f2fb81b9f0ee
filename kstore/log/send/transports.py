"""Bytes of segments to asyncio's writers, transports and sockets. Imported when first used: asyncio takes its
time."""

from __future__ import annotations

import asyncio
from typing import IO

from kstore.light_typing import TYPE_CHECKING, cast
from kstore.log.send.sending import CHUNK, Sent, Target, parts_from, result_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kstore.log.send.sending import FilePart


class _Opened:
    """The file of a slice, as asyncio wants it for its sendfile."""

    mode = "rb"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor


async def send_parts_async(parts: Sequence[FilePart], to: object, position: int) -> Sent:
    """Sends parts one after the other; see Slice.send_async."""
    transport: Any = getattr(to, "transport", to)
    if hasattr(transport, "get_extra_info"):  # those of uvloop are no asyncio.BaseTransport
        return await _send_by_transport(parts, to, transport, position)
    if not (hasattr(to, "send") and hasattr(to, "gettimeout")):
        raise TypeError(f"{to!r} is no StreamWriter, transport or socket")
    return await _send_by_socket(parts, to, position)


async def _send_by_socket(parts: Sequence[FilePart], sock: Any, position: int) -> Sent:
    if sock.gettimeout() != 0:
        raise ValueError("asyncio needs a non-blocking socket: sock.setblocking(False)")
    target = Target(sock)
    sent = 0
    for part, at in parts_from(parts, position):
        while at < part.size:
            try:
                size = target.push(part, at)
            except BlockingIOError:
                await _writable(sock)
                continue
            at += size
            sent += size
            await asyncio.sleep(0)  # a socket that takes all at once must not keep the others waiting
    return result_of(target, sent)


async def _writable(sock: Any) -> None:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_writer(sock.fileno(), wake)
    try:
        await future
    finally:
        loop.remove_writer(sock.fileno())


async def _send_by_transport(parts: Sequence[FilePart], to: Any, transport: Any, position: int) -> Sent:
    loop = asyncio.get_running_loop()
    copies = transport.get_extra_info("sslcontext") is not None
    if not hasattr(transport, "write"):
        raise TypeError(f"{transport!r} cannot be written to")
    sent = 0
    for part, at in parts_from(parts, position):
        while at < part.size:
            if not copies:
                descriptor, start = part.place(at)
                file = cast(IO[bytes], _Opened(descriptor))
                try:
                    # the loop first sends what is still in the transport's buffer
                    size = await loop.sendfile(transport, file, start, part.size - at, fallback=False)
                except (asyncio.SendfileNotAvailableError, NotImplementedError, RuntimeError):
                    if transport.is_closing():
                        raise
                    copies = True
                    continue
                if size == 0:
                    part.shortened(at)
            else:
                data = part.copy(at, CHUNK)
                transport.write(data)
                size = len(data)
                if hasattr(to, "drain"):
                    await to.drain()
                else:
                    await asyncio.sleep(0)
            at += size
            sent += size
    return Sent(sent, "copy" if copies else "sendfile")
