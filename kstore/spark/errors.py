"""What goes wrong in Spark, as one line of text: of an exception's class nothing reaches the driver (spec
spark 5).

Every message begins with a stable code, then says topic, partition, offset and file as far as they are known:

    KSTORE_PATH_NOT_FOUND      no log directory there (or not on this executor)
    KSTORE_TOPIC_NOT_FOUND     no such topic or partition in it
    KSTORE_INVALID_OPTION      an option that does not exist, contradicts another, or has no such value
    KSTORE_INVALID_SCHEMA      columns that are not those of the source, or not those a sink takes
    KSTORE_OFFSET_OUT_OF_RANGE an offset asked for that the log never had
    KSTORE_DATA_LOST           records that a job or query had to read, or that files show, are gone
    KSTORE_CORRUPT_BATCH       a batch that fails its checks
    KSTORE_CORRUPT_FILE        another file of the log that does
    KSTORE_TIMESTAMP_OUT_OF_RANGE
                               a timestamp that Spark's TIMESTAMP, 64 bits of microseconds, cannot hold
    KSTORE_RECORD_TOO_LARGE    more bytes than a limit allows
    KSTORE_LOG_LOCKED          another program writes there
    KSTORE_INVALID_RECORD      a row that cannot be appended
    KSTORE_STAGING_LOST        what tasks had staged is gone before it was published
    KSTORE_LOG_CHANGED         a log does not hold what a transaction that has to be finished left in it
    KSTORE_CHECKPOINT_RESET    a query gives a micro-batch that it published, with another input
    KSTORE_PUBLISHED           a job's txnId was published before, and ifPublished is error
    KSTORE_NO_PYARROW          pyarrow is not installed there
    KSTORE_UNSUPPORTED         what kstore, an installed library or this version of Spark does not have
    KSTORE_IO                  an error of the system
"""

from collections.abc import Iterator
from contextlib import contextmanager

from kstore.errors import (
    CorruptFileError,
    CorruptRecordError,
    InvalidConfigError,
    InvalidRecordError,
    KstoreError,
    LibraryError,
    LogLockedError,
    LogNotFoundError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)
from kstore.log.files.layout import TopicPartition


class SparkSourceError(KstoreError, ValueError):
    """An error of kstore.spark; the message begins with its code."""

    @property
    def code(self) -> str:
        """The code: KSTORE_ and so on."""
        return str(self.args[0]).partition(":")[0]


RECREATED = "the topic was deleted, and another topic of this name created,"

_CODES: tuple[tuple[type[BaseException], str], ...] = (
    (CorruptRecordError, "KSTORE_CORRUPT_BATCH"),
    (CorruptFileError, "KSTORE_CORRUPT_FILE"),
    (RecordTooLargeError, "KSTORE_RECORD_TOO_LARGE"),
    (OffsetOutOfRangeError, "KSTORE_OFFSET_OUT_OF_RANGE"),
    (LogNotFoundError, "KSTORE_PATH_NOT_FOUND"),
    (LogLockedError, "KSTORE_LOG_LOCKED"),
    (InvalidRecordError, "KSTORE_INVALID_RECORD"),
    (InvalidConfigError, "KSTORE_INVALID_OPTION"),
    (LibraryError, "KSTORE_UNSUPPORTED"),
    (OSError, "KSTORE_IO"),
)


def failure(
    code: str,
    reason: str,
    tp: TopicPartition | None = None,
    *,
    topic: str | None = None,
    offset: int | None = None,
    file: str | None = None,
) -> SparkSourceError:
    """The error of this code, its place before its reason."""
    topic, partition = (topic, None) if tp is None else tp
    known = (("topic", topic), ("partition", partition), ("offset", offset), ("file", file))
    place = ", ".join(f"{name} {value}" for name, value in known if value is not None)
    return SparkSourceError(f"{code}: {place}: {reason}" if place else f"{code}: {reason}")


def translated(
    error: BaseException,
    tp: TopicPartition | None = None,
    *,
    offset: int | None = None,
    file: str | None = None,
) -> SparkSourceError:
    """An error of the log or of the system, with its code and its place."""
    if isinstance(error, SparkSourceError):
        return error
    code = next((code for kind, code in _CODES if isinstance(error, kind)), "KSTORE_IO")
    own = getattr(error, "offset", -1)
    return failure(
        code,
        f"{type(error).__name__}: {error}",
        tp,
        offset=own if isinstance(own, int) and own >= 0 else offset,
        file=next(
            (own for name in ("file", "filename", "path") if (own := getattr(error, name, None))), file
        ),
    )


@contextmanager
def coded(
    tp: TopicPartition | None = None, *, offset: int | None = None, file: str | None = None
) -> Iterator[None]:
    """Errors of the log and of the system in the block get their code and this place."""
    try:
        yield
    except (KstoreError, OSError) as e:
        raise translated(e, tp, offset=offset, file=file) from e
