"""A cursor over the partitions of topics, which the members of a group share."""

import math
import select
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from os import getpid
from time import monotonic
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from kstore.engine.record.batch import Record
from kstore.errors import CursorLockedError, LogClosedError
from kstore.log.cursors.cursor import Cursor, checked_place, commit_all
from kstore.log.cursors.group_file import GroupFile
from kstore.log.cursors.home import Home
from kstore.log.cursors.member_lock import LockFile, MemberLock, byte_of
from kstore.log.files.layout import TopicPartition
from kstore.log.partition import PartitionLog

_MOST_MEMBERS = 256
_LOOK = 0.5  # s: how often members look who else is there
_POLL = 0.05  # s: how often to ask where nothing tells of changes
_TURN = 512  # records of one partition before the others have a turn


class TopicRecord(NamedTuple):
    """A record and the partition that it comes from: `for topic, partition, record in store.cursor("billing", ["orders"])`."""

    topic: str
    partition: int
    record: Record


class StoreCursor:
    """The positions of a group of readers in the partitions of topics. store.cursor() makes one.

    Iterating gives a TopicRecord for each record behind the committed positions. `commit()` writes down, for all
    partitions, that what was given out is done. Cursors of one group, in any thread or process, are its members: they share
    the partitions, each of which one member has at a time. A member takes its fair share when it starts, gives up what is
    more than that after a commit, and takes over the partitions of one that has died while it iterates.

    For one thread at a time; `close` may be called from any.
    """

    _closed = True

    def __init__(
        self,
        group: str,
        partitions: Callable[[], list[TopicPartition]],
        open_log: Callable[[TopicPartition], PartitionLog],
        start: str | int | datetime,
        follow: bool,
        timeout: float | None,
        isolation: str,
    ) -> None:
        self.group = group
        self._partitions = partitions
        self._open_log = open_log
        self._start = start
        self._follow = follow
        self._timeout = timeout
        self._isolation = isolation
        self._pid = getpid()
        self._files: dict[str, GroupFile] = {}
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._next_look = 0.0
        wanted = partitions()
        self._directory = Home.of(open_log(wanted[0]).path).directory
        self._place = self._join()
        self._closed = False
        try:
            self._look()
        except BaseException:
            self.close()
            raise

    # ---- members --------------------------------------------------------------------------------------------------

    def _join(self) -> MemberLock:
        """A place among the members of the group: a lock, so that others can count who is alive."""
        for place in range(_MOST_MEMBERS):
            with suppress(CursorLockedError):
                return MemberLock(self._directory, self.group, f"place {place}", byte_of(self.group, "member", place))
        raise CursorLockedError(f"{self._directory}: each place of group {self.group!r}", None)

    def _members_count(self) -> int:
        file = LockFile.of(self._directory)
        return sum(file.is_held(byte_of(self.group, "member", place)) for place in range(_MOST_MEMBERS))

    def _look(self) -> None:
        """Takes partitions that nobody has, and gives up what is more than a fair share."""
        self._next_look = monotonic() + _LOOK
        wanted = self._partitions()
        for tp in [tp for tp in self._cursors if tp not in set(wanted)]:
            self._cursors.pop(tp).close()
        share = math.ceil(len(wanted) / max(self._members_count(), 1))
        for tp in list(self._cursors):
            if len(self._cursors) <= share:
                return
            cursor = self._cursors[tp]
            if cursor.committed is None or cursor.position == cursor.committed.offset:
                if cursor.committed is not None or cursor.position == cursor._first:  # nothing is under way
                    del self._cursors[tp]
                    cursor.close()
        for tp in wanted:
            if len(self._cursors) >= share:
                return
            if tp not in self._cursors:
                with suppress(CursorLockedError):
                    self._cursors[tp] = self._take(tp)

    def _take(self, tp: TopicPartition) -> Cursor:
        log = self._open_log(tp)
        directory = Home.of(log.path).directory
        file = self._files.get(directory)
        if file is None:
            file = self._files[directory] = GroupFile(directory, self.group)
        return Cursor(
            log._cursor_view(),
            self.group,
            self._start,
            follow=self._follow,
            isolation=self._isolation,
            file=file,
        )

    # ---- reading --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[TopicRecord]:
        self._check_open()
        return self._followed() if self._follow else self._there()

    def _there(self) -> Iterator[TopicRecord]:
        done: set[TopicPartition] = set()
        while not self._closed:
            self._look_if_due()
            tp = next((tp for tp in self._cursors if tp not in done), None)
            if tp is None:
                return
            done.add(tp)
            for record in self._cursors[tp]:
                yield TopicRecord(*tp, record)

    def _followed(self) -> Iterator[TopicRecord]:
        heard = monotonic()
        while not self._closed:
            self._look_if_due()
            found = False
            for tp, cursor in list(self._cursors.items()):
                for _ in range(_TURN):
                    if cursor.is_closed or (record := cursor._next(0)) is None:
                        break
                    found = True
                    yield TopicRecord(*tp, record)
                    if monotonic() >= self._next_look:
                        break
            if found:
                heard = monotonic()
                continue
            left = math.inf if self._timeout is None else heard + self._timeout - monotonic()
            if left <= 0:
                return
            self._wait(min(left, max(self._next_look - monotonic(), 0)))

    def _look_if_due(self) -> None:
        if not self._closed and monotonic() >= self._next_look:
            self._look()

    def _wait(self, seconds: float) -> None:
        """Until something may have changed, or so long."""
        poll = select.poll()
        told = True
        followers = {}
        for cursor in self._cursors.values():
            follower = cursor._follower
            if follower is not None:
                followers[follower.fileno()] = follower
                poll.register(follower.fileno(), select.POLLIN)
                told = told and follower.is_told
        for number, _ in poll.poll(1000 * (seconds if told else min(seconds, _POLL))):
            followers[number].heard()

    # ---- positions ------------------------------------------------------------------------------------------------

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that this member has now."""
        return sorted(self._cursors)

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets lie between the position and the end of the log, for each partition of this member."""
        self._check_open()
        return {tp: self._cursors[tp].lag for tp in self.partitions}

    def seek(self, place: str | int | datetime) -> None:
        """Goes to "earliest", "latest", an offset or a datetime in all partitions of this member, as Cursor.seek does."""
        checked_place("place", place)
        self._check_open()
        for cursor in self._cursors.values():
            cursor.seek(place)

    def commit(self, *, durable: bool = True, metadata: str = "") -> None:
        """Writes down that all records that were given out are done: all partitions in one step for each log directory, with
        one sync. The arguments and errors are those of Cursor.commit. CursorLockedError: nothing of that directory is
        committed.
        """
        self._check_open()
        commit_all([(cursor, cursor.position) for cursor in self._cursors.values()], durable, metadata)
        self._look_if_due()

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
        failure: OSError | None = None
        while self._cursors:
            tp = next(iter(self._cursors))
            try:
                self._cursors[tp].close()
            except OSError as e:
                failure = e
            self._cursors.pop(tp, None)
        self._place.release()
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
