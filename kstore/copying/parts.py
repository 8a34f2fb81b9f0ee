"""Which bytes of which segments a copy of a range of offsets takes. Nothing here reads more than indexes and
headers."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kstore.engine.record.batch import RecordBatch
    from kstore.engine.segment.segment import Segment


class Part(NamedTuple):
    """The bytes `position` to `end` of a segment, to become the segment of a base offset. `cut`: the batch
    behind them, of which only the records before the end of the range are wanted."""

    segment: Segment
    position: int
    end: int
    base_offset: int
    cut: RecordBatch | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole segment."""
        return (
            (self.position, self.end) == (0, self.segment.size)
            and self.base_offset == self.segment.base_offset
            and self.cut is None
        )


def parts_of(segments: Sequence[Segment], start: int, stop: int, log_end_offset: int) -> Iterator[Part]:
    """The parts of the segments of a log that hold the offsets start to stop (exclusive). The first one may
    begin with a batch that holds `start`. CorruptRecordError, OSError."""
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        upper = log_end_offset if is_last else segments[at + 1].base_offset
        if (upper <= start and not is_last) or (segment.base_offset >= stop and stop < log_end_offset):
            continue
        position, end, base, cut = 0, segment.size, segment.base_offset, None
        if base < start:
            first = segment.translate(start)
            if first is None and not is_last:
                continue  # compaction has left nothing there
            position = segment.size if first is None else first.position
            if first is None or position or first.base_offset > start:
                base = start if first is None else min(first.base_offset, start)
        if stop < upper:
            behind = segment.translate(stop)
            if behind is not None:
                end = max(behind.position, position)
                if behind.base_offset < stop and behind.position >= position:
                    cut = segment.batch_at(behind.position)
        yield Part(segment, position, end, base, cut)
