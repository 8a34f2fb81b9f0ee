"""Records of many partitions, as they come, from one waiter."""

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import datetime
from functools import partial
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple, NoReturn, TypeVar

from kstore.arguments import ISOLATION, ON_ERROR, boolean, choice, integer
from kstore.engine.io.notification import EventFd, Inotify
from kstore.engine.record.batch import Record
from kstore.engine.scan.batch_reader import RecordReader, Skipped, TopicRecords
from kstore.errors import KstoreError, LogClosedError, LogNotFoundError
from kstore.log.cursors.arguments import checked_place, checked_timeout, offset_of
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.follow.feed import Feed, Read, Run, read_by
from kstore.log.follow.position import position_in
from kstore.log.follow.readable import wait_readable, wait_readable_async
from kstore.log.partition import PartitionLog
from kstore.log.read.left_out import LeftOut
from kstore.log.threads.closing import Closing
from kstore.log.threads.one_thread import Iterated, OneThread
from kstore.log.threads.resumed import TASK_TURN, Resumed
from kstore.store.topic_catalog import Current, Topics

LOOK = 0.4  # s: how often to look which partitions there are
_POLL = 0.05  # s: how often to ask where nothing tells of changes
TURN = 1 << 14  # records of a partition before the others have their turn,
_LEAST_TURN = 20_000_000  # and so many ns: to go elsewhere takes as long as some thousand records
_SWEEP = 20  # partitions
_T = TypeVar("_T")


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


class Place:
    """The position of a reader in one of its partitions."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.goes_on = False  # in the view of the turn before, without a look for more first

    @property
    def position(self) -> int:
        """The offset of the next record."""
        return self.feed.offset

    def runs(self, read: Read) -> Iterator[Run]:
        """What there is from the position on. A generator, so that an error comes with the first run."""
        yield from self.feed.rest(read) if self.goes_on else self.feed.runs(read)

    def close(self) -> None:
        """The partition is read no more."""
        self.feed.close()


class TopicReader(Closing, Iterated):
    """The loop of all that read many partitions: each has its turn when something tells of it."""

    _closed = True
    _who = "a follower"

    def __init__(
        self,
        store: Topics,
        topics: Iterable[str] | None,
        *,
        follow: bool,
        timeout: float | None,
        isolation: str,
        on_error: str,
    ) -> None:
        self.topics: list[str] | None = None
        if topics is not None:
            if isinstance(topics, str) or not isinstance(topics, Iterable):
                raise TypeError(f"topics must be a list of names of topics, not {topics!r}")
            known: dict[str, None] = {}
            for topic in topics:  # there may be no end of them, but the first one that is no name is one
                if not isinstance(topic, str) or not layout.is_valid_topic(topic):
                    raise ValueError(f"{topic!r} cannot be the name of a topic")
                known[topic] = None
            self.topics = list(known)
            if not self.topics:
                raise ValueError("topics must name a topic")
        boolean("follow", follow)
        self._follow = follow
        self._timeout = checked_timeout(timeout, follow)
        self._isolation = choice("isolation", isolation, ISOLATION)
        self._on_error = choice("on_error", on_error, ON_ERROR)
        self._read = read_by(RecordReader, isolation, on_error)
        self._left_out = LeftOut()
        self._store = store
        self._traffic_of = store._traffic_of  # of the store that was asked, whichever is looked at later
        self._current = Current(store)
        self._listed: object = None
        self._wanted: dict[TopicPartition, str] = {}
        self._places: dict[TopicPartition, Place] = {}
        self._pending: dict[TopicPartition, None] = {}  # which may have more
        self._unfinished: set[TopicPartition] = set()  # whose turn ended before the records that they had
        self._moved: dict[TopicPartition, None] = {}  # which had a turn
        self._turn_of: TopicPartition | None = None  # the last of these
        self._numbers: dict[int, TopicPartition] = {}  # by the number that the watch knows them by
        self._watch: Inotify | None = None
        self._event = EventFd()
        self._next_look = self._heard = 0.0
        self._swept = 0
        self._few: list[TopicPartition] = []  # that were asked last though nothing told of them
        self._list()
        self._first_wanted = set(self._wanted)

    def _list(self) -> None:
        """Which partitions there are now, and where."""
        places = self._current.catalog().places
        if places is not self._listed:
            self._wanted = {tp: str(places[tp].path_of(tp)) for tp in sorted(places) if self._wants(tp.topic)}
            self._listed = places

    def _wants(self, topic: str) -> bool:
        return topic in self.topics if self.topics is not None else not topic.startswith("__")

    def _look(self) -> None:
        """Decides which partitions are read from here on."""
        raise NotImplementedError

    def _next_few(self) -> list[TopicPartition]:
        """A few partitions, others each time, which are asked though nothing told of them: a share of another
        machine is silent."""
        mine = list(self._places)
        at = self._swept % max(len(mine), 1)
        self._swept = at + _SWEEP
        few = mine[at : at + _SWEEP]
        if self._pending.keys().isdisjoint(self._few):  # else the ones before have not had their turn
            self._few = few
            self._pending |= dict.fromkeys(few)
        return few

    def _is_over(self) -> bool:
        """Whether nothing more will come."""
        return not self._follow

    def _give_up(self, tp: TopicPartition) -> None:
        """A partition is read no more."""
        place = self._places.get(tp)
        try:
            if place is not None:
                place.close()
        finally:
            self._places.pop(tp, None)
            self._pending.pop(tp, None)
            self._moved.pop(tp, None)
            self._watch, self._numbers = None, {}  # it would go on to tell of it

    def _gone(self, tp: TopicPartition) -> None:
        """A partition was deleted, and maybe made anew: then all of it is new."""
        self._give_up(tp)
        self._first_wanted.discard(tp)
        self._current.look_again()
        self._next_look = 0

    def __iter__(self) -> Iterator[TopicRecord]:
        self._check_open()
        return chain.from_iterable(OneThread(self, partial(self._awaited, self._records_of)))

    def __aiter__(self) -> AsyncIterator[TopicRecord]:
        self._check_open()
        return self._asked_by_tasks(self._records_of)

    def _records_of(self, tp: TopicPartition, place: Place) -> Iterator[TopicRecord]:
        """What a partition has, up to where the others have their turn. All that is done for a record is C
        code."""
        return TopicRecords(
            TopicRecord,
            tp.topic,
            tp.partition,
            place.runs(self._read),
            TURN,
            partial(self._failed, tp),
            least_ns=_LEAST_TURN,
        )

    def _awaited(self, of: Callable[[TopicPartition, Any], Iterator[_T]]) -> Iterator[Iterator[_T]]:
        """What partitions give, in turn."""
        for turn in self._turns(of):
            if not isinstance(turn, float):
                yield turn
                continue
            wait_readable(self._sources(), turn)

    def _asked_by_tasks(self, of: Callable[[TopicPartition, Any], Iterator[_T]]) -> AsyncIterator[_T]:
        return Resumed(partial(self._given_async, of))

    async def _given_async(
        self, of: Callable[[TopicPartition, Any], Iterator[_T]]
    ) -> AsyncGenerator[_T, None]:
        import asyncio

        with closing(self._turns(of)) as turns:  # at once: it lets go of what the next iteration may read
            for turn in turns:
                if not isinstance(turn, float):
                    for count, record in enumerate(turn, 1):
                        yield record
                        if count % TASK_TURN == 0:
                            await asyncio.sleep(0)
                    continue
                await wait_readable_async(self._sources(), turn)

    def _turns(
        self, of: Callable[[TopicPartition, Any], Iterator[_T]]
    ) -> Generator[Iterator[_T] | float, None, None]:
        """What one partition gives, or how long to wait before the next turn."""
        self._heard = monotonic()
        self._pending = dict.fromkeys(self._places)  # an iteration before this one may have ended anywhere
        self._unfinished.clear()
        is_begun = False
        while not self._closed:
            if is_begun:
                self._hear()
                # Before the next look, which may add others to be asked: if these take long, it would never
                # end.
                if not self._pending and (self._is_over() or self._left() <= 0):
                    return
            is_begun = True
            if monotonic() >= self._next_look:
                try:
                    self._look()
                except LogClosedError:
                    if self._closed:  # by another thread, meanwhile
                        return
                    raise
            self._hear()
            if self._pending:
                tp = next(iter(self._pending))
                del self._pending[tp]
                place = self._places.get(tp)
                if place is not None:
                    yield from self._turn(tp, place, of)
                continue
            if self._is_over():
                return
            left = self._left()
            if left <= 0:
                return
            yield max(min(left, self._next_look - monotonic(), LOOK if self._watch else _POLL), 0.0)
            if self._watch is None:
                self._pending = dict.fromkeys(self._places)

    def _left(self) -> float:
        """For how long it waits for a record, in seconds."""
        return math.inf if self._timeout is None else self._heard + self._timeout - monotonic()

    def _turn(
        self, tp: TopicPartition, place: Place, of: Callable[[TopicPartition, Any], Iterator[_T]]
    ) -> Iterator[Iterator[_T]]:
        before = place.position
        self._turn_of = tp
        self._moved[tp] = None
        place.goes_on = goes_on = tp in self._unfinished
        self._unfinished.discard(tp)
        try:
            yield of(tp, place)
            if place.position >= before + TURN:
                self._unfinished.add(tp)
            if tp in self._unfinished or (goes_on and self._follow):
                self._pending[tp] = None
        finally:
            place.feed.stop()
        if place.position != before:
            self._heard = monotonic()

    def _failed(self, tp: TopicPartition, error: Exception) -> None:
        """What an exception while a partition is read means for the others."""
        if isinstance(error, LogNotFoundError):
            self._gone(tp)
            return
        if isinstance(error, LogClosedError) and self._closed:  # by another thread
            return
        self._name_partition(tp, error)
        raise error

    def _name_partition(self, tp: TopicPartition, error: Exception) -> None:
        if isinstance(error, KstoreError):
            error.add_note(f"in partition {tp}, which {self._who} reads")

    def _watch_all(self) -> None:
        """Has the system tell of changes in all partitions."""
        if self._watch is None:
            try:
                self._watch = Inotify()
            except OSError:  # none is left: they are asked again and again
                return
        known = set(self._numbers.values())
        try:
            for tp in self._places:
                if tp not in known:
                    self._numbers[self._watch.add(self._wanted[tp])] = tp
                    self._pending[tp] = None  # what came before
        except FileNotFoundError:  # it was deleted
            self._next_look = 0
        except OSError:
            self._watch, self._numbers = None, {}

    def _hear(self) -> None:
        """Takes in what the system tells of changes."""
        self._event.clear()
        try:
            for directory, _, name in self._watch.read_events() if self._watch is not None else ():
                if directory < 0:
                    self._pending |= dict.fromkeys(self._places)
                elif (tp := self._numbers.get(directory)) in self._places and tp is not None:
                    if name:
                        self._pending[tp] = None
                    else:
                        self._gone(tp)
        except BaseException:  # an interrupt: nobody tells the rest once more
            self._pending |= dict.fromkeys(self._places)
            raise

    def _sources(self) -> tuple[EventFd, Inotify | None]:
        """What can be read when there is something to look at."""
        if self._closed:
            self._event.set()
        return self._event, self._watch

    # ---- closing -------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that are read now."""
        return sorted(self._places)

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record, for each partition that is read now."""
        self._check_open()
        return {tp: self._places[tp].position for tp in self.partitions}

    @property
    def skipped(self) -> list[Skipped]:
        """What on_error="skip" has left out so far: of each damage the file, the byte, how many bytes, and
        the error."""
        for place in list(self._places.values()):
            self._left_out.note(place.feed.skipped)
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
        return f"<{type(self).__name__} of {self._who}: {len(self._places)} partitions{state}>"


class StoreFollower(TopicReader):
    """The records of many partitions as they come, each as a TopicRecord. store.follow() makes one.

    `for` and `async for` both work. One thread or task at a time may iterate; any may call `close`. It ends
    if nothing came for `timeout` seconds, if it is closed, and if its store is closed and all is read.
    Partitions that are made later are read from their beginning; those that are deleted are left out. If a
    position is deleted before it is reached: OffsetOutOfRangeError, with the partition in a note;
    `positions()` says how far it came, to go on from with another.
    """

    def __init__(
        self,
        store: Any,
        topics: Iterable[str] | None,
        start: str | datetime | Mapping[TopicPartition, int],
        *,
        timeout: float | None,
        isolation: str,
        on_error: str,
    ) -> None:
        if isinstance(start, Mapping):
            if not all(isinstance(tp, tuple) and len(tp) == 2 for tp in start):
                raise TypeError(
                    "start has offsets by (topic, partition): {('orders', 0): 17}" + f", not {start!r:.80}"
                )
            self._start: Any = {TopicPartition(*tp): integer("start", at) for tp, at in start.items()}
        elif isinstance(start, str | datetime):
            self._start = checked_place("start", start)
        else:
            raise TypeError(
                f"start must be earliest, latest, a datetime or offsets by partition, not {start!r}"
            )
        self._origin = store
        super().__init__(store, topics, follow=True, timeout=timeout, isolation=isolation, on_error=on_error)
        self._closed = False
        self._look()

    def _is_over(self) -> bool:
        return bool(self._origin._closed)

    def _look(self) -> None:
        self._next_look = monotonic() + LOOK
        self._list()
        for tp in [tp for tp in self._places if tp not in self._wanted]:
            self._gone(tp)
        for tp, path in self._wanted.items():
            if tp not in self._places:
                start: Any = "earliest"  # a partition that was made later holds only what came later
                if tp in self._first_wanted:
                    start = self._start.get(tp, start) if isinstance(self._start, dict) else self._start
                try:
                    log = PartitionLog(path)
                except LogNotFoundError:  # it is being deleted
                    continue
                log.traffic = self._traffic_of(tp.topic)
                at = start if isinstance(start, int) else offset_of(log, start, self._isolation)
                position = position_in(log.snapshot, at)
                self._places[tp] = Place(Feed(log.source(), position, self._isolation, self._left_out))
                self._pending[tp] = None
        self._watch_all()
        self._next_few()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a follower cannot be pickled: make one in the other process")
