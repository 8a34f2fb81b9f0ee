"""A cursor: the durable position of a reader in one partition."""

import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self

from kstore.arguments import any_integer, choice, integer, moment, number
from kstore.engine.record.batch import Record
from kstore.errors import CursorLockedError, LogClosedError, OffsetOutOfRangeError
from kstore.log.cursors.group_file import Entry, GroupFile
from kstore.log.cursors.home import Home
from kstore.log.cursors.member_lock import MemberLock, byte_of
from kstore.log.cursors.offset_commits import MAX_METADATA_BYTES, Commit, OffsetAndMetadata
from kstore.log.files.layout import TopicPartition

_GROUP = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_NAMES = ("earliest", "latest")


class View(Protocol):
    """What a cursor asks of a log."""

    path: str

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]: ...
    def refresh(self) -> bool: ...
    def last_stable_offset(self) -> int: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...
    def find(self, *, timestamp: datetime) -> Any: ...
    def records(self, start: int, stop: int, *, isolation: Any) -> Iterator[Record]: ...
    def follow(self, offset: int, *, timeout: float | None, isolation: Any) -> Any: ...


def checked_group(group: object) -> str:
    """The name of a group. TypeError, ValueError."""
    if not isinstance(group, str):
        raise TypeError(f"group must be a str, not {group!r}")
    if _GROUP.fullmatch(group) is None:
        raise ValueError(f"group is the name of a file: up to 200 of the characters a-z A-Z 0-9 . _ -, not {group!r}")
    return group


def checked_groups(name: str, groups: object) -> list[str]:
    """Names of groups. TypeError, ValueError."""
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise TypeError(f"{name} must be a list of names of groups, not {groups!r}")
    return [checked_group(group) for group in groups]


def checked_place(name: str, value: object) -> str | int | datetime:
    """Where to begin: "earliest", "latest", an offset or a datetime. TypeError, ValueError."""
    if isinstance(value, str):
        return choice(name, value, _NAMES)
    if isinstance(value, datetime):
        moment(name, value)
        return value
    return integer(name, value)


class Cursor:
    """The position of a group of readers in a log, kept on disk. log.cursor() makes one.

    Iterating gives the records behind the last committed position, and goes on from there when it is iterated again.
    `commit()` writes the position down, so that the next cursor of the group begins there. A group has one cursor a
    partition at a time: close it, or use it in a `with` statement. Closing it commits nothing.

    One thread at a time may iterate it; any may call `commit` and `close`. In a forked child it refuses to commit.
    """

    _closed = True

    def __init__(
        self,
        view: View,
        group: str,
        start: str | int | datetime = "earliest",
        *,
        follow: bool = False,
        timeout: float | None = None,
        isolation: str = "read_uncommitted",
        file: GroupFile | None = None,
    ) -> None:
        self.group = checked_group(group)
        start = checked_place("start", start)
        if not isinstance(follow, bool):
            raise TypeError(f"follow must be True or False, not {follow!r}")
        self._timeout = None if timeout is None else number("timeout", timeout, 0)
        self._isolation = choice("isolation", isolation, ("read_uncommitted", "read_committed"))
        self._follow = follow
        self._view = view
        self._home = Home.of(view.path)
        tp = self._home.tp
        byte = byte_of(group, tp.topic, tp.partition)
        self._lock = MemberLock(self._home.directory, group, f"partition {tp}", byte)
        try:
            self._id = self._home.make_id()
            self._file = file or GroupFile(self._home.directory, group)
            found = self._file.read().get(tp)
            self._seen = found  # what was there before this cursor
            self._committed = found.commit.position if found and found.commit.partition_id == self._id else None
            self._follower: Any = None
            self._follower_at = -1
            if self._committed is None:
                self._position = self._offset_of(start)
            else:
                self._position = self._committed.offset
            self._floor = -1 if self._committed is None else self._position
        except BaseException:
            self._lock.release()
            raise
        self._closed = False

    # ---- where it is ----------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The offset of the next record that iterating gives."""
        return self._position

    @property
    def committed(self) -> OffsetAndMetadata | None:
        """What was committed last, as OffsetAndMetadata; None if nothing was."""
        return self._committed

    @property
    def lag(self) -> int:
        """How many offsets lie between the position and the end of the log, as it is now."""
        self._check_open()
        self._view.refresh()
        return max(self._view.log_end_offset - self._position, 0)

    def seek(self, place: str | int | datetime) -> int:
        """Goes to another position, forwards or backwards, and returns it.

        place: "earliest", "latest", an offset, or a datetime: the first record with this timestamp or a later one.
        Nothing is written before the next commit(), which may go back to this position. OffsetOutOfRangeError for an
        offset outside the log.
        """
        place = checked_place("place", place)
        self._check_open()
        self._view.refresh()
        self._position = self._floor = self._offset_of(place)
        return self._position

    def _offset_of(self, place: str | int | datetime) -> int:
        view = self._view
        first, end = view.log_start_offset, view.log_end_offset
        if isinstance(place, datetime):
            found = view.find(timestamp=place)
            return end if found is None else max(int(found.offset), first)
        if isinstance(place, str):
            return first if place == "earliest" else end
        if not first <= place <= end:
            raise OffsetOutOfRangeError(place, first, end)
        return place

    def _check_range(self) -> None:
        """OffsetOutOfRangeError if the position was deleted, or cut off and written anew in a later leader epoch."""
        view, position = self._view, self._position
        first, end = view.log_start_offset, view.log_end_offset
        committed = self._committed
        if committed is not None and committed.leader_epoch >= 0 and committed.offset == position:
            epoch_end = view.end_offset_for_epoch(committed.leader_epoch)[1]
            end = epoch_end if 0 <= epoch_end < position else end
        if not first <= position <= end:
            raise _told(OffsetOutOfRangeError(position, first, end))

    # ---- reading --------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        self._check_open()
        return self._followed() if self._follow else self._there()

    def _there(self) -> Iterator[Record]:
        """The records up to the end of the log as it is now."""
        view = self._view
        view.refresh()
        stop = view.log_end_offset
        if self._isolation == "read_committed":
            stop = max(min(stop, view.last_stable_offset()), self._position)
        reader = view.records(self._position, stop, isolation=self._isolation)
        self._check_range()  # after it: what is deleted from here on makes the reader raise
        for record in reader:
            if self._closed:
                return
            self._position = record.offset + 1
            yield record
        if not self._closed and self._position < stop:
            self._position = stop  # only markers of transactions, and what compaction has left

    def _followed(self) -> Iterator[Record]:
        while (record := self._next(self._timeout)) is not None:
            yield record

    def _next(self, timeout: float | None) -> Record | None:
        """The next record; None if there is none within that time."""
        if self._closed:
            return None
        follower = self._follower
        if follower is None or self._follower_at != self._position:
            self._end_follower()
            self._view.refresh()
            self._check_range()
            follower = self._view.follow(self._position, timeout=timeout, isolation=self._isolation)
            self._follower, self._follower_at = follower, self._position
        follower.timeout = timeout
        try:
            record: Record | None = next(follower, None)
        except OffsetOutOfRangeError as e:
            raise _told(e) from None
        if record is not None:
            self._position = self._follower_at = record.offset + 1
        return record

    def _end_follower(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()

    @contextmanager
    def batch(self, count: int, timeout: float = 0.0) -> Iterator[list[Record]]:
        """Gives up to `count` records as a list, and commits behind them when the `with` block ends without an exception.

        It gives what is there. If that is nothing, it waits up to `timeout` seconds for the first record; then the list may
        be empty. After an exception the cursor stands where it was before the batch.
        """
        count = integer("count", count, 1)
        timeout = number("timeout", timeout, 0)
        self._check_open()
        before = self._position
        records: list[Record] = []
        try:
            while len(records) < count and (record := self._next(0 if records else timeout)) is not None:
                records.append(record)
            yield records
            if records:
                self.commit(records[-1])
        except BaseException:
            self._position = before
            raise

    # ---- committing -----------------------------------------------------------------------------------------------

    def commit(self, record: Record | int | None = None, *, durable: bool = True, metadata: str = "") -> None:
        """Writes down that the records up to this one are done: the next cursor of the group begins behind it.

        record: a Record, or the offset of one. Default: the last one that was given out.
        durable: True returns when the position is safe from a power cut. False is faster: it is safe if only the process
            dies, and from a power cut after the next durable commit or close().
        metadata: a text to keep with the position, of at most 4096 bytes.

        ValueError if it would move the position backwards, which only seek() allows; OffsetOutOfRangeError for a record
        behind the end of the log. CursorLockedError if the lock was lost, LogClosedError if the cursor is closed or belongs
        to the parent of this process. OSError: the position is the old one or the new one.
        """
        if not isinstance(durable, bool):
            raise TypeError(f"durable must be True or False, not {durable!r}")
        if not isinstance(metadata, str):
            raise TypeError(f"metadata must be a str, not {metadata!r}")
        if len(metadata.encode()) > MAX_METADATA_BYTES:
            raise ValueError(f"metadata has more than {MAX_METADATA_BYTES} bytes")
        offset = self._position
        if isinstance(record, Record):
            offset = record.offset + 1
        elif record is not None:
            offset = integer("record", record) + 1
        commit_all([(self, offset)], durable, metadata)

    def forget(self) -> None:
        """Removes the committed position, durably, with a tombstone. The cursor stays where it is. OSError."""
        self._check_open()
        self._file.write({self._home.tp: None}, True, self._check)
        self._committed, self._seen, self._floor = None, None, -1

    def _checked(self, offset: int) -> None:
        """ValueError, OffsetOutOfRangeError for a position that is not to be committed."""
        self._check_open()
        if offset < self._floor:
            raise ValueError(
                f"offset {offset} would move the position of group {self.group!r} backwards from {self._floor}: seek() first"
            )
        if offset > self._view.log_end_offset:
            self._view.refresh()
            if offset > self._view.log_end_offset:
                raise OffsetOutOfRangeError(offset, self._view.log_start_offset, self._view.log_end_offset)

    def _commit_of(self, offset: int, metadata: str) -> Commit:
        epochs = self._view.leader_epochs
        at = bisect_right(epochs, offset - 1, key=lambda entry: entry[1])
        epoch = epochs[at - 1][0] if at else -1
        return Commit(OffsetAndMetadata(offset, epoch, metadata, time.time_ns() // 1_000_000), self._id)

    def _is_news(self, commit: Commit) -> bool:
        known = self._committed
        return known is None or known._replace(timestamp=0) != commit.position._replace(timestamp=0)

    def _check(self, entries: Mapping[TopicPartition, Entry]) -> None:
        """CursorLockedError unless nobody else has committed, or may, since this cursor took the partition."""
        self._check_open()
        self._lock.check()
        now = entries.get(self._home.tp)
        if now is not None and now.member != self._file.member and now != self._seen:
            raise CursorLockedError(f"{self._home.partition} of group {self.group!r}", None)

    # ---- closing --------------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"the cursor of group {self.group!r} in {self._home.partition} is closed")

    @property
    def is_closed(self) -> bool:
        """Whether the cursor was closed."""
        return self._closed

    def close(self) -> None:
        """Gives the partition up for the next cursor of the group. Nothing is committed; what was committed with
        durable=False is brought to the disk. OSError. From another thread it also ends an iteration that waits.
        """
        if self._closed:
            return
        self._closed = True
        follower = self._follower
        if follower is not None:
            follower.close()
        try:
            if self._lock.is_of_this_process:
                self._file.sync()
        finally:
            self._lock.release()

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
        return f"<Cursor of group {self.group!r} in {self._home.partition}: at offset {self._position}{state}>"


def commit_all(cursors: Iterable[tuple[Cursor, int]], durable: bool, metadata: str = "") -> None:
    """Commits positions of cursors; those that share a file in one step, with one sync."""
    by_file: dict[int, list[tuple[Cursor, int]]] = {}
    for cursor, offset in cursors:
        cursor._checked(offset)
        by_file.setdefault(id(cursor._file), []).append((cursor, offset))
    for mine in by_file.values():
        commits = {cursor: cursor._commit_of(offset, metadata) for cursor, offset in mine}
        changes = {c._home.tp: commit for c, commit in commits.items() if c._is_news(commit)}

        def check(entries: Mapping[TopicPartition, Entry], commits: dict[Cursor, Commit] = commits) -> None:
            for cursor in commits:
                cursor._check(entries)

        mine[0][0]._file.write(changes, durable, check)
        for cursor, commit in commits.items():
            if cursor._home.tp in changes:
                cursor._committed = commit.position
            cursor._floor = commit.position.offset


def _told(error: OffsetOutOfRangeError) -> OffsetOutOfRangeError:
    error.add_note('records were deleted before the cursor reached them, or cut off: seek("earliest") goes on with what is there')
    return error
