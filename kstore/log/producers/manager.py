"""The producers of a log that is written: what is checked before an append and entered after it (spec 6.6 to
6.8, 8.5)."""

from collections.abc import Callable, Sequence

from kstore.engine.append.record_appender import Appended
from kstore.engine.record.batch import RecordBatch
from kstore.engine.segment.index import AbortedTxn, TransactionIndex
from kstore.log.producers.replay import rebuild
from kstore.log.producers.snapshot_files import SnapshotFiles
from kstore.log.producers.states import Expiry, ProducerStates
from kstore.log.producers.transactions import Transactions
from kstore.log.recovery.loader import Loaded

EXPIRATION_CHECK_INTERVAL_MS = 600_000


class ProducerStateManager:
    """Producers, the snapshots of them, and how far readers of committed data may go while a batch is
    entered.

    Only the writer calls its methods; `transactions` and `last_stable_offset` are for all.
    """

    def __init__(self, directory: str, expiration_ms: int) -> None:
        self.producers = ProducerStates()
        self.snapshots = SnapshotFiles(directory)
        self._expiration_ms = expiration_ms
        self._next_expiry_ms = 0
        self._stable_meanwhile: int | None = None

    def open(self, loaded: Loaded, now_ms: int) -> dict[int, TransactionIndex]:
        """Begins with a log as it was opened; the transaction index of every recovered segment, by its base
        offset."""
        self._next_expiry_ms = now_ms + EXPIRATION_CHECK_INTERVAL_MS
        self.producers, indexes = rebuild(self.snapshots, loaded, self._expiry(now_ms))
        return indexes

    def begin_anew(self, loaded: Loaded, now_ms: int) -> None:
        """The log was truncated to this."""
        self.producers, _ = rebuild(self.snapshots, loaded, self._expiry(now_ms), truncated=True)

    def transactions(self, log_start_offset: int, log_end_offset: int) -> Transactions:
        """As they are now, for readers of a log that was seen to end there."""
        held = self._stable_meanwhile  # before the producers
        known = Transactions.of(self.producers, log_start_offset, log_end_offset)
        if held is not None:
            known.last_stable_offset = min(held, known.last_stable_offset)
        return known

    def last_stable_offset(self, log_start_offset: int, log_end_offset: int) -> int:
        """Where readers of committed data must stop, of a log that was seen to end there."""
        return self.transactions(log_start_offset, log_end_offset).last_stable_offset

    def hold(self, stable: int) -> None:
        """Readers of committed data stay where they are: from the writing of a batch until its producer is
        entered, and a transaction that it ends is in the index of the aborted."""
        self._stable_meanwhile = stable

    def let_go(self) -> None:
        """They need not any more."""
        self._stable_meanwhile = None

    def analyze(
        self, batches: Sequence[RecordBatch], origin: str, transaction_version: int, now_ms: int
    ) -> dict[int, Appended]:
        """Checks batches that are about to be appended. Which of them are retries of what is there, by their
        places."""
        if now_ms >= self._next_expiry_ms:
            self.forget(now_ms)
        return self.producers.analyze(batches, origin, transaction_version)

    def enter(
        self, batches: Sequence[RecordBatch], append_aborted: Callable[[AbortedTxn], None], end_offset: int
    ) -> None:
        """Takes batches into account that were written. OSError from append_aborted, which takes what they
        abort."""
        for batch in batches:
            if batch.producer_id >= 0:
                aborted = self.producers.apply(batch)
                if aborted is not None:
                    try:
                        append_aborted(aborted)
                    except OSError:  # readers of committed data must not get what no index calls aborted
                        self.producers.ongoing.add(aborted.first_offset, aborted.producer_id)
                        raise
        self.producers.end_offset = end_offset
        self.let_go()

    def is_expiry_due(self, now_ms: int) -> bool:
        """Whether there are producers, and the last check for expired ones was a while ago."""
        return now_ms >= self._next_expiry_ms and bool(self.producers.states)

    def forget(self, now_ms: int) -> None:
        """Producers whose time is over. Kafka does it by its scheduler; here appends of producers, retain()
        and a store's background do."""
        self.producers.forget(self._expiry(now_ms))
        self._next_expiry_ms = now_ms + EXPIRATION_CHECK_INTERVAL_MS

    def write_snapshot(self, offset: int, *, durable: bool = False) -> None:
        """A snapshot at the end of the log, unless there is a later one. OSError."""
        if offset > self.snapshots.latest:
            self.snapshots.write(offset, self.producers.states.values(), durable=durable)

    def _expiry(self, now_ms: int) -> Expiry:
        return Expiry(self._expiration_ms, now_ms)
