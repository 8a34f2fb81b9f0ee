"""Rebuilding the producers of a log from snapshots and batches, after an opening or a truncation (spec 8.4,
8.5).

A writer passes the snapshots of its directory, in which files are removed and written as Kafka does. A reader
passes snapshots in memory. Both get equal results.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import groupby
from operator import attrgetter, itemgetter

from kstore.engine.segment.index import TransactionIndex
from kstore.light_typing import TYPE_CHECKING
from kstore.log.producers.states import ProducerStates, batches_of_producers

if TYPE_CHECKING:
    from collections.abc import Collection

    from kstore.engine.segment.index import AbortedTxn
    from kstore.engine.segment.segment import Segment
    from kstore.log.producers.snapshot_files import SnapshotFiles
    from kstore.log.producers.states import Expiry
    from kstore.log.recovery.loader import Loaded

_base_offset = attrgetter("base_offset")


def rebuild(
    snapshots: SnapshotFiles,
    loaded: Loaded,
    expiry: Expiry | None,
    *,
    truncated: bool = False,
    strict: bool = False,
) -> tuple[ProducerStates, dict[int, TransactionIndex]]:
    """Rebuild the producers at the end of a log that is opened for writing, or was `truncated`.

    Leaves the snapshots that Kafka would leave (spec 8.4, 8.5). Returns the producers, and the transaction
    index of each segment that was recovered or whose index is damaged, by base offset. As in Kafka, expired
    producers of the snapshot are omitted, and those of later batches are not (spec 6.7).

    strict: for a reader. CorruptRecordError if batches are damaged or contradict each other; see
    batches_of_producers. A writer in another process may have written a marker and not yet its entry in the
    transaction index; such entries are added.
    """
    if truncated:  # producers may have written since recovery
        loaded = loaded.replace(recovered_producers=True)
    segments = loaded.segments
    end = loaded.log_end_offset
    seen = frozenset(loaded.recovery.recovered_segments)
    recovered: frozenset[int] = frozenset() if truncated else seen | loaded.lost_transaction_indexes
    clean = loaded.recovery.clean and not truncated
    indexes: dict[int, TransactionIndex] = {}
    bases = [segment.base_offset for segment in segments]
    before = set() if clean else set(bases[-2:])
    for segment in segments:
        if segment.base_offset in recovered:
            index = indexes[segment.base_offset] = TransactionIndex(segment.base_offset)
            producers = _replay(snapshots, loaded, segment.base_offset, before, seen, expiry, strict)
            if loaded.recovered_producers:  # else recovery has seen that there are none
                for batch in batches_of_producers(segment, segment.base_offset, strict=strict):
                    aborted = producers.apply(batch)
                    if aborted is not None:
                        index.append(aborted)
            segment.use_indexes(None, None, index)
            snapshots.write(segment.read_next_offset(), producers.states.values())
    if not truncated:
        snapshots.remove_strays(bases)
    wanted = {*bases[-2:], end}
    none = clean and not snapshots.offsets
    found: list[tuple[Segment, AbortedTxn]] = []
    producers = _replay(snapshots, loaded, end, wanted, seen, expiry, strict, found, durable=truncated)
    if strict and loaded.recovered_producers:
        _complete_indexes(found)
    if none:
        # Kafka reads no batch then and writes empty snapshots, also at the start of the log. kstore reads the
        # batches, so that an open transaction whose snapshot was lost does not look committed.
        for offset in sorted(wanted):
            if offset > 0 and offset not in snapshots:
                snapshots.write(offset, ())
    return producers, indexes


def advance(producers: ProducerStates, segment: Segment, position: int, offset: int) -> None:
    """Apply the batches of a segment from a byte on, to the producers at `offset`. Entries that the writer
    has not written yet are added to the transaction index. CorruptRecordError."""
    aborted: list[tuple[Segment, AbortedTxn]] = []
    for batch in batches_of_producers(segment, offset, strict=True, first_position=position):
        txn = producers.apply(batch)
        if txn is not None:
            aborted.append((segment, txn))
    _complete_indexes(aborted)


def _replay(
    snapshots: SnapshotFiles,
    loaded: Loaded,
    to_offset: int,
    wanted: set[int],
    recovered: Collection[int],
    expiry: Expiry | None,
    strict: bool,
    aborted: list[tuple[Segment, AbortedTxn]] | None = None,
    *,
    durable: bool = False,
) -> ProducerStates:
    """Rebuild the producers at the end of a segment or of the log, from the newest sound snapshot on.

    A snapshot is written at `to_offset` and at each `wanted` offset on the way. `recovered`: base offsets of
    segments that recovery has read. Aborted transactions on the way are added to `aborted`. `durable`: sync
    the last snapshot.
    """
    producers = ProducerStates()
    snapshots.remove_outside(loaded.log_start_offset, to_offset)
    newest = snapshots.read_newest(to_offset)
    last = loaded.log_start_offset
    if newest is not None and newest[0] > last:
        last = newest[0]
        producers.restore(newest[1], last)
        if expiry is not None:
            producers.forget(expiry)
    from_offset = last
    segments = loaded.segments
    for at in range(max(bisect_right(segments, from_offset, key=_base_offset) - 1, 0), len(segments)):
        segment = segments[at]
        base = segment.base_offset
        if base >= to_offset:
            break
        if segment.end_offset <= from_offset or (from_offset >= to_offset and not strict):
            continue  # the snapshot has all producers of its batches
        if base in wanted and base > last:
            snapshots.write(base, producers.states.values())
            last = base
        if loaded.recovered_producers or base not in recovered:
            for batch in batches_of_producers(segment, from_offset, strict=strict):
                txn = producers.apply(batch)
                if txn is not None and aborted is not None:
                    aborted.append((segment, txn))
    producers.end_offset = to_offset
    if to_offset > last:
        snapshots.write(to_offset, producers.states.values(), durable=durable)
    return producers


def _complete_indexes(aborted: list[tuple[Segment, AbortedTxn]]) -> None:
    """Add missing aborted transactions to the transaction indexes of segments, in memory."""
    for segment, found in groupby(aborted, itemgetter(0)):
        index = segment.transaction_index
        last = max((entry.last_offset for entry in index), default=-1)
        missing = [txn for _, txn in found if txn.last_offset > last]
        if missing:
            index = TransactionIndex(segment.base_offset, index.to_bytes(), path=index.path)
            for txn in missing:
                index.append(txn)
            segment.use_indexes(None, None, index)
