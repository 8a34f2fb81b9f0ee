"""Records of many partitions, as they come, from one waiter."""

from __future__ import annotations

import math
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from time import monotonic

from kstore.arguments import ISOLATION, ON_ERROR, boolean, choice, each_of
from kstore.engine.io.synchronization import EventFd
from kstore.engine.scan.batch_reader import RecordReader, TopicRecords
from kstore.errors import KstoreError, LogClosedError, LogNotFoundError, OffsetOutOfRangeError
from kstore.light_typing import TYPE_CHECKING, NamedTuple
from kstore.log.cursors.arguments import checked_timeout
from kstore.log.files import layout
from kstore.log.follow.feed import read_by
from kstore.log.follow.partition_watch import PartitionWatch
from kstore.log.follow.position import are_of_one_topic
from kstore.log.follow.readable import wait_readable, wait_readable_async
from kstore.log.follow.waiting import Waitable
from kstore.log.read.left_out import LeftOut
from kstore.log.threads.closing import Closing
from kstore.log.threads.one_thread import Iterated, OneThread
from kstore.log.threads.resumed import TASK_TURN, Resumed
from kstore.store.read.read_queue import ReadQueue
from kstore.store.read.wanted_partitions import WantedPartitions

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
    from typing import Any, TypeVar

    from kstore.engine.io.synchronization import Inotify
    from kstore.engine.record.batch import Record
    from kstore.engine.scan.batch_reader import Skipped
    from kstore.log.files.layout import TopicPartition
    from kstore.log.follow.feed import Feed, Read, Run
    from kstore.store.open_partitions import OpenPartitions

    _T = TypeVar("_T")

_UPDATE = 0.4  # s: how often to list the partitions
_POLL = 0.05  # s: how often to ask where the system does not report changes
QUANTUM = 1 << 14  # records of a partition before others are read,
_LEAST_QUANTUM = 20_000_000  # and so many ns: to change the partition takes as long as some thousand records


class TopicRecord(NamedTuple):
    """A record of a topic, and where it comes from: `for topic, partition, record in store.cursor("billing",
    ["orders"])`.

    It has the offset, timestamp, key, value and headers of its record.
    """

    topic: str
    partition: int
    record: Record

    @property
    def offset(self) -> int:
        """The offset in its partition."""
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970; -1 for none."""
        return self.record.timestamp

    @property
    def key(self) -> bytes | None:
        """The key."""
        return self.record.key

    @property
    def value(self) -> bytes | None:
        """The value; None for a tombstone."""
        return self.record.value

    @property
    def headers(self) -> Any:
        """The headers."""
        return self.record.headers


class PartitionReader:
    """The position of a reader in one of its partitions. `topic_id`: that of the topic before its log was
    opened."""

    def __init__(self, feed: Feed, topic_id: str) -> None:
        self.feed = feed
        self.topic_id = topic_id
        self.resumes = False  # in the view that was read last, without a refresh first

    @property
    def position(self) -> int:
        """The offset of the next record."""
        return self.feed.offset

    def runs(self, read: Read) -> Iterator[Run]:
        """What there is from the position on. A generator, so that an error comes with the first run."""
        yield from self.feed.rest(read) if self.resumes else self.feed.runs(read)

    def close(self) -> None:
        """The partition is read no more."""
        self.feed.close()


def checked_topics(topics: Iterable[str]) -> list[str]:
    """Names of topics. TypeError, ValueError."""
    known: dict[str, None] = {}
    for topic in each_of(
        "topics must be a list of names of topics", topics
    ):  # there may be no end of them, but the first one that is no name is one
        if not isinstance(topic, str) or not layout.is_valid_topic(topic):
            raise ValueError(f"{topic!r} cannot be the name of a topic")
        known[topic] = None
    if not known:
        raise ValueError("topics must name a topic")
    return list(known)


class TopicReader(Closing, Waitable):
    """The loop that reads many partitions: those that may have more, one after the other."""

    _closed = True
    _who = "a follower"

    def __init__(
        self,
        logs: OpenPartitions,
        topics: Iterable[str] | None,
        *,
        follow: bool,
        timeout: float | None,
        isolation: str,
        on_error: str,
    ) -> None:
        logs.check_open()
        self.topics = None if topics is None else checked_topics(topics)
        boolean("follow", follow)
        self._follow = follow
        self._timeout = checked_timeout(timeout, follow)
        self._isolation = choice("isolation", isolation, ISOLATION)
        self._on_error = choice("on_error", on_error, ON_ERROR)
        self._read = read_by(RecordReader, isolation, on_error)
        self._left_out = LeftOut()
        self._logs = logs
        self._wanted = WantedPartitions(logs.catalog, self.topics)
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._queue = ReadQueue()
        self._watch = PartitionWatch()
        self._event = EventFd()
        self._iterated = Iterated()
        self._next_update = self._last_record_at = 0.0

    def _choose(self) -> None:
        """Decides which partitions are read from here on."""
        raise NotImplementedError

    def _update(self) -> None:
        self._next_update = monotonic() + _UPDATE
        self._wanted.list()
        self._choose()

    def _has_ended(self) -> bool:
        """Whether nothing more will come."""
        return False

    def _leave(self, tp: TopicPartition) -> None:
        """A partition is read no more."""
        reader = self._readers.get(tp)
        try:
            if reader is not None:
                reader.close()
        finally:
            self._readers.pop(tp, None)
            self._queue.drop(tp)
            self._watch.drop()

    def _deleted(self, tp: TopicPartition) -> None:
        """A partition was deleted, and maybe made anew: then all of it is new."""
        self._leave(tp)
        self._wanted.gone(tp)
        self._next_update = 0

    def _leave_deleted(self) -> None:
        """Leaves the partitions that were deleted, and those of topics that were made anew."""
        for tp, reader in list(self._readers.items()):
            if not self._is_there(tp, reader):
                self._deleted(tp)

    def _is_there(self, tp: TopicPartition, reader: PartitionReader) -> bool:
        topic_id = self._wanted.topic_id(tp)
        return topic_id is not None and are_of_one_topic(topic_id, reader.topic_id)

    def __iter__(self) -> Iterator[TopicRecord]:
        self._check_open()
        return self._on_one_thread(self._records_of)

    def __aiter__(self) -> AsyncIterator[TopicRecord]:
        self._check_open()
        return self._asked_by_tasks(self._records_of)

    def _on_one_thread(self, of: Callable[[TopicPartition, Any], Iterator[_T]]) -> Iterator[_T]:
        return chain.from_iterable(OneThread(self._iterated, partial(self._awaited, of)))

    def _records_of(self, tp: TopicPartition, reader: PartitionReader) -> Iterator[TopicRecord]:
        """What a partition has, up to a quantum. All that is done for a record is C code."""
        return TopicRecords(
            TopicRecord,
            tp.topic,
            tp.partition,
            reader.runs(self._read),
            QUANTUM,
            partial(self._failed, tp),
            least_ns=_LEAST_QUANTUM,
        )

    def _awaited(self, of: Callable[[TopicPartition, Any], Iterator[_T]]) -> Iterator[Iterator[_T]]:
        """What partitions give, one after the other."""
        for step in self._steps(of):
            if not isinstance(step, float):
                yield step
                continue
            wait_readable(self.signals(), step)

    def _asked_by_tasks(self, of: Callable[[TopicPartition, Any], Iterator[_T]]) -> AsyncIterator[_T]:
        return Resumed(partial(self._given_async, of))

    async def _given_async(
        self, of: Callable[[TopicPartition, Any], Iterator[_T]]
    ) -> AsyncGenerator[_T, None]:
        import asyncio

        with closing(self._steps(of)) as steps:  # at once: the next iteration may read that partition
            for step in steps:
                if not isinstance(step, float):
                    for count, record in enumerate(step, 1):
                        yield record
                        if count % TASK_TURN == 0:
                            await asyncio.sleep(0)
                    continue
                await wait_readable_async(self.signals(), step)

    def _gather(self, count: int, timeout: float) -> list[TopicRecord]:
        """Up to `count` records that are there, waiting for the first one."""
        records: list[TopicRecord] = []
        for step in OneThread(self._iterated, partial(self._steps, self._records_of, timeout)):
            if isinstance(step, float):
                if records:
                    break
                wait_readable(self.signals(), step)
            elif self._add(records, step, count):
                break
        return records

    async def _gather_async(self, count: int, timeout: float) -> list[TopicRecord]:
        records: list[TopicRecord] = []
        with closing(self._steps(self._records_of, timeout)) as steps:
            for step in steps:
                if isinstance(step, float):
                    if records:
                        break
                    await wait_readable_async(self.signals(), step)
                elif self._add(records, step, count):
                    break
        return records

    def _add(self, records: list[TopicRecord], step: Iterator[TopicRecord], count: int) -> bool:
        """Adds what a partition gives to a list. Whether that is full, or the next call has to raise."""
        try:
            for record in step:
                records.append(record)
                if len(records) == count:
                    return True
        except OffsetOutOfRangeError:
            if not records:
                raise
            return True
        return False

    def looks(self) -> Iterator[float]:
        """Look for a record again and again, for `kstore.wait`."""
        steps = OneThread(self._iterated, partial(self._steps, self._has_records, math.inf))
        with suppress(KstoreError, OSError):  # iterating raises it
            for step in steps:
                if isinstance(step, float):
                    yield step
                elif step:
                    return

    def _has_records(self, tp: TopicPartition, reader: PartitionReader) -> bool:
        """Whether a partition has a record, or reading it raises an error."""
        try:
            return reader.feed.has_more(self._read)
        except LogNotFoundError:
            self._deleted(tp)
            return False

    def _steps(
        self, of: Callable[[TopicPartition, Any], _T], limit: float | None = None
    ) -> Generator[_T | float, None, None]:
        """What one partition gives, or how long to wait before the next step. `limit`: how long to wait for a
        record, in seconds; None for what the reader was made with."""
        self._last_record_at = monotonic()
        self._queue.begin(self._readers)
        is_begun = False
        while not self._closed:
            if is_begun:
                self._take_changes()
                # Before the next update, which may add others to be asked: if these take long, it would never
                # end.
                if not self._queue and self._remaining(limit) <= 0:
                    return
            is_begun = True
            if monotonic() >= self._next_update:
                try:
                    self._update()
                except LogClosedError:
                    if self._closed:  # by another thread, meanwhile
                        return
                    raise
            self._take_changes()
            tp = self._queue.take()
            if tp is not None:
                reader = self._readers.get(tp)
                if reader is not None:
                    yield from self._step(tp, reader, of)
                continue
            left = self._remaining(limit)
            if left <= 0:
                return
            if self._watch.source is None:
                self._watch_all()
                if self._queue:
                    continue
            yield max(
                min(left, self._next_update - monotonic(), _UPDATE if self._watch.source else _POLL), 0.0
            )
            if self._watch.source is None:
                self._queue.ask_all(self._readers)

    def _remaining(self, limit: float | None) -> float:
        """For how long it waits for a record, in seconds."""
        if self._has_ended() or (limit is None and not self._follow):
            return 0
        if limit is None:
            limit = self._timeout
        return math.inf if limit is None else self._last_record_at + limit - monotonic()

    def _step(
        self, tp: TopicPartition, reader: PartitionReader, of: Callable[[TopicPartition, Any], _T]
    ) -> Iterator[_T]:
        before = reader.position
        reader.resumes = self._queue.move(tp)
        try:
            yield of(tp, reader)
            if reader.position >= before + QUANTUM:
                self._queue.leave_unfinished(tp)
            elif self._follow and (
                reader.resumes or (self._watch.source is None and reader.position > before)
            ):
                self._queue.ask(tp)  # that view is at its end, and no report says that there is more by now
        finally:
            reader.feed.stop()
        if reader.position != before:
            self._last_record_at = monotonic()

    def _failed(self, tp: TopicPartition, error: Exception) -> None:
        """What an exception while a partition is read means for the others."""
        if isinstance(error, LogNotFoundError) or (
            isinstance(error, OffsetOutOfRangeError) and self._was_made_anew(tp)
        ):
            self._deleted(tp)
            return
        if isinstance(error, LogClosedError) and self._closed:  # by another thread
            return
        self._name_partition(tp, error)
        raise error

    def _was_made_anew(self, tp: TopicPartition) -> bool:
        """Whether the log that a partition has now is of another topic than the log that was read."""
        self._wanted.list()
        return not self._is_there(tp, self._readers[tp])

    def _name_partition(self, tp: TopicPartition, error: Exception) -> None:
        if isinstance(error, KstoreError):
            error.add_note(f"in partition {tp}, which {self._who} reads")

    def _watch_all(self) -> None:
        """Has the system report changes in all partitions."""
        try:
            for tp in self._watch.add({tp: self._wanted.paths[tp] for tp in self._readers}):
                self._queue.ask(tp)
        except FileNotFoundError:  # it was deleted
            self._next_update = 0

    def _take_changes(self) -> None:
        """Takes in the changes that the system reports."""
        self._event.clear()
        is_whole = False
        try:
            for tp, is_there in self._watch.changes():
                if tp is None:
                    self._queue.ask_all(self._readers)
                elif tp in self._readers:
                    if is_there:
                        self._queue.ask(tp)
                    else:
                        self._deleted(tp)
            is_whole = True
        finally:
            if not is_whole:  # an interrupt: the rest is not reported once more
                self._queue.ask_all(self._readers)

    def signals(self) -> tuple[EventFd, Inotify | None]:
        """What becomes readable when the next look is worth it, for `kstore.wait`."""
        if self._closed:
            self._event.set()
        return self._event, self._watch.source

    # ---- closing -------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that are read now."""
        return sorted(self._readers)

    @property
    def skipped(self) -> list[Skipped]:
        """What on_error="skip" has left out so far: of each damage the file, the byte, how many bytes, and
        the error."""
        for reader in list(self._readers.values()):
            self._left_out.note(reader.feed.skipped)
        return self._left_out.listed()

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"{self._who} is closed")

    @property
    def is_closed(self) -> bool:
        """Whether the cursor was closed."""
        return self._closed

    def close(self) -> None:
        """Ends the iteration, also in a thread that is waiting in it."""
        self._closed = True
        self._event.set()

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<{type(self).__name__} of {self._who}: {len(self._readers)} partitions{state}>"
