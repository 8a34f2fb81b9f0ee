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
    lost meanwhile, or an older one was put in its place: it is the time, in nanoseconds since 1970.

    entries: (number, offset) of those that tell something: numbers rise, and so do offsets, since a later one at a lower offset
        makes others needless once it was carried out. The offset is that of the first record that was removed.
    end: the offset that the next record got after the last one. It is larger if that was inside a batch.
    """

    def __init__(
        self, entries: tuple[tuple[int, int], ...] = (), end: int = -1, *, is_pending: bool = False
    ) -> None:
        self._entries = entries
        self.end = end
        self.is_pending = is_pending  # the last one may not have been carried out
        self.number = entries[-1][0] if entries else 0

    def since(self, number: int) -> int:
        """From which offset on records were cut off after the one of this number; -1 if none were."""
        return min((offset for later, offset in self._entries if later > number), default=-1)

    def and_one(self, offset: int, end: int, *, is_pending: bool = False) -> "Truncations":
        """These, and one at an offset."""
        kept = [entry for entry in self._entries if is_pending or entry[1] < offset]
        if (
            len(kept) >= _MOST
        ):  # of the two oldest, who knows the first is told a little more than was cut off
            kept[:2] = [(kept[1][0], kept[0][1])]
        number = max(self.number + 1, time.time_ns())
        return Truncations((*kept, (number, offset)), end, is_pending=is_pending)

    def without_pending(self) -> "Truncations":
        """These, without one that may not have been carried out; but a later one gets a greater number than that."""
        if not self.is_pending:
            return self
        settled = Truncations(self._entries[:-1], self.end)
        settled.number = self.number
        return settled

    def carried_out(self) -> "Truncations":
        """These, once the pending one was carried out."""
        return self.without_pending().and_one(self._entries[-1][1], self.end)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Truncations):
            return NotImplemented
        return (self._entries, self.end, self.is_pending) == (other._entries, other.end, other.is_pending)

    __hash__ = None  # type: ignore[assignment]


def read_truncations(path: Path) -> Truncations:
    """Those of a log; what is not known, because the file is damaged, has no say. OSError."""
    file = path / layout.TRUNCATIONS
    try:
        content = decode(file, read_whole(str(file)), "truncations of a log")
        entries = tuple((_offset(number), _offset(offset)) for number, offset in content["truncations"])
        if content["version"] != _VERSION or list(entries) != sorted(set(entries)):
            return Truncations()
        return Truncations(entries, _offset(content["end"]), is_pending=bool(content["pending"]))
    except (FileNotFoundError, NotADirectoryError):
        return Truncations()
    except (CorruptCheckpointError, ValueError, KeyError, TypeError):
        return Truncations()


def write_truncations(path: str, known: Truncations) -> None:
    """Replaces them, durably. OSError."""
    content = {
        "version": _VERSION,
        "truncations": known._entries,
        "end": known.end,
        "pending": known.is_pending,
    }
    write_whole(f"{path}/{layout.TRUNCATIONS}", encode(content))


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX64:
        raise ValueError(value)
    return value
