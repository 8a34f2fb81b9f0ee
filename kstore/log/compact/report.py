"""What a compaction or an erasure did, or would do."""

from __future__ import annotations

from kstore.light_typing import NamedTuple


class CompactedSegment(NamedTuple):
    """The result of a compaction for one segment, the one at `base_offset`, which is now part of the segment
    at `into`.

    `bytes_after` and `records_after` are the bytes and records that remain. The other numbers count removed
    records: `superseded`, a later record has their key; `deleted`, they had no value and delete_retention_ms
    was over; `keyless`, they had no key; `aborted`, their transaction was aborted; `markers`, markers of
    transactions without remaining records.
    """

    base_offset: int
    into: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    superseded: int
    deleted: int
    keyless: int
    aborted: int
    markers: int

    @property
    def reason(self) -> str:
        """Why records went, as a sentence."""
        reasons = {
            "superseded by a later record of their key": self.superseded,
            "without a value, and delete.retention.ms is over": self.deleted,
            "without a key": self.keyless,
            "of an aborted transaction": self.aborted,
            "markers of transactions of which nothing is left": self.markers,
        }
        return ", ".join(f"{count} {why}" for why, count in reasons.items() if count) or "every record stays"


class Compaction(NamedTuple):
    """The result of log.compact(), or with dry_run=True what it would be.

    `segments` has a CompactedSegment for each compacted segment, oldest first. If it is empty, `reason` is
    the reason, as a sentence. If the keys do not fit into log_cleaner_dedupe_buffer_size, there are several
    passes, and a segment is listed for each pass. With dry_run=True there is one pass.

    Records from `first_dirty_offset` up to `first_uncleanable_offset` were not compacted before, and can be
    now; `end_offset` is the end of the compacted part afterwards. `dirty_ratio` is the share of bytes that
    were not compacted.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int
    dirty_ratio: float
    segments: tuple[CompactedSegment, ...]
    reason: str
    dry_run: bool

    @property
    def bytes_gained(self) -> int:
        """How many bytes the log became smaller by."""
        return sum(segment.bytes_before - segment.bytes_after for segment in self.segments)

    @property
    def records_removed(self) -> int:
        """How many records went."""
        return sum(segment.records_before - segment.records_after for segment in self.segments)


class ErasedSegment(NamedTuple):
    """A segment that log.erase() rewrote: its .log file, the offsets of the erased records, and the SHA-256
    of the file before and after, as hex digits; after a dry run `sha256_after` is empty."""

    path: str
    base_offset: int
    offsets: tuple[int, ...]
    bytes_before: int
    bytes_after: int
    sha256_before: str
    sha256_after: str


class Erasure(NamedTuple):
    """What log.erase() did, or would do with dry_run=True: segments, .cut files that it removed, why, and
    when in ms since 1970. `cut_files_left` are .cut files beside the log that it left: they were not
    searched for such records."""

    segments: tuple[ErasedSegment, ...]
    cut_files: tuple[str, ...]
    reason: str
    time_ms: int
    dry_run: bool
    cut_files_left: tuple[str, ...] = ()

    @property
    def records_erased(self) -> int:
        """How many records were erased."""
        return sum(len(segment.offsets) for segment in self.segments)
