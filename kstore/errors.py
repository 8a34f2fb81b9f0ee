"""The exceptions of kstore. What the operating system reports stays OSError; a wrong argument is TypeError or
ValueError.
"""

import os
import re

# C0, DEL and C1, the ends of lines, the marks that change the direction of text, and lone surrogates
_INVISIBLE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: object) -> str:
    r"""Text from outside (a name, a path, what a file holds) on one line: \n, \t, \xNN and \uNNNN in place of
    what a terminal obeys or an encoding refuses. Messages, warnings, logging and the command line use it.
    """
    return re.sub(_INVISIBLE, escaped, str(text))


def escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def _remake(kind: type["KstoreError"], args: tuple[object, ...], state: dict[str, object]) -> "KstoreError":
    # of several builtin bases only this one's is safe
    maker = OSError if issubclass(kind, OSError) else Exception
    error = maker.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class KstoreError(Exception):
    """Base class of kstore's own exceptions. Their texts are one line each, with escapes for control
    characters."""

    def __str__(self) -> str:
        return visible(super().__str__())

    def add_note(self, note: str, /) -> None:
        """Adds a note, with escapes for control characters."""
        super().add_note(visible(note))

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own calls the constructor with `args`, the text: no constructor here takes just that. An
        # error that cannot be unpickled ends the pool of processes in which it was raised.
        return _remake, (type(self), self.args, self.__dict__)


def _placed(reason: str, file: str, unit: str, position: int) -> str:
    """The reason with what is known of its place in front."""
    known = [file] if file else []
    if position >= 0:
        known.append(f"at {unit} {position}")
    return ": ".join([*known, reason])


class CorruptFileError(KstoreError):
    """A file, or bytes in memory, that is damaged or not in the format that it should be in.

    `file` is its path ("" for bytes in memory), `position` the byte at which the damage is (-1 if unknown).
    `reason` is what was checked, `expected` and `found` what it should be and what it is.
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
        text = _placed(reason, file, self._unit, position)
        if expected is not None or found is not None:
            text += f": expected {expected}, found {found}"
        super().__init__(text)


class CorruptRecordError(CorruptFileError):
    """A batch or record that is damaged: its checksum or one of its fields is wrong.

    `offset` is the offset that it claims to have, -1 if unknown. `file`, `position`, `reason`, `expected` and
    `found` are those of CorruptFileError.
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
            directory = os.path.dirname(file)  # noqa: PTH120
            place = f"it is at offset {offset}; " if offset >= 0 else ""
            self.add_note(
                "it holds the positions of one group of cursors: remove it, and give the group its positions "
                "anew, with seek() and commit(), or with kstore cursors DIR --group GROUP --topic TOPIC "
                "--reset-to OFFSET"
                if file.endswith(".positions")
                else f"{place}kstore stat --verify {directory} tells what is damaged. To read on after it: "
                'on_error="skip", or kstore records --on-error skip'
            )


class CorruptIndexError(CorruptFileError):
    """An index file (.index, .timeindex, .txnindex) that is damaged, or does not match its .log file."""


class CorruptSnapshotError(CorruptFileError):
    """A producer snapshot (a .snapshot file) that is damaged."""


class CorruptCheckpointError(CorruptFileError):
    """A checkpoint, partition.metadata or meta.properties file that cannot be parsed.

    `position` is the number of the line, from 1.
    """

    _unit = "line"


class UnsupportedCodecError(CorruptRecordError):
    """A batch whose compression codec is unknown: no Kafka release has written its number."""


class RecordTooLargeError(KstoreError, ValueError):
    """More bytes than a limit allows.

    A batch to append that is larger than max_message_bytes, or a batch that unpacks to more than
    max_decompressed_bytes: a writer does not append one, and a reader does not unpack one. `size` is the
    number of bytes, `limit` what is allowed.
    """

    def __init__(self, reason: str, *, size: int, limit: int, file: str = "", position: int = -1) -> None:
        self.reason = reason
        self.size = size
        self.limit = limit
        self.file = file
        self.position = position
        super().__init__(f"{_placed(reason, file, 'byte', position)}: expected at most {limit}, found {size}")


class OffsetOutOfRangeError(KstoreError, LookupError):
    """An offset that the log does not hold, for example because retention has deleted it.

    `asked` is the offset that was asked for. The log holds the offsets from `first` to `end`, without `end`
    itself.
    """

    _is_exact = False  # whether `end` is noted as the first offset that was cut off

    def __init__(self, asked: int, first: int, end: int) -> None:
        self.asked = asked
        self.first = first
        self.end = end
        if first <= asked < end:
            what = (
                f"no record has offset {asked} or a later one, though the log ends at {end}: transaction "
                "markers have them, or they were compacted away or erased"
            )
        else:
            what = f"offset {asked} is outside the log, which holds {first} to {end} (exclusive)"
        super().__init__(what)


class LogChangedError(OffsetOutOfRangeError, FileNotFoundError):
    """A file of the log was deleted or truncated after the log was opened for reading, so records are gone.

    Call `refresh()` on the log, or open it again, to see what it holds now. `compact()` and `erase()` raise
    it if that happens while they are at work: call them again. `file` is the path of the file, `asked` an
    offset that was in it (-1 if unknown). The log held the offsets from `first` to `end`, without `end`
    itself.
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

    def _met_by(self, call: str) -> None:
        """Names a call during which the log was changed: there is nothing to refresh."""
        self.args = (f"{self.file}: {self._what} while {call} was at work; call it again for what is left",)

    def __str__(self) -> str:
        return visible(self.args[0])


class LogClosedError(KstoreError):
    """The log is closed, or was opened by the parent of this process: open it again."""


class ReentrantCallError(KstoreError, RuntimeError):
    """A call on a log from inside another call of this thread on it; it would wait for itself for ever.

    Signal handlers, finalizers, and functions that the log calls (its `clock`, `progress`, `where`) can make
    such calls. Nothing was done. In a signal handler set a flag, or raise SystemExit, and close the log
    outside the handler.
    """


class LogNotFoundError(KstoreError, FileNotFoundError):
    """There is no partition, or no log directory, at this path.

    `is_log_directory` is true if the path is a log directory where a partition was expected: open a partition
    in it.
    """

    is_log_directory = False


class InvalidRecordError(KstoreError, ValueError):
    """A record or batch that cannot be appended.

    If records of a batch are wrong, `errors` lists them as (index in the batch, reason).
    """

    def __init__(self, text: str, errors: list[tuple[int, str]] | None = None) -> None:
        self.errors = errors or []
        super().__init__(text)


class InvalidTimestampError(InvalidRecordError):
    """A timestamp that no record can have, or that the configuration does not allow.

    The options are message_timestamp_before_max_ms and message_timestamp_after_max_ms.
    """


class OffsetOverflowError(KstoreError, OverflowError):
    """An append that needs an offset above 2^63 - 2, the largest that a record can have."""


class OffsetsOutOfOrderError(KstoreError, ValueError):
    """Batches to append at given offsets that do not increase, or are too far apart for one segment."""


class UnexpectedAppendOffsetError(KstoreError, ValueError):
    """Batches to append at given offsets that begin below the log end offset: the log has records there
    already."""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_end_offset = log_end_offset
        super().__init__(
            f"offsets {first_offset} to {last_offset} begin below the log end offset {log_end_offset}"
        )


class OutOfOrderSequenceError(KstoreError, ValueError):
    """A batch whose sequence number does not follow the last one of its producer: a batch between them is
    missing."""


class InvalidProducerEpochError(KstoreError, ValueError):
    """A batch with an older producer epoch than the log knows: a newer instance of that producer has taken
    over."""


class InvalidTxnStateError(KstoreError, ValueError):
    """A batch that does not match the state of its producer's transaction, such as one outside any
    transaction."""


class TransactionCoordinatorFencedError(KstoreError, ValueError):
    """A transaction marker with an older coordinator epoch than the log knows: that coordinator was
    replaced."""


class LogLockedError(KstoreError, OSError):
    """The log is open for writing already, in another process or in this one; a log has one writer at a time.

    `path` is what is locked. `pid` is the process that holds the lock, None if the system does not say.
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
                f"is locked by {holder}: a log has one writer at a time, and so has a directory of a store "
                "or a broker with all of its partitions. What is in it can be read meanwhile, with mode "
                "'r' or with kstore records"
            )
        super().__init__(f"{path} {text}")


class CursorLockedError(LogLockedError):
    """Another cursor reads the partition for this group; a group has one reader a partition at a time.

    `path` is what is locked: directory, partition and group. `pid` is the process that holds the lock, None
    if the system does not say. It is also raised by a cursor whose lock was lost, when it should commit.
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

    Close it and open it again: opening recovers it.
    """


class LibraryError(KstoreError, ImportError):
    """A library that kstore needs for what was asked is not installed, or cannot be imported. `name` is its
    module."""


class PolicyViolationError(KstoreError, ValueError):
    """An operation that the configured cleanup_policy does not allow, such as deleting records of a compacted
    log."""


class InvalidConfigError(KstoreError, ValueError):
    """A configuration option that does not exist, or a value that it cannot have.

    `name` is the option as it was given, `value` the value.
    """

    def __init__(self, reason: str, *, name: str = "", value: object = None) -> None:
        self.name = name
        self.value = value
        super().__init__(reason)
