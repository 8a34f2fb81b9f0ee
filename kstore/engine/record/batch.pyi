from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Literal, final

from typing_extensions import Buffer

from kstore.errors import CorruptRecordError, RecordTooLargeError

MAX_DECOMPRESSED_BYTES: Final[int]

__pyx_capi__: dict[str, object]  # what other extension modules cimport

CODECS: Final[tuple[str, ...]]
CREATE_TIME: Final[str]
LOG_APPEND_TIME: Final[str]
NO_TIMESTAMP_TYPE: Final[str]
TIMESTAMP_TYPES: Final[tuple[str, str, str]]
CONTROL_TYPES: Final[tuple[str, ...]]
REASONS: Final[dict[int, str]]

@final
class Record:
    """One record: offset, timestamp (ms since 1970; -1 for none), timestamp_type, key, value, headers.

    key and value are bytes or None. headers is a tuple of (name, value) pairs; a value may be None, and bytes
    of a name that are not UTF-8 become U+FFFD. timestamp_type is "CreateTime", "LogAppendTime", or
    "NoTimestampType" (the oldest format has no timestamps). A record is a copy, and keeps nothing else in
    memory. Records can be compared, pickled and made: Record(offset=0, timestamp=1711530458631, value=b"v").
    The offset must be given."""

    def __init__(
        self,
        offset: int,
        timestamp: int | datetime = -1,
        timestamp_type: Literal["CreateTime", "LogAppendTime", "NoTimestampType"] = "CreateTime",
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] | Mapping[str, bytes | None] = (),
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Records:
    """A cursor. `begin` puts it on a batch whose bytes are all there; `next` gives records until None."""

@final
class RecordBatch:
    """One batch as it is stored: a batch of Kafka's current format, or a message of the old formats (magic 0
    and 1).

    A compressed message of an old format, which holds others, counts as one batch. `data` holds the bytes.
    The header can be read even if the batch is damaged; `ensure_valid` checks it, and iterating checks it
    first. Fields that the old formats do not have are -1."""

    def __init__(
        self, data: bytes, *, file: str = "", position: int = 0, max_decompressed_bytes: int = ...
    ) -> None: ...
    @property
    def file(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def data(self) -> bytes: ...
    @property
    def max_decompressed_bytes(self) -> int: ...
    @property
    def base_offset(self) -> int:
        """Offset of the first record as first written; of a compressed message of magic 0/1 it costs
        unpacking it."""
    @property
    def last_offset(self) -> int:
        """Offset of the last record as first written; compaction may have removed that record."""
    @property
    def next_offset(self) -> int:
        """The offset behind this batch: last_offset + 1."""
    @property
    def size(self) -> int:
        """Bytes of the whole entry."""
    @property
    def magic(self) -> int:
        """The version of the format: 2, or 0 and 1 for messages of the old formats."""
    @property
    def crc(self) -> int:
        """The stored checksum, as an unsigned number."""
    @property
    def is_valid(self) -> bool:
        """Whether the stored checksum matches the bytes."""
    @property
    def attributes(self) -> int:
        """The flags as they are stored, a number of 16 bits (section 2.1 of docs/spec.md)."""
    @property
    def codec(self) -> str:
        """ "none", "gzip", "snappy", "lz4" or "zstd". UnsupportedCodecError if the number of the codec is
        unknown."""
    @property
    def timestamp_type(self) -> str:
        """ "CreateTime", "LogAppendTime" or, for magic 0, "NoTimestampType"."""
    @property
    def base_timestamp(self) -> int:
        """As it is stored: the timestamp of the first record, or the delete horizon if compaction has set
        one."""
    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records, in ms since 1970, as the header has it; -1 if there is
        none."""
    @property
    def delete_horizon_ms(self) -> int | None:
        """The time after which compaction may remove the tombstones of this batch; None if it has set
        none."""
    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
    @property
    def is_control(self) -> bool:
        """Whether it holds the marker of a transaction, or another control record, instead of data."""
    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which it was appended; -1 if it has none. No checksum covers it."""
    @property
    def producer_id(self) -> int:
        """The id of an idempotent or transactional producer; -1 if it has none."""
    @property
    def producer_epoch(self) -> int:
        """The epoch of that producer; -1 if it has none."""
    @property
    def base_sequence(self) -> int:
        """The sequence number of the first record, counted by its producer; -1 if it has none."""
    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; -1 if it has none."""
    @property
    def last_offset_delta(self) -> int:
        """last_offset - base_offset of the batch as first written."""
    @property
    def records_count(self) -> int:
        """Records in here, as the header has it; -1 for messages of magic 0 and 1."""
    def sequence_of(self, record: Record) -> int:
        """The sequence number of one of its records; -1 if the producer is not idempotent."""
    def ensure_valid(self) -> None:
        """CorruptRecordError unless sizes, magic, checksum and offsets are right. Records are not looked
        at."""
    def records(self, *, verify: bool = True) -> list[Record]:
        """A list of its records, also those of a control batch. verify=False does not check the checksum
        first.

        CorruptRecordError if it is damaged; RecordTooLargeError if it unpacks to more than
        max_decompressed_bytes."""
    def __iter__(self) -> Iterator[Record]: ...
    def first_offset(self) -> int:
        """Where its offsets begin. That of a compressed message of an old format is in its first record; if
        that cannot be read, the offset in its header."""
    def sound_records(self) -> tuple[list[Record], CorruptRecordError | RecordTooLargeError | None]:
        """(a list of its records up to the first that is damaged, the error of that one, or None). The
        checksum is not checked."""
    def unverified(self) -> Iterator[Record]:
        """An iterator of its records that does not check the checksum: if it is not compressed, those before
        damage come first.

        As in Kafka, the last record is not given if bytes follow it. CorruptRecordError if it is damaged;
        RecordTooLargeError if it unpacks to more than max_decompressed_bytes."""
    def messages(self) -> list[tuple[Record, int, bool]]:
        """The messages of a batch of an old format (magic 0 or 1): a list of (Record, stored checksum,
        whether it matches)."""
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

def control_type(key: bytes | None, file: str = "", position: int = 0) -> int:
    """The id of a control record's type from its key (spec 2.4): 0 ABORT, 1 COMMIT, ..., -1 unknown."""

def crc32c(data: Buffer, value: int = 0, /) -> int:
    """The CRC-32C (Castagnoli) of `data`, a contiguous buffer, going on from `value`, an earlier result."""
