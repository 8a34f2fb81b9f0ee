"""A log in splits that can be read side by side."""

from __future__ import annotations

from kstore.errors import CorruptRecordError
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstore.engine.segment.segment import Segment

SPLIT_BYTES = 4 << 20
_LATEST = (1 << 63) - 1  # a timestamp


class ScanSplit(NamedTuple):
    """Bytes of one segment, from a batch to a batch as far as the index is right; end -1 is the end of the
    log."""

    segment_at: int
    position: int
    end: int


def _ends_early(segment: Segment, first: int, stop: int) -> bool:
    """Whether bytes that are no batch are left at the end of a log, though offsets that are wanted should be
    there."""
    end = segment.read_end()
    return max(end.next_offset, first) < stop and end.tail_bytes > 0


def divide(
    segments: tuple[Segment, ...], start: int, stop: int, since: int | None, rows: int
) -> Iterator[ScanSplit]:
    """A log in splits that begin where an index says that batches begin. Whether they do shows when the split
    before has been read: it must end there. A split has a multiple of `rows` records, or a few less, so that
    no small batch of columns is left over."""
    since = -1 if since is None else min(max(since, -1), _LATEST)
    for at, segment in enumerate(segments):
        if segment.base_offset >= stop:
            return
        first, position, end = max(start, segment.base_offset), 0, segment.size
        try:
            begin = segment.scan_start(start, since)
            if begin is None:
                if at + 1 == len(segments) and _ends_early(segment, start, stop):
                    yield ScanSplit(at, segment.read_end().position, segment.size)
                continue
            first, position = begin
            if stop < segment.end_offset:
                located = segment.translate(stop)
                if located is not None:
                    end = max(position, located.position + located.size)
        except CorruptRecordError:
            position, end = 0, segment.size  # the walk says it better
        index, last = segment.offset_index, first - 1
        while position < end:
            border = index.fetch_upper_bound(position, SPLIT_BYTES)
            if border is None or not position < border.position < end:  # its sums wrap near 2 GiB
                break
            offset, until = border
            if whole := (offset - last) // rows * rows:
                nearer = index.lookup(last + whole)
                if nearer[1] > position:
                    offset, until = nearer
            yield ScanSplit(at, position, until)
            position, last = until, index.lookup(offset - 1)[0]
        if position < end:
            yield ScanSplit(at, position, end)
