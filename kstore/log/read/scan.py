"""Scans: the records of a log as Arrow columns."""

from __future__ import annotations

from collections.abc import Mapping

from kstore.arguments import elements
from kstore.engine.scan.column_builder import ColumnBuilder, Predicate
from kstore.engine.scan.column_scanner import ColumnScanner
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.read.arrow_stream import ArrowStream
from kstore.log.read.parallel_scan import ParallelScan
from kstore.log.read.scan_splits import ScanSplit, divide
from kstore.log.threads.one_thread import Iterated, OneThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kstore.engine.columns.array import ColumnBatch
    from kstore.engine.io.traffic import Traffic
    from kstore.engine.scan.batch_reader import Skipped
    from kstore.engine.segment.segment import Segment

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
Header = str | tuple[str, bytes | None] | Mapping[str, bytes | None]


class Wanted(NamedTuple):
    """What a scan is asked for: rows, how they come, and which."""

    columns: tuple[str, ...]
    batch_rows: int
    batch_bytes: int
    views: bool = False
    since: int | None = None
    until: int | None = None
    key: bytes | None = None
    key_prefix: bytes | None = None
    header: Header | None = None
    in_order: bool = False
    on_error: str = "raise"
    text: tuple[str, ...] = ()
    datetimes: bool = False


class Scan(ArrowStream):
    """Records as Arrow columns: an iterable of ColumnBatch objects, and an Arrow stream. log.scan() makes
    one.

    pyarrow.table(scan), Polars and DuckDB take it. Each iteration or export reads the log again, as
    it was when the scan was made. `skipped` lists what the last iteration left out because of
    on_error="skip".
    """

    def __init__(
        self,
        segments: tuple[Segment, ...],
        start: int,
        stop: int,
        log_end_offset: int,
        aborted: list[tuple[int, int, int]] | None,
        wanted: Wanted,
        threads: int,
        traffic: Traffic | None,
        *,
        ends_at_change: bool = False,
    ) -> None:
        self._segments = segments
        self._start = start
        self._stop = stop
        self._log_end_offset = log_end_offset
        self._aborted = aborted
        self._wanted = wanted
        self._threads = threads
        self._traffic = traffic
        self._ends_at_change = ends_at_change
        self._scanner: ColumnScanner | None = None
        self.progress: Callable[[int], object] | None = None  # gets bytes_passed, if threads=1
        self._predicate = Predicate(
            start, stop, wanted.since, wanted.until, wanted.key, wanted.key_prefix, wanted.header
        )
        self._schema = self._rows().schema

    def _rows(self) -> ColumnBuilder:
        w = self._wanted
        return ColumnBuilder(w.columns, w.batch_rows, w.batch_bytes, w.views, w.text, w.datetimes)

    def _begin(self, split: ScanSplit, after: int) -> ColumnScanner:
        """A scanner of a split; `after` is the last offset before it, or -1."""
        # a split lies in one segment; the one behind it says that it is not the last
        until = split.segment_at + 2 if split.end >= 0 else len(self._segments)
        scanner = ColumnScanner(
            self._segments[split.segment_at : until],
            self._start,
            self._stop,
            first_position=split.position,
            end_offset=self._log_end_offset,
            aborted=self._aborted,
            on_error=self._wanted.on_error,
            traffic=self._traffic,
            ends_at_change=self._ends_at_change,
        )
        return scanner.configure(
            self._rows(), self._predicate, split_end=split.end, after=after, in_order=self._wanted.in_order
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self._wanted.columns

    def __iter__(self) -> Iterator[ColumnBatch]:
        # markers change what later batches mean, and damage moves the place to go on from: one thread for
        # those
        if self._threads > 1 and not self._aborted and self._wanted.on_error == "raise":
            w = self._wanted
            splits = divide(self._segments, self._start, self._stop, w.since, w.batch_rows)
            scan = ParallelScan(splits, self._begin, self._threads, 4 * w.batch_bytes)
            return OneThread(Iterated(), lambda: iter(scan))
        self._scanner = self._begin(ScanSplit(0, -1, -1), -1)
        progress = self.progress
        if progress is not None:
            self._scanner.on_pause = lambda: progress(self.bytes_passed)
        return self._scanner

    @property
    def skipped(self) -> list[Skipped]:
        """What the last iteration with on_error="skip" has left out so far."""
        return [] if self._scanner is None else list(self._scanner.skipped)

    @property
    def size(self) -> int:
        """Size in bytes of the segments that the scan may read."""
        return sum(segment.size for segment in self._segments)

    @property
    def bytes_passed(self) -> int:
        """How many bytes of those segments the last iteration has read or passed by. For a progress bar; with
        threads=1 only.
        """
        if self._scanner is None:
            return 0
        at, position = self._scanner.place
        at = max(at, 0)
        return sum(segment.size for segment in self._segments[:at]) + position

    def __repr__(self) -> str:
        directory = self._segments[0].directory if self._segments else "an empty log"
        offsets = f"offsets {self._start} to {self._stop} (exclusive)"
        return f"<Scan of {directory}: {offsets}, columns {', '.join(self.columns)}>"


def checked_columns(columns: Iterable[str] | None) -> tuple[str, ...]:
    """The columns wanted, by default all that a Record has."""
    if columns is None:
        return COLUMNS
    if isinstance(columns, str):
        raise TypeError(f"columns must be a list of names, not one str: columns=[{columns!r}]")
    names = elements("columns must be a list of names", columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns must be a list of names, not of {name!r}")
    return tuple(map(str, names))  # of NumPy's, too


def checked_text(columns: Iterable[str]) -> tuple[str, ...]:
    """The columns to read as text: key, value or both."""
    names = elements("text must be a list of key and value", columns)
    for name in names:
        if name not in ("key", "value"):
            raise ValueError(f"text is a list of key and value, not of {name!r}")
    return names
