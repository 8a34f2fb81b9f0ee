"""kstore: a partition log in Apache Kafka's on-disk format, embedded in Python."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Unpack, overload
from uuid import UUID

from kstore._version import __version__
from kstore.arguments import choice
from kstore.config import ConfigOptions, LogConfig
from kstore.engine.append.record_accumulator import Ticket
from kstore.engine.append.record_appender import Appended
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.record.batch_builder import encode_batch
from kstore.engine.scan.batch_reader import Skipped
from kstore.engine.segment.index import AbortedTxn
from kstore.engine.segment.segment import OffsetAndTimestamp, Segment
from kstore.errors import (
    CorruptCheckpointError,
    CorruptFileError,
    CorruptIndexError,
    CorruptRecordError,
    CorruptSnapshotError,
    InvalidConfigError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTxnStateError,
    KstoreError,
    LogChangedError,
    LogClosedError,
    LogFailedError,
    LogLockedError,
    LogNotFoundError,
    OffsetOutOfRangeError,
    OffsetOverflowError,
    OffsetsOutOfOrderError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    RecordTooLargeError,
    ReentrantCallError,
    TransactionCoordinatorFencedError,
    UnexpectedAppendOffsetError,
    UnsupportedCodecError,
)
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.follower import Follower
from kstore.log.partition import PartitionLog
from kstore.log.read.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from kstore.log.read.page_cache import Residency
from kstore.log.read.slice import Slice
from kstore.log.read.span import Span
from kstore.log.recovery.presence import require_partition
from kstore.log.send.sending import Sent
from kstore.log.write.appender import Appender
from kstore.log.write.retention import Decision
from kstore.log.writer import DataLossWarning, LogWriter
from kstore.store import LogStore

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "AbortedTxn",
    "Appended",
    "Appender",
    "ConfigOptions",
    "CorruptCheckpointError",
    "CorruptFileError",
    "CorruptIndexError",
    "CorruptRecordError",
    "CorruptSnapshotError",
    "DataLossWarning",
    "Decision",
    "Follower",
    "InvalidConfigError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "KstoreError",
    "LogChangedError",
    "LogClosedError",
    "LogConfig",
    "LogFailedError",
    "LogLockedError",
    "LogNotFoundError",
    "LogStore",
    "LogWriter",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "PartitionLog",
    "PolicyViolationError",
    "Record",
    "RecordBatch",
    "RecordTooLargeError",
    "ReentrantCallError",
    "Residency",
    "Segment",
    "Sent",
    "Skipped",
    "Slice",
    "Span",
    "Ticket",
    "TopicPartition",
    "TransactionCoordinatorFencedError",
    "UnexpectedAppendOffsetError",
    "UnsupportedCodecError",
    "__version__",
    "encode_batch",
    "get_include",
    "open",
]


@overload
def open(
    path: str | PathLike[str],
    mode: Literal["r"] = "r",
    *,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    index_interval_bytes: int = 4096,
    max_decompressed_bytes: int = 256 << 20,
    recover: bool = True,
) -> PartitionLog: ...


@overload
def open(
    path: str | PathLike[str],
    mode: Literal["a", "r+"],
    *,
    config: LogConfig | None = None,
    durability: Literal["none", "group", "each"] = "none",
    keep_cut: bool = False,
    leader_epoch: int | None = None,
    topic_id: UUID | None = None,
    clock: Callable[[], int] | None = None,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    max_decompressed_bytes: int = 256 << 20,
    producer_id_expiration_ms: int = 86_400_000,
    **options: Unpack[ConfigOptions],
) -> LogWriter: ...


def open(path: str | PathLike[str], mode: str = "r", **options: Any) -> PartitionLog:
    """Opens a partition directory, such as data/orders-0; in mode "r" also a single .log or .cut file.

    Mode "r" reads: it writes nothing and takes no lock, so it works beside a writer, a running broker, or on a
    read-only file system. Mode "a" writes, "r+" too but only where the directory exists; one writer at a time.

    For both, the directory around it (or the partition's own, where it lies in no log directory) tells whether it was
    closed cleanly, the recovery point and the log start offset; `clean`, `recovery_point` and `log_start_offset`
    override that. `max_decompressed_bytes` caps what one batch may unpack to.

    Reading, after an unclean stop: the log shows what Kafka would have after its recovery; recover=False shows every
    file as it lies. `index_interval_bytes` is the topic's index.interval.bytes, for indexes made anew.

    Writing: the configuration is `config`, with any of its names as keyword arguments on top, as in segment_bytes=…
    (LogConfig has them all); it is not kept, so give it at every opening. An unclean stop is recovered first, as Kafka
    does; `log.recovery` tells. What recovery cuts off is kept in .cut files, with a DataLossWarning, if it holds sound
    batches or had been flushed; with keep_cut=True in any case. Bytes behind the last batch of a log that was closed
    cleanly are cut off too, where Kafka appends behind them. durability: "none" leaves it to flush() and the system
    when data reaches the disk; with "group" and "each" an append returns once it is there, one sync for all threads that wait. `leader_epoch`
    begins one; `topic_id` goes into partition.metadata; `clock` gives the time in ms. A producer that wrote nothing for
    `producer_id_expiration_ms`, by the timestamps of its records, is forgotten, as in Kafka (spec 6.7).

    LogNotFoundError if there is no such directory, or one without any file of a partition (mode "a" makes one of it, but
    not of a log directory); writing also LogLockedError, InvalidConfigError, OSError. Options are checked before anything
    is made: TypeError, ValueError.
    """
    choice("mode", mode, ("r", "a", "r+"))
    if mode == "r":
        return PartitionLog(path, **options)
    own = {name: options.pop(name) for name in _WRITER_OPTIONS if name in options}
    config = options.pop("config", None)
    if not (config is None or isinstance(config, LogConfig)):  # before it is asked for what options change
        raise TypeError(f"config is a LogConfig, not {config!r}")
    named = config is not None or "retention_ms" in options
    if options:
        config = (config or LogConfig()).replace(**options)
    _check_directory(Path(path), create=mode == "a")
    log = LogWriter(path, config, create=mode == "a", **own)
    log._names_retention = named
    return log


def _check_directory(path: Path, *, create: bool) -> None:
    """Nothing of a partition is put into a log directory, nor, unless `create`, into any directory without one."""
    try:
        require_partition(path)
    except LogNotFoundError as e:
        if not create or e.is_log_directory:
            raise


_WRITER_OPTIONS = (
    "durability",
    "keep_cut",
    "leader_epoch",
    "topic_id",
    "clock",
    "clean",
    "recovery_point",
    "log_start_offset",
    "max_decompressed_bytes",
    "producer_id_expiration_ms",
)


def get_include() -> str:
    """The directory of the C headers and of their Cython twins, for include_dirs and include_path."""
    package = Path(__file__).resolve().parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "include")
