"""Where the records of a key are: segment by segment, by their indexes of keys, or by a scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kstore.engine.record.batch import Record
from kstore.engine.scan.batch_reader import BatchReader
from kstore.engine.scan.column_builder import Predicate
from kstore.engine.segment.segment import Segment
from kstore.errors import CorruptFileError, LogChangedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.read.key_index import ABSENT, UNKNOWN, index_of
from kstore.log.read.offset_lookup import raise_told
from kstore.log.read.scan import Wanted
from kstore.log.view.log_view import count_record
from kstore.log.view.run import reader_of, scan_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from numpy.typing import NDArray

    from kstore.log.read.progress import ProgressCallback
    from kstore.log.recovery.loader import Loaded
    from kstore.log.view.log_view import LogView

# the transactions of these segments that were aborted, and have records from one offset to another
Aborted = Callable[[tuple[Segment, ...], int, int], Sequence[object]]

_BATCH_ROWS, _BATCH_BYTES = 1 << 14, 4 << 20  # of a scan


def checked_key(key: bytes | None) -> bytes:
    """A key, as a scan takes it, as bytes. TypeError."""
    if key is None:  # it would stand for every key
        raise TypeError("key is bytes, not None")
    Predicate(0, 0, None, None, key, None, None)
    return bytes(key)


def last_record(
    log: LogView,
    now: Loaded,
    key: bytes,
    end: int,
    aborted: Aborted | None,
    progress: ProgressCallback | None,
) -> Record | None:
    """The last record of a key below `end` in a snapshot of a log; None if there is none. `aborted`: for
    readers of committed records. `end` is at most the last stable offset then, of a moment before `now`.
    CorruptFileError."""
    segments, start = now.segments, now.log_start_offset
    isolation = "read_uncommitted" if aborted is None else "read_committed"
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
            count_record(log.traffic, record)
            return record
        view, stop = log.view(now), min(segment.end_offset, end)
        passed = (each for each in segments if each.base_offset >= stop)
        last = -1
        for offsets in _scanned(view, key, isolation, segment.base_offset, stop, passed, progress):
            last = int(offsets[-1])
        if last >= 0:
            return record_at(view, last, key)
    return None


def history_of(
    view: LogView, key: bytes, isolation: str, progress: ProgressCallback | None
) -> Iterator[Record]:
    """The records of a key in a view, in order. CorruptFileError, LogChangedError."""
    now = view.snapshot
    try:
        for start, stop in _spans(now, key):
            passed = (segment for segment in now.segments if segment.end_offset <= start)
            for offsets in _scanned(view, key, isolation, start, stop, passed, progress):
                for offset in map(int, offsets):
                    yield record_at(view, offset, key)
    except CorruptFileError as e:
        raise_told(now.segments, e)


def record_at(view: LogView, offset: int, key: bytes) -> Record:
    """The record of a key at an offset where there is one. If the offsets of its batch do not rise, another
    may be found first."""
    record = view.get(offset)
    if record.offset == offset and record.key == key:
        return record
    for batch in reader_of(BatchReader, view, offset, offset + 1, "read_uncommitted", "raise"):
        for other in batch:
            if other.offset == offset and other.key == key:
                record = other
    if record.offset != offset or record.key != key:
        raise LogChangedError(
            view.path, offset, view.log_start_offset, view.log_end_offset, "others were written over it"
        )
    return record


def _scanned(
    view: LogView,
    key: bytes,
    isolation: str,
    start: int,
    stop: int,
    passed: Iterable[Segment],
    progress: ProgressCallback | None,
) -> Iterator[NDArray[Any]]:
    """The offsets of the records of a key in a range, by a scan, a few at a time. `progress` is called with
    how many bytes of the whole log were read, those of the segments that were `passed` included."""
    wanted = Wanted(("offset",), _BATCH_ROWS, _BATCH_BYTES, key=key)
    scan = scan_of(view, wanted, start, stop, isolation)
    if progress is not None:
        before, total = (sum(each.size for each in group) for group in (passed, view.snapshot.segments))
        scan.progress = lambda done: progress(before + done, total)
    for batch in scan:
        if len(batch):
            yield batch.column("offset").values


def _find(segment: Segment, key: bytes, start: int, is_sealed: bool) -> Record | int:
    """What the index of a segment has for a key. `start` is where the log starts."""
    index = segment.files.key_index or index_of(segment)
    file = index.file
    try:
        found = UNKNOWN if file is None else file.find(segment, key)
        return found if isinstance(found, Record) or found == ABSENT else index.find(segment, key, is_sealed)
    except CorruptFileError:
        if segment.base_offset >= start:
            raise
        return UNKNOWN  # what is damaged may lie where the log was deleted


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
