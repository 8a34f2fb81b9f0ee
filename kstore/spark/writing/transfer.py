"""How staged files get into a log: large ones are moved, as segments; of others the batches are copied, as a
producer's."""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kstore.engine.record.batch import crc32c
from kstore.engine.segment.segment import Segment
from kstore.errors import KstoreError
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.writer import LogWriter
from kstore.spark.errors import failure, translated
from kstore.spark.paths import mapped_root
from kstore.spark.writing.journal import Body, Moved
from kstore.spark.writing.progress import Progress, body_of
from kstore.spark.writing.staging import Staged

_LARGE = 8 << 20  # a segment of less is not worth its files, and its syncs
_CHUNK = 1 << 20
_PRODUCER = struct.Struct(">qhi")  # producer id, epoch, base sequence
_PRODUCER_AT, _CRC_AT, _ATTRIBUTES_AT = 43, 17, 21
_CRC, _INT, _HEADER = struct.Struct(">I"), struct.Struct(">i"), 61


def movable(staged: Sequence[Staged], logs: Mapping[TopicPartition, LogWriter]) -> dict[str, dict[str, Body]]:
    """Which staged files can become segments. Others must not later, when some may have been copied."""
    found: dict[str, dict[str, Body]] = {}
    for one in staged:
        log, directory = logs[one.tp], mapped_root(one.path)
        if log.config.message_timestamp_type != "CreateTime":
            continue  # the time is given when records are published
        large = [
            file.name
            for file in one.files
            if file.size >= _LARGE and os.access(f"{directory}/{file.name}", os.W_OK)
        ]
        if large and _is_near(directory, log):
            try:
                found[one.path] = {
                    name: body_of(Segment(directory, name.removesuffix(".log"), 0)) for name in large
                }
            except KstoreError as e:
                raise translated(e, one.tp) from e
    return found


def _is_near(directory: str, log: LogWriter) -> bool:
    """Whether files of a directory can be renamed into a log: asked of the system, as one device may be
    mounted twice."""
    try:
        os.link(f"{log.path}/{layout.LEADER_EPOCHS}", f"{directory}/near")
    except FileExistsError:
        return True
    except OSError:
        return False
    return True


class Transfer:
    """One transaction's way into one log: goes on where it stopped, if it did."""

    def __init__(self, log: LogWriter, moved: Moved, producer: int, epoch: int, there: Progress) -> None:
        self._log = log
        self._moved = moved
        self._producer, self._epoch = producer, epoch
        self._there = there
        self._sequence = 0
        self._buffer = bytearray(_CHUNK)  # only one, small enough to stay in the processor's cache

    def take(self, one: Staged) -> None:
        """Brings a staged log's records into the log, but for those that are there. SparkSourceError."""
        moved = self._moved.get(one.path, {})
        for name, _, record_count in one.files:
            file = f"{mapped_root(one.path)}/{name}"
            if name in moved:
                if f"{one.path}/{name}" not in self._there.moved:
                    self._log.adopt(file)
            elif self._sequence + record_count <= self._there.copied:
                self._sequence += record_count
            elif (found := self._copy(one.tp, file)) != record_count:
                raise failure("KSTORE_STAGING_LOST", f"{found} records of {record_count}", one.tp, file=file)

    def _copy(self, tp: TopicPartition, file: str) -> int:
        """Appends the batches of a file as this producer's; how many records are in it."""
        first = self._sequence
        for chunk in self._chunks(tp, file):
            skip = at = 0
            while at < len(chunk):
                size, count = _sizes(chunk, at)
                if self._sequence < self._there.copied:
                    skip = at + size
                else:
                    self._become_ours(chunk[at : at + size], tp, file)
                self._sequence += count
                at += size
            if skip < len(chunk):
                self._log.append_batches(chunk[skip:])
        return self._sequence - first

    def _become_ours(self, batch: memoryview, tp: TopicPartition, file: str) -> None:
        """Makes a staged batch what this producer would have sent."""
        (crc,) = _CRC.unpack_from(batch, _CRC_AT)
        found = crc32c(batch[_ATTRIBUTES_AT:])
        if found != crc:  # a new one would hide it
            raise failure("KSTORE_CORRUPT_BATCH", f"CRC {found:#010x}, not {crc:#010x}", tp, file=file)
        batch[:8] = bytes(8)  # a producer counts each batch's offsets from 0
        _PRODUCER.pack_into(batch, _PRODUCER_AT, self._producer, self._epoch, self._sequence)
        _CRC.pack_into(batch, _CRC_AT, crc32c(batch[_ATTRIBUTES_AT:]))

    def _chunks(self, tp: TopicPartition, path: str) -> Iterator[memoryview]:
        """A file in pieces of whole batches, each until the next is asked for; one that is cut at the end is
        passed over."""
        kept = 0
        with Path(path).open("rb", buffering=0) as file:
            end = os.fstat(file.fileno()).st_size
            while count := file.readinto(memoryview(self._buffer)[kept:]):
                have, at = kept + count, 0
                while have - at >= _HEADER:
                    size = _sizes(self._buffer, at)[0]
                    if not _HEADER <= size <= end:
                        raise failure("KSTORE_CORRUPT_BATCH", f"a batch of {size} bytes", tp, file=path)
                    if have - at < size:
                        break
                    at += size
                if at:
                    yield memoryview(self._buffer)[:at]
                kept = have - at
                rest = self._buffer[at:have]
                if kept >= _HEADER and size > len(self._buffer):
                    self._buffer = bytearray(size)
                self._buffer[:kept] = rest


def _sizes(batches: bytearray | memoryview, at: int) -> tuple[int, int]:
    """The bytes and the records of the batch at this place."""
    (length,) = _INT.unpack_from(batches, at + 8)
    (last,) = _INT.unpack_from(batches, at + 23)
    return length + 12, last + 1
