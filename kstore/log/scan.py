"""Scans: the records of a log as Arrow columns."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from kstore.engine.columns import ColumnBatch, Field
from kstore.engine.export import schema_capsule, stream_capsule
from kstore.engine.predicate import Predicate
from kstore.engine.reader import Skipped
from kstore.engine.rows import Rows
from kstore.engine.scanner import Scanner
from kstore.engine.segment import Segment
from kstore.errors import CorruptRecordError

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
Header = str | tuple[str, bytes | None] | Mapping[str, bytes | None]

PART_BYTES = 4 << 20  # of a log, for one thread
MOST_BATCHES = 64  # of a part, before they are asked for
AHEAD = 1  # parts beside one for each thread: more would not fit the processor's cache


_Begun: TypeAlias = Future[tuple[Scanner, list[ColumnBatch]]]


class Wanted(NamedTuple):
    """What a scan is asked for: rows, how they come, and which."""

    columns: tuple[str, ...]
    batch_rows: int
    batch_bytes: int
    views: bool
    since: int | None
    until: int | None
    key: bytes | None
    key_prefix: bytes | None
    header: Header | None
    in_order: bool
    on_error: str


class Part(NamedTuple):
    """Bytes of one segment, from a batch to a batch as far as the index is right."""

    segment_at: int
    position: int
    end: int


class Scan:
    """An iterable of ColumnBatch objects, which also exports itself as an Arrow stream: pyarrow.table(scan), Polars,
    DuckDB and pandas take it. Every iteration, and every export, reads the log anew, as it was when the scan was made.

    `skipped` lists what the last iteration with on_error="skip" left out.
    """

    def __init__(
        self,
        segments: tuple[Segment, ...],
        start: int,
        stop: int,
        aborted: list[tuple[int, int]] | None,
        wanted: Wanted,
        threads: int,
    ) -> None:
        self._segments = segments
        self._start = start
        self._stop = stop
        self._aborted = aborted
        self._wanted = wanted
        self._threads = threads
        self._scanner: Scanner | None = None
        self._predicate = Predicate(
            start, stop, wanted.since, wanted.until, wanted.key, wanted.key_prefix, wanted.header
        )
        self._schema = self._rows().schema

    def _rows(self) -> Rows:
        w = self._wanted
        return Rows(w.columns, w.batch_rows, w.batch_bytes, w.views)

    def _scanner_from(self, at: int, position: int = -1, end: int = -1, *, after: int = -1) -> Scanner:
        """A scanner from a segment on; of the bytes from `position` up to `end` alone, where that is given."""
        scanner = Scanner(
            self._segments[at:],
            self._start,
            self._stop,
            first_position=position,
            aborted=self._aborted,
            on_error=self._wanted.on_error,
        )
        return scanner.configure(
            self._rows(), self._predicate, part_end=end, after=after, in_order=self._wanted.in_order
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return self._wanted.columns

    @property
    def schema(self) -> Field:
        """The type of the batches, as a struct."""
        return self._schema

    def __iter__(self) -> Iterator[ColumnBatch]:
        # markers change what later batches mean, and damage moves the place to go on from: one thread for those
        if self._threads > 1 and not self._aborted and self._wanted.on_error == "raise":
            return self._in_parts()
        self._scanner = self._scanner_from(0)
        return self._scanner

    @property
    def skipped(self) -> list[Skipped]:
        """What the last iteration with on_error="skip" has left out so far."""
        return [] if self._scanner is None else list(self._scanner.skipped)

    @property
    def size(self) -> int:
        """Bytes of the segments that may be read."""
        return sum(segment.size for segment in self._segments)

    @property
    def bytes_passed(self) -> int:
        """How many of them the last iteration on one thread has behind it."""
        if self._scanner is None:
            return 0
        at, position = self._scanner.place
        at = max(at, 0)
        return sum(segment.size for segment in self._segments[:at]) + position

    # ---- several threads ------------------------------------------------------------------------------------------

    def _parts(self) -> Iterator[Part]:
        """The log in parts that begin where an index says that batches begin. Whether they do shows when the part
        before has been read: it must end there."""
        since = self._wanted.since
        for at, segment in enumerate(self._segments):
            if segment.base_offset >= self._stop:
                return
            position, end = 0, segment.size
            first = self._start
            try:
                if since is not None and 0 <= since < 1 << 63:
                    found = segment.find_timestamp(since, first)
                    if found is None:
                        continue
                    first = found.offset
                if first > segment.base_offset:
                    located = segment.translate(first)
                    if located is None:
                        continue
                    position = located.position
                if self._stop < segment.end_offset:
                    located = segment.translate(self._stop)
                    if located is not None:
                        end = max(position, located.position + located.size)
            except CorruptRecordError:
                position, end = 0, segment.size  # the walk says it better
            while position < end:
                border = segment.offset_index.fetch_upper_bound(position, PART_BYTES)
                if border is None or border.position >= end:
                    break
                yield Part(at, position, border.position)
                position = border.position
            if position < end:
                yield Part(at, position, end)

    def _first_of(self, part: Part) -> tuple[Scanner, list[ColumnBatch]]:
        """What a part begins with, no more than fits a few batches, and the scanner to get the rest from."""
        scanner = self._scanner_from(part.segment_at, part.position, part.end)
        found: list[ColumnBatch] = []
        room = 4 * self._wanted.batch_bytes
        with suppress(Exception):  # asked again, the scanner raises it again, when its turn has come
            while room > 0 and len(found) < MOST_BATCHES and (batch := next(scanner, None)) is not None:
                found.append(batch)
                room -= batch.nbytes
        return scanner, found

    def _help(self, running: deque[tuple[Part, _Begun]]) -> None:
        """Decodes what nobody has begun, as long as the part that is wanted next is not there."""
        for at, (part, future) in enumerate(running):
            if running[0][1].done():
                return
            if future.cancel():
                done: _Begun = Future()
                done.set_result(self._first_of(part))
                running[at] = part, done

    def _in_parts(self) -> Iterator[ColumnBatch]:
        parts = self._parts()
        running: deque[tuple[Part, _Begun]] = deque()
        # who asks for batches is a thread too
        executor = ThreadPoolExecutor(self._threads - 1, "kstore-scan")
        last = -1
        try:
            while True:
                while len(running) < AHEAD + self._threads:
                    part = next(parts, None)
                    if part is None:
                        break
                    running.append((part, executor.submit(self._first_of, part)))
                if not running:
                    return
                self._help(running)
                part, future = running.popleft()
                scanner, found = future.result()
                del future
                first = scanner.reached[2]
                if 0 <= first <= last:  # out of order from part to part: one reader for the rest tells
                    yield from self._scanner_from(part.segment_at, part.position, after=last)
                    return
                while found:
                    yield found.pop(0)
                yield from scanner
                position, reached, first = scanner.reached
                if scanner.ended:
                    return
                if first >= 0:
                    last = reached
                if position != part.end:  # the index was wrong: the parts behind begin at no batch
                    yield from self._scanner_from(part.segment_at, position, after=last)
                    return
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    # ---- Arrow ----------------------------------------------------------------------------------------------------

    def __arrow_c_schema__(self) -> object:
        return schema_capsule(self._schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with a stream of the batches. `requested_schema` is not looked at, as Arrow permits."""
        return stream_capsule(self._schema, iter(self))

    def __repr__(self) -> str:
        return f"<scan of {self._start} .. {self._stop}: {', '.join(self.columns)}>"


def checked_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """The columns wanted, by default all that a Record has."""
    if columns is None:
        return COLUMNS
    if isinstance(columns, str):
        raise TypeError("columns is a sequence of names, not one str")
    return tuple(columns)
