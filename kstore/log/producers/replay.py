"""The producers of a log, made again from its snapshots and batches when it is opened or truncated (spec 8.4,
8.5).

A writer gives the snapshots of its directory, in which this removes and writes files as Kafka does. A reader
gives snapshots in memory: so both come to one answer.
"""

from bisect import bisect_right
from collections.abc import Collection
from itertools import groupby
from operator import attrgetter, itemgetter

from kstore.engine.segment.index import AbortedTxn, TransactionIndex
from kstore.engine.segment.segment import Segment
from kstore.log.producers.snapshot_files import SnapshotFiles
from kstore.log.producers.states import Expiry, ProducerStates, batches_of_producers
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
    """The producers at the end of a log that is opened for writing, or was `truncated`, with the snapshots
    that Kafka then leaves (spec 8.4, 8.5); and the transaction index of every recovered segment, and of every
    one whose own is damaged, by its base offset. ProducerStates of a snapshot whose time is over are left
    out, as Kafka does; those of the batches after it are not (spec 6.7).

    strict: CorruptRecordError if batches are damaged or contradict each other; see batches_of_producers. For
    a reader: a writer beside it may have written a marker, and not yet its entry in the transaction index, so
    that is added."""
    if truncated:  # which producers recovery saw tells nothing of those that wrote since
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
            if loaded.recovered_producers:  # otherwise the scan has seen that there are none
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
    told: list[tuple[Segment, AbortedTxn]] = []
    producers = _replay(snapshots, loaded, end, wanted, seen, expiry, strict, told, durable=truncated)
    if strict and loaded.recovered_producers:
        _complete_indexes(told)
    if none:
        # Kafka then looks at no batch and writes empty snapshots, also at the start of the log. Here the
        # batches tell: an open transaction whose snapshot was lost must not pass for committed.
        for offset in sorted(wanted):
            if offset > 0 and offset not in snapshots:
                snapshots.write(offset, ())
    return producers, indexes


def advance(producers: ProducerStates, segment: Segment, position: int, offset: int) -> None:
    """Applies the batches of a segment from a byte on, where the producers were known to be at `offset`; the
    transaction index gets what the writer has not written yet. CorruptRecordError."""
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
    """The producers at an offset where a segment or the log ends, from the newest sound snapshot on;
    snapshots are written at the `wanted` offsets that it passes, and there. `recovered`: the base offsets of
    segments that recovery has walked. `aborted` gets the aborted transactions of the batches that it passes.
    `durable`: the last snapshot is on the disk when this returns."""
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
    """Sees to it that the transaction indexes of segments have the transactions that their batches tell."""
    for segment, found in groupby(aborted, itemgetter(0)):
        index = segment.transaction_index
        last = max((entry.last_offset for entry in index), default=-1)
        missing = [txn for _, txn in found if txn.last_offset > last]
        if missing:
            index = TransactionIndex(segment.base_offset, index.to_bytes(), path=index.path)
            for txn in missing:
                index.append(txn)
            segment.use_indexes(None, None, index)
