"""One partition: a directory of segments, read as Kafka would read it."""

from __future__ import annotations

import os
from functools import partial

from kstore.arguments import (
    ISOLATION,
    ON_ERROR,
    any_integer,
    boolean,
    choice,
    integer,
    is_datetime,
    moment,
    number,
)
from kstore.engine.io.sources import refuse_waiting
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.scan.batch_reader import BatchReader, RecordReader
from kstore.engine.segment.segment import OffsetAndTimestamp, floor_of
from kstore.errors import CorruptFileError, OffsetOutOfRangeError, shown
from kstore.light_typing import TYPE_CHECKING, cast, overload
from kstore.log.files import checkpoints, layout
from kstore.log.later import later
from kstore.log.read.offset_lookup import SPECIAL, raise_told, time_called
from kstore.log.read.page_cache import CACHE, PageCache, residency_of
from kstore.log.view.log_view import LogView, count_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from socket import socket
    from types import TracebackType
    from typing import Literal, NoReturn, Self, TypeAlias
    from uuid import UUID

    from kstore.engine.compact.last_offsets import last_in
    from kstore.engine.segment.index import AbortedTxn
    from kstore.engine.segment.segment import Located
    from kstore.log.cursors.cursor import Cursor
    from kstore.log.cursors.home import Home
    from kstore.log.cursors.offset_commits import OffsetAndMetadata
    from kstore.log.files.layout import TopicPartition
    from kstore.log.follow.feed import Feed, read_by
    from kstore.log.follow.follower import Follower
    from kstore.log.follow.position import Position, checked_position, position_in
    from kstore.log.follow.sources import DirectorySource, Source
    from kstore.log.producers.states import ProducerState
    from kstore.log.producers.transactions import Transactions
    from kstore.log.read.page_cache import Residency
    from kstore.log.read.progress import ProgressCallback, check_progress
    from kstore.log.read.scan import Header, Scan, Wanted, checked_columns, checked_text
    from kstore.log.read.slice import Slice
    from kstore.log.read.span import Span
    from kstore.log.recovery.loader import Loaded
    from kstore.log.send.sending import Sent
    from kstore.log.share.dead_letters import DeadLetterLog, check_dead_letter_log
    from kstore.log.share.descriptions import ShareGroupState, share_groups_in
    from kstore.log.share.group_partitions import OnePartition
    from kstore.log.share.share_group import ShareGroup
    from kstore.log.threads.one_thread import Iterated, OneThread
    from kstore.log.view.by_key import checked_key, history_of, last_record
    from kstore.log.view.fetch import Fetch
    from kstore.log.view.in_notebook import log_table
    from kstore.log.view.run import reader_of, scan_of
    from kstore.page import Page, page_of
    from kstore.typed import Column

    _Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
    _OnError: TypeAlias = Literal["raise", "skip"]
    _Cache: TypeAlias = Literal["keep", "drop"]
    _TimeName: TypeAlias = Literal["earliest", "latest", "max", "max_timestamp", "earliest_local"]
else:
    later(
        globals(),
        {
            "kstore.engine.compact.last_offsets": "last_in",
            "kstore.log.cursors.cursor": "Cursor",
            "kstore.log.cursors.home": "Home",
            "kstore.log.follow.feed": "Feed read_by",
            "kstore.log.follow.follower": "Follower",
            "kstore.log.follow.position": "Position checked_position position_in",
            "kstore.log.follow.sources": "DirectorySource",
            "kstore.log.view.by_key": "checked_key history_of last_record",
            "kstore.log.view.fetch": "Fetch",
            "kstore.log.view.in_notebook": "log_table",
            "kstore.page": "page_of",
            "kstore.log.view.run": "reader_of scan_of",
            "kstore.log.read.progress": "check_progress",
            "kstore.log.read.scan": "Wanted checked_columns checked_text",
            "kstore.log.share.dead_letters": "check_dead_letter_log",
            "kstore.log.share.descriptions": "share_groups_in",
            "kstore.log.share.group_partitions": "OnePartition",
            "kstore.log.share.share_group": "ShareGroup",
            "kstore.log.threads.one_thread": "Iterated OneThread",
        },
    )


_MAX_COUNT = 2**31 - 1
_FAR = 2**127  # bounds of time are compared only, and may lie beyond all timestamps


def _pages(cache: str) -> PageCache:
    choice("cache", cache, CACHE)
    return PageCache(drop=cache == "drop")


class PartitionLog(LogView):
    """A partition opened for reading, with the records of the time of its opening. kstore.open returns it.

    Iterating yields all records. `get(offset)` returns one, `records()` a range, `scan()` Arrow columns,
    `find()` the offset at a time, `follow()` waits for new records, `read()` returns stored bytes, as a
    broker's fetch does. `refresh()` adds later records.

    Nothing is written or locked. After an unclean stop the log leaves out what recovery would remove, and
    `recovery` reports it. Threads may share the log, but each iterator belongs to one thread at a time: a
    second thread that uses it at the same time gets a RuntimeError.
    """

    # ---- what there is -------------------------------------------------------------------------------------

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The topic and partition that the directory is named after; None if it has no such name."""
        return layout.parse_directory(os.path.basename(os.path.realpath(self.path)))

    def view(self, snapshot: Loaded | None = None) -> PartitionLog:
        """Return a view of the log at this moment, or of a snapshot of it. It changes only by its own
        `refresh()`."""
        return cast(PartitionLog, super().view(snapshot))

    def _blank(self) -> PartitionLog:
        return object.__new__(PartitionLog)

    def source(self) -> Source:
        """Return the Source from which followers and cursors get views of this log. Internal."""
        return DirectorySource(self.view())

    def producers(self) -> dict[int, ProducerState]:
        """Return the states of the idempotent producers, as a dict from producer id to ProducerState. It is a
        copy."""
        return self.transactions().producers.copied()

    def residency(self) -> list[Residency]:
        """Return how many bytes of each segment are in the page cache now. OSError if the system does not
        report it."""
        return [residency_of(segment) for segment in self.segments]

    def topic_id(self) -> UUID | None:
        """Return the topic id in partition.metadata; None if there is no such file. CorruptCheckpointError if
        it is damaged."""
        try:
            return checkpoints.read_topic_id(f"{self.path}/{layout.METADATA}")
        except (FileNotFoundError, NotADirectoryError):  # the log may be a single file
            return None

    def report(self) -> Page:
        """Return an HTML page about the log, as kstore.report does. OSError."""
        return page_of(self)

    # ---- reading -------------------------------------------------------------------------------------------

    def floor_segment(self, offset: int) -> int:
        """Return the index in `segments` of the segment with the largest base offset <= `offset`; -1 if there
        is none."""
        return floor_of(self.segments, any_integer("offset", offset))

    def translate(self, offset: int) -> Located | None:
        """Return where the batch with `offset`, or the first batch after it, begins in the segment of
        `floor_segment`.

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
        """Return the stored bytes from the batch with `offset` on, up to `max_bytes` and up to the end of the
        segment.

        Returns a Slice, without copying. It begins at a batch, so it may begin before `offset`, and may end
        inside a batch; with whole_batches=True it ends after one. If the first batch is larger than
        max_bytes, it is returned whole, unless min_one_message is False. At the log end offset the slice is
        empty.

        isolation="read_committed" stops at the first open transaction, and iterating the slice skips records
        of aborted ones. With on_error="skip", iterating it skips damaged batches. OffsetOutOfRangeError if
        `offset` is below the log start offset or above the end; CorruptRecordError for a damaged header.
        These are the rules of a broker's fetch (section 7.1 of docs/spec.md).
        """
        choice("on_error", on_error, ON_ERROR)
        boolean("min_one_message", min_one_message)
        boolean("whole_batches", whole_batches)
        fetch = Fetch(self, offset, max_bytes, isolation)
        return fetch.slice(min_one_message=min_one_message, whole_batches=whole_batches, on_error=on_error)

    def span(
        self,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: _Isolation = "read_uncommitted",
        *,
        min_one_message: bool = True,
        whole_batches: bool = True,
    ) -> Span:
        """Return the stored bytes from the batch with `offset` on, up to `max_bytes`, also of several
        segments.

        Returns a Span of slices, all of the same moment, which can be sent in one call. It ends after a batch
        unless whole_batches is False. If the first batch is larger than max_bytes, it is returned whole,
        unless min_one_message is False. `isolation` and errors are those of `read`.
        """
        boolean("min_one_message", min_one_message)
        boolean("whole_batches", whole_batches)
        fetch = Fetch(self, offset, max_bytes, isolation)
        return fetch.span(min_one_message=min_one_message, whole_batches=whole_batches)

    def send(
        self,
        sock: socket,
        offset: int,
        max_bytes: int = 1 << 20,
        isolation: _Isolation = "read_uncommitted",
        *,
        whole_batches: bool = True,
    ) -> Sent:
        """Send the stored bytes from the batch with `offset` on to a socket, without copying them if
        possible.

        The bytes are those of `span`, and the result has the number of bytes sent: see Slice.send. If a
        socket may take only a part, call `span` and send the span from a position on.
        """
        return self.span(offset, max_bytes, isolation, whole_batches=whole_batches).send(sock)

    def from_file_start(self) -> PartitionLog:
        """Return a view of the log that begins with the first record in its files, even below the log start
        offset.

        delete_records() moves the log start offset at once; the files stay until a whole segment is below it.
        """
        now = self._now()
        first = now.segments[0].base_offset if now.segments else now.log_start_offset
        return self.view(now.replace(log_start_offset=min(first, now.log_start_offset)))

    def _is_committed(self, isolation: str) -> bool:
        return choice("isolation", isolation, ISOLATION) == "read_committed"

    def aborted_transactions(self, start: int, stop: int) -> list[AbortedTxn]:
        """Return the aborted transactions that may have records in the offsets start to stop (exclusive), in
        the order of their ends.

        As in Kafka, the search begins with the segment of `start`, so some may have ended before `start`
        (section 10.4 of docs/spec.md).
        """
        start, stop = integer("start", start), integer("stop", stop)
        now = self._now()
        at = floor_of(now.segments, start, 0)
        return self.transactions().aborted(now.segments[at:], now.log_start_offset, stop)

    def _committed(self) -> tuple[Loaded, Transactions]:
        """The log and its transactions at one moment."""
        return self.for_reading(), self.transactions()

    def last(
        self,
        key: bytes,
        *,
        isolation: _Isolation = "read_uncommitted",
        progress: ProgressCallback | None = None,
    ) -> Record | None:
        """Return the last record with this key; None if there is none.

        If its value is None, the key was deleted: Kafka calls such a record a tombstone. The search goes from
        the newest segment to the oldest. In a segment with a .keys file, which make_key_files() of a
        LogWriter makes, it is one lookup. In another segment, the first search reads all records. The second
        makes a map of its keys in memory, while the maps of all logs take at most 128 MiB.

        isolation="read_committed" skips records of aborted and open transactions. progress: called as
        progress(done, total), in bytes of the log, while all records of a segment are read. An exception that
        it raises is passed on.

        TypeError if `key` is not bytes. CorruptRecordError if the log is damaged where the search reads it.
        LogChangedError if another process has deleted a file that the search needs.
        """
        stable, aborted = -1, None
        if progress is not None:
            check_progress(progress)
        if isolation != "read_uncommitted" and self._is_committed(isolation):
            now, known = self._committed()
            stable, aborted = known.last_stable_offset, known.aborted
        else:
            now = self.for_reading()
        end = now.log_end_offset if aborted is None else min(now.log_end_offset, stable)
        if type(key) is not bytes:
            key = checked_key(key)
        try:
            # usually the .keys files have the answer, and this is the quick way to ask them
            found = last_in(now.segments, key, now.log_start_offset, end) if aborted is None else None
            if found is None:
                return last_record(self, now, key, end, aborted, progress)
        except CorruptFileError as e:
            raise_told(now.segments, e)
        if isinstance(found, int):
            return None
        if self.traffic is not None:
            count_record(self.traffic, found)
        return found

    def history(
        self,
        key: bytes,
        *,
        isolation: _Isolation = "read_uncommitted",
        progress: ProgressCallback | None = None,
    ) -> Iterator[Record]:
        """Return an iterator of all records with this key that are in the log now, oldest first.

        A compaction keeps only the last one. `isolation`, `progress` and errors are those of `last`.
        """
        now = self.for_reading()
        self._is_committed(isolation)
        key = checked_key(key)
        check_progress(progress)
        return OneThread(Iterated(), partial(history_of, self.view(now), key, isolation, progress))

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
        """Return an iterator of the records with start <= offset < stop. The defaults are the ends of the
        log.

        The range is cut to the offsets of the log, as that of a Python slice: if `start` is below
        log_start_offset, the iterator begins there, without an error. `read`, `get`, `find` and `follow`
        raise OffsetOutOfRangeError for such an offset.

        isolation="read_committed" skips records of aborted and open transactions. Transaction markers are
        skipped unless `control` is True. Damage raises CorruptRecordError; on_error="skip" continues at the
        next undamaged batch instead, and the iterator's `.skipped` lists what it skipped. cache="drop" leaves
        the page cache as it was: the pages that this iterator reads are dropped from it again.
        """
        boolean("control", control)
        return reader_of(
            RecordReader, self, start, stop, isolation, on_error, control=control, pages=_pages(cache)
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
        """Return an iterator of the batches that have an offset with start <= offset < stop, as RecordBatch
        objects.

        The range is cut to the offsets of the log, as in `records`, and the defaults are its ends. The first
        and last batch may have other offsets, too. Control batches, which have transaction markers, are
        included. isolation="read_committed" skips batches of aborted and open transactions. Damage raises
        CorruptRecordError; on_error="skip" continues at the next undamaged batch instead, and the iterator's
        `.skipped` lists what it skipped. cache="drop" leaves the page cache as it was.
        """
        return reader_of(BatchReader, self, start, stop, isolation, on_error, pages=_pages(cache))

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
        timestamps: Literal["ms", "datetime"] = "ms",
        text: Iterable[Literal["key", "value"]] = (),
    ) -> Scan:
        """Return the records with start <= offset < stop and since <= timestamp < until, as columns.

        Returns a Scan: an iterable of ColumnBatch objects and an Arrow stream, with to_arrow(), to_pandas()
        and to_polars(). Iterating it needs none of these libraries. Transaction markers are skipped.

        columns: names, in order. Default: offset, timestamp, timestamp_type, key, value, headers. Those of
            the record's batch are base_offset, last_offset, base_timestamp, max_timestamp, producer_id,
            producer_epoch, base_sequence, leader_epoch, records_count, attributes, codec, magic, crc, size
            and position.
        since, until: milliseconds since 1970, or datetimes with a time zone (microseconds are cut off).
        start, stop: offsets, cut to the offsets of the log, as in `records`. Default: the ends of the log.
        key, key_prefix: only records whose key is, or begins with, these bytes.
        header: only records with this header: a name, a (name, value) pair, or a mapping of pairs that must
            all be present.
        isolation: "read_committed" skips records of aborted and open transactions.
        batch_rows, batch_bytes: the largest number of rows of a ColumnBatch, and approximately of bytes, to
            limit memory.
        threads: 2 or more decode parts of the log at the same time, in the same order.
        views: True does not copy keys and values of more than 12 bytes. A ColumnBatch then keeps everything
            that was read in memory.
        in_order: True means that no record has an earlier timestamp than a record before it. The scan then
            ends at the first batch that begins at `until` or later. Otherwise it reads every batch, because a
            later one may have an earlier record.
        on_error: "skip" continues at the next undamaged batch, and the scan's `.skipped` lists what it
            skipped. By default damage raises CorruptRecordError.
        timestamps: "datetime" makes the column timestamp an Arrow timestamp[ms, UTC]; by default it is an
            int64.
        text: columns, of key and value, to read as UTF-8 text. A key or value that is not UTF-8 raises
            ValueError with the record's offset.

        Batches that are before `since` by their header are not decoded.
        """
        batch_rows = integer("batch_rows", batch_rows, 1, _MAX_COUNT)
        batch_bytes = integer("batch_bytes", batch_bytes, 1)
        threads = integer("threads", threads, 1, 64)
        choice("on_error", on_error, ON_ERROR)
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
            checked_text(text),
            choice("timestamps", timestamps, ("ms", "datetime")) == "datetime",
        )
        return scan_of(self, wanted, start, stop, isolation, threads)

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    # ---- finding -------------------------------------------------------------------------------------------

    def find(
        self, *, offset: int | None = None, timestamp: int | datetime | _TimeName | None = None
    ) -> OffsetAndTimestamp | None:
        """Find a record by offset or by time. Return its offset, timestamp and leader epoch, or None.

        offset: the record at this offset, or the first one after it. None at the log end offset;
            OffsetOutOfRangeError outside the log.
        timestamp: the first record with this timestamp or a later one: milliseconds since 1970, or a datetime
            with a time zone. "earliest" is the log start offset, "latest" the log end offset, "max" the first
            record with the largest timestamp. kstore.EARLIEST, LATEST, MAX_TIMESTAMP and so on are Kafka's
            numbers for these.

        The results are those of a broker (sections 7.4 to 7.6 of docs/spec.md): find() can return the offset
        of a transaction marker, which get() skips. CorruptRecordError for damage.

        As in Kafka, a time is searched in one segment only: the first whose largest timestamp is this time or
        later. The result is None if compaction has removed its records with that timestamp, or if it has no
        timestamps and the time of its file was used. A later segment may have such a record; scan(since=...)
        finds that one. Unlike Kafka, records below log_start_offset do not count, except for "max".
        """
        if (offset is None) == (timestamp is None):
            raise TypeError("find() needs one argument: offset=… or timestamp=…")
        if offset is not None:
            return self._find_offset(offset)
        assert timestamp is not None
        if isinstance(timestamp, str):
            timestamp = time_called(timestamp)
        else:  # a datetime before 1970 is not one of the negative numbers that stand for something
            least = 0 if is_datetime(timestamp) else SPECIAL.start
            timestamp = moment("timestamp", timestamp, least)
        return self.find_timestamp(timestamp)

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
        """Return the largest known leader epoch that is not above `epoch`, and the offset at which it ends.

        (-1, -1) if there is none (section 7.8 of docs/spec.md).
        """
        epoch = any_integer("epoch", epoch)
        now = self._now()
        return now.leader_epochs.end_offset_for(epoch, now.log_end_offset)

    # ---- following what others write -----------------------------------------------------------------------

    @overload
    def follow(
        self,
        offset: Position | int | None = None,
        *,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        records: Literal[True] = True,
    ) -> Follower[Record]: ...

    @overload
    def follow(
        self,
        offset: Position | int | None = None,
        *,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        records: Literal[False],
    ) -> Follower[RecordBatch]: ...

    def follow(
        self,
        offset: Position | int | None = None,
        *,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        records: bool = True,
    ) -> Follower[RecordBatch] | Follower[Record]:
        """Return an iterator of the records from `offset` on, which waits for more at the end. Default: the
        log end offset, or with isolation="read_committed" the last stable offset. With the `position` of an
        earlier follower instead of an offset, it also detects a truncation below the position.

        `for record in log.follow(offset)` and `async for` work. Waiting takes no processor time. The follower
        reads records of any writer, and ends if nothing was appended for `timeout` seconds, or when it is
        closed. records=False yields RecordBatch objects, control batches included, from the batch with
        `offset` on. isolation="read_committed" skips records of aborted transactions, and waits for the end
        of open ones.

        on_error: "skip" continues after damage, and the follower's `.skipped` lists what it skipped; by
            default CorruptRecordError.

        OffsetOutOfRangeError if `offset` is outside the log, or is deleted before the iterator reaches it;
        see Follower. LogNotFoundError if the partition was deleted, or deleted and created again.
        """
        is_committed = self._is_committed(isolation)
        choice("on_error", on_error, ON_ERROR)
        boolean("records", records)
        refuse_waiting(self.path)
        if timeout is not None:
            timeout = number("timeout", timeout, 0)
        now = self._now()
        start: Position | int
        if isinstance(offset, Position):
            start = checked_position("offset", offset)
        elif offset is not None:
            start = any_integer("offset", offset, "an offset or a Position")
        elif is_committed:
            start = max(self.last_stable_offset(), now.log_start_offset)
        else:
            start = now.log_end_offset
        if isinstance(start, int) and start < 0:  # no number of Kafka's that stands for an end
            raise OffsetOutOfRangeError(start, now.log_start_offset, now.log_end_offset)

        source = self.source()
        position = position_in(source.known.snapshot, start) if isinstance(start, int) else start
        feed = Feed(source, position, isolation)
        if records:
            return Follower[Record](feed, read_by(RecordReader, isolation, on_error), timeout)
        return Follower[RecordBatch](feed, read_by(BatchReader, isolation, on_error), timeout)

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
        """Return a Cursor: a reader whose position is saved on disk for a group. It yields the records after
        the last commit.

        `with log.cursor("mailer") as jobs: for record in jobs: …; jobs.commit(record)` continues at the last
        commit of the previous run, also after kill -9. The positions are in files beside the partition, so
        another process may be writing the log.

        group: a name, of the characters a-z A-Z 0-9 . _ -
        start: the position of a group that has committed nothing: "earliest", "latest", an offset, or a
            datetime with a time zone (the first record with that timestamp or a later one).
        follow: True waits for more at the end of the log, as follow() does, until no record came for
            `timeout` seconds (default: for ever). False ends there, and refuses a `timeout` above 0.
        isolation: as in records().
        on_error: "skip" continues after damaged records, and the cursor's `.skipped` lists them; by default
            CorruptRecordError.
        wait: how many seconds to wait if another cursor of the group has the partition. If the process of
            that cursor dies, this one takes over at once. Waiting blocks; in an event loop: await
            asyncio.to_thread(log.cursor, group, wait=60).

        CursorLockedError, with the process, if another cursor of the group has the partition. OSError if the
        files cannot be written. CorruptRecordError if they are damaged.
        """
        self._now()
        return Cursor(
            self.source,
            group,
            start,
            follow=follow,
            timeout=timeout,
            isolation=isolation,
            on_error=on_error,
            wait=wait,
        )

    def share_group(
        self,
        group: str,
        start: Literal["earliest", "latest"] | int | datetime = "earliest",
        *,
        follow: bool = False,
        timeout: float | None = None,
        isolation: _Isolation = "read_uncommitted",
        on_error: _OnError = "raise",
        record_lock_ms: int = 30_000,
        max_delivery_attempts: int = 5,
        max_record_locks: int = 2_000,
        durable: bool = True,
        dead_letter_log: DeadLetterLog | None = None,
    ) -> ShareGroup:
        """Return a ShareGroup: a worker of a share group, which gets the records of the log as jobs.

        `with log.share_group("workers") as group: for record in group: …; group.acknowledge(record)`. Each
        record is delivered to one worker of the group at a time, in any thread or process, and again if that
        worker dies. The state of the group is saved in the partition, so another process may be writing the
        log.

        group, follow, timeout, isolation, on_error: as in cursor().
        start: as in cursor(), for a group that has no state yet.
        record_lock_ms: after how many milliseconds a record that was not acknowledged is delivered again.
        max_delivery_attempts: after how many deliveries the group gives a record up.
        max_record_locks: the largest number of records that are acquired or to be delivered again.
        durable: True waits for the disk when a record is acknowledged. With False, a power cut can lose
            acknowledgements.
        dead_letter_log: an open log for copies of the records that the group gives up. Default: none.

        All workers of a group should have equal options. OSError if the files cannot be written.
        CorruptRecordError if they are damaged.
        """
        self._now()
        if dead_letter_log is not None:
            check_dead_letter_log(dead_letter_log, self.path)
        tp = self._named()
        return ShareGroup(
            OnePartition(tp, self.path),
            source_at,
            [tp.topic],
            group,
            start,
            follow=follow,
            timeout=timeout,
            isolation=isolation,
            on_error=on_error,
            record_lock_ms=record_lock_ms,
            max_delivery_attempts=max_delivery_attempts,
            max_record_locks=max_record_locks,
            durable=durable,
            dead_letter_log_of=None if dead_letter_log is None else lambda _: dead_letter_log,
        )

    def cursors(self) -> dict[str, OffsetAndMetadata]:
        """Return the committed positions of all groups in this log, by the name of the group: {"mailer":
        OffsetAndMetadata(…)}.

        CorruptRecordError if their files are damaged. OSError.
        """
        self._now()
        return Home.of(self.path).all_committed()

    def share_groups(self) -> dict[str, ShareGroupState]:
        """Return the states of all share groups in this log, by the name of the group: {"workers":
        ShareGroupState(…)}.

        CorruptRecordError if their files are damaged. OSError.
        """
        self._now()
        return share_groups_in(self, self.path, self._named())

    def _named(self) -> TopicPartition:
        """The topic and partition of the log, also if its directory has no such name."""
        return self.topic_partition or layout.TopicPartition(os.path.basename(self.path), 0)

    # ---- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files. Records, slices and iterators of this log stay usable."""
        self._closed = True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"an open log cannot be pickled: give the other process its path, {self.path!r}, and open "
            "it there"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        return repr(self) if self._closed else log_table(self)

    def __repr__(self) -> str:
        if self._closed:
            return f"{type(self).__name__}({shown(self.path)!r}, closed)"
        return (
            f"{type(self).__name__}({shown(self.path)!r}, log_start_offset={self.log_start_offset}, "
            f"log_end_offset={self.log_end_offset})"
        )


def source_at(path: str) -> Source:
    """Where a reader takes views of the log at a path from, whoever writes it. What opening it raises."""
    return PartitionLog(path).source()


class _OfWriters:
    """A method of a LogWriter. A log that is open for reading raises AttributeError, so hasattr() is false.
    Unlike a __getattr__, it does not slow other attributes down."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, log: PartitionLog | None, kind: type) -> NoReturn:
        place = kind.__name__ if log is None else log.path
        raise AttributeError(
            f"{place} is open for reading, so it has no {self._name}(): kstore.open(path, 'a') opens it "
            "for writing",
            name=self._name,
            obj=log,
        )


_WRITING = (  # LogWriter has its own
    "append append_async append_batches appender compact delete_records erase extend extend_async flush "
    "make_key_files retain roll truncate_to"
)
for _name in _WRITING.split():
    setattr(PartitionLog, _name, _OfWriters(_name))
