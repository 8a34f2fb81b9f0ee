"""The exceptions of kstore. What the system reports stays OSError; a caller's mistake is TypeError or ValueError."""


class KstoreError(Exception):
    """Base of everything that kstore raises of its own."""


class CorruptFileError(KstoreError):
    """Bytes that cannot be what their file says. `file`, `position` (byte in it), `expected`, `found` tell where."""

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
        text = f"{file or '<memory>'}: at byte {position}: {reason}"
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


class UnsupportedCodecError(CorruptRecordError):
    """A codec id that no Kafka release has written."""


class RecordTooLargeError(KstoreError, ValueError):
    """More bytes than a limit allows: of one batch, or of what a compressed one unpacks to."""

    def __init__(self, reason: str, *, size: int, limit: int, file: str = "", position: int = -1) -> None:
        self.reason = reason
        self.size = size
        self.limit = limit
        self.file = file
        self.position = position
        super().__init__(
            f"{file or '<memory>'}: at byte {position}: {reason}: expected at most {limit}, found {size}"
        )


class OffsetOutOfRangeError(KstoreError, LookupError):
    """An offset outside the log: `asked`, and the range `first` .. `end` (exclusive) that there is."""

    def __init__(self, asked: int, first: int, end: int) -> None:
        self.asked = asked
        self.first = first
        self.end = end
        super().__init__(f"offset {asked} is outside the log, which holds {first} to {end} (exclusive)")


class LogClosedError(KstoreError):
    """The log was closed, or opened in another process."""


class LogNotFoundError(KstoreError, FileNotFoundError):
    """No partition or log directory there."""


class InvalidConfigError(KstoreError, ValueError):
    """A configuration name that does not exist, or a value that is not allowed; `name` as it was given, and `value`."""

    def __init__(self, reason: str, *, name: str = "", value: object = None) -> None:
        self.name = name
        self.value = value
        super().__init__(reason)
