"""The lines of Kafka's dump tool for the index files and snapshots (spec 11.2), and what does not fit (11.3)."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from kstore.engine.batch import RecordBatch
from kstore.engine.index import OffsetIndex, TimeIndex, TransactionIndex
from kstore.errors import CorruptIndexError
from kstore.log.producers import read_snapshot
from kstore.tools.dump_log import MAX32, file_batches, optional_long
from kstore.tools.dump_path import base_offset, open_file, sibling


@dataclass
class IndexReport:
    """What does not fit between an index and its log, by the file's absolute path."""

    mismatches: dict[int, int] = field(default_factory=dict)
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    not_found: list[tuple[int, int]] = field(default_factory=list)


def _content(path: str) -> bytes:
    file = open_file(path)
    return file.read(0, file.size())


def _whole(data: bytes, size: int) -> bytes:
    """The entries; what is left over at the end is none."""
    return data[: len(data) // size * size]


def _check_size(path: str, data: bytes, size: int) -> None:
    if len(data) % size:
        raise CorruptIndexError(
            "size of an index", file=path, position=0, expected=f"a multiple of {size}", found=len(data)
        )


def _log_batches(path: str, position: int, max_bytes: int) -> Iterator[RecordBatch]:
    """The batches of the log from a position that an index gives."""
    size = open_file(path).size()
    if not 0 <= position <= size:
        raise CorruptIndexError(
            "position in an offset index", file=path, position=-1, expected=f"0 to {size}", found=position
        )
    return file_batches(path, max_bytes, position)


def dump_offset_index(
    path: str, report: IndexReport, *, sanity: bool, verify: bool, max_message_size: int
) -> Iterator[str]:
    """The lines of an .index file; each entry is compared with the batch it names."""
    base = base_offset(path)
    log = sibling(path, ".log")
    open_file(log)  # as the tool does, before anything else
    data = _content(path)
    index = OffsetIndex(base, _whole(data, 8), path=path)
    if len(index) == 0:
        yield f"{path} is empty."
        return
    if sanity:
        index.sanity_check()
        _check_size(path, data, 8)
        yield f"{path} passed sanity check."
        return
    for slot, (offset, position) in enumerate(index):
        if offset == base and slot > 0:
            return
        batch = next(_log_batches(log, position, max_message_size), None)
        if batch is None:
            raise CorruptIndexError(
                "entry of an offset index", file=path, position=8 * slot, expected="a batch", found="none"
            )
        if batch.last_offset != offset:
            report.mismatches[offset] = batch.last_offset
        if not verify:
            yield f"offset: {offset} position: {position}"


class LogWalk:
    """The batches of a log from positions that an index gives, always walked to the end of the file.

    So does Kafka's tool for each entry of a time index, and damage anywhere behind it stops it there.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._positions: list[int] = []
        self._last_offsets: list[int] = []

    def batch_of(self, offset: int, position: int) -> RecordBatch | None:
        """The first batch from `position` on that ends at the offset or behind it."""
        slot = bisect_left(self._positions, position)
        if slot == len(self._positions) or self._positions[slot] != position:
            self._walk(position)
            slot = 0
        for at in range(slot, len(self._positions)):
            if self._last_offsets[at] >= offset:
                return next(_log_batches(self._path, self._positions[at], MAX32))
        return None

    def _walk(self, position: int) -> None:
        found = [(batch.position, batch.last_offset) for batch in _log_batches(self._path, position, MAX32)]
        self._positions = [at for at, _ in found]
        self._last_offsets = [last for _, last in found]


def kafka_floor(index: OffsetIndex, target: int) -> int:
    """The position that Kafka's own search finds, which also counts the empty slots of an open index (spec 3.1)."""
    entries = len(index)
    if entries == 0:
        return 0
    first_hot = max(0, entries - 1 - 1024)
    if index.entry(first_hot).offset < target:
        low, high = first_hot, entries - 1
    elif index.entry(0).offset > target:
        return 0
    else:
        low, high = 0, first_hot
    while low < high:
        middle = (low + high + 1) // 2
        found = index.entry(middle).offset
        if found > target:
            high = middle - 1
        elif found < target:
            low = middle
        else:
            return index.entry(middle).position
    return index.entry(low).position


def dump_time_index(path: str, report: IndexReport, *, sanity: bool, verify: bool) -> Iterator[str]:
    """The lines of a .timeindex file; each entry is compared with the batch that ends at its offset."""
    base = base_offset(path)
    log = sibling(path, ".log")
    open_file(log)  # as the tool does, in this order
    offsets_path = sibling(path, ".index")
    offsets = OffsetIndex(base, _whole(_content(offsets_path), 8), path=offsets_path)
    data = _content(path)
    times = TimeIndex(base, _whole(data, 12), path=path)
    if sanity:
        times.sanity_check()
        _check_size(path, data, 12)
        yield f"{path} passed sanity check."
        return
    walk = LogWalk(log)
    previous = -1
    for slot, (timestamp, offset) in enumerate(times):
        if offset == base and slot > 0:
            return
        batch = walk.batch_of(offset, kafka_floor(offsets, offset))
        if batch is None or batch.last_offset != offset:
            report.not_found.append((offset, -1 if batch is None else batch.last_offset))
        else:
            largest = max((-1, *(record.timestamp for record in batch.records(verify=False))))
            if largest != timestamp:
                report.timestamps.append((timestamp, largest))
            if previous >= timestamp:
                report.out_of_order.append((timestamp, previous))
        if not verify:
            yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp


def dump_transaction_index(path: str) -> Iterator[str]:
    """The lines of a .txnindex file; one that is not there is empty."""
    base = base_offset(path)
    try:
        data = _content(path)
    except FileNotFoundError:
        return
    for txn in TransactionIndex(base, data, path=path):
        yield (
            f"version: {txn.version} producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
            f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
        )


def dump_snapshot(path: str) -> Iterator[str]:
    """The lines of a producer snapshot. CorruptSnapshotError."""
    for state in read_snapshot(_content(path), path):
        line = (
            f"producerId: {state.producer_id} producerEpoch: {state.producer_epoch} "
            f"coordinatorEpoch: {state.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional_long(state.current_txn_first_offset)} "
            f"lastTimestamp: {state.last_timestamp}"
        )
        for batch in islice(state.batches, 1):
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta} "
                f"timestamp: {batch.timestamp}"
            )
        yield line
