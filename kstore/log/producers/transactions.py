"""Aborted transactions and the last stable offset of a log that is read (spec 6.8, 7.2, 8.4, 8.5)."""

from kstore.engine.segment.index import AbortedTxn
from kstore.engine.segment.segment import Segment
from kstore.log.producers.replay import advance, rebuild
from kstore.log.producers.snapshot_files import SnapshotsInMemory
from kstore.log.producers.states import ProducerStates
from kstore.log.recovery.loader import Loaded


class Transactions:
    """Producer state at the end of a log, and the aborted transactions of each of its segments."""

    def __init__(self, directory: str, loaded: Loaded) -> None:
        """Replays the log as a writer would when it opens it, but writes nothing. CorruptRecordError."""
        self.producers, _ = rebuild(SnapshotsInMemory(directory), loaded, None, strict=True)
        self._stop_at(loaded.log_start_offset, loaded.log_end_offset)

    def advanced(self, before: Loaded, now: Loaded) -> "Transactions | None":
        """Those of a later moment, if only the last segment has grown since `before`, of which these are;
        None otherwise. It reads what was appended. CorruptRecordError."""
        if (
            not (before.segments and now.segments)
            or before.segments[:-1] != now.segments[:-1]
            or before.segments[-1].base_offset != now.segments[-1].base_offset
            or before.truncations != now.truncations
        ):
            return None
        producers = self.producers.copy()
        advance(producers, now.segments[-1], before.segments[-1].size, before.log_end_offset)
        return self.of(producers, now.log_start_offset, now.log_end_offset)

    @classmethod
    def of(cls, producers: ProducerStates, log_start_offset: int, log_end_offset: int) -> "Transactions":
        """Those of a log that is written, whose producers are known at every moment."""
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
        """The aborted transactions of these segments that overlap the offsets, until one tells that no more
        will."""
        found: list[AbortedTxn] = []
        for segment in segments:
            here, complete = segment.transaction_index.collect(from_offset, upper_bound)
            found += here
            if complete:
                break
        return found
