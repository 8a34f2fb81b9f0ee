"""Reading numbers and bytes of a message, within its bounds."""

import struct
from typing import Any

from kstore.messages.errors import DecodeError

_FLOAT64 = struct.Struct(">d")


def int32(value: int) -> int:
    """The value after Java's overflow of an int; lengths may overflow."""
    return (value + 2**31) % 2**32 - 2**31


def int16(value: int) -> int:
    """The value after Java's cast to short."""
    return (value + 2**15) % 2**16 - 2**15


class Reader:
    """A position in the bytes of one message."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def remaining(self) -> int:
        """The number of unread bytes."""
        return len(self._data) - self._at

    def unread(self) -> tuple[bytes | memoryview, int]:
        """The bytes of the message, and the position of the first unread one."""
        return self._data, self._at

    def _take(self, size: int) -> bytes:
        if size > self.remaining:
            raise DecodeError(f"{size} byte(s) wanted at {self._at}, {self.remaining} left", reason="null")
        self._at += size
        return bytes(self._data[self._at - size : self._at])

    def number(self, size: int, signed: bool = True) -> int:
        """A big-endian integer of `size` bytes."""
        return int.from_bytes(self._take(size), "big", signed=signed)

    def unpack(self, packing: struct.Struct) -> tuple[Any, ...]:
        """Values of fixed sizes."""
        if packing.size > self.remaining:
            raise DecodeError(
                f"{packing.size} byte(s) wanted at {self._at}, {self.remaining} left", reason="null"
            )
        self._at += packing.size
        return packing.unpack_from(self._data, self._at - packing.size)

    def float64(self) -> float:
        """An IEEE double."""
        value: float = _FLOAT64.unpack(self._take(8))[0]
        return value

    def uuid(self) -> bytes:
        """The 16 bytes of a UUID."""
        return self._take(16)

    def view(self, size: int) -> memoryview:
        """The next `size` bytes, a length from the message, without a copy."""
        self._check(size)
        self._at += size
        return memoryview(self._data)[self._at - size : self._at]

    def array(self, size: int) -> bytes:
        """Read `size` bytes, a length from the message."""
        self._check(size)
        return self._take(size)

    def _check(self, size: int) -> None:
        if size < 0:
            raise DecodeError(f"negative size {size}", reason=str(size))
        if size > self.remaining:
            raise DecodeError(
                f"Error reading byte array of {size} byte(s): only {self.remaining} byte(s) available"
            )

    def varint(self) -> int:
        """An unsigned varint of up to five bytes, which Java keeps in a signed int."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return int32(value)
        raise DecodeError(
            "Varint is too long, the most significant bit in the 5th byte is set, "
            f"converted value: {value % 2**32:x}"
        )
