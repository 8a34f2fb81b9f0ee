"""Producers of a log that is open for writing: checks before an append, updates after it (spec 6.6 to 6.8,
8.5)."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING
from kstore.log.producers.replay import advance, rebuild
from kstore.log.producers.snapshot_files import SnapshotFiles
from kstore.log.producers.states import Expiry, ProducerStates
from kstore.log.producers.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kstore.engine.append.record_appender import Appended
    from kstore.engine.record.batch import RecordBatch
    from kstore.engine.segment.index import AbortedTxn, TransactionIndex
    from kstore.log.recovery.loader import Loaded

EXPIRATION_CHECK_INTERVAL_MS = 600_000


class ProducerStateManager:
    """Producers and their snapshots, and the last stable offset.

    Any thread may call `transactions` and `last_stable_offset`; only the writer calls other methods.
    """

    def __init__(self, directory: str, expiration_ms: int) -> None:
        self.producers = ProducerStates()
        self.snapshots = SnapshotFiles(directory)
        self._expiration_ms = expiration_ms
        self._next_expiry_ms = 0
        self._stable_meanwhile: int | None = None

    def open(self, loaded: Loaded, now_ms: int) -> dict[int, TransactionIndex]:
        """Load the producers of an opened log. Returns the transaction index of each recovered segment, by
        base offset."""
        self._next_expiry_ms = now_ms + EXPIRATION_CHECK_INTERVAL_MS
        self.producers, indexes = rebuild(self.snapshots, loaded, self._expiry(now_ms))
        return indexes

    def reload_snapshots(self) -> None:
        """Take in which snapshots other processes have written and removed. OSError."""
        self.snapshots = SnapshotFiles(self.snapshots.directory)

    def reload(self, loaded: Loaded, *, anew: bool, have_appended: bool) -> None:
        """Take in what other processes have appended, without writing. `anew`: the log was perhaps truncated.
        CorruptRecordError, OSError."""
        last = loaded.segments[-1]
        if not anew and not have_appended:
            producers = self.producers.copy()
            producers.end_offset = loaded.log_end_offset
            self.producers = producers
        elif anew or self.producers.end_offset < last.base_offset:
            loaded = loaded.replace(recovered_producers=True)  # producers may have written since recovery
            self.producers = Transactions(self.snapshots.directory, loaded).producers
        elif self.producers.end_offset < loaded.log_end_offset:
            producers = self.producers.copy()
            found = last.translate(producers.end_offset)
            if found is not None:
                advance(producers, last, found.position, producers.end_offset)
            producers.end_offset = loaded.log_end_offset
            self.producers = producers

    def begin_anew(self, loaded: Loaded, now_ms: int) -> None:
        """Load the producers of a truncated log."""
        self.producers, _ = rebuild(self.snapshots, loaded, self._expiry(now_ms), truncated=True)

    def transactions(self, log_start_offset: int, log_end_offset: int) -> Transactions:
        """The transactions of a log with these bounds, at present."""
        held = self._stable_meanwhile  # read before the producers, which change after it
        known = Transactions.of(self.producers, log_start_offset, log_end_offset)
        if held is not None:
            known.last_stable_offset = min(held, known.last_stable_offset)
        return known

    def last_stable_offset(self, log_start_offset: int, log_end_offset: int) -> int:
        """The last stable offset of a log with these bounds."""
        return self.transactions(log_start_offset, log_end_offset).last_stable_offset

    def hold(self, stable: int) -> None:
        """Hold the last stable offset while a batch is written, until its producer is updated and the aborted
        transaction, if it ends one, is in the transaction index."""
        self._stable_meanwhile = stable

    def let_go(self) -> None:
        """Stop holding the last stable offset."""
        self._stable_meanwhile = None

    def analyze(
        self, batches: Sequence[RecordBatch], origin: str, transaction_version: int, now_ms: int
    ) -> dict[int, Appended]:
        """Check batches before an append. Returns the retries among them, by index."""
        if now_ms >= self._next_expiry_ms:
            self.forget(now_ms)
        return self.producers.analyze(batches, origin, transaction_version)

    def enter(
        self, batches: Sequence[RecordBatch], append_aborted: Callable[[AbortedTxn], None], end_offset: int
    ) -> None:
        """Update the producers after batches were written. `append_aborted` gets the transactions that they
        abort; its OSError is raised."""
        for batch in batches:
            if batch.producer_id >= 0:
                aborted = self.producers.apply(batch)
                if aborted is not None:
                    try:
                        append_aborted(aborted)
                    except OSError:  # keep it open: no index lists it, so its records would look committed
                        self.producers.ongoing.add(aborted.first_offset, aborted.producer_id)
                        raise
        self.producers.end_offset = end_offset
        self.let_go()

    def is_expiry_due(self, now_ms: int) -> bool:
        """Whether there are producers to check for expiry."""
        return now_ms >= self._next_expiry_ms and bool(self.producers.states)

    def forget(self, now_ms: int) -> None:
        """Forget expired producers. Appends of producers, retain() and the background of a store call it;
        Kafka has a scheduled task."""
        self.producers.forget(self._expiry(now_ms))
        self._next_expiry_ms = now_ms + EXPIRATION_CHECK_INTERVAL_MS

    def write_snapshot(self, offset: int, *, durable: bool = False) -> None:
        """Write a snapshot at the end of the log, unless there is a later one. OSError."""
        if offset > self.snapshots.latest:
            self.snapshots.write(offset, self.producers.states.values(), durable=durable)

    def _expiry(self, now_ms: int) -> Expiry:
        return Expiry(self._expiration_ms, now_ms)
