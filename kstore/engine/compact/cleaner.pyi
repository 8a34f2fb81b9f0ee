from typing import Protocol, final

from kstore.engine.io.file import File
from kstore.engine.record.batch import RecordBatch
from kstore.engine.segment.index import OffsetIndex, TimeIndex, TimestampOffset
from kstore.engine.segment.segment import Segment

@final
class OffsetMap:
    """The last offset of each key, within `slots` * 24 bytes; at most `slots` * `load_factor` keys (spec 10.3).

    It begins small, since a map that fits into a processor's cache is much quicker, and grows by doubling up to an
    eighth of that or 16 MiB; the next step is the largest. So the two that there are meanwhile take hardly more than
    one.

    A key is known by a hash of 128 bits with a secret of this map's own. `latest_offset` is how far the map reaches: of
    records behind it nothing is known."""

    def __new__(cls, slots: int, load_factor: float = 0.9, *, most_keys: int = ...) -> OffsetMap: ...
    @property
    def latest_offset(self) -> int: ...
    @property
    def max_entries(self) -> int: ...
    def __len__(self) -> int: ...
    def put(self, key: bytes, offset: int) -> None:
        """Notes the last offset of a key. ValueError if the map is full."""
    def get(self, key: bytes) -> int:
        """The last offset of a key; -1 if it is not in the map."""
    def update_latest_offset(self, offset: int) -> None:
        """The map reaches up to this offset."""

class _Transactions(Protocol):
    def can_discard(self, batch: RecordBatch, /) -> bool: ...

class SegmentWalk:
    """Goes from batch to batch of one segment, and takes each in."""

@final
class MapBuilder(SegmentWalk):
    """Fills a map with the keys of segments, from `start_offset` on (spec 10.4)."""

    def __init__(self, map: OffsetMap, transactions: _Transactions, start_offset: int) -> None: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def records_read(self) -> int: ...
    def open(self, segment: Segment, position: int) -> None:
        """Goes on with a segment, at the batch that begins at this byte."""
    def run(self, most: int) -> int:
        """Takes in batches of about `most` bytes; how many bytes they had, 0 at the end of the segment or of the map.
        CorruptRecordError, OSError."""

@final
class SegmentCleaner(SegmentWalk):
    """Writes what stays of segments to one new segment (spec 10.6, 10.8).

    `producers` has the offset of the last record of each producer id, or -2 - its epoch if only that is known: the
    batch with it stays, if without records. So does the batch that ends before `upper_bound`. Batches are copied as
    they are unless records go or a delete horizon is set: then they are encoded anew."""

    def __init__(
        self,
        map: OffsetMap,
        transactions: _Transactions,
        producers: dict[int, int],
        *,
        now_ms: int,
        delete_retention_ms: int,
        upper_bound: int,
        index_interval_bytes: int,
        segment_index_bytes: int,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    @property
    def offset_index(self) -> OffsetIndex:
        """The OffsetIndex of the new segment."""
    @property
    def time_index(self) -> TimeIndex:
        """Its TimeIndex."""
    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp of the new segment, as TimestampOffset."""
    @property
    def counts(self) -> dict[str, int]:
        """What became of the segment opened last, as a dict: bytes and records read and written, why records went."""
    def begin(self, log: File | None, base_offset: int) -> None:
        """Begins a new segment, in this file; None: only its size and indexes are found out."""
    def open(self, source: Segment, retain_legacy: bool) -> None:
        """Goes on with a segment. `retain_legacy`: records without a value stay, if they are of an old format."""
    def run(self, most: int) -> tuple[int, int]:
        """Goes through batches of about `most` bytes; (bytes read, bytes made of them), 0 read at the segment's end.

        CorruptRecordError, OSError. OffsetOverflowError if an offset is too far from the base offset."""
    def finish(self) -> None:
        """Writes what is left of the new segment, and completes its time index. OSError."""
