"""One partition: a directory of segments, read as Kafka would read it.

The file is long because it holds every public method of a log that is open for reading, with its
documentation.
"""

import os
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, Self, TypeAlias, Unpack, overload

from kstore.arguments import MAX64, any_integer, boolean, choice, integer, moment, number, warn
from kstore.engine.compact.key_file import last_in
from kstore.engine.io.file import Traffic
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.scan.batch_reader import BatchReader, RecordReader
from kstore.engine.segment.index import AbortedTxn
from kstore.engine.segment.segment import Located, OffsetAndTimestamp, Segment, floor_of, start_of
from kstore.errors import (
    CorruptFileError,
    CorruptRecordError,
    LogChangedError,
    LogClosedError,
    OffsetOutOfRangeError,
)
from kstore.log.cursors.home import Home
from kstore.log.files import checkpoints, layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.listing import read_directory
from kstore.log.files.lock import is_locked
from kstore.log.files.log_dir_state import directory_of
from kstore.log.files.truncations import Truncations, read_truncations
from kstore.log.later import later
from kstore.log.options import checked
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
from kstore.log.recovery.loader import Loaded
from kstore.log.recovery.presence import require_partition
from kstore.log.recovery.refresh import LoadOptions, look, refreshed, with_truncations
from kstore.log.recovery.report import DataLossWarning, Recovery, in_short

if TYPE_CHECKING:
    from uuid import UUID

    from kstore.log.cursors.cursor import Cursor
    from kstore.log.cursors.offset_commits import OffsetAndMetadata
    from kstore.log.follow.follow_source import DirectorySource, FollowSource
    from kstore.log.follow.follower import Follower
    from kstore.log.producers.states import ProducerState
    from kstore.log.producers.transactions import Transactions
    from kstore.log.read.by_key import given, last_record, offsets_of, record_at
    from kstore.log.read.changed import cut_before, cut_since
    from kstore.log.read.progress import ProgressCallback, check_progress
    from kstore.log.read.scan import Header, Scan, Wanted, checked_columns
    from kstore.log.read.slice import Slice
    from kstore.log.read.span import Span
    from kstore.log.send.sending import Outlet, Sent
    from kstore.log.threads.one_thread import Iterated, OneThread
    from kstore.typed import Column, ReaderOptions
else:
    later(
        globals(),
        {
            "kstore.log.cursors.cursor": "Cursor",
            "kstore.log.cursors.offset_commits": "OffsetAndMetadata",
            "kstore.log.follow.follow_source": "DirectorySource FollowSource",
            "kstore.log.follow.follower": "Follower",
            "kstore.log.producers.states": "ProducerState",
            "kstore.log.producers.transactions": "Transactions",
            "kstore.log.read.by_key": "given last_record offsets_of record_at",
            "kstore.log.read.changed": "cut_before cut_since",
            "kstore.log.read.progress": "ProgressCallback check_progress",
            "kstore.log.read.scan": "Header Scan Wanted checked_columns",
            "kstore.log.read.slice": "Slice",
            "kstore.log.read.span": "Span",
            "kstore.log.send.sending": "Outlet Sent",
            "kstore.log.threads.one_thread": "Iterated OneThread",
            "kstore.typed": "Column ReaderOptions",
        },
    )

_Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
_OnError: TypeAlias = Literal["raise", "skip"]
_Cache: TypeAlias = Literal["keep", "drop"]
_TimeName: TypeAlias = Literal["earliest", "latest", "max", "max_timestamp", "earliest_local"]

_ISOLATION = ("read_uncommitted", "read_committed")
_ON_ERROR = ("raise", "skip")
_MAX_COUNT = 2**31 - 1
_TAIL = 61  # bytes at the end of a slice that are compared after it was sent
_FAR = 2**127  # bounds of time are compared only, and may lie beyond all timestamps


def _position_of(now: Loaded, offset: int) -> tuple[int, int, int]:
    """(base offset, index of the segment, position) of the batch that holds `offset`, or of the next, or the
    end."""
    segments = now.segments
    for at in range(start_of(segments, offset), len(segments)):
        located = segments[at].translate(offset)
        if located is not None:
            return located.base_offset, at, located.position
    return now.log_end_offset, len(segments) - 1, segments[-1].size


def _pages(cache: str) -> PageCache:
    choice("cache", cache, CACHE)
    return PageCache(drop=cache == "drop")


def _told(scan: Scan, progress: ProgressCallback | None, passed_by: Iterable[Segment], now: Loaded) -> Scan:
    """The scan, which tells how far it is in the whole log, of which these segments come before."""
    if progress is not None:
        before, total = (sum(each.size for each in segments) for segments in (passed_by, now.segments))
        scan.progress = lambda passed: progress(before + passed, total)
    return scan


class _Bound(NamedTuple):
    """How far a read may go: to `offset`, which begins at `position` of the segment `at`."""

    now: Loaded
    committed: bool
    offset: int
    at: int
    position: int


class PartitionLog:
    """A partition opened for reading: a view of the records that it held when it was opened. kstore.open
    returns it.

    Iterating gives all records. `get(offset)` gives one, `records()` a range, `scan()` Arrow columns,
    `find()` the record at a time, `follow()` waits for new records, `read()` gives raw bytes, as a broker's
    fetch does. `refresh()` takes in what was appended since.

    Nothing is written or locked. After an unclean stop the view is what Kafka would have after its recovery;
    `recovery` says what that leaves out. Threads may share the log. An iterator that it returns is for one
    thread at a time: if two threads use one at once, the second gets a RuntimeError and the first is not
    disturbed.
    """

    _options = LoadOptions()
    _traffic: Traffic | None = None  # counts what is read, for a store
    _told_of: Recovery | None = None  # what is missing there has been told
    _truncations: Truncations

    def __init__(self, path: str | PathLike[str], **options: Unpack[ReaderOptions]) -> None:
        self._options = LoadOptions(**checked("read", options))
        if self._options.trusts_files:
            require_partition(Path(path))
        self.path = os.path.abspath(fspath(path))  # noqa: PTH100 - the program may go to another directory
        self._loaded, self._truncations = with_truncations(
            Path(self.path), read_truncations(Path(self.path)), lambda: look(Path(self.path), self._options)
        )
        self._told_ends: dict[int, tuple[Loaded, Truncations]] = {}
        self._closed = False
        self._transactions: Transactions | None = None
        self._max_timestamps = MaxTimestampIndex(())

    # ---- what there is -------------------------------------------------------------------------------------

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The topic and partition that the directory is named after; None if it has no such name."""
        return layout.parse_directory(Path(os.path.realpath(self.path)).name)

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
        """The first offset that can be read. It may be inside a segment, or inside a batch."""
        return self._now().log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get: one more than the last."""
        return self._now().log_end_offset

    @property
    def recovery(self) -> Recovery:
        """What opening the log found that a clean shutdown would not leave, as a Recovery."""
        return self._loaded.recovery

    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]:
        """All leader epochs that are known, as (epoch, offset at which it starts), oldest first."""
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
        """The offset at which readers of committed records must stop: where the oldest open transaction
        begins, or the end.

        The first call reads batch headers, from the newest producer snapshot on.
        """
        return self._read_transactions().last_stable_offset

    def producers(self) -> dict[int, ProducerState]:
        """What is known of each idempotent producer now, as a dict from producer id to its state. It is a
        copy."""
        return self._read_transactions().producers.copied()

    def residency(self) -> list[Residency]:
        """How many bytes of each segment are in the page cache now. OSError if the system does not tell."""
        return [residency_of(segment) for segment in self.segments]

    def topic_id(self) -> "UUID | None":
        """The topic id in partition.metadata; None if there is no such file. CorruptCheckpointError if it is
        damaged."""
        try:
            return checkpoints.read_topic_id(Path(self.path, layout.METADATA))
        except (FileNotFoundError, NotADirectoryError):  # the log may be a single file
            return None

    # ---- reading -------------------------------------------------------------------------------------------

    def floor_segment(self, offset: int) -> int:
        """The index in `segments` of the segment with the largest base offset <= `offset`; -1 if there is
        none."""
        return floor_of(self.segments, any_integer("offset", offset))

    def translate(self, offset: int) -> Located | None:
        """Where the batch is that holds `offset`, or the first one after it, in the segment that
        `floor_segment` gives.

        None if `offset` is after the last batch of that segment.
        """
        offset = integer("offset", offset)
        segments = self.segments
        at = floor_of(segments, offset)
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
        """The stored bytes from the batch that holds `offset` on, up to `max_bytes` and up to the end of the
        segment.

        Returns a Slice, which copies nothing. It begins at a batch, so it may begin before `offset`, and may
        end inside one; with whole_batches=True it ends where a batch ends. If the first batch is larger than
        max_bytes, it is returned whole nevertheless, unless min_one_message is False. At the log end offset
        the slice is empty.

        isolation="read_committed" stops at the first open transaction, and leaves out records of aborted ones
        when the slice is iterated. on_error="skip" makes iterating it leave out damaged batches.
        OffsetOutOfRangeError if `offset` is below the log start offset or above the end; CorruptRecordError
        for a damaged header. These are the rules of a broker's fetch (section 7.1 of docs/spec.md).
        """
        choice("on_error", on_error, _ON_ERROR)
        boolean("min_one_message", min_one_message)
        boolean("whole_batches", whole_batches)
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
        """The stored bytes from the batch that holds `offset` on, up to `max_bytes`, over as many segments as
        that takes.

        Returns a Span of slices, all of the same moment, which can be sent in one call. It ends where a batch
        ends unless whole_batches is False. If the first batch is larger than max_bytes, it is returned whole
        nevertheless, unless min_one_message is False. `isolation` and errors are those of `read`.
        """
        boolean("min_one_message", min_one_message)
        boolean("whole_batches", whole_batches)
        is_cut_before = cut_before(self)
        bound = self._bound(offset, max_bytes, isolation)
        slices: list[Slice] = []
        last: Segment | None = None
        while True:
            try:
                found = self._slice(bound, offset, max_bytes, min_one_message, whole_batches, "raise")
            except CorruptFileError as e:
                raise_told(bound.now, e, offset)
            segment = found.segment
            if segment is None or found.size == 0:
                break
            if last is not None and segment.base_offset <= last.base_offset:
                break  # batches of the last one reach into the next: who reads on from there is told
            slices.append(found)
            last = segment
            max_bytes -= found.size
            # on with the next segment, if this one is exhausted
            if (
                max_bytes <= 0
                or found.position + found.size < segment.size
                or segment.end_offset >= bound.offset
            ):
                break
            offset = max(offset, segment.end_offset)
            min_one_message = False
        # Else removed records may follow new ones: files that are open still show what was there.
        if (
            last is not None
            and len(slices) > 1
            and not last._keeps_its_name()
            and is_cut_before(last.base_offset)
        ):
            raise last._truncated(offset)
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
        """Sends the stored bytes from the batch that holds `offset` on to a socket, without copying them if
        possible.

        The bytes are those that `span` returns, and the result tells how many were sent: see Slice.send. If a
        socket may take only a part, call `span` and send the span from a position on.
        """
        return self.span(offset, max_bytes, isolation, whole_batches=whole_batches).send(sock)

    def _bound(self, offset: int, max_bytes: int, isolation: str) -> _Bound:
        """What a read from `offset` on may see, all of one moment."""
        integer("max_bytes", max_bytes)
        committed = self._is_committed(isolation)
        any_integer("offset", offset)
        now = self._for_reading()
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
            at = start_of(segments, offset)
            while at < min(bound.at + 1, len(segments)):
                segment = segments[at]
                located = segment.translate(offset)
                if located is not None:
                    check_inside(now, segment, located.base_offset)
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
                    if self._traffic is not None:
                        self._traffic.add(3, size)
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
            if on_error == "raise":
                check_complete(now)
        return self._empty(now, offset, committed)

    def from_file_start(self) -> "PartitionLog":
        """A view of the same log that begins with the first record in its files, even below the log start
        offset.

        delete_records() moves the log start offset at once; the files stay until a whole segment is below it.
        """
        now = self._now()
        first = now.segments[0].base_offset if now.segments else now.log_start_offset
        return self._twin(now.replace(log_start_offset=min(first, now.log_start_offset)))

    def _twin(self, now: Loaded) -> "PartitionLog":
        """Another view of the same log, which goes its own way from here on."""
        twin = object.__new__(PartitionLog)
        twin.path = self.path
        twin._told_of = self._told_of
        twin._traffic = self._traffic
        twin._options = self._options
        twin._loaded = now
        twin._truncations = self._truncations
        twin._told_ends = self._told_ends
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
        aborted: list[tuple[int, int, int]] | None = [] if committed else None
        return Slice(now.segments[at], offset, position, 0, aborted=aborted)

    def _aborted_in(
        self, now: Loaded, at: int, offset: int, position: int, size: int
    ) -> list[tuple[int, int, int]]:
        """(producer id, first offset, offset of the marker) of the aborted transactions that these bytes may
        hold (spec 7.2)."""
        segments = now.segments
        bound = segments[at].offset_index.fetch_upper_bound(position, size)
        if bound is not None:
            upper = bound.offset
        else:
            upper = segments[at + 1].base_offset if at + 1 < len(segments) else now.log_end_offset
        found = self._read_transactions().aborted(segments[at:], offset, upper)
        return [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found]

    def aborted_transactions(self, start: int, stop: int) -> list[AbortedTxn]:
        """The aborted transactions that may have records in the offsets start to stop (exclusive), in the
        order they ended.

        As in Kafka the search begins with the segment that holds `start`, so some may have ended before
        `start` (section 10.4 of docs/spec.md).
        """
        start, stop = integer("start", start), integer("stop", stop)
        now = self._now()
        at = floor_of(now.segments, start, 0)
        return self._read_transactions().aborted(now.segments[at:], now.log_start_offset, stop)

    def get(self, offset: int) -> Record:
        """The record at `offset`, or the first one after it if compaction or a transaction marker left none
        there.

        OffsetOutOfRangeError if there is none, and for an offset below log_start_offset; CorruptRecordError
        if it is damaged.
        """
        if type(offset) is not int:
            offset = any_integer("offset", offset)
        now = self._for_reading()
        if now.log_start_offset <= offset < now.log_end_offset:
            segments = now.segments
            try:
                first = at = start_of(segments, offset)
                while at < len(segments):
                    record = segments[at].get(offset)
                    if record is not None:
                        check_inside(now, segments[at], record.offset)
                        if at > first:
                            segments[first].check_followed_by(segments[at], offset)
                        if self._traffic is not None:
                            self._count(self._traffic, record)
                        return record
                    at += 1
                check_complete(now)
            except CorruptFileError as e:
                raise_told(now, e, offset)
        raise OffsetOutOfRangeError(offset, now.log_start_offset, now.log_end_offset)

    def last(
        self,
        key: bytes,
        *,
        isolation: _Isolation = "read_uncommitted",
        progress: ProgressCallback | None = None,
    ) -> Record | None:
        """The last record with this key; None if there is none.

        If its value is None, the key was deleted: Kafka calls such a record a tombstone. Segments are looked
        through from the newest to the oldest. A segment with a .keys file, which make_key_files() of a
        LogWriter makes, tells at once where its last record of the key is. Of another one all records are
        looked at, the first time; the second time a map of its keys is made in memory, as long as the maps of
        all logs take no more than 128 MiB.

        isolation="read_committed" passes over records of aborted and open transactions. progress: called now
        and then, if all records of a segment are looked at, as progress(done, total), with how many bytes of
        the log were gone through and how many it has. An exception that it raises is passed on.

        TypeError if `key` is not bytes. CorruptRecordError if the log is damaged where the record is looked
        for. LogChangedError if another process has truncated the log since it was opened or refreshed, or
        another thread truncates it just now.
        """
        stable, aborted = -1, None
        if progress is not None:
            check_progress(progress)
        if isolation != "read_uncommitted" and self._is_committed(isolation):
            stable, aborted = self.last_stable_offset(), self._read_transactions().aborted
        now = self._for_reading()
        self._check_uncut(now)
        end = now.log_end_offset if aborted is None else min(now.log_end_offset, stable)
        if type(key) is not bytes:
            key = self._checked_key(key)
        try:
            # usually the .keys files tell, and this is the quick way to ask them
            offset = -1
            record = last_in(now.segments, key, now.log_start_offset, end) if aborted is None else None
            if record is None:
                record, offset = last_record(now, key, end, aborted, partial(self._by_scans, progress))
        except CorruptFileError as e:
            raise_told(now, e)
        if record is None or isinstance(record, int):
            return None if offset < 0 else record_at(self._twin(now), offset, key)
        if self._traffic is not None:
            self._count(self._traffic, record)
        return record

    def _check_uncut(self, now: Loaded) -> None:
        """What is known of the keys holds as long as nobody truncates the log. LogChangedError."""
        if not now.segments:
            return
        last = now.segments[-1]
        if last._is_untouched():
            return
        try:
            last.check_last_batch()
        except LogChangedError:
            if last.size or not self._is_compacted_beyond(last.base_offset):
                raise
        # Its file is open still, and has another name, or none: retention and compactions leave it so as
        # well.
        if not last.size or last._keeps_its_name():
            return
        if cut_before(self)(now.log_end_offset):
            raise last._truncated(now.log_end_offset - 1)

    def _truncations_now(self) -> Truncations:
        """Those of this moment, not those before what the view shows. OSError."""
        return read_truncations(Path(self.path))

    def _is_compacted_beyond(self, offset: int) -> bool:
        """Whether the segment that began at an offset may be gone because of a compaction, which takes none
        but those before the last one: nobody has noted a truncation. OSError."""
        if cut_since(self)():
            return False
        bases, *_ = read_directory(self.path, (".log",))
        return any(base > offset for base in bases)

    def _by_scans(
        self,
        progress: ProgressCallback | None,
        now: Loaded,
        key: bytes,
        committed: bool,
        start: int,
        stop: int,
    ) -> Scan:
        """The offsets of records of a key in a range, for lookups that have to look at all records there."""
        isolation: _Isolation = "read_committed" if committed else "read_uncommitted"
        scan = self._twin(now).scan(["offset"], start=start, stop=stop, key=key, isolation=isolation)
        passed_by = (segment for segment in now.segments if segment.base_offset >= stop)
        return _told(scan, progress, passed_by, now)

    @staticmethod
    def _count(traffic: Traffic, record: Record) -> None:
        traffic.add(2, 1)
        traffic.add(3, len(record.key or b"") + len(record.value or b""))

    def _checked_key(self, key: bytes) -> bytes:
        """A key, as a scan takes it, as bytes. TypeError."""
        self.scan(["offset"], start=0, stop=0, key=given(key))
        return bytes(key)

    def history(
        self,
        key: bytes,
        *,
        isolation: _Isolation = "read_uncommitted",
        progress: ProgressCallback | None = None,
    ) -> Iterator[Record]:
        """An iterator of all records with this key that are in the log now, the oldest first.

        A compaction leaves the last one only. `isolation`, `progress` and errors are those of `last`.
        """
        now = self._for_reading()
        self._check_uncut(now)
        self._is_committed(isolation)
        key = self._checked_key(key)
        check_progress(progress)
        log = self._twin(now)

        def scan(start: int, stop: int) -> Scan:
            scan = log.scan(["offset"], start=start, stop=stop, key=key, isolation=isolation)
            passed_by = (segment for segment in now.segments if segment.end_offset <= start)
            return _told(scan, progress, passed_by, now)

        return OneThread(Iterated(), partial(self._got, log, now, key, offsets_of(now, key, scan)))

    def _got(self, log: "PartitionLog", now: Loaded, key: bytes, offsets: Iterator[int]) -> Iterator[Record]:
        """The records of a key at these offsets. LogChangedError if it is not damage that is in the way."""
        try:
            for offset in offsets:
                yield record_at(log, offset, key)
        except CorruptFileError as e:
            raise_told(now, e)

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
        """An iterator of the records with start <= offset < stop. The defaults are the ends of the log.

        A range is cut to what the log holds, as that of a Python slice is: one that begins below
        log_start_offset begins there, and nothing tells of records that retention has deleted. `read`, `get`,
        `find` and `follow`, which ask for one place, raise OffsetOutOfRangeError for it.

        isolation="read_committed" leaves out records of aborted and open transactions. Transaction markers
        are left out unless `control` is True. Damage raises CorruptRecordError; on_error="skip" goes on at
        the next undamaged batch instead, and lists what was left out in the iterator's `.skipped`.
        cache="drop" leaves the page cache as it was: what this iterator brings in is dropped from it again.
        """
        boolean("control", control)
        is_cut_before, now = cut_before(self), self._for_reading()
        segments, start, stop, aborted = self._range(now, start, stop, isolation)
        reader = RecordReader(
            segments,
            start,
            stop,
            end_offset=now.log_end_offset,
            on_error=on_error,
            control=control,
            aborted=aborted,
            pages=_pages(cache),
            traffic=self._traffic,
        )
        reader._is_cut_before = is_cut_before
        return reader

    def batches(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        cache: _Cache = "keep",
    ) -> BatchReader:
        """An iterator of the batches that hold an offset with start <= offset < stop, as RecordBatch objects.

        The range is cut to what the log holds, as in `records`, and the defaults are its ends. The first and
        last batch may hold other offsets too. Control batches, which hold transaction markers, are included.
        isolation="read_committed" leaves out batches of aborted and open transactions. Damage raises
        CorruptRecordError; on_error="skip" goes on at the next undamaged batch instead, and lists what was
        left out in the iterator's `.skipped`. cache="drop" leaves the page cache as it was.
        """
        is_cut_before, now = cut_before(self), self._for_reading()
        segments, start, stop, aborted = self._range(now, start, stop, isolation)
        reader = BatchReader(
            segments,
            start,
            stop,
            end_offset=now.log_end_offset,
            on_error=on_error,
            aborted=aborted,
            pages=_pages(cache),
            traffic=self._traffic,
        )
        reader._is_cut_before = is_cut_before
        return reader

    def scan(
        self,
        columns: Iterable[Column] | None = None,
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
        """The records with start <= offset < stop and since <= timestamp < until, as columns.

        Transaction markers are left out. The range of offsets is cut to what the log holds, as in `records`.
        Returns a Scan: an iterable of ColumnBatch objects and an Arrow stream, so pyarrow.table(log.scan()),
        Polars, DuckDB and pandas take it; none of them is needed to iterate it.

        columns: names, in order. Default: offset, timestamp, timestamp_type, key, value, headers. Of the
        record's batch there are base_offset, last_offset, base_timestamp, max_timestamp, producer_id,
        producer_epoch, base_sequence, leader_epoch, records_count, attributes, codec, magic, crc, size and
        position. since, until: milliseconds since 1970, or datetimes with a time zone (microseconds are cut
        off). start, stop: offsets. Default: the ends of the log. key, key_prefix: only records whose key is,
        or begins with, these bytes. header: only records with this header: a name, a (name, value) pair, or a
        mapping of pairs that must all be there. isolation: "read_committed" leaves out records of aborted and
        open transactions. batch_rows, batch_bytes: the most rows of a ColumnBatch, and about the most bytes,
        so that memory is bounded. threads: 2 or more decode parts of the log at the same time; the order
        stays. views: True makes keys and values of more than 12 bytes views of what was read, without a copy.
        A ColumnBatch then keeps all of what was read in memory. in_order: True says that timestamps increase
        from batch to batch. The scan then ends at the first batch that begins at `until` or later. Without it
        every batch is looked at, since a later one may hold an earlier record. on_error: "skip" goes on at
        the next undamaged batch, and lists what was left out in the scan's `.skipped`. By default damage
        raises CorruptRecordError.

        Batches whose header says that all records are before `since` are passed by without decoding them.
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
            boolean("views", views),
            since,
            until,
            key,
            key_prefix,
            header,
            boolean("in_order", in_order),
            on_error,
        )
        is_cut_before, now = cut_before(self), self._for_reading()
        segments, first, end, aborted = self._range(now, start, stop, isolation)
        scan = Scan(segments, first, end, now.log_end_offset, aborted, wanted, threads, self._traffic)
        scan._is_cut_before = is_cut_before
        return scan

    def _range(
        self, now: Loaded, start: int | None, stop: int | None, isolation: str
    ) -> tuple[tuple[Segment, ...], int, int, list[tuple[int, int, int]] | None]:
        committed = self._is_committed(isolation)
        start = now.log_start_offset if start is None else max(integer("start", start), now.log_start_offset)
        stop = now.log_end_offset if stop is None else min(integer("stop", stop), now.log_end_offset)
        at = start_of(now.segments, start)
        aborted = None
        if committed:
            stop = min(stop, self.last_stable_offset())
            # only those that end at `start` or later: readers forget a producer at its marker, and see no
            # earlier one
            found = self._read_transactions().aborted(now.segments[at:], start, stop)
            aborted = [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in found]
        # else the first batch would be looked at, in whose midst `start` may be
        return now.segments[at:] if start < stop else (), start, stop, aborted

    def _lost_between(self, now: Loaded, start: int, stop: int) -> list[str]:
        """What is known to be lost of these offsets, as sentences; what recovery cuts off lies behind the end
        of the log."""
        losses = [*now.recovery.losses] if stop >= now.log_end_offset else []
        if losses and is_locked(directory_of(Path(self.path))):
            losses = []  # what a writer is at work on is no loss yet
        return losses + now.recovery.missing_between(start, stop)

    def _for_reading(self) -> Loaded:
        """The log as it is now. Warns, once, of what is lost: it is first looked for when records are
        read."""
        now = self._now()
        recovery = now.recovery
        if recovery is not self._told_of:
            losses = self._lost_between(now, 0, MAX64)
            self._told_of = recovery
            if losses and self._options.recover:
                warn(f"{self.path}: {in_short(losses)}", DataLossWarning)
        return now

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    # ---- finding -------------------------------------------------------------------------------------------

    def find(
        self, *, offset: int | None = None, timestamp: int | datetime | _TimeName | None = None
    ) -> OffsetAndTimestamp | None:
        """Finds a record by offset or by time. Returns its offset, timestamp and leader epoch, or None.

        offset: the record at this offset, or the first one after it. None at the log end offset;
        OffsetOutOfRangeError outside the log. timestamp: the first record with this timestamp or a later one:
        milliseconds since 1970, or a datetime with a time zone. "earliest" gives the log start offset,
        "latest" the log end offset, "max" the first record with the largest timestamp. kstore.EARLIEST,
        LATEST, MAX_TIMESTAMP and so on are Kafka's numbers for these.

        The answers are those of a broker (sections 7.4 to 7.6 of docs/spec.md): a transaction marker is found
        as a record is, though get() passes it over. CorruptRecordError for damage on the way.

        As Kafka does, a time is looked for in one segment only: the first whose largest timestamp reaches it.
        If its records with that timestamp were compacted away, or if it has no timestamps and the time of its
        file stood in for them, the answer is None, though a later segment may have such a record;
        scan(since=...) finds that one. Unlike Kafka, records below log_start_offset do not count. "max" is
        asked of all that the segments hold, so its offset may lie below log_start_offset.
        """
        if (offset is None) == (timestamp is None):
            raise TypeError("find() needs one argument: offset=… or timestamp=…")
        if offset is not None:
            return self._find_offset(offset)
        assert timestamp is not None
        if isinstance(timestamp, str):
            timestamp = time_called(timestamp)
        else:  # a datetime before 1970 is none of the negative numbers that stand for something
            least = 0 if isinstance(timestamp, datetime) else SPECIAL.start
            timestamp = moment("timestamp", timestamp, least)
        now = self._for_reading()
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
        """The largest leader epoch that is known and not above `epoch`, and the offset at which it ends.

        (-1, -1) if there is none (section 7.8 of docs/spec.md).
        """
        epoch = any_integer("epoch", epoch)
        now = self._now()
        return now.leader_epochs.end_offset_for(epoch, now.log_end_offset)

    # ---- following what others write -----------------------------------------------------------------------

    def refresh(self) -> bool:
        """Takes in what other processes have changed since the log was opened or refreshed. True if anything
        changed.

        Records, slices and iterators that were made before stay as they are. Only what is new is read, but a
        log that was truncated is loaded again. LogNotFoundError if the directory is gone.
        """
        if self._closed:
            raise LogClosedError(f"{self.path} is closed")
        if Path(self.path).is_file():
            return False
        path, before = Path(self.path), self._loaded
        loaded, self._truncations = with_truncations(
            path, self._truncations, lambda: refreshed(path, before, self._options)
        )
        if loaded is before:
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
        on_error: _OnError = "raise",
        records: Literal[True] = True,
    ) -> Follower[Record]: ...

    @overload
    def follow(
        self,
        offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        records: Literal[False],
    ) -> Follower[RecordBatch]: ...

    def follow(
        self,
        offset: int | None = None,
        *,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        records: bool = True,
    ) -> Follower[RecordBatch] | Follower[Record]:
        """An iterator of the records from `offset` on, which waits for more at the end. Default: the log end
        offset, or with isolation="read_committed" the last stable offset.

        `for record in log.follow(offset)` and `async for` work. While it waits it uses no processor time. It
        goes on through new segments and deletions, whoever writes them, and ends if nothing was appended for
        `timeout` seconds, or when it is closed. records=False gives RecordBatch objects, control batches
        included, from the batch that holds `offset` on. isolation="read_committed" leaves out records of
        aborted transactions, and waits for the end of open ones.

        on_error: "skip" goes on after damage, and lists what was left out in the follower's `.skipped`; by
        default CorruptRecordError.

        OffsetOutOfRangeError if `offset` is outside the log, or is deleted before the iterator reaches it;
        see Follower. LogNotFoundError if the partition was deleted, or deleted and made again.
        """
        is_committed = self._is_committed(isolation)
        choice("on_error", on_error, _ON_ERROR)
        boolean("records", records)
        if timeout is not None:
            timeout = number("timeout", timeout, 0)
        now = self._now()
        if offset is not None:
            offset = any_integer("offset", offset)
        elif is_committed:
            offset = max(self.last_stable_offset(), now.log_start_offset)
        else:
            offset = now.log_end_offset
        if offset < 0:  # no number of Kafka's that stands for an end
            raise OffsetOutOfRangeError(offset, now.log_start_offset, now.log_end_offset)
        feed = self._source(isolation, offset)
        if records:
            return Follower[Record](feed, offset, timeout, True, on_error)
        return Follower[RecordBatch](feed, offset, timeout, False, on_error)

    def _source(self, isolation: str, offset: int) -> FollowSource:
        """Where a follower gets new batches from."""
        twin = self._twin(self._now())
        if offset in self._told_ends:
            twin._loaded, twin._truncations = self._told_ends[offset]
            twin._transactions = None
        return DirectorySource(twin, isolation, Path(os.path.abspath(self.path)))  # noqa: PTH100

    def _remember_told(self, end: int, now: Loaded) -> None:
        """A follower has said where the log was cut off: one that begins there knows of what was told."""
        self._told_ends.clear()
        self._told_ends[end] = now, self._truncations

    # ---- cursors -------------------------------------------------------------------------------------------

    def cursor(
        self,
        group: str,
        start: Literal["earliest", "latest"] | int | datetime = "earliest",
        *,
        follow: bool = False,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        wait: float = 0,
    ) -> Cursor:
        """The durable position of a group of readers: a Cursor, which gives the records after those that were
        committed last.

        `with log.cursor("mailer") as jobs: for record in jobs: …; jobs.commit(record)` goes on where the
        program before left off, also after kill -9. The position is kept in files beside the partition, so a
        reader may commit while another process writes the log.

        group: the name of the readers, of the characters a-z A-Z 0-9 . _ - start: where to begin if the group
        has committed nothing: "earliest", "latest", an offset, or a datetime with a time zone (the first
        record with that timestamp or a later one). follow: True waits for more at the end of the log, as
        follow() does, until nothing has come for `timeout` seconds (default: for ever). False ends there, and
        refuses a `timeout` above 0. isolation: as in records(). on_error: "skip" goes on after damaged
        records, and lists what was left out in the cursor's `.skipped`; by default CorruptRecordError. wait:
        how many seconds to wait if another cursor has the partition for this group. If that one's process
        dies, this one takes over at once. It blocks meanwhile; in an event loop: await
        asyncio.to_thread(log.cursor, group, wait=60).

        CursorLockedError if another cursor has the partition for this group: it names the process. OSError if
        the files cannot be written. CorruptRecordError if they are damaged.
        """
        self._now()
        return Cursor(
            self._cursor_view(),
            group,
            start,
            follow=follow,
            timeout=timeout,
            isolation=isolation,
            on_error=on_error,
            wait=wait,
        )

    def cursors(self) -> dict[str, OffsetAndMetadata]:
        """The committed positions of all groups of this log, by the name of the group: {"mailer":
        OffsetAndMetadata(…)}.

        CorruptRecordError if their files are damaged. OSError.
        """
        self._now()
        return Home.of(self.path).all_committed()

    def _cursor_view(self) -> "PartitionLog":
        """What a cursor reads: it brings its own view up to date, and leaves this one as it is."""
        return self._twin(self._now())

    # ---- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the files. Records, slices and iterators that were made before can still be used."""
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
        """Whether the log was closed."""
        return self._closed

    def __repr__(self) -> str:
        if self._closed:
            return f"PartitionLog({self.path!r}, closed)"
        return (
            f"PartitionLog({self.path!r}, log_start_offset={self.log_start_offset}, "
            f"log_end_offset={self.log_end_offset})"
        )


class _OfWriters:
    """A method that a log has only if it is open for writing, as AttributeError says: hasattr() is false. It
    costs other attributes nothing, as a __getattr__ would."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, log: PartitionLog | None, kind: type) -> NoReturn:
        place = kind.__name__ if log is None else log.path
        raise AttributeError(
            f"{place} is open for reading, so it has no {self._name}(): kstore.open(path, 'a') opens it for writing",
            name=self._name,
            obj=log,
        )


_WRITING = (  # LogWriter has its own
    "append append_async append_batches appender compact delete_records erase extend extend_async flush make_key_files retain "
    "roll truncate_to"
)
for _name in _WRITING.split():
    setattr(PartitionLog, _name, _OfWriters(_name))
