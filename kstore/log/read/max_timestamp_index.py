"""Which segment is the first to reach a timestamp (spec 7.6)."""

from __future__ import annotations

from _thread import allocate_lock
from bisect import bisect_left

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kstore.engine.segment.segment import Segment


class MaxTimestampIndex:
    """The largest timestamp of the segments up to each of some, asked of the segments only as far as needed,
    and once unless two calls ask at a time."""

    def __init__(self, segments: tuple[Segment, ...], known: list[int] | None = None) -> None:
        self.segments = segments
        self._known = known or []
        self._asking = allocate_lock()

    def first(self, timestamp: int) -> int:
        """The index of the first segment whose largest timestamp is at least this; as many as there are for
        none."""
        known = self._known
        at = bisect_left(known, timestamp)
        if at < len(known):
            return at
        mine = self._asking.acquire(blocking=False)
        try:
            if not mine:  # the holder may be this very thread, interrupted: to wait would take for ever
                known = known.copy()
            for at in range(len(known), len(self.segments)):
                segment = self.segments[at]
                largest = segment.largest_timestamp
                if segment.damage is not None:  # it is the largest of a part only
                    raise segment.damage.with_traceback(None)
                known.append(max(largest, known[-1]) if known else largest)
                if known[-1] >= timestamp:
                    break
        finally:
            if mine:
                self._asking.release()
        return bisect_left(known, timestamp)

    def moved_to(self, segments: tuple[Segment, ...]) -> MaxTimestampIndex:
        """An index for other segments. It keeps what is known of the first ones, if they are these objects.

        A log changes at its ends only: two views of it share their segments up to some place, and none
        behind it."""
        low, high = 0, min(len(self._known), len(segments))
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle] is segments[middle]:
                low = middle + 1
            else:
                high = middle
        return MaxTimestampIndex(segments, self._known[:low])
