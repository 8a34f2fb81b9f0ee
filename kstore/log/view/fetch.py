"""The stored bytes of a view from an offset on, as a broker's fetch finds them (spec 7.1 to 7.3)."""

from __future__ import annotations

from kstore.arguments import ISOLATION, any_integer, choice, integer
from kstore.engine.segment.segment import start_of
from kstore.errors import CorruptFileError, CorruptRecordError, OffsetOutOfRangeError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.read.offset_lookup import check_complete, check_inside, raise_told
from kstore.log.read.slice import Slice
from kstore.log.read.span import Span

if TYPE_CHECKING:
    from kstore.engine.segment.segment import Located, Segment
    from kstore.log.recovery.loader import Loaded
    from kstore.log.view.log_view import LogView


class Fetch:
    """A read of stored bytes, all of one moment of a log. It goes up to an offset: the end of the log, or for
    readers of committed records the beginning of the batch that holds the last stable offset.

    OffsetOutOfRangeError, TypeError, ValueError.
    """

    def __init__(self, view: LogView, offset: int, max_bytes: int, isolation: str) -> None:
        self._view = view
        self._max_bytes = integer("max_bytes", max_bytes)
        self._is_committed = choice("isolation", isolation, ISOLATION) == "read_committed"
        self._offset = offset = any_integer("offset", offset)
        self._now = now = view.for_reading()
        end = now.log_end_offset
        if not now.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(offset, now.log_start_offset, end)
        bound = min(view.last_stable_offset(), end) if self._is_committed else end
        self._stop, self._stop_at, self._stop_position = bound, len(now.segments), 0
        if bound < end:
            self._stop, self._stop_at, self._stop_position = _position_of(now, bound)

    def slice(self, *, min_one_message: bool, whole_batches: bool, on_error: str) -> Slice:
        """The bytes in one segment. CorruptFileError."""
        return self._slice(self._offset, self._max_bytes, min_one_message, whole_batches, on_error)

    def span(self, *, min_one_message: bool, whole_batches: bool) -> Span:
        """The bytes over as many segments as that takes. CorruptFileError."""
        offset, max_bytes = self._offset, self._max_bytes
        slices: list[Slice] = []
        last: Segment | None = None
        while True:
            found = self._slice(offset, max_bytes, min_one_message, whole_batches, "raise")
            segment = found.segment
            if segment is None or found.size == 0:
                break
            if last is not None and segment.base_offset <= last.base_offset:
                break  # batches of the last one reach into the next: reading on from there raises
            slices.append(found)
            last = segment
            max_bytes -= found.size
            # on with the next segment, if this one is exhausted
            if (
                max_bytes <= 0
                or found.position + found.size < segment.size
                or segment.end_offset >= self._stop
            ):
                break
            offset = max(offset, segment.end_offset)
            min_one_message = False
        return Span(slices)

    def _slice(
        self, offset: int, max_bytes: int, min_one_message: bool, whole_batches: bool, on_error: str
    ) -> Slice:
        try:
            found = self._found(offset, max_bytes, min_one_message, whole_batches, on_error)
            if found is None and on_error == "raise" and offset < self._stop:
                check_complete(self._now)
            return self._empty(offset) if found is None else found
        except CorruptFileError as e:
            raise_told(self._now.segments, e, offset)

    def _found(
        self, offset: int, max_bytes: int, min_one_message: bool, whole_batches: bool, on_error: str
    ) -> Slice | None:
        """The slice from the batch that holds `offset`, or from the next one; None if there is none."""
        now = self._now
        segments = now.segments
        if offset >= self._stop:
            return None
        for at in range(start_of(segments, offset), min(self._stop_at + 1, len(segments))):
            segment = segments[at]
            located = segment.translate(offset)
            if located is None:
                continue
            check_inside(now, segment, located.base_offset)
            size = max(max_bytes, located.size) if min_one_message else max_bytes
            end_position = self._stop_position if at == self._stop_at else segment.size
            size = max(0, min(size, end_position - located.position))
            if whole_batches:
                size = _whole(segment, located, size)
            if self._view.traffic is not None:
                self._view.traffic.add(3, size)
            return Slice(
                segment,
                offset,
                located.position,
                size,
                first_batch_size=located.size,
                aborted=self._aborted(at, offset, located.position, size) if self._is_committed else None,
                stop_offset=self._stop,
                end_offset=now.log_end_offset,
                on_error=on_error,
            )
        return None

    def _empty(self, offset: int) -> Slice:
        now = self._now
        if not now.segments:
            return Slice(None, offset, 0, 0)
        _, at, position = _position_of(now, offset)
        return Slice(now.segments[at], offset, position, 0, aborted=[] if self._is_committed else None)

    def _aborted(self, at: int, offset: int, position: int, size: int) -> list[tuple[int, int, int]]:
        """(producer id, first offset, offset of the marker) of the aborted transactions that these bytes may
        hold (spec 7.2)."""
        segments = self._now.segments
        bound = segments[at].offset_index.fetch_upper_bound(position, size)
        if bound is not None:
            upper = bound.offset
        else:
            upper = segments[at + 1].base_offset if at + 1 < len(segments) else self._now.log_end_offset
        found = self._view.transactions().aborted(segments[at:], offset, upper)
        return [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found]


def _position_of(now: Loaded, offset: int) -> tuple[int, int, int]:
    """(base offset, index of the segment, position) of the batch that holds `offset`, or of the next, or the
    end."""
    segments = now.segments
    for at in range(start_of(segments, offset), len(segments)):
        located = segments[at].translate(offset)
        if located is not None:
            return located.base_offset, at, located.position
    return now.log_end_offset, len(segments) - 1, segments[-1].size


def _whole(segment: Segment, located: Located, size: int) -> int:
    """How many of these bytes are whole batches. CorruptRecordError."""
    until = located.position + size
    whole = segment.whole_until(located.position, until) - located.position
    if 0 < whole < located.size or (whole == 0 and located.position + located.size <= until):
        raise CorruptRecordError(
            "size of a batch",
            file=segment.path,
            position=located.position,
            offset=located.base_offset,
            expected=f"at most {whole}, after which the index has another batch",
            found=located.size,
        )
    return whole
