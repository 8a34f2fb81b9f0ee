"""The exceptions of kstore. What the system reports stays OSError; a caller's mistake is TypeError or ValueError."""


def _remake(kind: type["KstoreError"], args: tuple[object, ...], state: dict[str, object]) -> "KstoreError":
    maker = (
        OSError if issubclass(kind, OSError) else Exception
    )  # of several builtin bases only this one's is safe
    error = maker.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class KstoreError(Exception):
    """Base of everything that kstore raises of its own."""

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own calls the constructor with `args`, the text: no constructor here takes just that. An error
        # that cannot be unpickled ends the pool of processes in which it was raised.
        return _remake, (type(self), self.args, self.__dict__)


def _placed(reason: str, file: str, unit: str, position: int) -> str:
    """The reason with what is known of its place in front."""
    known = [file] if file else []
    if position >= 0:
        known.append(f"at {unit} {position}")
    return ": ".join([*known, reason])


class CorruptFileError(KstoreError):
    """Bytes that cannot be what their file says. `file` ("" for bytes in memory), `position` (byte in it, -1 where that
    cannot be told), `expected` and `found` tell where and why."""

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
    """A batch or record that fails its checks. `offset` is the offset it claims, -1 where that cannot be told."""

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


class CorruptIndexError(CorruptFileError):
    """An index that contradicts itself or its log."""


class CorruptSnapshotError(CorruptFileError):
    """A producer snapshot that fails its checks."""


class CorruptCheckpointError(CorruptFileError):
    """A checkpoint, partition.metadata or meta.properties file that does not parse; `position` is a line, from 1."""

    _unit = "line"


class UnsupportedCodecError(CorruptRecordError):
    """A codec id that no Kafka release has written."""


class RecordTooLargeError(KstoreError, ValueError):
    """More bytes than a limit allows: of one batch, or of what a compressed one unpacks to. `size` and `limit` tell."""

    def __init__(self, reason: str, *, size: int, limit: int, file: str = "", position: int = -1) -> None:
        self.reason = reason
        self.size = size
        self.limit = limit
        self.file = file
        self.position = position
        super().__init__(f"{_placed(reason, file, 'byte', position)}: expected at most {limit}, found {size}")


class OffsetOutOfRangeError(KstoreError, LookupError):
    """An offset outside the log: `asked`, and the range `first` .. `end` (exclusive) that there is."""

    def __init__(self, asked: int, first: int, end: int) -> None:
        self.asked = asked
        self.first = first
        self.end = end
        super().__init__(f"offset {asked} is outside the log, which holds {first} to {end} (exclusive)")


class LogChangedError(OffsetOutOfRangeError, FileNotFoundError):
    """What a view of a log shows is no longer in its files: `file` was deleted by retention, or truncated. `asked` is an
    offset of what was there. PartitionLog.refresh, or opening the log again, shows what is there now."""

    def __init__(self, file: str, asked: int, first: int, end: int, what: str) -> None:
        super().__init__(asked, first, end)
        self.file = file
        at = f", offset {asked} with it" if asked >= 0 else ""
        self.args = (f"{file}: {what} since the log was looked at{at}; look again",)

    def __str__(self) -> str:
        return str(self.args[0])


class LogClosedError(KstoreError):
    """The log was closed, or opened in another process."""


class ReentrantCallError(KstoreError, RuntimeError):
    """A call by the very thread that is inside the log: from a signal handler, a finalizer, or the log's clock.

    Nothing was done. In a signal handler set a flag, or raise SystemExit, and close the log outside the handler.
    """


class LogNotFoundError(KstoreError, FileNotFoundError):
    """No partition or log directory there. `is_log_directory`: partitions lie below it."""

    is_log_directory = False


class InvalidRecordError(KstoreError, ValueError):
    """A record or batch that may not be appended. `errors` lists (index in its batch, reason) where records are to blame."""

    def __init__(self, text: str, errors: list[tuple[int, str]] | None = None) -> None:
        self.errors = errors or []
        super().__init__(text)


class InvalidTimestampError(InvalidRecordError):
    """A timestamp that the topic's configuration does not allow."""


class OffsetOverflowError(KstoreError, OverflowError):
    """An append that would need an offset above 2^63 - 2, the largest that a record may have."""


class OffsetsOutOfOrderError(KstoreError, ValueError):
    """Batches whose given offsets do not rise, or do not fit into a segment."""


class UnexpectedAppendOffsetError(KstoreError, ValueError):
    """Batches with given offsets that begin below the log end offset."""

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_end_offset = log_end_offset
        super().__init__(
            f"offsets {first_offset} to {last_offset} begin below the log end offset {log_end_offset}"
        )


class OutOfOrderSequenceError(KstoreError, ValueError):
    """A producer's batch whose sequence does not follow on its last one."""


class InvalidProducerEpochError(KstoreError, ValueError):
    """A producer's epoch below the one that the log knows: it was fenced."""


class InvalidTxnStateError(KstoreError, ValueError):
    """A batch that does not fit its producer's open transaction, or the lack of one."""


class TransactionCoordinatorFencedError(KstoreError, ValueError):
    """A transaction marker of a coordinator that was replaced."""


class LogLockedError(KstoreError, OSError):
    """Somebody else writes there. `pid` is the process that holds the lock, None where the system does not tell."""

    def __init__(self, path: str, pid: int | None) -> None:
        self.path = path
        self.pid = pid
        super().__init__(f"{path} is locked by " + ("another writer" if pid is None else f"process {pid}"))


class LogFailedError(KstoreError):
    """The log refuses to write after a failure that may have left the disk in an unknown state. Open it anew."""


class PolicyViolationError(KstoreError, ValueError):
    """What the topic's cleanup.policy does not allow."""


class InvalidConfigError(KstoreError, ValueError):
    """A configuration name that does not exist, or a value that is not allowed; `name` as it was given, and `value`."""

    def __init__(self, reason: str, *, name: str = "", value: object = None) -> None:
        self.name = name
        self.value = value
        super().__init__(reason)
