"""The producers of a log that is written: what is checked before an append and entered after it (spec 6.6 to 6.8, 8.5)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from kstore.engine.append.record_appender import Appended
from kstore.engine.record.batch import RecordBatch
from kstore.engine.segment.index import AbortedTxn, TransactionIndex
from kstore.log.producers.snapshot_files import SnapshotFiles
from kstore.log.producers.states import Expiry, ProducerStates, batches_of_producers
from kstore.log.producers.transactions import Transactions
from kstore.log.recovery.loader import Loaded

EXPIRATION_CHECK_INTERVAL_MS = 600_000


class ProducerStateManager:
    """Producers, the snapshots of them, and how far readers of committed data may go while a batch is entered.

    Only who writes calls its methods; `transactions` and `last_stable_offset` are for all.
    """

    def __init__(self, directory: str, expiration_ms: int) -> None:
        self.producers = ProducerStates()
        self.snapshots = SnapshotFiles(directory)
        self._expiration_ms = expiration_ms
        self._next_expiry_ms = 0
        self._stable_meanwhile: int | None = None

    def open(self, loaded: Loaded, now_ms: int) -> dict[int, TransactionIndex]:
        """Begins with a log as it was opened; the transaction index of every recovered segment, by its base offset."""
        self._next_expiry_ms = now_ms + EXPIRATION_CHECK_INTERVAL_MS
        self.producers, indexes = _rebuild(self.snapshots, loaded, self._expiry(now_ms))
        return indexes

    def begin_anew(self, loaded: Loaded, now_ms: int) -> None:
        """The log was truncated to this."""
        self.producers, _ = _rebuild(self.snapshots, loaded, self._expiry(now_ms), truncated=True)

    def transactions(self, log_start_offset: int, log_end_offset: int) -> Transactions:
        """As they are now."""
        return Transactions.of(self.producers, log_start_offset, log_end_offset)

    def last_stable_offset(self, log_start_offset: int, log_end_offset: int) -> int:
        """Where readers of committed data must stop, of a log that was seen to end there."""
        # After the end, which may lie behind a batch that is being entered, and before the producers.
        held = self._stable_meanwhile
        stable = self.transactions(log_start_offset, log_end_offset).last_stable_offset
        return stable if held is None else min(held, stable)

    def hold(self, stable: int) -> None:
        """Readers of committed data stay where they are: from the writing of a batch until its producer is entered, and
        a transaction that it ends is in the index of the aborted."""
        self._stable_meanwhile = stable

    def let_go(self) -> None:
        """They need not any more."""
        self._stable_meanwhile = None

    def analyze(
        self, batches: Sequence[RecordBatch], origin: str, transaction_version: int, now_ms: int
    ) -> Appended | None:
        """Checks batches that are about to be appended; an Appended when one is a retry of what is there."""
        if now_ms >= self._next_expiry_ms:
            self.forget(now_ms)
        return self.producers.analyze(batches, origin, transaction_version)

    def enter(
        self, batches: Sequence[RecordBatch], append_aborted: Callable[[AbortedTxn], None], end_offset: int
    ) -> None:
        """Takes batches into account that were written. OSError from append_aborted, which takes what they abort."""
        for batch in batches:
            if batch.producer_id >= 0:
                aborted = self.producers.apply(batch)
                if aborted is not None:
                    try:
                        append_aborted(aborted)
                    except OSError:  # readers of committed data must not get what no index calls aborted
                        self.producers.ongoing[aborted.first_offset] = aborted.producer_id
                        raise
        self.producers.end_offset = end_offset
        self.let_go()

    def forget(self, now_ms: int) -> None:
        """Producers whose time is over. Kafka does it by its scheduler; here appends of producers and retain() do."""
        self.producers.forget(self._expiry(now_ms))
        self._next_expiry_ms = now_ms + EXPIRATION_CHECK_INTERVAL_MS

    def write_snapshot(self, offset: int, *, durable: bool = False) -> None:
        """A snapshot at the end of the log, unless there is a later one. OSError."""
        if offset > self.snapshots.latest:
            self.snapshots.write(offset, self.producers.states.values(), durable=durable)

    def _expiry(self, now_ms: int) -> Expiry:
        return Expiry(self._expiration_ms, now_ms)


def _rebuild(
    snapshots: SnapshotFiles, loaded: Loaded, expiry: Expiry, *, truncated: bool = False
) -> tuple[ProducerStates, dict[int, TransactionIndex]]:
    """The producers at the end of a log that is opened for writing, or was `truncated`, with the snapshots that Kafka
    then leaves (spec 8.4, 8.5); and the transaction index of every recovered segment, by its base offset. ProducerStates of
    a snapshot whose time is over are left out, as Kafka does; those of the batches after it are not (spec 6.7)."""
    if truncated:  # which producers recovery saw tells nothing of those that wrote since
        loaded = replace(loaded, recovered_producers=True)
    segments = loaded.segments
    end = loaded.log_end_offset
    recovered = set() if truncated else set(loaded.recovery.recovered_segments)
    clean = loaded.recovery.clean and not truncated
    indexes: dict[int, TransactionIndex] = {}
    bases = [segment.base_offset for segment in segments]
    before = set() if clean else set(bases[-2:])
    for segment in segments:
        if segment.base_offset in recovered:
            index = indexes[segment.base_offset] = TransactionIndex(segment.base_offset)
            producers = _replay(snapshots, loaded, segment.base_offset, before, expiry)
            if loaded.recovered_producers:  # otherwise the scan has seen that there are none
                for batch in batches_of_producers(segment, segment.base_offset):
                    aborted = producers.apply(batch)
                    if aborted is not None:
                        index.append(aborted)
            segment.use_indexes(None, None, index)
            snapshots.write(segment.read_next_offset(), producers.states.values())
    if not truncated:
        snapshots.remove_strays(bases)
    wanted = {*bases[-2:], end}
    if clean and not snapshots.offsets:
        for offset in sorted(wanted):
            if offset > 0:
                snapshots.write(offset, ())
        producers = ProducerStates()
        producers.end_offset = end
        return producers, indexes
    return _replay(snapshots, loaded, end, wanted, expiry), indexes


def _replay(
    snapshots: SnapshotFiles, loaded: Loaded, to_offset: int, wanted: set[int], expiry: Expiry
) -> ProducerStates:
    """The producers at an offset where a segment or the log ends, from the newest sound snapshot on; snapshots are
    written at the `wanted` offsets that it passes, and there."""
    producers = ProducerStates()
    snapshots.remove_outside(loaded.log_start_offset, to_offset)
    newest = snapshots.read_newest(to_offset)
    last = loaded.log_start_offset
    if newest is not None and newest[0] > last:
        last = newest[0]
        producers.restore(newest[1], last)
        producers.forget(expiry)
    from_offset = last
    for segment in loaded.segments:
        base = segment.base_offset
        if segment.end_offset <= from_offset or base >= to_offset:
            continue
        if base in wanted and base > last:
            snapshots.write(base, producers.states.values())
            last = base
        if loaded.recovered_producers or base not in loaded.recovery.recovered_segments:
            for batch in batches_of_producers(segment, from_offset):
                producers.apply(batch)
    producers.end_offset = to_offset
    if to_offset > last:
        snapshots.write(to_offset, producers.states.values(), durable=True)
    return producers
