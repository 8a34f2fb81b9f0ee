"""Aborted transactions and the last stable offset of a log that is read (spec 6.8, 7.2, 8.4, 8.5)."""

from pathlib import Path

from kstore.engine.index import AbortedTxn, TransactionIndex
from kstore.engine.segment import Segment
from kstore.errors import CorruptFileError
from kstore.log import layout
from kstore.log.loader import Loaded
from kstore.log.producers import Producers, ProducerState, batches_of_producers, read_snapshot


def usable_snapshots(directory: str, loaded: Loaded) -> list[tuple[int, str]]:
    """(offset, path) of the snapshots that Kafka would keep, newest first (spec 8.5, removeStraySnapshots)."""
    bases = {segment.base_offset for segment in loaded.segments}
    found = []
    for path in Path(directory).iterdir():
        name = path.name
        offset = layout.parse_offset(name)
        if offset is not None and name.partition(".")[2] == "snapshot":
            found.append((offset, str(path)))
    strays = sorted(offset for offset, _ in found if offset not in bases)
    keep = bases | {offset for offset in strays[-1:] if offset >= max(bases, default=0)}
    first, end = loaded.log_start_offset, loaded.log_end_offset
    return sorted(((o, p) for o, p in found if o in keep and first < o <= end), reverse=True)


def read_newest(snapshots: list[tuple[int, str]], most: int) -> tuple[int, list[ProducerState]] | None:
    """The newest snapshot at or below an offset that is sound, with its offset; None where there is none."""
    for offset, path in snapshots:
        if offset <= most:
            try:
                return offset, read_snapshot(Path(path).read_bytes(), path)
            except (CorruptFileError, OSError):
                continue
    return None


class Transactions:
    """Producer state at the end of a log, and the aborted transactions of each of its segments."""

    def __init__(self, directory: str, loaded: Loaded) -> None:
        """Replays the log from the newest snapshot that serves, and from before every recovered segment."""
        self.producers = Producers()
        recovered = set(loaded.recovery.recovered_segments)
        from_offset = min((b for b in recovered), default=loaded.log_end_offset)
        rebuilt: dict[int, list[AbortedTxn]] = {base: [] for base in recovered}
        newest = read_newest(usable_snapshots(directory, loaded), from_offset)
        start_offset = loaded.log_start_offset
        if newest is not None:
            start_offset = newest[0]
            self.producers.restore(newest[1], start_offset)
        for segment in loaded.segments:
            if segment.end_offset <= start_offset:
                continue
            for batch in batches_of_producers(segment, start_offset):
                aborted = self.producers.apply(batch)
                if aborted is not None and segment.base_offset in rebuilt:
                    rebuilt[segment.base_offset].append(aborted)
        for segment in loaded.segments:
            if segment.base_offset in rebuilt:
                index = TransactionIndex(segment.base_offset)
                for txn in rebuilt[segment.base_offset]:
                    index.append(txn)
                segment.adopt(None, None, index)
        self._stop_at(loaded.log_start_offset, loaded.log_end_offset)

    @classmethod
    def of(cls, producers: Producers, log_start_offset: int, log_end_offset: int) -> "Transactions":
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
