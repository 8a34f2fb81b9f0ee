"""Aborted transactions and the last stable offset, for readers (spec 6.8, 7.2, 8.4, 8.5)."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING
from kstore.log.producers.replay import advance, rebuild
from kstore.log.producers.snapshot_files import SnapshotsInMemory

if TYPE_CHECKING:
    from kstore.engine.segment.index import AbortedTxn
    from kstore.engine.segment.segment import Segment
    from kstore.log.producers.states import ProducerStates
    from kstore.log.recovery.loader import Loaded


class Transactions:
    """Producer state at the end of a log, and the aborted transactions of each of its segments."""

    def __init__(self, directory: str, loaded: Loaded) -> None:
        """Replay the log as an opening for writing does, without writing. CorruptRecordError."""
        self.producers, _ = rebuild(SnapshotsInMemory(directory), loaded, None, strict=True)
        self._stop_at(loaded.log_start_offset, loaded.log_end_offset)

    def advanced(self, before: Loaded, now: Loaded) -> Transactions | None:
        """The transactions of a later view, by reading only the appended batches; None if more has changed
        than the end of the last segment. `before`: the view of these transactions. CorruptRecordError."""
        if (
            not (before.segments and now.segments)
            or before.segments[:-1] != now.segments[:-1]
            or before.segments[-1].base_offset != now.segments[-1].base_offset
            or before.truncations != now.truncations
            or before.origin is not now.origin  # truncated by a broker, or of another topic of that name
        ):
            return None
        producers = self.producers.copy()
        advance(producers, now.segments[-1], before.segments[-1].size, before.log_end_offset)
        return self.of(producers, now.log_start_offset, now.log_end_offset)

    @classmethod
    def of(cls, producers: ProducerStates, log_start_offset: int, log_end_offset: int) -> Transactions:
        """The transactions of a log that is open for writing, from its present producers."""
        known = object.__new__(cls)
        known.producers = producers
        known._stop_at(log_start_offset, log_end_offset)
        return known

    def _stop_at(self, log_start_offset: int, log_end_offset: int) -> None:
        unstable = self.producers.first_unstable_offset
        self.last_stable_offset = (
            log_end_offset if unstable is None else min(max(unstable, log_start_offset), log_end_offset)
        )

    def aborted(self, segments: tuple[Segment, ...], from_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """The aborted transactions of these segments that overlap the offsets. The search ends when an index
        entry shows that later segments have none."""
        found: list[AbortedTxn] = []
        for segment in segments:
            here, complete = segment.transaction_index.collect(from_offset, upper_bound)
            found += here
            if complete:
                break
        return found
