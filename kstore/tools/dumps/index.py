"""The lines of Kafka's dump tool for index files (spec 11.2), and mismatches with the log (11.3)."""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from kstore.engine.record.batch import RecordBatch
from kstore.engine.segment.index import OffsetIndex, TimeIndex
from kstore.errors import CorruptIndexError
from kstore.tools.dumps.log import MAX32, file_batches
from kstore.tools.dumps.path import base_offset, content_of, open_file, sibling

_ABORTED = struct.Struct(">bxqqqq")  # version, producer id, offsets: first, last, last stable


@dataclass
class FileReport:
    """The problems of a file: index entries that do not match the log, batches with a wrong checksum, or a
    failed dump (`failed`)."""

    mismatches: dict[int, int] = field(default_factory=dict)
    timestamps: list[tuple[int, int]] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)
    not_found: list[tuple[int, int]] = field(default_factory=list)
    invalid: int = 0
    failed: bool = False

    @property
    def is_bad(self) -> bool:
        """Whether the file has problems. An index may name the timestamp of a record that compaction removed
        from a batch; this is not a problem."""
        found = self.mismatches or self.out_of_order or self.not_found
        return bool(found or self.invalid or self.failed)


def _whole(data: bytes, size: int) -> bytes:
    """The whole entries, without an incomplete one at the end."""
    return data[: len(data) // size * size]


def _check_size(path: str, data: bytes, size: int) -> None:
    if len(data) % size:
        raise CorruptIndexError(
            "size of an index", file=path, position=0, expected=f"a multiple of {size}", found=len(data)
        )


def _log_batches(path: str, position: int, max_bytes: int) -> Iterator[RecordBatch]:
    """The batches of the log from a position in an index entry."""
    size = open_file(path).size()
    if not 0 <= position <= size:
        raise CorruptIndexError(
            "position in an offset index", file=path, position=-1, expected=f"0 to {size}", found=position
        )
    return file_batches(path, max_bytes, position, any_magic=True)


def dump_offset_index(
    path: str, report: FileReport, *, sanity: bool, verify: bool, max_message_size: int
) -> Iterator[str]:
    """The lines of an .index file. Each entry is compared with the batch that it points to."""
    base = base_offset(path)
    log = sibling(path, ".log")
    open_file(log)  # first, as Kafka's tool does
    data = content_of(path)
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


def _was_compacted(batch: RecordBatch) -> bool:
    """Whether a batch has fewer records than offsets."""
    return batch.magic == 2 and batch.records_count <= batch.last_offset - batch.base_offset


class LogWalk:
    """The batches of a log from positions in index entries, each time read to the end of the file.

    Kafka's tool does this for each entry of a time index, and stops at any damage behind it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._positions: list[int] = []
        self._last_offsets: list[int] = []

    def batch_of(self, offset: int, position: int) -> RecordBatch | None:
        """The first batch from `position` on whose last offset is not below `offset`."""
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
    """The position that Kafka's search finds. It includes the empty slots of an active index (spec 3.1)."""
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


def dump_time_index(path: str, report: FileReport, *, sanity: bool, verify: bool) -> Iterator[str]:
    """The lines of a .timeindex file; each entry is compared with the batch that ends at its offset."""
    base = base_offset(path)
    log = sibling(path, ".log")
    open_file(log)  # in this order, as Kafka's tool does
    offsets_path = sibling(path, ".index")
    offsets = OffsetIndex(base, _whole(content_of(offsets_path), 8), path=offsets_path)
    data = content_of(path)
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
                report.failed = report.failed or not _was_compacted(batch)
            if previous >= timestamp:
                report.out_of_order.append((timestamp, previous))
        if not verify:
            yield f"timestamp: {timestamp} offset: {offset}"
        previous = timestamp


def dump_transaction_index(path: str) -> Iterator[str]:
    """The lines of a .txnindex file; a missing one has none. Kafka prints only the upper byte of the
    version."""
    base_offset(path)
    try:
        data = content_of(path)
    except FileNotFoundError:
        return
    entries = list(_ABORTED.iter_unpack(_whole(data, _ABORTED.size)))
    for slot, (version, *_) in enumerate(entries):
        if version > 0:
            raise CorruptIndexError(
                "version of an aborted transaction",
                file=path,
                position=slot * _ABORTED.size,
                expected="0 or less",
                found=version,
            )
    for version, producer_id, first, last, stable in entries:
        yield (
            f"version: {version} producerId: {producer_id} firstOffset: {first} "
            f"lastOffset: {last} lastStableOffset: {stable}"
        )
