"""What a read returns: a part of one segment, not a copy of it."""

from __future__ import annotations

from kstore.arguments import instance
from kstore.engine.scan.batch_reader import BatchReader, RecordReader
from kstore.engine.segment.segment import Segment
from kstore.light_typing import TYPE_CHECKING
from kstore.log.send.sending import FilePart, send_parts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from socket import socket
    from typing import TypeVar

    from kstore.engine.record.batch import Record
    from kstore.log.send.sending import Sent

    _Reader = TypeVar("_Reader", BatchReader, RecordReader)


class Slice:
    """Stored bytes of one segment: `size` bytes at `position`, from the batch that holds `offset` on.

    log.read() makes one. bytes(slice) copies them, `send` sends them without a copy, iterating gives the
    records from `offset` on. A slice begins at a batch, and may end inside one because of the max_bytes that
    was asked for; iterating ignores such a part. Transaction markers are left out of what iterating gives,
    and for isolation="read_committed" records of aborted transactions. The slice can be read as long as it
    exists, even if the file is deleted.
    """

    def __init__(
        self,
        segment: Segment | None,
        offset: int,
        position: int,
        size: int,
        *,
        first_batch_size: int = 0,
        aborted: list[tuple[int, int, int]] | None = None,
        stop_offset: int = 2**63 - 1,
        end_offset: int = 2**63 - 1,
        on_error: str = "raise",
    ) -> None:
        self.segment = segment
        # open as long as the slice exists
        self._file = None if segment is None else instance("segment", segment, Segment).file()
        self.offset = offset
        self.position = position
        self.size = size
        self.first_entry_incomplete = size < first_batch_size
        self._aborted = aborted
        self._stop_offset = stop_offset
        self._end_offset = end_offset
        self._on_error = on_error

    def __bool__(self) -> bool:
        return self.size > 0

    @property
    def aborted(self) -> list[tuple[int, int]] | None:
        """(producer id, first offset) of the aborted transactions that the bytes may hold, as a broker tells
        a consumer; None unless isolation="read_committed" was asked for."""
        return None if self._aborted is None else [(producer, first) for producer, first, _ in self._aborted]

    @property
    def base_offset(self) -> int | None:
        """The base offset of its segment; None if the log is empty."""
        return None if self.segment is None else self.segment.base_offset

    def records(self) -> RecordReader:
        """An iterator of its records. Its `.skipped` lists what on_error="skip" left out."""
        return self._read_by(RecordReader)

    def batches(self) -> BatchReader:
        """An iterator of its whole batches, control batches included. Its `.skipped` lists what
        on_error="skip" left out.
        """
        return self._read_by(BatchReader)

    def _read_by(self, reader: type[_Reader]) -> _Reader:
        return reader(
            self._segments,
            self.offset,
            self._stop_offset,
            first_position=self.position,
            byte_limit=self.size,
            end_offset=self._end_offset,
            aborted=self._aborted,
            on_error=self._on_error,
        )

    # ---- sending -------------------------------------------------------------------------------------------

    def send(self, sock: socket, position: int = 0) -> Sent:
        """Sends its bytes to a socket, from byte `position` of the slice on, without copying them if
        possible.

        A blocking socket takes all. A socket with a timeout takes what it can in that time (TimeoutError if
        that is nothing), a non-blocking one what it can at once, perhaps nothing. In the result, `size` is
        the number of bytes sent, to go on from, and `path` is "sendfile", or "copy" for TLS sockets and
        others for which sendfile does not work. OSError.

        CorruptRecordError if another program has shortened the file: half a batch may have been sent then, so
        close the connection.
        """
        return send_parts(self.parts(), sock, position)

    async def send_async(self, to: object, position: int = 0) -> Sent:
        """Sends all of its bytes with asyncio, from byte `position` of the slice on; otherwise as `send`.

        `to` is a StreamWriter, a transport or a non-blocking socket.
        """
        from kstore.log.send.transports import send_parts_async

        return await send_parts_async(self.parts(), to, position)

    def parts(self) -> list[FilePart]:
        """The part of a file that it is, in a list that is empty if the slice is."""
        if self.segment is None or self._file is None or not self.size:
            return []
        return [FilePart(self.segment, self._file, self.offset, self.position, self.size)]

    @property
    def _segments(self) -> tuple[Segment, ...]:
        return () if self.segment is None or self.size == 0 else (self.segment,)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    def __bytes__(self) -> bytes:
        return b"".join(part.whole() for part in self.parts())

    def __repr__(self) -> str:
        where = "an empty log" if self.segment is None else f"{self.segment.path}, from byte {self.position}"
        return f"<Slice of {where}: {self.size} bytes, from offset {self.offset} on>"
