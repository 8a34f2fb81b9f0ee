from collections.abc import Sequence
from typing import Any, Final, NamedTuple, final

from numpy.typing import NDArray

from kstore.engine.io.file import File
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.segment.index import (
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
    TransactionIndex,
)
from kstore.engine.segment.segment_files import SegmentFiles
from kstore.engine.segment.walks import RecoveryWalk, SegmentEnd
from kstore.errors import CorruptFileError, CorruptRecordError

INDEX_INTERVAL_BYTES: Final[int]
MAX_DECOMPRESSED_BYTES: Final[int]

class OffsetAndTimestamp(NamedTuple):
    """The result of find(): the offset and timestamp of a record, and its leader epoch.

    The timestamp is -1 for an end of the log. The leader epoch is None if it is not known."""

    offset: int
    timestamp: int
    leader_epoch: int | None

class Located(NamedTuple):
    """A batch in a segment: its base offset, the byte where it begins, its bytes."""

    base_offset: int
    position: int
    size: int

def floor_of(segments: tuple[Segment, ...], offset: int, least: int = ...) -> int:
    """The index of the last of these segments that begins at `offset` or before it; `least` if none does."""

def start_of(segments: tuple[Segment, ...], offset: int) -> int:
    """The index of the one of these segments in which to look for an offset: that which floor_of() gives, or
    0; or if batches of the one before lie where it begins, that one. Reading on from there finds what is
    wrong. OSError."""

@final
class Segment:
    """One segment of a log, for reading: a .log file and its index files. log.segments has them.

    base_offset is the number in its name, end_offset the base offset of the next segment (2^63 - 1 for the
    last one). `size` is the part of the .log file that counts; recovery would cut off what is after it.
    `damage` is the error that rebuilding the indexes found in the .log file, or None; the indexes end there.
    Files are opened when they are needed. Threads may share it.

    `suffixes` gives the suffix of files that are named otherwise, such as .swap, by kind. Positions count
    from `origin`, which is 0 unless one file holds several segments (section 8.7 of docs/spec.md)."""

    def __init__(
        self,
        directory: str,
        stem: str,
        base_offset: int,
        end_offset: int = ...,
        suffixes: dict[str, str] | None = None,
        origin: int = 0,
        index_interval_bytes: int = ...,
        max_decompressed_bytes: int = ...,
    ) -> None: ...
    @property
    def files(self) -> SegmentFiles: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def directory(self) -> str: ...
    @property
    def stem(self) -> str: ...
    @property
    def suffixes(self) -> dict[str, str] | None: ...
    @property
    def origin(self) -> int: ...
    @property
    def index_interval_bytes(self) -> int: ...
    @property
    def max_decompressed_bytes(self) -> int: ...
    @property
    def notes(self) -> tuple[CorruptFileError, ...]:
        """Why indexes were rebuilt in memory, as errors. Empty if the files are used."""
    @property
    def damage(self) -> CorruptRecordError | None: ...
    @property
    def path(self) -> str:
        """The path of its .log file."""
    @property
    def size(self) -> int:
        """Bytes of the log that count. Taken when first asked, and kept: later appends are not seen."""
    @property
    def offset_index(self) -> OffsetIndex:
        """Its OffsetIndex, rebuilt in memory if the file is missing or damaged. CorruptRecordError,
        OSError."""
    @property
    def time_index(self) -> TimeIndex:
        """Its TimeIndex, rebuilt in memory if the file is missing or damaged. CorruptRecordError, OSError."""
    @property
    def transaction_index(self) -> TransactionIndex:
        """The aborted transactions whose markers are in this segment. CorruptIndexError if the file is
        damaged."""
    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of the first batch that has it; (-1, base_offset) if
        there is none."""
    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records; if no record has one, the time the file was last changed."""
    def path_of(self, kind: str) -> str:
        """The path of its file of a kind: ".log", ".index", ".timeindex" or ".txnindex"."""
    def file(self) -> File:
        """The .log as a File, which stays open as long as a reference to it exists."""
    def mtime_ms(self) -> int:
        """When the .log file was last changed, in ms since 1970. Kafka uses it if records have no
        timestamps."""
    def limit_to(self, size: int) -> None:
        """Lets nothing from byte `size` on count. Only before the segment is shared. TypeError or ValueError
        unless it is an int from 0 on."""
    def use_indexes(
        self,
        offset_index: OffsetIndex | None,
        time_index: TimeIndex | None,
        transaction_index: TransactionIndex | None = None,
    ) -> None:
        """Uses these indexes instead of the files'. Only before the segment is shared."""
    def set_max_timestamp(self, max_timestamp: TimestampOffset) -> None:
        """Uses this TimestampOffset instead of the last time entry. Only before the segment is shared.
        TypeError or ValueError unless it is one, of two ints."""
    def translate(self, offset: int) -> Located | None:
        """Where the batch is that holds `offset`, or the first one after it, as a Located; None after the
        last batch."""
    def batch_at(self, position: int) -> RecordBatch:
        """The batch that begins at this byte of the .log file. Its `is_valid` says whether it is
        undamaged."""
    def get(self, offset: int) -> Record | None:
        """The record at this offset, or the first one after it; None if the segment has none. The checksum is
        checked."""
    def scan_start(self, offset: int, since: int = -1) -> OffsetPosition | None:
        """Where a scan of the segment begins, as an OffsetPosition: the first offset wanted, and the byte of
        its batch.

        None if no record is at `offset` or later and, unless `since` is -1, has that timestamp or a later
        one. CorruptRecordError."""
    def find_timestamp(self, timestamp: int, start_offset: int = 0) -> OffsetAndTimestamp | None:
        """The first record with this timestamp or a later one, and at least start_offset, as
        OffsetAndTimestamp; or None.

        The search begins at the batch that the time index names. If that batch is not what the index says,
        both indexes are rebuilt in memory and the search begins again (section 7.6 of docs/spec.md)."""
    def find_max_timestamp(self) -> OffsetAndTimestamp | None:
        """The first record with the largest timestamp of the segment, as OffsetAndTimestamp; None if no
        record has one."""
    def read_next_offset(self) -> int:
        """The offset after the last batch. Checksums are not checked. CorruptRecordError, OSError."""
    def read_end(self) -> SegmentEnd:
        """How the segment ends, as a SegmentEnd: it is found when first asked, and kept. CorruptRecordError,
        OSError."""
    def check_end(self) -> None:
        """CorruptRecordError unless the batches from the last index entry on are sound."""
    def has_its_last_batch(self) -> bool:
        """Whether the file still has the batch that `read_end` found last. If not, another program has cut
        the file, which may have grown again. The header tells, as it has the checksum. OSError."""
    def overlaps_next(self) -> bool:
        """Whether it has batches where the next segment begins, because files of several copies of a log are
        mixed, say. A file that cannot be read overlaps nothing, nor does a batch that does not follow on from
        the one before: reading raises for those. OSError."""
    def whole_until(self, start: int, end: int) -> int:
        """The last byte up to `end` where a batch ends, from the batch that begins at `start` on; headers only.
        `start` if that batch ends behind `end`."""
    def recovery_walk(self, *, verify: bool = True) -> RecoveryWalk:
        """Walks all batches as recovery would, and returns a RecoveryWalk. verify=False leaves checksums
        unread."""
    def read_headers(self, start: int = 0, fields: Sequence[str] | None = None) -> NDArray[Any]:
        """The headers of all batches from byte `start` on, as a numpy structured array of one row a batch.

        fields: names of columns. Default: all. Two or three of them take half the time, and little memory.

        Columns: position, base_offset, last_offset, base_timestamp, max_timestamp, producer_id, size, crc,
        leader_epoch, last_offset_delta, base_sequence, records_count (-1 for magic 0 and 1), producer_epoch,
        attributes, magic. Checksums are not computed. CorruptRecordError where a header makes no sense; bytes
        at the end that hold no whole batch are left out. The GIL is free while it runs."""
