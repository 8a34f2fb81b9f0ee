"""Where the records of a key are: segment by segment, as far as their indexes of keys do not tell."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, LogChangedError
from kstore.log.read.key_index import ABSENT, UNKNOWN, index_of
from kstore.log.read.scan import Scan
from kstore.log.recovery.loader import Loaded

# from one offset to another: the column of offsets of records with the key
Scanned = Callable[[int, int], Scan]


class Readable(Protocol):
    """A log from which a record is read."""

    path: str

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def get(self, offset: int) -> Record: ...
    def batches(self, start: int | None, stop: int | None) -> Iterable[RecordBatch]: ...


# the transactions of these segments that were aborted, and have records from one offset to another
Aborted = Callable[[tuple[Segment, ...], int, int], Sequence[object]]


def given(key: bytes | None) -> bytes:
    """None would stand for every key. TypeError."""
    if key is None:
        raise TypeError("key is bytes, not None")
    return key


def last_record(
    now: Loaded,
    key: bytes,
    end: int,
    aborted: Aborted | None,
    scan: Callable[[Loaded, bytes, bool, int, int], Scan],
) -> tuple[Record | None, int]:
    """The last record of a key below `end`, and its offset; -1 if there is none. The record is None if it was
    not read yet. `aborted`: for readers of committed records. `end` is at most the last stable offset then,
    of a moment before `now`."""
    segments, start = now.segments, now.log_start_offset
    at = len(segments)
    newest = segments[-1] if segments else None
    for segment in reversed(segments):
        at -= 1
        if segment.end_offset <= start:
            break
        if segment is newest and segment.size == 0:
            continue
        found = _find(segment, key, start, segment is not newest)
        if isinstance(found, Record):
            record, offset = found, found.offset
        elif found == ABSENT:
            continue
        elif found == UNKNOWN:
            record, offset = None, start
        else:
            record, offset = segment.get(found), found
        if offset < start:
            break  # where it was deleted, and so was all before
        if (
            record is not None
            and record.key == key
            and record.offset == offset < end
            and (aborted is None or not aborted(segments[at:], offset, offset + 1))
        ):
            return record, offset
        rest = [
            int(batch.column("offset").values[-1])
            for batch in scan(
                now, key, aborted is not None, segment.base_offset, min(segment.end_offset, end)
            )
            if len(batch)
        ]
        if rest:
            return None, rest[-1]
    return None, -1


def record_at(log: Readable, offset: int, key: bytes) -> Record:
    """The record of a key at an offset where there is one. If the offsets of its batch do not rise, another
    may be found first."""
    record = log.get(offset)
    if record.offset == offset and record.key == key:
        return record
    for batch in log.batches(offset, offset + 1):
        for other in batch:
            if other.offset == offset and other.key == key:
                record = other
    if record.offset != offset or record.key != key:
        raise LogChangedError(
            log.path, offset, log.log_start_offset, log.log_end_offset, "others were written over it"
        )
    return record


def _find(segment: Segment, key: bytes, start: int, is_sealed: bool) -> Record | int:
    """What the index of a segment has for a key. `start` is where the log starts."""
    index = segment._keys or index_of(segment)
    file = index.file
    try:
        found = UNKNOWN if file is None else file.find(segment, key)
        return found if isinstance(found, Record) or found == ABSENT else index.find(segment, key, is_sealed)
    except CorruptFileError:
        if segment.base_offset >= start:
            raise
        return UNKNOWN  # what is damaged may lie where the log was deleted


def offsets_of(now: Loaded, key: bytes, scan: Scanned) -> Iterator[int]:
    """The offsets of all records of a key, in order."""
    for start, stop in _spans(now, key):
        for batch in scan(start, stop):
            yield from map(int, batch.column("offset").values)


def _spans(now: Loaded, key: bytes) -> Iterator[tuple[int, int]]:
    """From where to where records of a key may be."""
    begun = -1
    newest: Segment | None = now.segments[-1] if now.segments else None
    for segment in now.segments:
        if segment.end_offset <= now.log_start_offset:
            continue
        found = _find(segment, key, now.log_start_offset, segment is not newest)
        offset = found.offset if isinstance(found, Record) else found
        if offset == ABSENT:
            if begun >= 0:
                yield begun, segment.base_offset
            begun = -1
        elif begun < 0:
            begun = segment.base_offset
        if offset >= 0:
            yield begun, offset + 1
            begun = -1
    if begun >= 0:
        yield begun, now.log_end_offset
