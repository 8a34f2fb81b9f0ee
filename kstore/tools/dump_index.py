"""The lines of Kafka's dump tool for the index files and snapshots (spec 11.2), and what does not fit (11.3)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from kstore.engine.batch import RecordBatch
from kstore.engine.file import File
from kstore.engine.index import OffsetIndex, TimeIndex, TransactionIndex
from kstore.engine.segment import Segment
from kstore.errors import CorruptIndexError
from kstore.log.producers import read_snapshot
from kstore.tools.dump_log import MAX32, file_batches, optional_long


@dataclass
class IndexReport:
    """What does not fit between an index and its log, by the file's absolute path."""

    mismatches: dict[int, int] = field(default_factory=dict)
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    not_found: list[tuple[int, int]] = field(default_factory=list)


def _base_offset(path: str) -> int:
    return int(Path(path).name.partition(".")[0])


def _sibling(path: str, kind: str) -> str:
    return str(Path(path).with_suffix(kind))


def _entries(path: str, size: int) -> bytes:
    data = File(path).read(0, File(path).size())
    return data[: len(data) // size * size]


def _log_batches(path: str, position: int, max_bytes: int) -> Iterator[RecordBatch]:
    """The batches of the log from a position that an index gives."""
    size = File(path).size()
    if not 0 <= position <= size:
        raise CorruptIndexError(
            "position in an offset index", file=path, position=-1, expected=f"0 to {size}", found=position
        )
    return file_batches(path, max_bytes, position)


def dump_offset_index(
    path: str, report: IndexReport, *, sanity: bool, verify: bool, max_message_size: int
) -> Iterator[str]:
    """The lines of an .index file; each entry is compared with the batch it names."""
    base_offset = _base_offset(path)
    index = OffsetIndex(base_offset, _entries(path, 8), path=path)
    if len(index) == 0:
        yield f"{path} is empty."
        return
    if sanity:
        index.sanity_check()
        yield f"{path} passed sanity check."
        return
    log = _sibling(path, ".log")
    for slot, (offset, position) in enumerate(index):
        if offset == base_offset and slot > 0:
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
    base_offset = _base_offset(path)
    log = _sibling(path, ".log")
    File(log)  # as the tool does, before anything else
    offsets_path = _sibling(path, ".index")
    times = TimeIndex(base_offset, _entries(path, 12), path=path)
    if sanity:
        times.sanity_check()
        yield f"{path} passed sanity check."
        return
    offsets = OffsetIndex(base_offset, _entries(offsets_path, 8), path=offsets_path)
    if len(times):
        # the tool reads the log to its end for every entry, so damage anywhere stops it at the first
        Segment(str(Path(log).parent), Path(log).stem, base_offset).read_headers()
    previous = -1
    for slot, (timestamp, offset) in enumerate(times):
        if offset == base_offset and slot > 0:
            return
        batches = _log_batches(log, kafka_floor(offsets, offset), MAX32)
        batch = next((b for b in batches if b.last_offset >= offset), None)
        if batch is None or batch.last_offset != offset:
            report.not_found.append((offset, -1 if batch is None else batch.last_offset))
        else:
            largest = max((record.timestamp for record in batch.records(verify=False)), default=-1)
            if largest != timestamp:
                report.timestamps.append((timestamp, largest))
            if previous >= timestamp:
                report.out_of_order.append((timestamp, previous))
        if not verify:
            yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp


def dump_transaction_index(path: str) -> Iterator[str]:
    """The lines of a .txnindex file."""
    data = File(path).read(0, File(path).size())
    for txn in TransactionIndex(_base_offset(path), data, path=path):
        yield (
            f"version: {txn.version} producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
            f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
        )


def dump_snapshot(path: str) -> Iterator[str]:
    """The lines of a producer snapshot. CorruptSnapshotError."""
    for state in read_snapshot(File(path).read(0, File(path).size()), path):
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
