from collections.abc import Iterator
from typing import NamedTuple, final

__pyx_capi__: dict[str, object]  # what other extension modules cimport

class IndexEntries:
    """Entries whose offsets are relative to `base_offset`. Readers may share them; appending is for one at a
    time."""

    @property
    def base_offset(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def max_entries(self) -> int: ...
    def __len__(self) -> int: ...
    def to_bytes(self) -> bytes:
        """The entries as a file holds them."""

class OffsetPosition(NamedTuple):
    """An entry of the offset index: the last offset of a batch, and the byte where that batch begins."""

    offset: int
    position: int

class TimestampOffset(NamedTuple):
    """An entry of the time index: a largest timestamp so far, and the last offset of the first batch to have
    it."""

    timestamp: int
    offset: int

class AbortedTxn(NamedTuple):
    """An aborted transaction, as the transaction index (a .txnindex file) has it.

    Its producer, its first offset, the offset of its marker (`last_offset`), and the last stable offset after
    it."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    version: int = 0

@final
class OffsetIndex(IndexEntries):
    """The offset index of one segment. Offsets rise strictly; lookups are floor searches (spec 3.2)."""

    def __new__(
        cls, base_offset: int, entries: bytes = b"", *, path: str = "", max_entries: int = ...
    ) -> OffsetIndex: ...
    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset of an empty index."""
    @property
    def is_full(self) -> bool: ...
    def __iter__(self) -> Iterator[OffsetPosition]: ...
    def entry(self, slot: int) -> OffsetPosition:
        """The entry in `slot`; ValueError past the last."""
    def lookup(self, target: int, /) -> tuple[int, int]:
        """(offset, position) of the largest entry with offset <= target; (base_offset, 0) if there is
        none."""
    def fetch_upper_bound(self, position: int, size: int) -> OffsetPosition | None:
        """The smallest entry with position >= position + size, or None (spec 3.2; 32-bit sums, as Kafka's).

        Where that is the first entry, and exactly there, Kafka takes the next (spec 3.1), and so do we."""
    def append(self, offset: int, position: int) -> None:
        """Adds an entry. ValueError when full or out of order, OverflowError past base offset + 2^31 - 1."""
    def truncate_to(self, offset: int) -> None:
        """Removes the entries with offset >= `offset`."""
    def check(self) -> None:
        """CorruptIndexError unless offsets and positions rise from entry to entry, and start at base or
        above."""
    def sanity_check(self) -> None:
        """Kafka's own, weaker check (spec 3.2): the last offset is not below the base offset."""
    def copy(self) -> OffsetIndex:
        """An index with these entries, in memory of its own."""

@final
class TimeIndex(IndexEntries):
    """The time index of one segment. Timestamps rise strictly, offsets do not fall (spec 3.3)."""

    def __new__(
        cls, base_offset: int, entries: bytes = b"", *, path: str = "", max_entries: int = ...
    ) -> TimeIndex: ...
    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry; (-1, base_offset) of an empty index."""
    @property
    def is_full(self) -> bool:
        """One slot is kept for the entry that a roll adds."""
    def __iter__(self) -> Iterator[TimestampOffset]: ...
    def entry(self, slot: int) -> TimestampOffset:
        """The entry in `slot`; ValueError past the last."""
    def lookup(self, timestamp: int, /) -> tuple[int, int]:
        """(timestamp, offset) of the largest entry with timestamp <= the one asked; (-1, base_offset) for
        none."""
    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Adds an entry if `timestamp` is above the last (spec 3.3). ValueError when full or when either
        falls."""
    def truncate_to(self, offset: int) -> None:
        """Removes the entries with offset >= `offset`."""
    def check(self) -> None:
        """CorruptIndexError unless timestamps rise, offsets do not fall, and both start where they may."""
    def sanity_check(self) -> None:
        """Kafka's own check (spec 3.3): the last timestamp not below the first, the last offset not below the
        base."""
    def copy(self) -> TimeIndex:
        """An index with these entries, in memory of its own."""

@final
class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, in the order of their markers (spec 3.4)."""

    def __new__(cls, base_offset: int, entries: bytes = b"", *, path: str = "") -> TransactionIndex: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def is_empty(self) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[AbortedTxn]: ...
    def append(self, txn: AbortedTxn, /) -> None:
        """Adds an AbortedTxn. ValueError unless its last offset is above that of the entry before."""
    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """(transactions overlapping the range, whether later segments need not be asked) as spec 3.4 has
        it."""
    def truncate_to(self, offset: int) -> None:
        """Removes everything from the first entry with last offset >= `offset` on."""
    def sanity_check(self, end_offset: int = ...) -> None:
        """CorruptIndexError if a marker does not lie in the segment, which ends before `end_offset`, or not
        behind the one before it, or not behind its transaction's first record. Kafka looks for markers below
        the segment only."""
    def to_bytes(self) -> bytes:
        """The entries as a file holds them."""
