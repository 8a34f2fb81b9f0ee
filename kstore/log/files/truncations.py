"""The last truncations of a log, which number its generations. Readers detect by them that records before
their position were removed.

Kafka uses leader epochs for this, but a log without a controller has only one epoch. The file is written
before records are removed, and again after that. A reader that has read the log first and the file then
therefore knows the truncation before any new record. A broker ignores the file.
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
_MOST = 64  # entries of the file
_LARGEST = 1 << 16  # bytes of the file
# ns between numbers: more than 1 ms, the precision of the times of older commits
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
    """The truncations of a log. Immutable.

    number: the generation of the log, which is the number of the last truncation, or 0. Numbers are times in
    nanoseconds since 1970, so they rise even if the file was lost or an older copy restored.

    entries: (number, offset, stable offset) of each truncation. The offset is that of the first removed
    record. The stable offset is lower if the truncation opened a transaction again that begins there: readers
    of committed records may have skipped it as aborted. Numbers and offsets rise, because a truncation
    removes earlier entries at higher offsets.

    pending: "records" if the last truncation may be incomplete, "all" if it also removes all records and
    continues at its offset, else "". The next opening for writing completes it.
    """

    def __init__(self, entries: tuple[tuple[int, int, int], ...] = (), pending: str = "") -> None:
        self._entries = entries
        self.pending: str = pending
        self.number = entries[-1][0] if entries else 0

    @property
    def offset(self) -> int:
        """The offset of the last truncation, or -1."""
        return self._entries[-1][1] if self._entries else -1

    def since(self, number: int, isolation: str) -> int:
        """The lowest offset from which records were removed, or became readable, after the truncation of this
        number; -1 if there is none.

        A pending truncation does not count: no record is appended before it is complete.
        """
        at = 2 if isolation == "read_committed" else 1
        entries = self._entries[:-1] if self.pending else self._entries
        return min((entry[at] for entry in entries if entry[0] > number), default=-1)

    def expecting(self, offset: int, pending: str) -> "Truncations":
        """The truncations with a pending one at an offset."""
        return self._and_one(self._entries, offset, offset, pending)

    def carried_out(self, last_stable_offset: int) -> "Truncations":
        """The truncations after the pending one is complete."""
        offset = self._entries[-1][1]
        kept = tuple(entry for entry in self._entries[:-1] if entry[1] < offset)
        return self._and_one(kept, offset, min(offset, last_stable_offset), "")

    def without_pending(self) -> "Truncations":
        """The truncations without the pending one. Later numbers are still greater than its number."""
        if not self.pending:
            return self
        settled = Truncations(self._entries[:-1])
        settled.number = self.number
        return settled

    def _and_one(
        self, kept: tuple[tuple[int, int, int], ...], offset: int, stable: int, pending: str
    ) -> "Truncations":
        if len(kept) >= _MOST:
            # merge the two oldest: a reader between them may be reported a lower offset than necessary
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
    """The truncations of a log; none if the file is missing or damaged. OSError."""
    file = path / layout.TRUNCATIONS
    try:
        content = decode(file, read_whole(str(file), _LARGEST), "truncations of a log")
        entries = tuple(
            (_offset(n), _offset(at), _offset(stable)) for n, at, stable in content["truncations"]
        )
        if content["version"] != _VERSION or list(entries) != sorted(set(entries)):
            return Truncations()
        if entries and entries[-1][0] > _LATEST:  # no later number could be larger
            return Truncations()
        # An older version, which wrote the key "end", could leave an entry whose truncation was refused and
        # followed by records. Such an entry counts as complete, so that no record is removed.
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
    """Replace the file, durably. OSError."""
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
