"""Where a log was truncated: who has read beyond such an offset is told by it that others may have these offsets now.

A leader epoch tells it in Kafka, but a log that nobody leads has only one. The file is written before anything is cut off, and
once more when that is done: so who reads the file behind the log never sees new records whose truncation it does not know.
A broker passes over it.
"""

import time
from pathlib import Path

from kstore.config import MAX64
from kstore.engine.io.file import read_whole, write_whole
from kstore.errors import CorruptCheckpointError
from kstore.log.files import layout
from kstore.log.files.checked_json import decode, encode

_VERSION = 1
_MOST = 64  # are told apart


class Truncations:
    """A value: `number` is that of the last one, 0 if there is none. A later one has a greater number, also if the file was
    lost meanwhile, or an older one was put in its place.

    entries: (number, offset) of those that tell something: both rise, since a later one at a lower offset makes others needless.
    """

    def __init__(self, entries: tuple[tuple[int, int], ...] = (), *, is_pending: bool = False) -> None:
        self._entries = entries
        self.is_pending = is_pending  # the last one may not have been carried out
        self.number = entries[-1][0] if entries else 0

    def since(self, number: int) -> int:
        """From which offset on records were cut off after the one of this number; -1 if none were."""
        return next((offset for later, offset in self._entries if later > number), -1)

    def and_one(self, offset: int, *, is_pending: bool = False) -> "Truncations":
        """These, and one at an offset."""
        kept = [entry for entry in self._entries if entry[1] < offset]
        if (
            len(kept) >= _MOST
        ):  # of the two oldest, who knows the first is told a little more than was cut off
            kept[:2] = [(kept[1][0], kept[0][1])]
        number = max(self.number + 1, time.time_ns())
        return Truncations((*kept, (number, offset)), is_pending=is_pending)

    @property
    def last_offset(self) -> int:
        """Where the last one was; -1 if there is none."""
        return self._entries[-1][1] if self._entries else -1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Truncations):
            return NotImplemented
        return (self._entries, self.is_pending) == (other._entries, other.is_pending)

    __hash__ = None  # type: ignore[assignment]


def read_truncations(path: Path) -> Truncations:
    """Those of a log; what is not known, because the file is damaged, has no say. OSError."""
    file = path / layout.TRUNCATIONS
    try:
        content = decode(file, read_whole(str(file)), "truncations of a log")
        entries = tuple((_offset(number), _offset(offset)) for number, offset in content["truncations"])
        if content["version"] != _VERSION or list(entries) != sorted(set(entries)):
            return Truncations()
        return Truncations(entries, is_pending=bool(content["pending"]))
    except (FileNotFoundError, NotADirectoryError):
        return Truncations()
    except (CorruptCheckpointError, ValueError, KeyError, TypeError):
        return Truncations()


def write_truncations(path: str, known: Truncations) -> None:
    """Replaces them, durably. OSError."""
    content = {"version": _VERSION, "truncations": known._entries, "pending": known.is_pending}
    write_whole(f"{path}/{layout.TRUNCATIONS}", encode(content))


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX64:
        raise ValueError(value)
    return value
