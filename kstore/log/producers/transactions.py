"""Aborted transactions and the last stable offset of a log that is read (spec 6.8, 7.2, 8.4, 8.5)."""

import contextlib

from kstore.engine.segment.index import AbortedTxn, TransactionIndex
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError
from kstore.log.producers.snapshot_files import SnapshotFiles
from kstore.log.producers.states import ProducerState, ProducerStates, batches_of_producers
from kstore.log.recovery.loader import Loaded


def usable_snapshots(snapshots: SnapshotFiles, loaded: Loaded) -> list[int]:
    """The offsets of the snapshots that Kafka would keep, newest first (spec 8.5)."""
    strays = snapshots.strays(segment.base_offset for segment in loaded.segments)
    first, end = loaded.log_start_offset, loaded.log_end_offset
    return [o for o in reversed(snapshots.offsets) if first < o <= end and o not in strays]


def _read_newest(directory: str, loaded: Loaded, most: int) -> tuple[int, list[ProducerState]] | None:
    """The newest of them at or below an offset that is sound, with its offset. Nothing is removed."""
    snapshots = SnapshotFiles(directory)
    for offset in usable_snapshots(snapshots, loaded):
        if offset <= most:
            with contextlib.suppress(CorruptFileError, OSError):
                return offset, snapshots.read(offset)
    return None


class Transactions:
    """Producer state at the end of a log, and the aborted transactions of each of its segments."""

    def __init__(self, directory: str, loaded: Loaded) -> None:
        """Replays the log from the newest snapshot that serves, and from before every recovered segment."""
        self.producers = ProducerStates()
        recovered = set(loaded.recovery.recovered_segments)
        from_offset = min((b for b in recovered), default=loaded.log_end_offset)
        rebuilt: dict[int, list[AbortedTxn]] = {base: [] for base in recovered}
        newest = _read_newest(directory, loaded, from_offset)
        start_offset = loaded.log_start_offset
        if newest is not None:
            start_offset = newest[0]
            self.producers.restore(newest[1], start_offset)
        for segment in loaded.segments:
            if segment.end_offset <= start_offset:
                continue
            for batch in batches_of_producers(segment, start_offset, strict=True):
                aborted = self.producers.apply(batch)
                if aborted is not None and segment.base_offset in rebuilt:
                    rebuilt[segment.base_offset].append(aborted)
        for segment in loaded.segments:
            if segment.base_offset in rebuilt:
                index = TransactionIndex(segment.base_offset)
                for txn in rebuilt[segment.base_offset]:
                    index.append(txn)
                segment.use_indexes(None, None, index)
        self._stop_at(loaded.log_start_offset, loaded.log_end_offset)

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
        """The aborted transactions of these segments that overlap the offsets, until one tells that no more will."""
        found: list[AbortedTxn] = []
        for segment in segments:
            here, complete = segment.transaction_index.collect(from_offset, upper_bound)
            found += here
            if complete:
                break
        return found
