"""A part of a log that reaches over segments, for sending."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING
from kstore.log.send.sending import send_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket

    from kstore.engine.record.batch import Record
    from kstore.log.read.slice import Slice
    from kstore.log.send.sending import FilePart, Sent


class Span:
    """Stored bytes of consecutive segments, as slices of one moment: `size` bytes in all. log.span()
    makes one.

    bytes(span) copies them, `send` sends them without a copy, iterating gives the records.
    """

    def __init__(self, slices: list[Slice]) -> None:
        self.slices = tuple(slices)
        self.size = sum(part.size for part in slices)

    def __bool__(self) -> bool:
        return self.size > 0

    @property
    def aborted(self) -> list[tuple[int, int]] | None:
        """(producer id, first offset) of the aborted transactions that the bytes may hold, each once; None
        unless isolation="read_committed" was asked for, or if there are no bytes."""
        found = [part.aborted for part in self.slices]
        if None in found or not found:
            return None
        return list(dict.fromkeys(each for aborted in found for each in aborted or ()))

    def send(self, sock: socket, position: int = 0) -> Sent:
        """Sends its bytes to a socket, from byte `position` of the span on, without copying them if possible.
        See Slice.send.
        """
        return send_parts(self._parts(), sock, position)

    async def send_async(self, to: object, position: int = 0) -> Sent:
        """Sends all of its bytes with asyncio, from byte `position` of the span on; otherwise as `send`.

        `to` is a StreamWriter, a transport or a non-blocking socket.
        """
        from kstore.log.send.transports import send_parts_async

        return await send_parts_async(self._parts(), to, position)

    def _parts(self) -> list[FilePart]:
        return [part for each in self.slices for part in each.parts()]

    def __iter__(self) -> Iterator[Record]:
        for part in self.slices:
            yield from part.records()

    def __bytes__(self) -> bytes:
        return b"".join(map(bytes, self.slices))

    def __repr__(self) -> str:
        if not self.slices:
            return "<Span of no slices>"
        first = self.slices[0]
        directory = "an empty log" if first.segment is None else first.segment.directory
        slices = f"{len(self.slices)} slices, from offset {first.offset} on"
        return f"<Span of {directory}: {self.size} bytes in {slices}>"
