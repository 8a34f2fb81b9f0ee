"""What a compaction or an erasure did, or would do."""

from __future__ import annotations

from kstore.light_typing import NamedTuple


class CompactedSegment(NamedTuple):
    """What compaction made of one segment, the one at `base_offset`: it is part of the segment at `into` now.

    `bytes_after` and `records_after` are what is left of it there. The other numbers say why records went:
    `superseded`, a later record has their key; `deleted`, they had no value and delete_retention_ms was over;
    `keyless`, they had no key; `aborted`, their transaction was; `markers`, these ended transactions of which
    nothing is left.
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
    """What log.compact() did, or would do with dry_run=True.

    `segments` has a CompactedSegment for each segment that was gone through, oldest first, and none if
    nothing was to be done; `reason` says why in a sentence. If log_cleaner_dedupe_buffer_size has not room
    for all keys, there are several passes, and a segment is in there for each pass that went through it. With
    dry_run=True there is one pass.

    Records from `first_dirty_offset` up to `first_uncleanable_offset` were not compacted before and could be
    now; `end_offset` is where the compacted part ends afterwards. `dirty_ratio` is the share of bytes that
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
