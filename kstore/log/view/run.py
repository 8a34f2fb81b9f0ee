"""Readers of a range of a view."""

from __future__ import annotations

from kstore.arguments import ISOLATION, choice, integer
from kstore.engine.segment.segment import start_of
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.later import later

if TYPE_CHECKING:
    from typing import TypeVar

    from kstore.engine.scan.batch_reader import BatchReader, RecordReader
    from kstore.engine.segment.segment import Segment
    from kstore.log.read.page_cache import PageCache
    from kstore.log.read.scan import Scan, Wanted
    from kstore.log.view.log_view import LogView

    _Reader = TypeVar("_Reader", bound=BatchReader | RecordReader)
else:
    later(globals(), {"kstore.log.read.scan": "Scan"})


class Range(NamedTuple):
    """Offsets of a view, the segments that hold them, and for readers of committed records the aborted
    transactions as (producer id, first offset, offset of the marker)."""

    segments: tuple[Segment, ...]
    start: int
    stop: int
    aborted: list[tuple[int, int, int]] | None


def range_of(view: LogView, start: int | None, stop: int | None, isolation: str) -> Range:
    """The offsets from `start` to `stop` (exclusive) as far as a view holds them; None: from or to its
    end."""
    now = view.for_reading()
    committed = choice("isolation", isolation, ISOLATION) == "read_committed"
    start = now.log_start_offset if start is None else max(integer("start", start), now.log_start_offset)
    stop = now.log_end_offset if stop is None else min(integer("stop", stop), now.log_end_offset)
    at = start_of(now.segments, start)
    aborted = None
    if committed:
        stop = min(stop, view.last_stable_offset())
        # only those that end at `start` or later: readers forget a producer at its marker, and see no
        # earlier one
        found = view.transactions().aborted(now.segments[at:], start, stop)
        aborted = [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found]
    # else the first batch would be looked at, in whose midst `start` may be
    return Range(now.segments[at:] if start < stop else (), start, stop, aborted)


def reader_of(
    kind: type[_Reader],
    view: LogView,
    start: int | None,
    stop: int | None,
    isolation: str,
    on_error: str,
    *,
    control: bool = False,
    pages: PageCache | None = None,
    ends_at_change: bool = False,
) -> _Reader:
    """An iterator of the records or batches of a range of a view. `ends_at_change`: see Reader."""
    segments, start, stop, aborted = range_of(view, start, stop, isolation)
    return kind(
        segments,
        start,
        stop,
        end_offset=view.snapshot.log_end_offset,
        on_error=on_error,
        control=control,
        aborted=aborted,
        pages=pages,
        traffic=view.traffic,
        ends_at_change=ends_at_change,
    )


def scan_of(
    view: LogView,
    wanted: Wanted,
    start: int | None,
    stop: int | None,
    isolation: str,
    threads: int = 1,
    *,
    ends_at_change: bool = False,
) -> Scan:
    """A range of a view as columns. `ends_at_change`: a file that is gone is no damage that is skipped."""
    segments, first, end, aborted = range_of(view, start, stop, isolation)
    return Scan(
        segments,
        first,
        end,
        view.snapshot.log_end_offset,
        aborted,
        wanted,
        threads,
        view.traffic,
        ends_at_change=ends_at_change,
    )
