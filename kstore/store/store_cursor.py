"""A cursor over the partitions of topics, which the members of a group share."""

import math
import select
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import chain, islice
from os import getpid
from pathlib import Path
from time import monotonic, time_ns
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Protocol, Self

from kstore.arguments import choice, number
from kstore.engine.io.file import Traffic
from kstore.engine.io.notification import EventFd, Inotify
from kstore.engine.record.batch import Record
from kstore.engine.scan.batch_reader import TopicRecords
from kstore.errors import CursorLockedError, KstoreError, LogClosedError, LogNotFoundError
from kstore.log.cursors.cursor import Cursor, check_commit, checked_group, checked_place, commit_all, lock_for
from kstore.log.cursors.group_file import GroupFile
from kstore.log.cursors.home import Home
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog
from kstore.store.membership import Membership
from kstore.store.topic_catalog import TopicCatalog

_LOOK = 0.4  # s: how often a member looks who else is there, and which partitions
_POLL = 0.05  # s: how often to ask where nothing tells of changes
_TURN = 1 << 14  # records of a partition before the others have their turn
_TASK_TURN = 32  # records that one asyncio task takes before the others have a turn
_TICK = 100_000_000  # ns: within it a directory may change twice and have the same time
_SWEEP = 20  # partitions that are asked at each look though nothing told of them: a share of another machine is silent


class TopicRecord(NamedTuple):
    """A record of a topic, and where it comes from: `for topic, partition, record in store.cursor("billing", ["orders"])`.

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


class Topics(Protocol):
    """What a cursor asks of a store."""

    _is_writing: bool
    _catalog: TopicCatalog

    @property
    def paths(self) -> tuple[Path, ...]: ...
    def _traffic_of(self, topic: str) -> Traffic: ...


class StoreCursor:
    """The positions of a group of readers in the partitions of topics. store.cursor() makes one.

    Iterating gives a TopicRecord for each record behind the committed positions. `commit()` writes down, for all
    partitions, that what was given out is done. Cursors of one group, in any thread or process, are its members: they share
    the partitions, each of which one member has at a time. A member gives up what is more than its share once all that it
    was given of it is committed, and takes over the partitions of one that has died. It does so while it is iterated, and
    when it commits.

    For one thread or task at a time; `close` may be called from any.
    """

    _closed = True

    def __init__(
        self,
        store: Topics,
        group: str,
        topics: Iterable[str],
        start: str | int | datetime,
        *,
        follow: bool,
        timeout: float | None,
        isolation: str,
    ) -> None:
        self.group = checked_group(group)
        if isinstance(topics, str) or not isinstance(topics, Iterable):
            raise TypeError(f"topics must be a list of names of topics, not {topics!r}")
        self.topics = list(dict.fromkeys(topics))
        for topic in self.topics:
            if not isinstance(topic, str) or not layout.is_valid_topic(topic):
                raise ValueError(f"{topic!r} cannot be the name of a topic")
        if not self.topics:
            raise ValueError("topics must name a topic")
        self._start = checked_place("start", start)
        if not isinstance(follow, bool):
            raise TypeError(f"follow must be True or False, not {follow!r}")
        self._follow = follow
        self._timeout = None if timeout is None else number("timeout", timeout, 0)
        self._isolation = choice("isolation", isolation, ("read_uncommitted", "read_committed"))
        self._store = store
        self._traffic_of = store._traffic_of  # of the store that was asked, whichever is looked at later
        self._listed: object = None
        self._wanted: dict[TopicPartition, str] = {}
        self._pid = getpid()
        self._files: dict[str, GroupFile] = {}
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._settled: dict[TopicPartition, int] = {}  # up to where all is committed
        self._pending: dict[TopicPartition, None] = {}  # which may have more
        self._numbers: dict[int, TopicPartition] = {}  # by the number that the watch knows them by
        self._watch: Inotify | None = None
        self._event = EventFd()
        self._next_look = self._heard = 0.0
        self._swept = 0
        self._list()
        self._first_wanted = set(self._wanted)
        if not follow:
            missing = sorted(set(self.topics) - {tp.topic for tp in self._wanted})
            if missing:
                raise LogNotFoundError(f"no topic {missing[0]} in {', '.join(map(str, store.paths))}")
        self._members = self._join()
        self._closed = False
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    # ---- members --------------------------------------------------------------------------------------------------

    def _join(self) -> Membership:
        return Membership(self.group, self.topics, [str(path) for path in self._store.paths if path.is_dir()])

    def _list(self) -> None:
        """Which partitions there are now, and where."""
        store = self._store
        if store._is_writing:
            if store._catalog.places is self._listed:
                return
            self._listed = store._catalog.places
        else:
            now = [path.stat().st_mtime_ns for path in store.paths if path.is_dir()]
            if now == self._listed and time_ns() - max(now, default=0) > _TICK:
                return
            self._listed = now
            store = self._store = type(store)(*store.paths)
        topics, places = set(self.topics), store._catalog.places
        self._wanted = {tp: str(places[tp].path_of(tp)) for tp in sorted(places) if tp.topic in topics}

    def _look(self) -> None:
        """Takes partitions that nobody has, and gives up what is more than a fair share, or is gone."""
        self._next_look = monotonic() + _LOOK
        try:
            self._members.check()
        except CursorLockedError:
            self._members = self._join()
        self._list()
        for tp in [tp for tp in self._cursors if tp not in self._wanted]:
            self._give_up(tp)
        share = self._members.share_of(len(self._wanted))
        for tp in [tp for tp, cursor in self._cursors.items() if cursor._behind_given <= self._settled[tp]]:
            if len(self._cursors) <= share:
                break
            self._give_up(tp)
        self._take(share)
        if self._follow:
            self._watch_all()
            self._sweep()
        if self._closed:  # meanwhile
            self.close()

    def _sweep(self) -> None:
        """A few partitions are looked at though nothing told of them, others each time: is there more, and has the system
        dropped the lock?"""
        mine = list(self._cursors)
        at = self._swept % max(len(mine), 1)
        for tp in mine[at : at + _SWEEP]:
            cursor = self._cursors.get(tp)
            try:
                if cursor is not None:
                    cursor._lock.check()
                    self._pending[tp] = None
            except CursorLockedError:
                self._give_up(tp)
        self._swept = at + _SWEEP

    def _take(self, share: int) -> None:
        """Takes partitions that no other member has, up to a share."""
        fresh: list[tuple[Cursor, int]] = []
        for tp, path in self._wanted.items():
            if len(self._cursors) >= share:
                break
            if tp in self._cursors:
                continue
            start: Any = "earliest"  # a partition that was made later holds only what came later
            if tp in self._first_wanted:
                start = self._start
            try:
                lock = lock_for(Home.of(path), self.group)
            except (CursorLockedError, LogNotFoundError):  # another member has it; it is being deleted
                continue
            try:
                log = PartitionLog(path)
                log._traffic = self._traffic_of(tp.topic)
                cursor = Cursor(
                    log, self.group, start, isolation=self._isolation, lock=lock, files=self._files
                )
            except BaseException as e:
                lock.release()
                if isinstance(e, LogNotFoundError):
                    continue
                raise
            self._settled[tp] = cursor.position
            self._pending[tp] = None
            self._cursors[tp] = cursor
            if cursor.committed is None and start != "earliest":
                fresh.append((cursor, cursor.position))
        commit_all(fresh, durable=True)  # or who takes over from this member would begin elsewhere

    def _give_up(self, tp: TopicPartition) -> None:
        cursor = self._cursors.get(tp)
        try:
            if cursor is not None:
                cursor.close()
        finally:
            self._cursors.pop(tp, None)
            self._pending.pop(tp, None)
            self._watch, self._numbers = None, {}  # it would go on to tell of it

    def _give_up_lost(self) -> None:
        """Those for which another member reads, or has read."""
        for tp, cursor in list(self._cursors.items()):
            try:
                cursor._check(cursor._file.read())
            except (CursorLockedError, LogNotFoundError):
                self._give_up(tp)

    # ---- reading --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[TopicRecord]:
        self._check_open()
        return chain.from_iterable(self._awaited())

    def _awaited(self) -> Iterator[Iterator[TopicRecord]]:
        """Records of one partition, in turn."""
        for turn in self._turns():
            if not isinstance(turn, float):
                yield turn
                continue
            with select.epoll() as poll:
                self._register(poll)
                poll.poll(turn)

    async def __aiter__(self) -> AsyncIterator[TopicRecord]:
        import asyncio

        self._check_open()
        for turn in self._turns():
            if not isinstance(turn, float):
                for count, record in enumerate(turn, 1):
                    yield record
                    if count % _TASK_TURN == 0:
                        await asyncio.sleep(0)
                continue
            told = asyncio.Event()
            with select.epoll() as poll:
                self._register(poll)
                loop = asyncio.get_running_loop()
                loop.add_reader(poll.fileno(), told.set)
                timer = loop.call_later(turn, told.set)
                try:
                    await told.wait()
                finally:
                    timer.cancel()
                    loop.remove_reader(poll.fileno())

    def _turns(self) -> Iterator[Iterator[TopicRecord] | float]:
        """Records of one partition, or how long to wait before the next turn."""
        self._heard = monotonic()
        self._pending = dict.fromkeys(self._cursors)  # an iteration before this one may have ended anywhere
        while not self._closed:
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
                cursor = self._cursors.get(tp)
                if cursor is not None:
                    yield from self._turn(tp, cursor)
                continue
            if not self._follow:
                return
            left = math.inf if self._timeout is None else self._heard + self._timeout - monotonic()
            if left <= 0:
                return
            yield max(min(left, self._next_look - monotonic(), _LOOK if self._watch else _POLL), 0.0)
            if self._watch is None:
                self._pending = dict.fromkeys(self._cursors)

    def _turn(self, tp: TopicPartition, cursor: Cursor) -> Iterator[Iterator[TopicRecord]]:
        """What a partition has, up to where the others have their turn. All that is done for a record is C code."""
        before = cursor.position
        try:
            yield TopicRecords(
                TopicRecord, tp.topic, tp.partition, islice(cursor, _TURN), partial(self._failed, tp)
            )
            if cursor.position >= before + _TURN:
                self._pending[tp] = None
        finally:
            cursor._let_go()
        if cursor.position != before:
            self._heard = monotonic()

    def _failed(self, tp: TopicPartition, error: Exception) -> None:
        """What an exception while a partition is read means for the others."""
        if isinstance(error, LogNotFoundError):  # it was deleted, and maybe made anew
            self._give_up(tp)
            self._first_wanted.discard(tp)
            self._listed, self._next_look = None, 0
            return
        if isinstance(error, LogClosedError) and self._closed:  # by another thread
            return
        if isinstance(error, KstoreError):
            error.add_note(f"in partition {tp}, which group {self.group!r} reads")
        raise error

    def _watch_all(self) -> None:
        """Has the system tell of changes in all partitions."""
        if self._watch is None:
            try:
                self._watch = Inotify()
            except OSError:  # none is left: they are asked again and again
                return
        known = set(self._numbers.values())
        try:
            for tp in self._cursors:
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
        for directory, _, _ in self._watch.read_events() if self._watch is not None else ():
            if directory < 0:
                self._pending |= dict.fromkeys(self._cursors)
            elif (tp := self._numbers.get(directory)) in self._cursors and tp is not None:
                self._pending[tp] = None

    def _register(self, poll: select.epoll) -> None:
        poll.register(self._event.fileno(), select.EPOLLIN)
        if self._watch is not None:
            poll.register(self._watch.fileno(), select.EPOLLIN)
        if self._closed:
            self._event.set()

    # ---- positions ------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that this member has now."""
        return sorted(self._cursors)

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets lie between the position and the end of the log, for each partition of this member:
        {("orders", 0): 17, …}.
        """
        self._check_open()
        return {tp: self._cursors[tp].lag for tp in self.partitions}

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record, for each partition of this member."""
        self._check_open()
        return {tp: self._cursors[tp].position for tp in self.partitions}

    def seek(
        self, place: str | int | datetime, topic: str | None = None, partition: int | None = None
    ) -> None:
        """Goes to "earliest", "latest", an offset or a datetime in all partitions of this member, or in those of a topic, or
        in one partition. Nothing is written before the next commit(). Errors as those of Cursor.seek.
        """
        checked_place("place", place)
        self._check_open()
        for tp, cursor in self._cursors.items():
            if topic in (None, tp.topic) and partition in (None, tp.partition):
                cursor.seek(place)
                self._settled[tp] = -1  # it is under way until it is committed
                self._pending[tp] = None

    def commit(self, record: TopicRecord | None = None, *, durable: bool = True, metadata: str = "") -> None:
        """Writes down that all records that were given out are done: all partitions in one step for each log directory, with
        one sync.

        record: only this record, and those before it in its partition.

        The other arguments, and errors, are those of Cursor.commit. CursorLockedError if the partition was lost to another
        member: nothing of its log directory is committed, this one has it no longer, and the next commit is for the others.
        """
        check_commit(durable, metadata)
        self._check_open()
        if record is None:
            moved = [(c, c.position) for tp, c in self._cursors.items() if c.position != self._settled[tp]]
        elif isinstance(record, TopicRecord):
            cursor = self._cursors.get(TopicPartition(record.topic, record.partition))
            if cursor is None:
                raise CursorLockedError(f"{record.topic}-{record.partition} of group {self.group!r}", None)
            moved = [(cursor, record.offset + 1)]
        else:
            raise TypeError(f"record must be a TopicRecord of this cursor, not {record!r}")
        try:
            commit_all(moved, durable, metadata)
            if durable:
                for file in {cursor._file for cursor in self._cursors.values()}:
                    file.sync()
        except (CursorLockedError, LogNotFoundError):
            self._give_up_lost()
            raise
        for cursor, offset in moved:
            self._settled[cursor._home.tp] = offset
        if monotonic() >= self._next_look:
            self._look()

    async def commit_async(self, record: TopicRecord | None = None, *, metadata: str = "") -> None:
        """Commits durably, as commit() does, in another thread: the event loop goes on meanwhile."""
        import asyncio

        await asyncio.to_thread(self.commit, record, metadata=metadata)

    # ---- closing --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"the cursor of group {self.group!r} is closed")
        if self._pid != getpid():
            raise LogClosedError(f"the cursor of group {self.group!r} belongs to process {self._pid}")

    @property
    def is_closed(self) -> bool:
        """Whether the cursor was closed."""
        return self._closed

    def close(self) -> None:
        """Gives the partitions to the other members. Nothing is committed. OSError."""
        self._closed = True
        self._event.set()
        failure: OSError | None = None
        for cursor in list(self._cursors.values()):
            try:
                cursor.close()
            except OSError as e:
                failure = failure or e
        self._cursors = {}
        self._members.leave()
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cursor cannot be pickled: open one in the other process")

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<StoreCursor of group {self.group!r}: {len(self._cursors)} partitions{state}>"
