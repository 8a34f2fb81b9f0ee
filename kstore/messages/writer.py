"""Writing numbers and bytes of a message."""

import struct
from typing import Any

from kstore.messages.errors import EncodeError

_FLOAT64 = struct.Struct(">d")


class Writer:
    """The bytes of one message, as far as they are written, with attachments between them."""

    __slots__ = ("_done", "_parts")

    def __init__(self) -> None:
        self._parts = bytearray()
        self._done: list[Any] = []

    def getvalue(self) -> bytes:
        """The bytes written so far. EncodeError if there are attachments."""
        if self._done:
            raise EncodeError("the message has attachments, which are no bytes of it")
        return bytes(self._parts)

    def pieces(self) -> list[Any]:
        """Bytes and attachments in their order."""
        return [*self._done, self._parts]

    def attach(self, what: object) -> None:
        """Let bytes follow that the caller sends itself."""
        self._done += self._parts, what
        self._parts = bytearray()

    def number(self, value: object, size: int, signed: bool, name: str) -> None:
        """Write a big-endian integer of `size` bytes. EncodeError."""
        if not isinstance(value, int) or isinstance(value, bool):
            raise EncodeError(f"field {name} is not an integer: {value!r}")
        try:
            self._parts += value.to_bytes(size, "big", signed=signed)
        except OverflowError:
            raise EncodeError(f"field {name} does not fit into {size} byte(s): {value}") from None

    def float64(self, value: float) -> None:
        """Write an IEEE double."""
        self._parts += _FLOAT64.pack(value)

    def raw(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes as they are."""
        self._parts += data

    def varint(self, value: int) -> None:
        """Write an unsigned varint."""
        while value >= 0x80:
            self._parts.append(value & 0x7F | 0x80)
            value >>= 7
        self._parts.append(value)
