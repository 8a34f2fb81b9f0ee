"""The exceptions of kstore. Errors of the operating system are OSError; wrong arguments are TypeError or
ValueError.
"""

from __future__ import annotations

import os

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# C0, DEL and C1, line ends, marks that change the direction of text, and lone surrogates
_INVISIBLE = (
    range(0x20),
    range(0x7F, 0xA0),
    range(0x61C, 0x61D),
    range(0x200E, 0x2010),
    range(0x2028, 0x202F),
    range(0x2066, 0x206A),
    range(0xD800, 0xE000),
)
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_shown: dict[str, str] = {}  # the names of directories that messages show


def show_as(directory: str, name: str) -> None:
    """Has messages show this name, such as a URL, for an absolute path of a directory."""
    _shown[directory] = name


def shown(text: object) -> str:
    """Text in which paths have the names that messages show."""
    text = str(text)
    for directory, name in _shown.items():
        text = text.replace(directory, name)
    return text


def visible(text: object) -> str:
    r"""Text from outside, such as a name, a path or bytes of a file, on one line. Characters that a terminal
    obeys or an encoding refuses become \n, \t, \xNN or \uNNNN. Messages, warnings, logging and the command
    line use this function.
    """
    text = shown(text)
    if text.isprintable():
        return text
    # Without `re`: a finalizer may call this when the interpreter ends, and imports nothing more.
    return "".join(escaped(each) if any(ord(each) in part for part in _INVISIBLE) else each for each in text)


def escaped(character: str) -> str:
    """The escape for a character."""
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _remake(kind: type[KstoreError], args: tuple[object, ...], state: dict[str, object]) -> KstoreError:
    # an error with OSError and another builtin base needs the __new__ of OSError
    maker = OSError if issubclass(kind, OSError) else Exception
    error = maker.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class KstoreError(Exception):
    """Base class of kstore's own exceptions. A message is one line, with escapes for control characters."""

    def __str__(self) -> str:
        return visible(super().__str__())

    def add_note(self, note: str, /) -> None:
        """Add a note, with escapes for control characters."""
        super().add_note(visible(note))

    def __reduce__(self) -> tuple[object, ...]:
        # Exception.__reduce__ would call the constructor with the message alone, which no constructor here
        # accepts. An error that cannot be unpickled breaks the process pool in which it was raised.
        return _remake, (type(self), self.args, self.__dict__)


def _placed(reason: str, file: str, unit: str, position: int) -> str:
    """The reason, preceded by file and position if they are known."""
    known = [file] if file else []
    if position >= 0:
        known.append(f"at {unit} {position}")
    return ": ".join([*known, reason])


class CorruptFileError(KstoreError):
    """A file, or bytes in memory, is damaged or in another format.

    `file`: its path ("" for bytes in memory). `position`: the byte of the damage (-1 if unknown). `reason`:
    what was checked. `expected`, `found`: what it should be and what it is. `text`: the message without file
    and position.
    """

    _unit = "byte"

    def __init__(
        self,
        reason: str,
        *,
        file: str = "",
        position: int = -1,
        expected: object = None,
        found: object = None,
    ) -> None:
        self.reason = reason
        self.file = file
        self.position = position
        self.expected = expected
        self.found = found
        self.text = reason
        if expected is not None or found is not None:
            self.text += f": expected {expected}, found {found}"
        super().__init__(_placed(self.text, file, self._unit, position))


class CorruptRecordError(CorruptFileError):
    """A batch or record is damaged: its checksum or one of its fields is wrong.

    `offset`: the offset in its header, -1 if unknown. `file`, `position`, `reason`, `expected` and `found`
    are those of CorruptFileError.
    """

    def __init__(
        self,
        reason: str,
        *,
        file: str = "",
        position: int = -1,
        offset: int = -1,
        expected: object = None,
        found: object = None,
    ) -> None:
        self.offset = offset
        super().__init__(reason, file=file, position=position, expected=expected, found=found)
        if file:
            directory = os.path.dirname(file)
            place = f"it is at offset {offset}; " if offset >= 0 else ""
            self.add_note(
                "it holds the positions of one group of cursors: remove it, and give the group its positions "
                "anew, with seek() and commit(), or with kstore cursors DIR --group GROUP --topic TOPIC "
                "--reset-to OFFSET"
                if file.endswith(".positions")
                else f"{place}kstore check {directory} tells what is damaged. To read on after it: "
                'on_error="skip" (with recover=False in the last segment), or kstore records --as-is '
                "--on-error skip"
            )


class CorruptIndexError(CorruptFileError):
    """An index file (.index, .timeindex, .txnindex) is damaged, or does not match its .log file."""


class CorruptSnapshotError(CorruptFileError):
    """A producer snapshot (a .snapshot file) is damaged."""


class CorruptCheckpointError(CorruptFileError):
    """A checkpoint, partition.metadata or meta.properties file cannot be parsed.

    `position`: the number of the line, from 1.
    """

    _unit = "line"


class UnsupportedCodecError(CorruptRecordError):
    """The compression codec of a batch is unknown: no Kafka release writes its number."""


class RecordTooLargeError(KstoreError, ValueError):
    """A batch has more bytes than a limit allows.

    A batch to append is larger than max_message_bytes, or a batch decompresses to more than
    max_decompressed_bytes, which applies to appending and to reading. `size`: the number of bytes. `limit`:
    the allowed number.
    """

    def __init__(self, reason: str, *, size: int, limit: int, file: str = "", position: int = -1) -> None:
        self.reason = reason
        self.size = size
        self.limit = limit
        self.file = file
        self.position = position
        super().__init__(f"{_placed(reason, file, 'byte', position)}: expected at most {limit}, found {size}")


class OffsetOutOfRangeError(KstoreError, LookupError):
    """The log does not contain an offset, for example because retention has deleted it.

    `asked`: the requested offset. The log has the offsets from `first` to `end` (exclusive). If records that
    a reader had read were truncated, `end` is the first offset that was removed; the log may have other
    records from there on. If a transaction is open again that a reader of committed records had passed, `end`
    is its first offset.

    `position`: the Position at which a follower can go on, if a follower or a cursor raised the error, else
    None. A follower that begins there detects every truncation made since the error.
    """

    position: Any = None

    def __init__(
        self, asked: int, first: int, end: int, *, is_truncated: bool = False, is_open_again: bool = False
    ) -> None:
        self.asked = asked
        self.first = first
        self.end = end
        if is_truncated:
            what = f"records from offset {end} on were removed after a reader had reached offset {asked}"
        elif is_open_again:
            what = (
                f"the last stable offset went back to {end} after a reader of committed records had "
                f"reached offset {asked}"
            )
        elif first <= asked < end:
            what = (
                f"no record has offset {asked} or a later one, though the log ends at {end}: transaction "
                "markers have them, or they were compacted away or erased"
            )
        else:
            what = f"offset {asked} is outside the log, which holds {first} to {end} (exclusive)"
        super().__init__(what)


class LogChangedError(OffsetOutOfRangeError, FileNotFoundError):
    """A file of the log was deleted or truncated after the log was opened for reading.

    Call `refresh()` on the log, or open it again. `compact()` and `erase()` raise this error if the log
    changes while they run: call them again. `file`: the path of the file. `asked`: an offset that was in it
    (-1 if unknown). The log had the offsets from `first` to `end` (exclusive).
    """

    def __init__(self, file: str, asked: int, first: int, end: int, what: str) -> None:
        super().__init__(asked, first, end)
        self.file = file
        self._what = what
        at = f", and offset {asked} with it" if asked >= 0 else ""
        text = (
            f"{file}: {what} since the log was opened or refreshed{at}; log.refresh() shows what is there now"
        )
        self.args = (text,)

    def met_by(self, call: str) -> None:
        """Name the call during which the log changed. It has no view to refresh."""
        self.args = (f"{self.file}: {self._what} while {call} was at work; call it again for what is left",)

    def __str__(self) -> str:
        return visible(self.args[0])


class LogClosedError(KstoreError):
    """The log is closed, or was opened by the parent of this process: open it again."""


class ReentrantCallError(KstoreError, RuntimeError):
    """A thread called a log during another call of its own on that log. The call would wait for itself.

    Signal handlers, finalizers, and functions that the log calls (`clock`, `progress`, `where`) can make such
    calls. Nothing was changed. In a signal handler, set a flag or raise SystemExit, and close the log outside
    the handler.
    """


class LogNotFoundError(KstoreError, FileNotFoundError):
    """There is no partition, or no log directory, at this path.

    `is_log_directory`: whether the path is a log directory instead of a partition. Open a partition in it.
    """

    is_log_directory = False


class InvalidRecordError(KstoreError, ValueError):
    """A record or batch cannot be appended.

    `errors`: the wrong records of a batch, as (index in the batch, reason).
    """

    def __init__(self, text: str, errors: list[tuple[int, str]] | None = None) -> None:
        self.errors = errors or []
        super().__init__(text)


class InvalidTimestampError(InvalidRecordError):
    """A timestamp is invalid, or the configuration does not allow it.

    The options are message_timestamp_before_max_ms and message_timestamp_after_max_ms.
    """


class OffsetOverflowError(KstoreError, OverflowError):
    """An append needs an offset above 2^63 - 2, the largest offset of a record."""


class OffsetsOutOfOrderError(KstoreError, ValueError):
    """The given offsets of batches to append do not rise, or are too far apart for one segment."""


class UnexpectedAppendOffsetError(KstoreError, ValueError):
    """The given offsets of batches to append begin below the log end offset."""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_end_offset = log_end_offset
        super().__init__(
            f"offsets {first_offset} to {last_offset} begin below the log end offset {log_end_offset}"
        )


class OutOfOrderSequenceError(KstoreError, ValueError):
    """The sequence number of a batch does not follow the last one of its producer: a batch is missing."""


class InvalidProducerEpochError(KstoreError, ValueError):
    """The producer epoch of a batch is below that of the log: a newer instance of the producer has replaced
    this one."""


class InvalidTxnStateError(KstoreError, ValueError):
    """A batch does not match the transaction of its producer, for example because it is outside the open
    one."""


class TransactionCoordinatorFencedError(KstoreError, ValueError):
    """The coordinator epoch of a transaction marker is below that of the log: the coordinator was
    replaced."""


class InvalidRecordStateError(KstoreError, ValueError):
    """A record of a share group is not acquired by the worker that acknowledges it: its lock expired and
    another worker has acquired it, or it was acknowledged before."""


class LogLockedError(KstoreError, OSError):
    """The log is already open for writing, in another process or in this one.

    `path`: what is locked. `pid`: the process that holds the lock, None if the system does not report it.
    """

    def __init__(self, path: str, pid: int | None) -> None:
        self.path = path
        self.pid = pid
        if pid == os.getpid():
            text = (
                f"is locked by this process ({pid}): it has the log open for writing already, perhaps since "
                "an earlier run of a notebook cell. Call close() on that log first, or open logs in a "
                "`with` statement, which closes them. If a LogStore has it, take store.log(topic, "
                "partition)"
            )
        else:
            holder = "another writer" if pid is None else f"process {pid}"
            text = (
                f"is locked by {holder}: a log has one writer at a time, or several that all open it with "
                "shared=True, and so has a directory of a store or a broker with all of its partitions. What "
                "is in it can be read meanwhile, with mode 'r' or with kstore records"
            )
        super().__init__(f"{path} {text}")


class CursorLockedError(LogLockedError):
    """Another cursor reads the partition for this group. In a group, one cursor reads a partition at a time.

    Commits of a cursor that has lost its lock raise it, too. `path`: what is locked: directory, partition and
    group. `pid`: the process that holds the lock, None if the system does not report it.
    """

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path, pid)
        holder = "another process" if pid is None else f"process {pid}"
        mine = ", which is this one: close() that cursor first" if pid == os.getpid() else ""
        text = (
            f"{path} is read by {holder}{mine}: a group has one reader a partition at a time. When that one "
            "is closed, or its process ends, the next one can go on"
        )
        self.args = (text,)

    def __str__(self) -> str:
        return visible(self.args[0])


class LogFailedError(KstoreError):
    """The log refuses to write, because an earlier failure may have left its files in an unknown state.

    Close the log and open it again, which recovers it.
    """


class LibraryError(KstoreError, ImportError):
    """A library that the call needs is not installed, or cannot be imported. `name`: its module."""


class PolicyViolationError(KstoreError, ValueError):
    """The cleanup_policy does not allow an operation, such as deleting records of a compacted log."""


class InvalidConfigError(KstoreError, ValueError):
    """A configuration option does not exist, or its value is not allowed.

    `name`: the option as it was passed. `value`: its value.
    """

    def __init__(self, reason: str, *, name: str = "", value: object = None) -> None:
        self.name = name
        self.value = value
        super().__init__(reason)
