"""kstore: a partition log in Apache Kafka's on-disk format, embedded in Python."""

from os import PathLike
from pathlib import Path

from kstore._version import __version__
from kstore.config import LogConfig
from kstore.engine.batch import Record, RecordBatch
from kstore.engine.index import AbortedTxn
from kstore.engine.reader import Skipped
from kstore.engine.segment import OffsetAndTimestamp, Segment
from kstore.errors import (
    CorruptCheckpointError,
    CorruptFileError,
    CorruptIndexError,
    CorruptRecordError,
    CorruptSnapshotError,
    InvalidConfigError,
    KstoreError,
    LogClosedError,
    LogNotFoundError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnsupportedCodecError,
)
from kstore.log.layout import TopicPartition
from kstore.log.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    PartitionLog,
)
from kstore.log.slice import Slice
from kstore.store import LogStore

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "EARLIEST_PENDING_UPLOAD",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "AbortedTxn",
    "CorruptCheckpointError",
    "CorruptFileError",
    "CorruptIndexError",
    "CorruptRecordError",
    "CorruptSnapshotError",
    "InvalidConfigError",
    "KstoreError",
    "LogClosedError",
    "LogConfig",
    "LogNotFoundError",
    "LogStore",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "PartitionLog",
    "Record",
    "RecordBatch",
    "RecordTooLargeError",
    "Segment",
    "Skipped",
    "Slice",
    "TopicPartition",
    "UnsupportedCodecError",
    "__version__",
    "get_include",
    "open",
]


def open(
    path: str | PathLike[str],
    mode: str = "r",
    *,
    clean: bool | None = None,
    recovery_point: int | None = None,
    log_start_offset: int | None = None,
    index_interval_bytes: int = 4096,
    max_decompressed_bytes: int = 256 << 20,
    recover: bool = True,
) -> PartitionLog:
    """Opens a partition directory, such as data/orders-0. Mode "r" writes nothing and takes no lock.

    The directory around it tells whether it was closed cleanly, the recovery point and the log start offset; `clean`,
    `recovery_point` and `log_start_offset` override that. After an unclean stop the log shows what Kafka would have
    after its recovery; recover=False shows every file as it lies. `index_interval_bytes` is the topic's
    index.interval.bytes, for indexes made anew; `max_decompressed_bytes` caps what one batch may unpack to.
    LogNotFoundError where there is no such directory.
    """
    if mode != "r":
        raise ValueError(f'mode is "r", not {mode!r}')
    return PartitionLog(
        path,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        index_interval_bytes=index_interval_bytes,
        max_decompressed_bytes=max_decompressed_bytes,
        recover=recover,
    )


def get_include() -> str:
    """The directory of the C headers and of their Cython twins, for include_dirs and include_path."""
    package = Path(__file__).resolve().parent
    installed = package / "include"
    return str(installed if installed.is_dir() else package.parent / "include")
