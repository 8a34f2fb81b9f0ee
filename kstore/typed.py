"""What arguments may be, in the words of type checkers. When the program runs, the arguments are checked by
themselves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import Literal, Protocol, SupportsIndex, TypeAlias, TypedDict

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID


class ArrowArray(Protocol):
    """One array that Arrow's PyCapsule interface exports."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object: ...


class ArrowStream(Protocol):
    """A stream of them, such as a chunked array or a column of a data frame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


StrPath: TypeAlias = str | PathLike[str]
BytesLike: TypeAlias = bytes | bytearray | memoryview
Headers: TypeAlias = Iterable[tuple[str, BytesLike | None]] | Mapping[str, BytesLike | None]
# columns of extend(); arrays of numpy are iterables of anything
Cells: TypeAlias = Iterable[BytesLike | None] | ArrowArray | ArrowStream
Times: TypeAlias = SupportsIndex | datetime | Iterable[SupportsIndex | datetime] | ArrowArray | ArrowStream
HeaderLists: TypeAlias = Headers | Iterable[Headers | None]
Column: TypeAlias = Literal[
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "base_offset",
    "last_offset",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "leader_epoch",
    "records_count",
    "attributes",
    "codec",
    "magic",
    "crc",
    "size",
    "position",
]
StoreColumn: TypeAlias = Column | Literal["partition"]


class ConfigOptions(TypedDict, total=False):
    """The options of LogConfig as keyword arguments of kstore.open, for type checkers. help(kstore.LogConfig)
    has them. None gives an option its default back."""

    segment_bytes: int | None
    internal_segment_bytes: int | None
    segment_ms: int | None
    segment_jitter_ms: int | None
    segment_index_bytes: int | None
    index_interval_bytes: int | None
    flush_messages: int | None
    flush_ms: int | None
    retention_bytes: int | None
    retention_ms: int | None
    max_message_bytes: int | None
    cleanup_policy: Sequence[str] | None
    delete_retention_ms: int | None
    min_compaction_lag_ms: int | None
    max_compaction_lag_ms: int | None
    min_cleanable_dirty_ratio: float | None
    file_delete_delay_ms: int | None
    preallocate: bool | None
    compression_type: Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"] | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] | None
    message_timestamp_before_max_ms: int | None
    message_timestamp_after_max_ms: int | None
    min_insync_replicas: int | None
    unclean_leader_election_enable: bool | None
    remote_storage_enable: bool | None
    local_retention_ms: int | None
    local_retention_bytes: int | None
    remote_log_copy_disable: bool | None
    remote_log_delete_on_disable: bool | None
    key_files: bool | None
    log_cleaner_dedupe_buffer_size: int | None
    log_cleaner_io_buffer_load_factor: float | None
    log_cleaner_io_max_bytes_per_second: float | None
    log_cleaner_enable: bool | None
    log_cleaner_backoff_ms: int | None
    log_retention_check_interval_ms: int | None
    log_flush_offset_checkpoint_interval_ms: int | None
    log_flush_start_offset_checkpoint_interval_ms: int | None
    offsets_retention_minutes: int | None
    offsets_retention_check_interval_ms: int | None


class ReaderOptions(TypedDict, total=False):
    """Options for reading, for type checkers."""

    recover: bool
    index_interval_bytes: int
    max_decompressed_bytes: int
    clean: bool | None
    recovery_point: int | None
    log_start_offset: int | None


class WriterOptions(TypedDict, total=False):
    """Options for writing, for type checkers."""

    durability: Literal["none", "group", "each"]
    keep_cut: bool
    leader_epoch: int | None
    topic_id: "UUID | None"
    clock: Callable[[], int] | None
    clean: bool | None
    recovery_point: int | None
    log_start_offset: int | None
    max_decompressed_bytes: int
    producer_id_expiration_ms: int
    shared: bool


class StoreOptions(ConfigOptions, total=False):
    """The options of LogStore that are those of its logs, for type checkers: help(kstore.LogStore) has
    them."""

    durability: Literal["none", "group", "each"]
    keep_cut: bool
    leader_epoch: int | None
    clock: Callable[[], int] | None
    max_decompressed_bytes: int
    producer_id_expiration_ms: int
    shared: bool
    remote: str | None
