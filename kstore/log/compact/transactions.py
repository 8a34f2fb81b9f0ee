"""Which transactions the batches belong to that a cleaner goes through (spec 10.7)."""

from __future__ import annotations

import heapq

from kstore.engine.record.batch import control_type
from kstore.errors import CorruptIndexError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.producers.states import ABORT, COMMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.engine.record.batch import RecordBatch
    from kstore.engine.segment.index import AbortedTxn, TransactionIndex


class CleanedTransactions:
    """Takes in batches in order. `index` gets the aborted transactions whose markers stay.

    Of a transaction that ended below `log_start_offset` it is not known whether it was aborted: it counts as
    committed, as in Kafka, and its marker goes though records of it may stay.
    """

    def __init__(self, log_start_offset: int = 0) -> None:
        self._log_start_offset = log_start_offset
        self.index: TransactionIndex | None = None
        self._waiting: list[tuple[int, int, AbortedTxn]] = []  # a heap, by first offset
        self._count = 0
        self._aborted: dict[int, AbortedTxn] = {}  # by producer id: those that have begun
        self._met: set[int] = set()  # of these, whether a batch was met
        # producer ids with a transaction that was not aborted, until one is committed
        self._committed: set[int] = set()
        # of these, those with a batch above the log start, and no marker behind it
        self._begun: set[int] = set()

    def add(self, transactions: Iterable[AbortedTxn]) -> None:
        """Aborted transactions of batches that are still to come; one may be given several times."""
        for txn in transactions:
            self._count += 1
            heapq.heappush(self._waiting, (txn.first_offset, self._count, txn))

    def can_discard(self, batch: RecordBatch) -> bool:
        """Takes in a batch of a transaction, or a control batch. True if its records may go: the transaction
        was aborted, or it is a marker of which no batch was met.

        CorruptRecordError for a marker that cannot be read. CorruptIndexError if the transaction index says
        otherwise than the marker: it has no checksum, and what is removed by its word would be gone for
        good."""
        while self._waiting and self._waiting[0][0] <= batch.last_offset:
            txn = heapq.heappop(self._waiting)[2]
            self._aborted.setdefault(txn.producer_id, txn)
        producer = batch.producer_id
        if batch.is_control:
            return self._end(batch)
        if producer in self._aborted:
            self._met.add(producer)
            return True
        self._committed.add(producer)
        if batch.last_offset >= self._log_start_offset:
            self._begun.add(producer)
        return False

    def _end(self, batch: RecordBatch) -> bool:
        if batch.records_count == 0:
            return True
        producer = batch.producer_id
        begun = producer in self._begun
        self._begun.discard(producer)
        kind = control_type(batch.records(verify=False)[0].key, batch.file, batch.position)
        if kind == ABORT:
            txn = self._aborted.pop(producer, None)
            if txn is None and begun:
                raise _contradiction(batch, "a transaction that was aborted", "none of that producer")
            if txn is None or producer not in self._met:
                return True
            self._met.discard(producer)
            if self.index is not None:
                self.index.append(txn)
        elif kind == COMMIT:
            if producer in self._met:
                raise _contradiction(batch, "no transaction that was committed", self._aborted[producer])
            if producer not in self._committed:
                return True
            self._committed.discard(producer)
        return False


def _contradiction(marker: RecordBatch, expected: str, found: object) -> CorruptIndexError:
    return CorruptIndexError(
        f"the marker at offset {marker.base_offset} and the transaction index",
        file=f"{marker.file.removesuffix('.log')}.txnindex",
        expected=expected,
        found=found,
    )
