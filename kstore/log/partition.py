"""One partition: a directory of segments, read as Kafka would read it."""

import os
import uuid
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, NoReturn, Self, TypeAlias, overload

from kstore.arguments import any_integer, choice, integer, moment, number
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.scan.batch_reader import BatchReader, RecordReader
from kstore.engine.segment.index import AbortedTxn
from kstore.engine.segment.segment import Located, OffsetAndTimestamp, Segment
from kstore.errors import CorruptFileError, CorruptRecordError, LogClosedError, OffsetOutOfRangeError
from kstore.log.files import checkpoints, layout
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.follow_source import DirectorySource, FollowSource
from kstore.log.follow.follower import Follower
from kstore.log.producers.states import ProducerState
from kstore.log.producers.transactions import Transactions
from kstore.log.read.max_timestamp_index import MaxTimestampIndex
from kstore.log.read.offset_lookup import (
    SPECIAL,
    check_complete,
    check_inside,
    find_special,
    find_time,
    raise_told,
    time_called,
)
from kstore.log.read.page_cache import CACHE, PageCache, Residency, residency_of
from kstore.log.read.scan import Header, Scan, Wanted, checked_columns
from kstore.log.read.slice import Slice
from kstore.log.read.span import Span
from kstore.log.recovery.loader import Loaded
from kstore.log.recovery.presence import require_partition
from kstore.log.recovery.refresh import LoadOptions, look, refreshed
from kstore.log.recovery.report import DataLossWarning, Recovery
from kstore.log.send.sending import Outlet, Sent

_Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
_OnError: TypeAlias = Literal["raise", "skip"]
_Cache: TypeAlias = Literal["keep", "drop"]
_TimeName: TypeAlias = Literal["earliest", "latest", "max", "max_timestamp", "earliest_local"]

_ISOLATION = ("read_uncommitted", "read_committed")
_ON_ERROR = ("raise", "skip")
_MAX_COUNT = 2**31 - 1
_TAIL = 61  # bytes at the end of a slice that are compared after it was sent
_FAR = 2**127  # bounds of time are compared only, and may lie beyond all timestamps
_base_offset = attrgetter("base_offset")


def _floor(segments: tuple[Segment, ...], offset: int) -> int:
    return bisect_right(segments, offset, key=_base_offset) - 1


def _position_of(now: Loaded, offset: int) -> tuple[int, int, int]:
    """(base offset, index of the segment, position) of the batch that holds `offset`, or of the next, or the end."""
    segments = now.segments
    for at in range(max(_floor(segments, offset), 0), len(segments)):
        located = segments[at].translate(offset)
        if located is not None:
            return located.base_offset, at, located.position
    return now.log_end_offset, len(segments) - 1, segments[-1].size


def _pages(cache: str) -> PageCache:
    choice("cache", cache, CACHE)
    return PageCache(drop=cache == "drop")


class _Bound(NamedTuple):
    """How far a read may go: to `offset`, which begins at `position` of the segment `at`."""

    now: Loaded
    committed: bool
    offset: int
    at: int
    position: int


class PartitionLog:
    """A partition directory opened for reading: a view of what it held when it was opened. Writes nothing, locks nothing.

    After an unclean stop the view is what Kafka would have after its recovery; `recovery` says what lies beyond.
    Thread-safe: nothing in it changes. The iterators that it makes are for one thread at a time each: RuntimeError for
    who asks for the next one while another thread does, and what that one gets is right.
    """

    _options = LoadOptions(None, None, None, 4096, 256 << 20, True)

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        clean: bool | None = None,
        recovery_point: int | None = None,
        log_start_offset: int | None = None,
        index_interval_bytes: int = 4096,
        max_decompressed_bytes: int = 256 << 20,
        recover: bool = True,
    ) -> None:
        if not (clean is None or isinstance(clean, bool)) or not isinstance(recover, bool):
            raise TypeError(
                f"clean is True, False or None, and recover True or False, not {clean!r} and {recover!r}"
            )
        if recovery_point is not None:
            recovery_point = integer("recovery_point", recovery_point)
        if log_start_offset is not None:
            log_start_offset = integer("log_start_offset", log_start_offset)
        index_interval_bytes = integer("index_interval_bytes", index_interval_bytes, 0, _MAX_COUNT)
        max_decompressed_bytes = integer("max_decompressed_bytes", max_decompressed_bytes)
        if clean is None and recovery_point is None and log_start_offset is None:
            require_partition(Path(path))
        self.path = fspath(path)
        self._options = LoadOptions(
            clean, recovery_point, log_start_offset, index_interval_bytes, max_decompressed_bytes, recover
        )
        self._loaded = look(Path(path), self._options)
        missing = self._loaded.recovery.missing
        if missing and recover:
            more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
            warnings.warn("; ".join(missing[:3]) + more, DataLossWarning, stacklevel=3)
        self._closed = False
        self._transactions: Transactions | None = None
        self._max_timestamps = MaxTimestampIndex(())

    # ---- what there is --------------------------------------------------------------------------------------------

    @property
    def topic_partition(self) -> TopicPartition | None:
        """Topic and partition by the directory's name; None for a directory that is not named so."""
        return layout.parse_directory(Path(self.path).resolve().name)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in order of their base offsets."""
        return self._now().segments

    def _now(self) -> Loaded:
        """The log at this moment: nothing in it changes, so who takes it once sees all of one moment."""
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        return self._loaded

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers may ask for; it may lie inside a segment, or inside a batch."""
        return self._now().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record would get."""
        return self._now().log_end_offset

    @property
    def recovery(self) -> Recovery:
        """What loading found that is not as a clean shutdown leaves it."""
        return self._loaded.recovery

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """(epoch, start offset) of every leader epoch known."""
        return self._now().leader_epochs.entries

    def _known_transactions(self) -> Transactions | None:
        return self._transactions

    def _read_transactions(self) -> Transactions:
        if self._transactions is None:
            loaded = self._loaded
            try:
                self._transactions = Transactions(self.path, loaded)
            except CorruptFileError as e:
                raise_told(loaded, e)
        return self._transactions

    def last_stable_offset(self) -> int:
        """Where readers of committed data must stop: the beginning of the oldest open transaction, or the end.

        The first call reads the headers from the newest producer snapshot on.
        """
        return self._read_transactions().last_stable_offset

    def producers(self) -> dict[int, ProducerState]:
        """The state of every producer id that the log remembers."""
        return self._read_transactions().producers.states

    def residency(self) -> list[Residency]:
        """How much of each segment is in the page cache now. OSError where the system does not tell."""
        return [residency_of(segment) for segment in self.segments]

    def topic_id(self) -> uuid.UUID | None:
        """The topic id in partition.metadata, None where there is no such file. CorruptCheckpointError."""
        try:
            return checkpoints.read_topic_id(Path(self.path, layout.METADATA))
        except FileNotFoundError:
            return None

    # ---- reading --------------------------------------------------------------------------------------------------

    def floor_segment(self, offset: int) -> int:
        """The index in `segments` of the one with the largest base offset <= `offset`; -1 if all lie above."""
        return _floor(self.segments, any_integer("offset", offset))

    def translate(self, offset: int) -> Located | None:
        """The batch in the floor segment of `offset` with the first last offset >= it, None past its end."""
        offset = integer("offset", offset)
        segments = self.segments
        at = _floor(segments, offset)
        return segments[at].translate(offset) if at >= 0 else None

    def read(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: _Isolation = "read_uncommitted",
        *,
        min_one_message: bool = True,
        whole_batches: bool = False,
        on_error: _OnError = "raise",
    ) -> Slice:
        """The bytes from the batch that holds `offset` on, at most `max_bytes` of one segment (spec 7.1).

        A batch larger than max_bytes comes whole when it is the first, unless min_one_message is false. With
        whole_batches the slice ends where a batch does. Reading at the log end offset gives an empty slice;
        OffsetOutOfRangeError below the start or above the end.
        """
        choice("on_error", on_error, _ON_ERROR)
        bound = self._bound(offset, max_bytes, isolation)
        try:
            return self._slice(bound, offset, max_bytes, min_one_message, whole_batches, on_error)
        except CorruptFileError as e:
            raise_told(bound.now, e, offset)

    def span(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: _Isolation = "read_uncommitted",
        *,
        min_one_message: bool = True,
        whole_batches: bool = True,
    ) -> Span:
        """The same over as many segments as max_bytes reaches into: slices of one moment, to be sent in one call."""
        bound = self._bound(offset, max_bytes, isolation)
        slices: list[Slice] = []
        while True:
            try:
                part = self._slice(bound, offset, max_bytes, min_one_message, whole_batches, "raise")
            except CorruptFileError as e:
                raise_told(bound.now, e, offset)
            if part.segment is None or part.size == 0:
                break
            slices.append(part)
            max_bytes -= part.size
            # on with the next segment, if this one is exhausted
            if (
                max_bytes <= 0
                or part.position + part.size < part.segment.size
                or part.segment.end_offset >= bound.offset
            ):
                break
            offset = max(offset, part.segment.end_offset)
            min_one_message = False
        return Span(slices)

    def send(
        self,
        sock: Outlet,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: _Isolation = "read_uncommitted",
        *,
        whole_batches: bool = True,
    ) -> Sent:
        """Sends what `span` gives to a socket, without copying it where that is possible; see Slice.send.

        To go on where a socket took only a part, keep the span, and send that from a position on.
        """
        return self.span(offset, max_bytes, isolation, whole_batches=whole_batches).send(sock)

    def _bound(self, offset: int, max_bytes: int, isolation: str) -> _Bound:
        """What a read from `offset` on may see, all of one moment."""
        integer("max_bytes", max_bytes)
        committed = self._is_committed(isolation)
        any_integer("offset", offset)
        now = self._now()
        end = now.log_end_offset
        if not now.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(offset, now.log_start_offset, end)
        bound = min(self.last_stable_offset(), end) if committed else end
        if bound < end:  # the bound becomes the beginning of the batch that holds it (spec 7.3)
            return _Bound(now, committed, *_position_of(now, bound))
        return _Bound(now, committed, bound, len(now.segments), 0)

    def _slice(
        self,
        bound: _Bound,
        offset: int,
        max_bytes: int,
        min_one_message: bool,
        whole_batches: bool,
        on_error: str,
    ) -> Slice:
        now, committed = bound.now, bound.committed
        segments = now.segments
        if offset < bound.offset:
            at = max(_floor(segments, offset), 0)
            while at < min(bound.at + 1, len(segments)):
                segment = segments[at]
                located = segment.translate(offset)
                if located is not None:
                    check_inside(now, located.base_offset)
                    size = max(max_bytes, located.size) if min_one_message else max_bytes
                    end_position = bound.position if at == bound.at else segment.size
                    size = max(0, min(size, end_position - located.position))
                    marks = [(located.position, segment.head(located.position))]
                    if whole_batches:
                        until = located.position + size
                        end, last = segment.whole_until(located.position, until)
                        size = end - located.position
                        if last > located.position:
                            marks.append((last, segment.head(last)))
                        if 0 < size < located.size or (
                            size == 0 and located.position + located.size <= until
                        ):
                            raise CorruptRecordError(
                                "size of a batch",
                                file=segment.path,
                                position=located.position,
                                offset=located.base_offset,
                                expected=f"at most {size}, after which the index has another batch",
                                found=located.size,
                            )
                    elif size > located.size:
                        last = max(located.position + size - _TAIL, located.position)
                        marks.append((last, segment.peek(last)))
                    aborted = self._aborted_in(now, at, offset, located.position, size) if committed else None
                    return Slice(
                        segment,
                        offset,
                        located.position,
                        size,
                        first_batch_size=located.size,
                        aborted=aborted,
                        stop_offset=bound.offset,
                        end_offset=now.log_end_offset,
                        on_error=on_error,
                        marks=marks,
                    )
                at += 1
        return self._empty(now, offset, committed)

    def from_file_start(self) -> "PartitionLog":
        """The same log with everything readable that its files still hold, below the log start offset too."""
        now = self._now()
        first = now.segments[0].base_offset if now.segments else now.log_start_offset
        return self._twin(replace(now, log_start_offset=min(first, now.log_start_offset)))

    def _twin(self, now: Loaded) -> "PartitionLog":
        """Another view of the same log, which goes its own way from here on."""
        twin = object.__new__(PartitionLog)
        twin.path = self.path
        twin._options = self._options
        twin._loaded = now
        twin._closed = False
        twin._transactions = self._known_transactions()
        twin._max_timestamps = MaxTimestampIndex(())
        return twin

    def _is_committed(self, isolation: str) -> bool:
        return choice("isolation", isolation, _ISOLATION) == "read_committed"

    def _empty(self, now: Loaded, offset: int, committed: bool) -> Slice:
        if not now.segments:
            return Slice(None, offset, 0, 0)
        _, at, position = _position_of(now, offset)
        aborted: list[tuple[int, int]] | None = [] if committed else None
        return Slice(now.segments[at], offset, position, 0, aborted=aborted)

    def _aborted_in(
        self, now: Loaded, at: int, offset: int, position: int, size: int
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that these bytes may hold (spec 7.2)."""
        segments = now.segments
        bound = segments[at].offset_index.fetch_upper_bound(position, size)
        if bound is not None:
            upper = bound.offset
        else:
            upper = segments[at + 1].base_offset if at + 1 < len(segments) else now.log_end_offset
        found = self._read_transactions().aborted(segments[at:], offset, upper)
        return [(txn.producer_id, txn.first_offset) for txn in found]

    def aborted_transactions(self, start: int, stop: int) -> list[AbortedTxn]:
        """The aborted transactions that may concern the offsets start .. stop, in the order of their markers.

        As Kafka's: from the segment that holds `start` on, so some may end before it (spec 10.4).
        """
        start, stop = integer("start", start), integer("stop", stop)
        now = self._now()
        at = max(_floor(now.segments, start), 0)
        return self._read_transactions().aborted(now.segments[at:], now.log_start_offset, stop)

    def get(self, offset: int) -> Record:
        """The first record of data at or after `offset`.

        OffsetOutOfRangeError if there is none, and for an offset below log_start_offset.
        """
        if type(offset) is not int:
            offset = any_integer("offset", offset)
        now = self._now()
        if now.log_start_offset <= offset < now.log_end_offset:
            segments = now.segments
            try:
                for at in range(max(_floor(segments, offset), 0), len(segments)):
                    record = segments[at].get(offset)
                    if record is not None:
                        check_inside(now, record.offset)
                        return record
                check_complete(now)
            except CorruptFileError as e:
                raise_told(now, e, offset)
        raise OffsetOutOfRangeError(offset, now.log_start_offset, now.log_end_offset)

    def records(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        control: bool = False,
        cache: _Cache = "keep",
    ) -> RecordReader:
        """An iterator of the records with start <= offset < stop; both default to the ends of the log.

        A range is cut to what the log holds, as that of a Python slice is: one that begins below log_start_offset begins
        there, and nothing tells of records that retention has deleted. `read`, `get`, `find` and `follow`, which ask for
        one place, raise OffsetOutOfRangeError for it.

        Transaction markers are left out unless `control` is true. on_error="skip" goes on at the next good batch and
        lists what it left out in `.skipped` of the iterator; "raise" raises CorruptRecordError. With cache="drop" the
        page cache is left as it was found: what the scan brought in goes out behind it.
        """
        now = self._now()
        segments, start, stop, aborted = self._range(now, start, stop, isolation)
        return RecordReader(
            segments,
            start,
            stop,
            end_offset=now.log_end_offset,
            on_error=on_error,
            control=control,
            aborted=aborted,
            pages=_pages(cache),
        )

    def batches(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        cache: _Cache = "keep",
    ) -> BatchReader:
        """The same for whole batches, control batches included: those that hold an offset of the range.

        The range is cut to what the log holds, as in `records`; the first batch may begin below it.
        """
        now = self._now()
        segments, start, stop, aborted = self._range(now, start, stop, isolation)
        return BatchReader(
            segments,
            start,
            stop,
            end_offset=now.log_end_offset,
            on_error=on_error,
            aborted=aborted,
            pages=_pages(cache),
        )

    def scan(
        self,
        columns: Sequence[str] | None = None,
        *,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        start: int | None = None,
        stop: int | None = None,
        key: bytes | None = None,
        key_prefix: bytes | None = None,
        header: Header | None = None,
        isolation: _Isolation = "read_uncommitted",
        batch_rows: int = 1 << 14,
        batch_bytes: int = 4 << 20,
        threads: int = 1,
        views: bool = False,
        in_order: bool = False,
        on_error: _OnError = "raise",
    ) -> Scan:
        """The records with start <= offset < stop and since <= timestamp < until, as columns; markers are left out.

        The range of offsets is cut to what the log holds, as in `records`: a start below log_start_offset is no error.
        An iterable of ColumnBatch objects and an Arrow stream: pyarrow.table(log.scan()), and so with Polars, DuckDB
        and pandas; no Arrow library is needed. `columns` are those of Record by default (offset, timestamp,
        timestamp_type, key, value, headers); also base_offset, last_offset, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, leader_epoch, records_count, attributes, codec, magic, crc, size
        and position of the record's batch.

        `since` and `until` are milliseconds since 1970, or datetimes with a time zone; of a datetime the microseconds
        are cut off. `key` and `key_prefix` compare bytes; `header` is a name, a (name, value) pair, or a mapping of such pairs that
        must all be there. A batch has at most batch_rows rows and about batch_bytes bytes, so memory is bounded.
        views=True: keys and values of more than 12 bytes are views of what was read, not copies, and keep that alive.
        threads=2 decodes two parts of the log at once and keeps the order. in_order=True says that timestamps rise
        from batch to batch: then the scan ends at the first batch that begins at `until` or later, where otherwise
        any later batch may hold an earlier record. Batches that end before `since` are passed by on their header's
        word, unread. Errors and on_error are those of `records`.
        """
        batch_rows = integer("batch_rows", batch_rows, 1, _MAX_COUNT)
        batch_bytes = integer("batch_bytes", batch_bytes, 1)
        threads = integer("threads", threads, 1, 64)
        choice("on_error", on_error, _ON_ERROR)
        since = None if since is None else moment("since", since, -_FAR, _FAR)
        until = None if until is None else moment("until", until, -_FAR, _FAR)
        wanted = Wanted(
            checked_columns(columns),
            batch_rows,
            batch_bytes,
            views,
            since,
            until,
            key,
            key_prefix,
            header,
            in_order,
            on_error,
        )
        now = self._now()
        segments, first, end, aborted = self._range(now, start, stop, isolation)
        return Scan(segments, first, end, now.log_end_offset, aborted, wanted, threads)

    def _range(
        self, now: Loaded, start: int | None, stop: int | None, isolation: str
    ) -> tuple[tuple[Segment, ...], int, int, list[tuple[int, int]] | None]:
        committed = self._is_committed(isolation)
        start = now.log_start_offset if start is None else max(integer("start", start), now.log_start_offset)
        stop = now.log_end_offset if stop is None else min(integer("stop", stop), now.log_end_offset)
        at = max(_floor(now.segments, start), 0)
        aborted = None
        if committed:
            stop = min(stop, self.last_stable_offset())
            # only those that end at `start` or later: readers forget a producer at its marker, and see no earlier one
            found = self._read_transactions().aborted(now.segments[at:], start, stop)
            aborted = [(txn.producer_id, txn.first_offset) for txn in found]
        return now.segments[at:], start, stop, aborted

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    # ---- finding --------------------------------------------------------------------------------------------------

    def find(
        self, *, offset: int | None = None, timestamp: int | datetime | _TimeName | None = None
    ) -> OffsetAndTimestamp | None:
        """Where a record lies, by offset or by time, with Kafka's answers (spec 7.4 to 7.6).

        `offset`: the first record at or after it; None at the log end offset, OffsetOutOfRangeError outside the log.
        `timestamp` (ms, or a datetime with a time zone): the first record with at least that timestamp; "earliest",
        "latest" or "max" (also kstore's EARLIEST, LATEST, MAX_TIMESTAMP and so on) for the ends of the log and for its
        largest timestamp. None if there is no such record.

        As Kafka does, a time is looked for in one segment only: the first whose largest timestamp reaches it. If those of
        its records that are as late lie below log_start_offset, or if it has no timestamps and the time of its file stood
        in for them, the answer is None, though a later segment may have such a record; scan(since=...) finds that one.
        "max" is asked of all that the segments hold, so its offset may lie below log_start_offset.
        """
        if (offset is None) == (timestamp is None):
            raise TypeError("find() takes either offset or timestamp")
        if offset is not None:
            return self._find_offset(offset)
        assert timestamp is not None
        if isinstance(timestamp, str):
            timestamp = time_called(timestamp)
        else:  # a datetime before 1970 is none of the negative numbers that stand for something
            least = 0 if isinstance(timestamp, datetime) else SPECIAL.start
            timestamp = moment("timestamp", timestamp, least)
        now = self._now()
        try:
            if timestamp < 0 and timestamp in SPECIAL:
                return find_special(now, timestamp)
            reached = (
                self._max_timestamps
            )  # the largest timestamps of these segments, as far as they were asked before
            if reached.segments is not now.segments:
                reached = self._max_timestamps = reached.moved_to(now.segments)
            return find_time(now, reached, timestamp)
        except CorruptFileError as e:
            raise_told(now, e)

    def _find_offset(self, offset: int) -> OffsetAndTimestamp | None:
        offset = any_integer("offset", offset)
        now = self._now()
        if not now.log_start_offset <= offset <= now.log_end_offset:
            raise OffsetOutOfRangeError(offset, now.log_start_offset, now.log_end_offset)
        for batch in self.batches(offset):
            for record in batch.records(verify=False):
                if record.offset >= offset:
                    epoch = batch.leader_epoch if batch.leader_epoch >= 0 else None
                    return OffsetAndTimestamp(record.offset, record.timestamp, epoch)
        return None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch not above the one asked, where it ends); (-1, -1) if that cannot be told (spec 7.8)."""
        epoch = any_integer("epoch", epoch)
        now = self._now()
        return now.leader_epochs.end_offset_for(epoch, now.log_end_offset)

    # ---- following what others write ------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Takes in what a writer in another process has done since; True if anything changed.

        What was read stays as it is: this makes a new view, of which only what is new in the last segment, and the
        segments after it, are read. A log that was truncated is loaded anew. LogNotFoundError if it is gone.
        """
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        if Path(self.path).is_file():
            return False
        loaded = refreshed(Path(self.path), self._loaded, self._options)
        if loaded is self._loaded:
            return False
        self._loaded = loaded
        self._transactions = None
        return True

    @overload
    def follow(
        self,
        offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        records: Literal[True] = True,
    ) -> Follower[Record]: ...

    @overload
    def follow(
        self,
        offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        records: Literal[False],
    ) -> Follower[RecordBatch]: ...

    def follow(
        self,
        offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        records: bool = True,
    ) -> Follower[RecordBatch] | Follower[Record]:
        """The records from `offset` on (None: the end), and then what comes, whoever appends it.

        `for record in log.follow(offset)` and `async for` both. It waits without turning, through rolls and deletions,
        and ends when nothing came for `timeout` seconds. records=False gives whole batches, control batches included,
        from the one that holds `offset` on. OffsetOutOfRangeError outside the log, and when the position is deleted;
        see Follower.
        """
        self._is_committed(isolation)
        if not isinstance(records, bool):
            raise TypeError(f"records is True or False, not {records!r}")
        if timeout is not None:
            timeout = number("timeout", timeout, 0)
        now = self._now()
        offset = now.log_end_offset if offset is None else any_integer("offset", offset)
        feed = self._source(isolation)
        if records:
            return Follower[Record](feed, offset, timeout, True)
        return Follower[RecordBatch](feed, offset, timeout, False)

    def _source(self, isolation: str) -> FollowSource:
        """Where a follower gets new batches from."""
        return DirectorySource(self._twin(self._now()), isolation, Path(os.path.abspath(self.path)))  # noqa: PTH100

    # ---- closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Lets go of the files. What was read stays; slices and iterators go on."""
        self._closed = True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"an open log cannot be pickled: give the other process its path, {self.path!r}, and open it there"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def __repr__(self) -> str:
        if self._closed:
            return f"PartitionLog({self.path!r}, closed)"
        return (
            f"PartitionLog({self.path!r}, log_start_offset={self.log_start_offset}, "
            f"log_end_offset={self.log_end_offset})"
        )
