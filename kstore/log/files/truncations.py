"""Where a log was truncated: who has read beyond such an offset is told by it that others may have these
offsets now.

A leader epoch tells it in Kafka, but a log that nobody leads has only one. The file is written before
anything is cut off, and once more when that is done: so who reads the file behind the log never sees new
records whose truncation it does not know. A broker passes over it.
"""

import errno
import time
from pathlib import Path

from kstore.arguments import MAX64
from kstore.engine.io.file import read_whole, write_whole
from kstore.errors import CorruptCheckpointError, LogFailedError
from kstore.log.files import layout
from kstore.log.files.checked_json import decode, encode

_VERSION = 1
_MOST = 64  # are told apart
_LARGEST = 1 << 16  # bytes of the file
# ns: the time of a commit of older versions, in ms, is before or after each number
_NUMBERS_APART = 2_000_000
_LATEST = 9 * 10**18  # ns since 1970, in the year 2255
_NO_FILE = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.EINVAL,
    errno.EACCES,
    errno.ENXIO,
    errno.EFBIG,
)


class Truncations:
    """A value: `number` is that of the last one, 0 if there is none. A later one has a greater number, also
    if the file was lost meanwhile, or an older one was put in its place: it is the time, in nanoseconds since
    1970.

    entries: (number, offset, stable offset) of those that tell something: numbers rise, and so do offsets,
    since a later one at a lower offset makes others needless once it was carried out. The offset is that of
    the first record that was removed. The stable offset is lower if an open transaction begins there: readers
    of committed records may have passed it by as one that was aborted, if that was removed too. pending:
    "records" if the last one may not have been carried out, "all" if that one removes all records and goes on
    at its offset, else "". The next opening for writing carries it out.
    """

    def __init__(self, entries: tuple[tuple[int, int, int], ...] = (), pending: str = "") -> None:
        self._entries = entries
        self.pending: str = pending
        self.number = entries[-1][0] if entries else 0

    @property
    def offset(self) -> int:
        """The offset of the last one; -1 if there is none."""
        return self._entries[-1][1] if self._entries else -1

    def since(self, number: int, isolation: str) -> int:
        """From which offset on records were cut off after the one of this number, or may be read again; -1 if
        none were.

        One that is pending tells nothing: before it was carried out, nobody appends."""
        at = 2 if isolation == "read_committed" else 1
        entries = self._entries[:-1] if self.pending else self._entries
        return min((entry[at] for entry in entries if entry[0] > number), default=-1)

    def expecting(self, offset: int, pending: str) -> "Truncations":
        """These, and one at an offset that is pending."""
        return self._and_one(self._entries, offset, offset, pending)

    def carried_out(self, last_stable_offset: int) -> "Truncations":
        """These, once the pending one was carried out."""
        offset = self._entries[-1][1]
        kept = tuple(entry for entry in self._entries[:-1] if entry[1] < offset)
        return self._and_one(kept, offset, min(offset, last_stable_offset), "")

    def without_pending(self) -> "Truncations":
        """These, without one that may not have been carried out; but a later one gets a greater number than
        that."""
        if not self.pending:
            return self
        settled = Truncations(self._entries[:-1])
        settled.number = self.number
        return settled

    def _and_one(
        self, kept: tuple[tuple[int, int, int], ...], offset: int, stable: int, pending: str
    ) -> "Truncations":
        if len(kept) >= _MOST:
            # of the two oldest, who knows the first is told a little more than was cut off
            (_, first, first_stable), (number, *_) = kept[:2]
            kept = ((number, first, first_stable), *kept[2:])
        last = max(self.number + _NUMBERS_APART, time.time_ns()), offset, stable
        return Truncations((*kept, last), pending)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Truncations):
            return NotImplemented
        return (self._entries, self.pending) == (other._entries, other.pending)

    def __hash__(self) -> int:
        return hash((self._entries, self.pending))


NO_TRUNCATIONS = Truncations()


class TruncationFile:
    """The truncations of a log that is open for writing, and their file. Readers in this process see `known`
    at once."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.known = read_truncations(Path(directory))

    def expect(self, offset: int, pending: str = "records") -> None:
        """Notes a truncation before anything is removed: if this process dies, the next writer completes it.
        OSError: nothing is noted. LogFailedError: that is not known."""
        expected = self.known.without_pending().expecting(offset, pending)
        try:
            write_truncations(self._directory, expected)
        except OSError as e:
            try:
                write_truncations(
                    self._directory, self.known
                )  # or the next writer would remove what comes now
            except OSError:
                raise LogFailedError(
                    f"{self._directory}: a truncation could not be noted, nor withdrawn"
                ) from e
            raise
        self.known = expected

    def carry_out(self, last_stable_offset: int) -> None:
        """The truncation was carried out, as readers in this process see at once. `store` brings it to the
        disk before anything is appended: a reader in another process may have begun meanwhile."""
        self.known = self.known.carried_out(last_stable_offset)

    def store(self) -> None:
        """Writes the file, durably. OSError."""
        write_truncations(self._directory, self.known)


def read_truncations(path: Path) -> Truncations:
    """Those of a log; what is not known, because the file is damaged, has no say. OSError."""
    file = path / layout.TRUNCATIONS
    try:
        content = decode(file, read_whole(str(file), _LARGEST), "truncations of a log")
        entries = tuple(
            (_offset(n), _offset(at), _offset(stable)) for n, at, stable in content["truncations"]
        )
        if content["version"] != _VERSION or list(entries) != sorted(set(entries)):
            return Truncations()
        if entries and entries[-1][0] > _LATEST:  # a later one could not be larger
            return Truncations()
        # A note of an older version, which has the key "end", could stay though its truncation was refused and
        # records followed. It counts as carried out, which removes nothing.
        pending = "" if "end" in content else content["pending"]
        kind = "all" if pending == "all" else "records" if pending else ""
        return Truncations(entries, kind if entries else "")
    except OSError as e:
        if e.errno not in _NO_FILE:
            raise
    except (CorruptCheckpointError, ValueError, KeyError, TypeError):
        pass
    return Truncations()


def write_truncations(path: str, known: Truncations) -> None:
    """Replaces them, durably. OSError."""
    content = {
        "version": _VERSION,
        "truncations": known._entries,
        "pending": known.pending,
    }
    write_whole(f"{path}/{layout.TRUNCATIONS}", encode(content))


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value <= MAX64:
        raise ValueError(value)
    return value
