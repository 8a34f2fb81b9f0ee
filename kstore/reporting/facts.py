"""The facts that a page shows: plain values, with times in milliseconds since 1970 and sizes in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kstore.checking.finding import Finding
    from kstore.explain.open_transactions import OpenTransaction

STATES = ("active", "sealed", "past retention", "dirty", "damaged")


class SegmentFacts(NamedTuple):
    """A segment. `state` is one of STATES and `reason` says why. `batches` and `records` are None, and the
    times are -1, if its headers were not read. `cached` is None if the system does not know."""

    file: str
    base_offset: int
    next_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int
    batches: int | None
    records: int | None
    cached: int | None
    state: str
    reason: str


class PartitionFacts(NamedTuple):
    """A partition. `policy` is its cleanup policy and retention in words, `producers` the number of producers
    whose state is known."""

    name: str
    topic: str
    path: str
    log_start_offset: int
    log_end_offset: int
    clean: bool
    policy: str
    segments: tuple[SegmentFacts, ...]
    producers: int

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def cached(self) -> int:
        """How many of these bytes are in the page cache."""
        return sum(segment.cached or 0 for segment in self.segments)

    @property
    def records(self) -> int:
        """The records of the segments whose headers were read."""
        return sum(segment.records or 0 for segment in self.segments)

    @property
    def batches(self) -> int:
        """The batches of the segments whose headers were read."""
        return sum(segment.batches or 0 for segment in self.segments)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp, -1 if there is none."""
        return max((segment.max_timestamp for segment in self.segments), default=-1)


class BatchFacts(NamedTuple):
    """The batches of a codec: their number, bytes and records, and how many have a size of up to 2^i bytes
    and more than half of it, by i."""

    batches: int
    size: int
    records: int
    by_size: dict[int, int]


class Rate(NamedTuple):
    """Bytes written, by topic and period. Period i begins at start + i * step. `outside`: the bytes whose
    timestamp lies in no period."""

    start: int
    step: int
    topics: dict[str, list[int]]
    outside: int


class GroupFacts(NamedTuple):
    """The position of a group in a partition. `kind` is "cursor", "share group" or "Kafka consumer".
    `committed` and `lag` are in offsets; `lag` is None if the partition is not here."""

    kind: str
    group: str
    partition: str
    committed: int
    lag: int | None
    timestamp: int


class Facts(NamedTuple):
    """What a page shows. `unread`: how many segments have no figures of batches, because the headers of some
    segments only were read. `is_checked`: whether `findings` are those of a check of every byte."""

    title: str
    directories: tuple[str, ...]
    made: int
    partitions: tuple[PartitionFacts, ...]
    codecs: dict[str, BatchFacts]
    rate: Rate | None
    transactions: tuple[OpenTransaction, ...]
    groups: tuple[GroupFacts, ...]
    findings: tuple[Finding, ...]
    unread: int
    is_checked: bool
