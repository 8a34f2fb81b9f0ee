"""A cursor: the durable position of a reader in one partition.

The file is long because every way of reading moves the same position, and every way of committing must know
how far it has come.
"""

import re
import time
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from threading import get_ident
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Protocol
from weakref import ref

from kstore.arguments import boolean, choice, integer, moment, number
from kstore.engine.append.commit_appender import OffsetCommitter
from kstore.engine.append.log_appender import LogAppender
from kstore.engine.record.batch import Record
from kstore.engine.scan.batch_reader import RecordReader, Skipped
from kstore.errors import (
    CursorLockedError,
    LogClosedError,
    LogNotFoundError,
    OffsetOutOfRangeError,
)
from kstore.log.cursors.cursor_columns import BATCH_BYTES, BATCH_ROWS, CursorColumns, Wanted
from kstore.log.cursors.group_file import Changes, Entry, GroupFile
from kstore.log.cursors.home import Home
from kstore.log.cursors.member_lock import MemberLock, byte_of
from kstore.log.cursors.offset_commits import MAX_METADATA_BYTES, Commit, OffsetAndMetadata
from kstore.log.files.layout import TopicPartition
from kstore.log.files.lock import once_free
from kstore.log.files.log_dir_state import is_led
from kstore.log.files.truncations import Truncations
from kstore.log.read.changed import MOST_LOOKS, Changed, cut_since, is_being_cut
from kstore.log.read.left_out import LeftOut
from kstore.log.recovery.continuity import Mark, kept_until, mark_as_compacted, mark_before, mark_sought
from kstore.log.threads.async_call import in_thread
from kstore.log.threads.closing import Closing
from kstore.log.threads.one_thread import BUSY, Iterated, OneThread
from kstore.log.threads.resumed import Resumed
from kstore.typed import Column

_GROUP = re.compile(r"[a-zA-Z0-9._-]{1,200}")
_NAMES = ("earliest", "latest")
# s: how long a commit relies on that the partition is still there and on where the log ended, and a turn on
# the latter
_FRESH = 0.05
_TURNS = 32  # records that one asyncio task takes before the others have a turn


class View(Protocol):
    """What a cursor asks of a log."""

    path: str
    _loaded: Any
    _truncations: Truncations

    def _truncations_now(self) -> Truncations: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def leader_epochs(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def segments(self) -> Sequence[Any]: ...
    def refresh(self) -> bool: ...
    def last_stable_offset(self) -> int: ...
    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...
    def find(self, *, timestamp: datetime) -> Any: ...
    @property
    def scan(self) -> Any: ...
    def records(self, start: int, stop: int, *, isolation: Any, on_error: Any) -> RecordReader: ...
    def follow(self, offset: int, *, timeout: float | None, isolation: Any, on_error: Any) -> Any: ...


def is_group(name: str) -> bool:
    """Whether a group can have this name, which is part of the name of a file."""
    return _GROUP.fullmatch(name) is not None


def checked_group(group: object) -> str:
    """The name of a group. TypeError, ValueError."""
    if not isinstance(group, str):
        raise TypeError(f"group must be a str, not {group!r}")
    if not is_group(group):
        raise ValueError(
            f"group is the name of a file: up to 200 of the characters a-z A-Z 0-9 . _ -, not {group!r}"
        )
    return group


def checked_groups(name: str, groups: object) -> list[str]:
    """Names of groups. TypeError, ValueError."""
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise TypeError(f"{name} must be a list of names of groups, not {groups!r}")
    return [checked_group(group) for group in groups]


def checked_place(name: str, value: object) -> str | int | datetime:
    """Where to begin: "earliest", "latest", an offset or a datetime. TypeError, ValueError."""
    if isinstance(value, str):
        if value not in _NAMES:
            raise ValueError(f"{name} is 'earliest', 'latest', an offset or a datetime, not {value!r}")
        return value
    if isinstance(value, datetime):
        moment(name, value)
        return value
    return integer(name, value)


def checked_timeout(timeout: object, follow: bool) -> float | None:
    """For how long who follows waits for a record, in seconds; None: for ever. TypeError, ValueError."""
    if timeout is None:
        return None
    timeout = number("timeout", timeout, 0)
    if timeout > 0 and not follow:
        raise ValueError(
            f"timeout={timeout:g} needs follow=True: without it a cursor ends where the log ends, and does not wait"
        )
    return timeout


def lock_for(home: Home, group: str) -> MemberLock:
    """The right of a group to a partition. CursorLockedError, OSError."""
    tp = home.tp
    return MemberLock(home.directory, group, f"partition {tp}", byte_of(group, tp.topic, tp.partition))


def check_commit(durable: object, metadata: object) -> None:
    """TypeError, ValueError for arguments that no commit has."""
    boolean("durable", durable)
    if not isinstance(metadata, str):
        raise TypeError(f"metadata must be a str, not {metadata!r}")
    try:
        size = len(metadata.encode())
    except UnicodeEncodeError:
        raise ValueError(f"metadata has no UTF-8: {metadata!r:.80}") from None
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"metadata has more than {MAX_METADATA_BYTES} bytes")


def offset_of(view: View, place: str | int | datetime, isolation: str) -> int:
    """Which offset a place is. OffsetOutOfRangeError."""
    first, end = view.log_start_offset, view.log_end_offset
    if isinstance(place, datetime):
        found = view.find(timestamp=place)
        return end if found is None else max(int(found.offset), first)
    if place == "earliest":
        return first
    if place == "latest":  # open transactions may be committed yet
        return end if isolation == "read_uncommitted" else max(min(view.last_stable_offset(), end), first)
    assert isinstance(place, int)
    if not first <= place <= end:
        raise OffsetOutOfRangeError(place, first, end)
    return place


class Cursor(OffsetCommitter, Closing, Iterated):
    """The position of a group of readers in a log, kept on disk. log.cursor() makes one.

    Iterating gives the records from the committed position on, and goes on from there when it is iterated
    again. `commit()` writes the position down, so that the next cursor of the group begins there. A group has
    one cursor a partition at a time: close it, or use it in a `with` statement. Closing it commits nothing.
    `async for` works too.

    One thread or task at a time may iterate it; any may call `commit` and `close`. In a forked child it
    refuses to commit.
    """

    _view: View
    _file: GroupFile
    _committed: OffsetAndMetadata | None
    _floor: int
    _has_left = False  # close() has given the partition up

    def __init__(
        self,
        view: View,
        group: str,
        start: str | int | datetime = "earliest",
        *,
        follow: bool = False,
        timeout: float | None = None,
        isolation: str = "read_uncommitted",
        on_error: str = "raise",
        wait: float = 0,
        lock: MemberLock | None = None,
        left_out: LeftOut | None = None,
    ) -> None:
        self.group = checked_group(group)
        start = checked_place("start", start)
        boolean("follow", follow)
        self._timeout = checked_timeout(timeout, follow)
        self._isolation = choice("isolation", isolation, ("read_uncommitted", "read_committed"))
        self._on_error = choice("on_error", on_error, ("raise", "skip"))
        self._left_out = left_out or LeftOut()
        self._is_member = lock is not None  # of a cursor of a store
        wait = number("wait", wait, 0)
        self._follow = follow
        self._view = view
        self._home = Home.of(view.path)
        # Where a controller assigns leader epochs, a truncation by kstore begins none. Then the time of a
        # commit tells which truncations were before it, so each commit looks for truncations after its time
        # was taken.
        self._is_led = is_led(Path(self._home.partition))
        self._fresh = 0.0 if self._is_led else _FRESH  # s
        self._lock = lock or once_free(lambda: lock_for(self._home, group), wait)
        try:
            directory, tp = self._home.directory, self._home.tp
            self._file = file = GroupFile.of(directory, group, self._lock.file)
            self._id = self._home.make_id(self._lock.file)
            self._trace = self._home.trace()
            self._look = None  # of the file, when this cursor was last looked at wholly
            self._fresh_until = 0.0  # s: when it is time for that
            self._known_until = 0.0  # s: for how long a commit relies on what the view shows
            found = file.read().get(tp)
            self._seen = found  # what was there before this cursor
            self._committed = (
                found.commit.position if found and found.commit.partition_id == self._id else None
            )
            self._follower: Any = None
            self._follower_at = -1
            self._followed_log: object = None  # what tells whether the log was cut since the follower began
            self._reader: RecordReader | None = None  # if it has given a record, it tells the position
            self._passed = (-1, -1)  # between these offsets were no records
            self._cut = -1  # from this offset on, records were cut off after they had been read
            self._truncations_seen = view._truncations.number  # that were before what was read
            self._noted = self._truncations_seen  # when the view was looked at last
            self._given_before = 0  # up to here at most, when the view was looked at last
            self._found_in = view._loaded  # where the position was found to be as it was read, or sought
            self._left: OffsetAndMetadata | None = None  # what was committed when a seek led away from it
            # of the last look: what the view showed, up to where it is read, and when (s) it is time for
            # another look
            self._looked: tuple[object, int, float] = None, -1, 0.0
            self._batch: _OpenBatch | None = None  # whose block has not been left
            self._goes_on = False  # whether it is read on with the look that it was read with before the others had their turn
            if wait or (self._committed is not None and lock is None):  # the view may be from before it
                view.refresh()
                self._found_in = view._loaded
                self._noted = self._truncations_seen = view._truncations.number
            if self._committed is None:
                self._place = offset_of(self._view, start, self._isolation)
            else:
                self._place = self._committed.offset
            # of the batch before a position: what comes later is compared with it
            self._mark = self._place, self._mark_sought(self._place)
            # the leader epochs and the end of the view that the position was read from; None if a follower
            # went on, with batches of these epochs
            self._shown: tuple[tuple[tuple[int, int], ...], int] | None = self._showing()
            self._followed_epochs: tuple[tuple[int, int], ...] = ()
            self._floor = -1 if self._committed is None else self._place
            file.join(self._lock)
        except BaseException:
            self._lock.release()
            raise
        self._closed = False

    # ---- where it is ---------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The offset of the next record that iterating gives."""
        return self._position

    @property
    def _position(self) -> int:
        if self._batch is not None:
            self._settle()
        reader = self._reader
        return reader.next_offset if reader is not None and reader.next_offset >= 0 else self._place

    @_position.setter
    def _position(self, offset: int) -> None:
        reader = self._reader
        if reader is not None:
            reader.stop()  # first: whatever interrupts this, an iteration goes on from the position that there is
            self._left_out.note(reader.skipped)
            self._mark = offset, reader._last_batch() if reader.next_offset == offset else None
        elif offset != self._place:
            self._mark = offset, None
        self._place = offset
        self._reader = None

    def _mark_sought(self, offset: int) -> Mark | None:
        """Of a position that nobody has read up to. None of a writer, whose cuts tell what happens."""
        return None if isinstance(self._view, LogAppender) else mark_sought(self._view, offset)

    def _mark_at(self, offset: int) -> Mark | None:
        """Of the batch before this position, as it was read, or as it was when the position was sought; None
        if nobody knows."""
        reader, follower = self._reader, self._follower
        place, mark = self._mark
        if place == offset and mark is not None:  # a look has found it there since it was read
            return mark
        if reader is not None:
            return reader._last_batch() if reader.next_offset == offset else None
        if follower is not None and self._follower_at == offset and follower.given_mark is not None:
            return follower.given_mark  # type: ignore[no-any-return]
        return None

    def _settle(self) -> None:
        """Ends a batch whose block was left, if nothing could be done at its end."""
        batch = self._batch
        if batch is not None and batch.held() is None:
            self._end_batch(batch)

    def _check_no_batch(self) -> None:
        self._settle()
        if self._batch is not None:
            raise RuntimeError("a batch of this cursor is open: leave its `with` block first")

    def _end_batch(self, batch: "_OpenBatch") -> None:
        self._go_back(batch)
        self._batch = None

    def _go_back(self, batch: "_OpenBatch") -> None:
        """To where it began, but not before what is committed: a commit that failed may be on the disk."""
        self._position = offset = max(batch.start, self._floor)
        if offset == batch.start:
            self._mark = offset, batch.mark

    @property
    def _behind_given(self) -> int:
        """The position behind the last record that was given out."""
        before, behind = self._passed
        return before if self._position == behind else self._position

    @property
    def skipped(self) -> list[Skipped]:
        """What on_error="skip" has left out so far: of each damage the file, the byte, how many bytes, and
        the error."""
        for source in (self._reader, self._follower):
            if source is not None:
                self._left_out.note(source.skipped)
        return self._left_out.listed()

    @property
    def committed(self) -> OffsetAndMetadata | None:
        """What was committed last, as OffsetAndMetadata; None if nothing was."""
        return self._committed

    @property
    def lag(self) -> int:
        """How many offsets lie between the position and the end of the log, as it is now."""
        self._check_open()
        self._refresh()
        return max(self._view.log_end_offset - self._position, 0)

    def seek(self, place: str | int | datetime) -> int:
        """Goes to another position, forwards or backwards, and returns it.

        place: "earliest", "latest" (with isolation="read_committed" the last stable offset), an offset, or a
        datetime: the first record with this timestamp or a later one. Nothing is written before the next
        commit(), which may go back to this position. OffsetOutOfRangeError for an offset outside the log,
        RuntimeError in the block of a batch().
        """
        place = checked_place("place", place)
        self._check_open()
        self._check_no_batch()
        return self._go_to(*self._found(place))

    def _found(self, place: str | int | datetime) -> tuple[int, int]:
        """Which offset a place is, and from which offset on records were cut off since that was told; -1 if
        none were."""
        told = self._cut
        self._refresh()
        cut = self._cut
        try:
            offset = offset_of(self._view, place, self._isolation)
        except OffsetOutOfRangeError as e:
            if 0 <= cut < e.asked:  # where the log ends now may be behind it
                raise self._cut_off(e.asked, cut) from None
            raise
        # an offset was said of a log that has been cut further below since: iterating tells that
        return offset, cut if isinstance(place, int) and cut < min(told, offset) else -1

    def _go_to(self, offset: int, cut: int) -> int:
        self._position = self._floor = offset
        self._mark = offset, self._mark_sought(offset)
        self._shown, self._follower_at = self._showing(), -1
        self._cut, self._left = cut, self._committed
        return offset

    def _check_place(self) -> None:
        """LogNotFoundError if the partition was deleted, or is another one of that name."""
        trace = self._home.trace()
        if trace != self._trace:
            if self._home.known_id() != self._id:
                raise LogNotFoundError(
                    f"{self._home.partition} was deleted, or made anew, since this cursor of group {self.group!r} was opened"
                )
            self._refresh()  # it may be a copy, and an older one
            self._trace = trace

    def _check_range(self) -> None:
        """OffsetOutOfRangeError if the position was deleted, or cut off and written anew in a later leader
        epoch."""
        self._check_place()  # after the view has read it
        view, position = self._view, self._position
        first, end = view.log_start_offset, view.log_end_offset
        self._check_cut(position)
        self._cut = -1  # the position is before it now
        if not first <= position <= end:
            raise self._told(OffsetOutOfRangeError(position, first, end))

    def _check_cut(self, position: int) -> None:
        """OffsetOutOfRangeError if records below a position were cut off after they had been read, as far as
        that is known."""
        cut = self._known_cut(position)
        if 0 <= cut < position:
            raise self._cut_off(position, cut)

    def _known_cut(self, position: int) -> int:
        """From which offset on records were cut off after they had been read; -1 if none are known. Of a
        position that a cursor before this one has committed, its leader epoch tells."""
        cut, committed = self._cut, self._committed
        if committed is not None and committed.offset == position and committed is not self._left:
            is_over = False  # its epoch, as after each truncation by kstore
            if committed.leader_epoch >= 0:
                cut = _lower(cut, self._end_of_epoch(committed.leader_epoch, position))
                is_over = any(epoch > committed.leader_epoch for epoch, _ in self._view.leader_epochs)
            is_behind, known = position > self._view.log_end_offset, self._view._truncations
            # what is before it may be cut off as well, or be read again by those who read what is committed
            if is_behind or is_over or 0 <= cut < position or self._is_led:
                since = known.since_commit(committed.timestamp, self._isolation)
                # it was committed after the log had been cut off, and nothing else tells where
                if is_behind and since < 0 and self._cut < 0:
                    since = known.since(0, self._isolation)
                cut = _lower(cut, since)
        return cut

    def _end_of_epoch(self, epoch: int, position: int) -> int:
        """Where the records of a leader epoch end now, and those of others may begin; -1 if that is not
        known. The record before the position had this epoch."""
        view = self._view
        epochs = view.leader_epochs
        if epochs and epoch < epochs[0][0]:
            return epochs[0][1]
        end = view.end_offset_for_epoch(epoch)[1]
        if 0 <= end < position or position > view.log_end_offset:
            return end
        if epochs and all(known != epoch for known, _ in epochs):
            # a copy from before that epoch: nobody knows up to where it is what was read
            return view.log_start_offset
        return end

    def _showing(self) -> tuple[tuple[tuple[int, int], ...], int]:
        self._begins = self._beginning()  # then, as the rest
        return self._view.leader_epochs, self._view.log_end_offset

    def _beginning(self) -> tuple[int, int]:
        """The log start offset, and the leader epoch for a position there: of the record before, which is
        deleted, nobody knows it. The first one that there is, or any before it, tells just as well whether
        the log is cut off below."""
        view = self._view
        epochs, start, end = view.leader_epochs, view.log_start_offset, view.log_end_offset
        if epochs:
            return start, epochs[0][0]
        return start, 0 if start == end else -1  # records without an epoch: it may only be unknown yet

    def _refresh(self) -> None:
        """Lets the view show the log as it is now, and finds out whether records that were read have been cut
        off. That is known until a seek leads away."""
        view = self._view
        for _ in range(MOST_LOOKS):
            view.refresh()
            self._known_until = time.monotonic() + self._fresh
            now, position, seen = view._loaded, self._position, view._truncations.number
            mark = self._mark_at(position)
            # what is behind an earlier cut is not what was read anyway
            cut = self._cut_since(_lower(self._cut, position))
            if cut < 0 or not is_being_cut(view):
                break
        self._cut = _lower(self._cut, cut)
        if mark is not None:
            if self._cut < 0:
                mark = mark_as_compacted(mark, self._found_in.segments, now.segments, position)
            self._mark = position, mark
        # last: who is interrupted before finds it out again
        self._found_in, self._given_before = now, position
        self._noted = self._truncations_seen = seen

    def _cut_since(self, position: int) -> int:
        """From which offset on, below the position, records were cut off since that was found out last; -1 if
        none were."""
        view, before = self._view, self._found_in
        cut = view._truncations.since(self._seen_truncations(), self._isolation)
        if cut < 0:
            cut = view._truncations.shown_by(view.log_end_offset, self._isolation)
        if 0 <= cut < position:
            return cut
        given, is_copy = position, self._home.trace() != self._trace
        if self._shown is None and not is_copy:
            # What a follower has given since may be what was written after a truncation: it tells if not. Of
            # a copy that was put in place of what it read it tells nothing.
            given = min(position, self._given_before)
        cut = -1
        epochs, end = self._shown or (self._followed_epochs, position)
        if epochs != view.leader_epochs and position <= end:
            cut = self._end_of_epoch(_epoch_before(epochs, position), position)
            if cut >= position:
                cut = -1
        if cut < 0 and position > view.log_end_offset:
            cut = view.log_end_offset
        if cut >= 0 and not is_copy:  # of a copy that has grown, neither tells where it differs
            return cut
        # who writes the log is told by its cuts; and if they are noted, the note tells more than files that
        # were written over
        is_told = isinstance(view, LogAppender) or (view._truncations.number > self._noted and not is_copy)
        if view._loaded is not before and not is_told:
            segments = view._loaded.segments
            if (
                given < position <= view.log_end_offset
            ):  # what a follower has given last may tell of all before
                mark = self._mark_at(position)
                if mark is not None and mark == mark_before(segments, position):
                    return -1
            # of what is behind the end of now there is nothing to compare
            reached = min(given, before.log_end_offset, view.log_end_offset)
            mark = self._mark_at(reached)
            if mark is None and position > view.log_end_offset:
                # if no file tells how far it is the same, nothing of a segment counts as kept
                mark = reached - 1, -1
            kept = kept_until(before.segments, before.log_end_offset, reached, segments, mark)
            if kept < reached or (is_copy and reached < given):
                cut = _lower(cut, min(kept, view.log_end_offset))
        return cut

    def _seen_truncations(self) -> int:
        """The number of the last truncation that was before what was read."""
        if self._shown is None and self._follower is not None:
            return int(self._follower._truncations_seen)
        return self._truncations_seen

    # ---- reading -------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        self._check_open()
        return self._followed() if self._follow else self._there()

    def __aiter__(self) -> AsyncIterator[Record]:
        self._check_open()
        return Resumed(self._followed_async if self._follow else self._there_async)

    def _there(self) -> Iterator[Record]:
        """The records up to the end of the log as it is now. All that is done for a record is C code."""
        return chain.from_iterable(OneThread(self, self._readers))

    def _readers(self) -> Iterator[RecordReader]:
        """One, and another one after it was stopped: by a seek(), or by another iteration."""
        view = self._view
        stop = self._refreshed_end()
        at = -1
        changes = Changed()
        while not self._closed and at != self._position:
            at = self._position
            is_cut = cut_since(view)
            reader = view.records(at, stop, isolation=self._isolation, on_error=self._on_error)
            reader._ends_at_change, reader._is_cut = True, is_cut
            self._check_range()  # after it: what is deleted from here on makes the reader raise
            self._position = at
            self._reader = reader
            if self._goes_on:
                reader._take_turns()
            if self._closed:  # by another thread, which has not seen the reader
                return
            yield reader
            if reader.is_stopped:
                at = -1
                continue
            if (
                reader._change is not None
            ):  # files were replaced, by a compaction perhaps: the same is in others now; or the log was cut off
                changes.met(self._position, reader._change)
                self._let_go()
                stop = self._look_again()
                at = -1
                continue
            last = reader._last_batch()
            self._let_go()
            self._pass_to(stop, last)
            at = self._position

    def _refreshed_end(self) -> int:
        """Where to stop: the end of the log as it is now, or where the oldest open transaction begins."""
        view = self._view
        loaded, stop, until = self._looked
        if self._goes_on and loaded is view._loaded and self._position < stop and time.monotonic() < until:
            return stop
        self._refresh()
        self._shown = self._showing()
        stop = view.log_end_offset
        if self._isolation == "read_committed":
            stop = max(min(stop, view.last_stable_offset()), self._position)
        self._looked = view._loaded, stop, time.monotonic() + _FRESH
        return stop

    def _look_again(self) -> int:
        """The same, of a log that has changed since the last look."""
        self._looked = None, -1, 0.0
        return self._refreshed_end()

    def _pass_to(self, stop: int, last: Mark | None = None) -> None:
        """Up to there are only markers of transactions, of which this is the last, and what compaction has
        left."""
        if self._position < stop:
            self._passed, self._position = (self._behind_given, stop), stop
            if last is not None and last[0] >= stop - 1:
                self._mark = stop, last

    def scan(
        self,
        columns: Iterable[Column] | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> CursorColumns:
        """The records from the position on as columns: `for batch in jobs.scan(["offset", "value"]): …;
        jobs.commit()`.

        Each batch that is given moves the position behind it. `async for` works too. With follow=True it
        waits for more at the end, as iterating the cursor does.

        columns, batch_rows, batch_bytes: as in PartitionLog.scan.
        """
        self._check_open()
        return CursorColumns(self, Wanted(columns, batch_rows, batch_bytes))

    async def _there_async(self) -> AsyncGenerator[Record, None]:
        import asyncio

        for count, record in enumerate(self._there(), 1):
            yield record
            if count % _TURNS == 0:
                await asyncio.sleep(0)

    def _look_anew(self) -> None:
        """What a follower has read ahead may have been cut off or deleted since: then another one begins at
        the position."""
        follower, view = self._follower, self._view
        if follower is None:
            return
        self._refresh()
        if (
            self._cut >= 0
            or self._followed_log != (view.leader_epochs, view._truncations.number)
            or self._position < view.log_start_offset
            or follower._stop > view.log_end_offset
        ):
            self._end_follower()

    def _followed(self) -> Iterator[Record]:
        """No generator: who asks once more after an error gets what comes next."""
        self._look_anew()
        return iter(lambda: self._next(self._timeout), None)

    async def _followed_async(self) -> AsyncGenerator[Record, None]:
        self._look_anew()
        while (record := await self._next_async(self._timeout)) is not None:
            yield record

    def _next(self, timeout: float | None) -> Record | None:
        """The next record; None if there is none within that time."""
        me = get_ident()
        if self._busy and self._busy != me:
            raise RuntimeError(BUSY)
        try:
            self._busy = me
            follower = self._at_position(timeout)
            try:
                return self._given(follower, next(follower, None))
            except (OffsetOutOfRangeError, LogNotFoundError) as e:
                raise self._lost(e) from None
            except BaseException:
                self._end_follower()  # it may have gone on already, which the position has not
                raise
        finally:
            self._busy = 0

    async def _next_async(self, timeout: float | None) -> Record | None:
        me = get_ident()
        if self._busy and self._busy != me:
            raise RuntimeError(BUSY)
        try:
            self._busy = me
            follower = self._at_position(timeout)
            try:
                return self._given(follower, await anext(follower, None))
            except (OffsetOutOfRangeError, LogNotFoundError) as e:
                raise self._lost(e) from None
            except BaseException:
                self._end_follower()
                raise
        finally:
            self._busy = 0

    def _wait(self) -> bool:
        """Waits until there is a record behind the position. False if none comes within the timeout."""
        follower = self._at_position(self._timeout)
        self._follower_at = -1  # it will be ahead
        try:
            return next(follower, None) is not None
        except (OffsetOutOfRangeError, LogNotFoundError) as e:
            raise self._lost(e) from None

    async def _wait_async(self) -> bool:
        follower = self._at_position(self._timeout)
        self._follower_at = -1
        try:
            return await anext(follower, None) is not None
        except (OffsetOutOfRangeError, LogNotFoundError) as e:
            raise self._lost(e) from None

    def _lost(self, error: OffsetOutOfRangeError | LogNotFoundError) -> Exception:
        """What to say of a follower that has met something else than what it had read: so is what commits are
        asked for."""
        self._end_follower()
        if not self._closed:
            self._refresh()  # the leader epochs tell it better
            if (
                type(error) is OffsetOutOfRangeError
                and error.end < self._position
                and (self._cut < 0 or error._is_exact)
            ):
                self._cut = _lower(self._cut, error.end)
            self._check_range()
        return self._told(error) if isinstance(error, OffsetOutOfRangeError) else error

    def _cut_off(self, position: int, cut: int) -> OffsetOutOfRangeError:
        first = self._view.log_start_offset
        # of a batch that was cut inside, nothing is left; and what came instead may be deleted
        end = max(min(cut, self._view.log_end_offset), first)
        return self._told(
            OffsetOutOfRangeError(position, first, end),
            f"records from offset {end} on were cut off after they had been read, and others may have their offsets",
            end,
        )

    def _told(
        self,
        error: OffsetOutOfRangeError,
        what: str = "records were deleted before the cursor reached them, or cut off",
        place: int | str = "earliest",
    ) -> OffsetOutOfRangeError:
        """The error with a note that says what to call."""
        call = f'"{place}"' if isinstance(place, str) else f"{place}"
        if self._is_member:  # another seek would move the other partitions
            call += f', "{self._home.tp.topic}", {self._home.tp.partition}'
        error.add_note(f"{what}: seek({call}) goes on with what is there")
        return error

    def _at_position(self, timeout: float | None) -> Any:
        """A follower of what comes behind the position. If the cursor is closed, it has ended."""
        follower = self._follower
        if self._reader is not None:
            self._let_go()
        if follower is None or ((self._follower_at != self._position or self._cut >= 0) and not self._closed):
            self._end_follower()
            self._refresh()
            self._check_range()
            # first: without what is shown they say in which epochs the position is
            self._followed_epochs = tuple(e for e in self._view.leader_epochs if e[1] < self._position)
            self._begins = self._beginning()
            self._shown = None
            self._followed_log = self._view.leader_epochs, self._view._truncations.number
            follower = self._view.follow(
                self._position, timeout=timeout, isolation=self._isolation, on_error=self._on_error
            )
            if follower._truncations_seen != self._truncations_seen:
                # another thread has truncated it meanwhile
                self._refresh()
                self._check_range()
            self._follower, self._follower_at = follower, self._position
        if self._closed:  # maybe meanwhile: then close() has not seen this one
            follower.close()
        follower.timeout = timeout
        return follower

    def _given(self, follower: Any, record: Record | None) -> Record | None:
        if record is not None and not self._closed:
            epoch, known = follower.leader_epoch, self._followed_epochs
            if epoch >= 0 and (not known or known[-1][0] != epoch):
                self._followed_epochs = (*known, (epoch, record.offset))
                self._prepare(None, None, -1, -1, b"", b"")  # what was prepared bears the epoch before
            self._place = self._follower_at = record.offset + 1
            return record
        return None

    def _end_follower(self) -> None:
        follower, mark = self._follower, self._mark_at(self._place)
        self._truncations_seen = self._seen_truncations()
        self._follower = None
        if follower is not None:
            if mark is not None:
                self._mark = self._place, mark
            self._left_out.note(follower.skipped)
            follower.close()

    def batch(self, count: int, timeout: float = 0.0) -> "CursorBatch":
        """Gives up to `count` records as a list, and commits the offset after them when the `with` block ends
        without an exception: `with jobs.batch(100, timeout=1) as records:`. `async with` works too.

        It gives what is there. If that is nothing, it waits up to `timeout` seconds for the first record;
        then the list may be empty. After an exception the cursor stands where it was before the batch, or
        behind what was committed in the block. A cursor has one batch at a time: RuntimeError for another one
        in its block.
        """
        count = integer("count", count, 1)
        timeout = number("timeout", timeout, 0)
        self._check_open()
        return CursorBatch(self, count, timeout)

    # ---- committing ----------------------------------------------------------------------------------------

    def _commit(self, record: Record | int | None, durable: bool, metadata: str) -> None:
        check_commit(durable, metadata)
        if isinstance(record, Record):
            offset = record.offset + 1
        elif record is None:
            offset = self._position
        else:
            offset = integer("record", record) + 1
        commit_all([(self, offset)], durable, metadata)
        if not (durable or metadata or self._is_led or isinstance(self._view, LogAppender)):
            epochs = self._view._loaded.leader_epochs
            entries = epochs.entries if self._shown is not None else self._followed_epochs
            epoch, start = entries[-1] if entries else (-1, -1)
            key = self._file.key_of(self._home.tp)
            if epoch >= 0:
                with self._file.lock_file.mutex:
                    self._prepare(self._home.tp, epochs, epoch, start, key, self._id)

    def _find_out(self, commit: Commit) -> None:
        _find_out(self._file, [(self, commit)])

    async def commit_async(self, record: Record | int | None = None, *, metadata: str = "") -> None:
        """Commits durably, as commit() does, in another thread: the event loop goes on meanwhile. A task that
        is cancelled ends when the commit is done, or has not begun.
        """
        if record is None:  # as it is now
            record = self._position - 1 if self._position else None
        await in_thread(partial(self.commit, record, metadata=metadata))

    def forget(self) -> None:
        """Removes the committed position, durably, with a tombstone. The cursor stays where it is.
        OSError."""
        self._check_open()

        def decide(entries: Mapping[TopicPartition, Entry], is_whole: bool) -> Changes | None:
            if not is_whole:
                return None
            self._check(entries)
            return {self._home.tp: None}

        def done() -> None:
            self._cut = cut
            self._done(None)

        position = self._position
        cut = self._known_cut(position)  # the leader epoch that tells it goes
        if cut >= position:
            cut = self._cut
        self._file.write(decide, done, True)

    def _check_reached(self, offset: int) -> None:
        """OffsetOutOfRangeError for a position behind the end of the log. It names the record before: that
        was to be done."""
        self._check_open()
        view, committed = self._view, self._committed
        if (
            offset > view.log_end_offset
            or view._truncations.number != self._truncations_seen
            or (committed is not None and offset == committed.offset)
        ):
            self._refresh()
        self._check_in_log(offset)

    def _check_in_log(self, offset: int) -> None:
        """The same, by what is known of the log."""
        self._check_cut(offset)
        view = self._view
        if offset > view.log_end_offset:
            raise OffsetOutOfRangeError(offset - 1, view.log_start_offset, view.log_end_offset)

    def _check_floor(self, offset: int) -> None:
        if offset < self._floor:
            came = (
                ""
                if self._committed is None or self._floor == self._committed.offset
                else ", where seek() led"
            )
            raise ValueError(
                f"offset {offset} would move the position of group {self.group!r} backwards from {self._floor}{came}: seek() first"
            )

    def _done(self, position: OffsetAndMetadata | None) -> None:
        """This is what is committed now."""
        self._committed, self._floor = position, -1 if position is None else position.offset

    def _commit_of(self, offset: int, metadata: str) -> Commit:
        epochs, end = self._shown or (self._followed_epochs, self._position)
        if offset > end:
            epochs = self._view.leader_epochs
        epoch = _epoch_before(epochs, offset)
        if epoch < 0 and offset == self._begins[0]:
            epoch = self._begins[1]
        return Commit(
            OffsetAndMetadata(offset, epoch, metadata, self._view._truncations.commit_time()), self._id
        )

    def _check(self, entries: Mapping[TopicPartition, Entry]) -> None:
        """CursorLockedError unless nobody else has committed, or may, since this cursor took the
        partition."""
        self._check_open()
        self._lock.check()
        self._check_place()
        now = entries.get(self._home.tp)
        if now is not None and now.member != self._file.member and now != self._seen:
            raise CursorLockedError(f"{self._home.partition} of group {self.group!r}", None)
        self._look, self._fresh_until = self._file.look, time.monotonic() + self._fresh

    def _is_fresh(self) -> bool:
        """Whether _check() would find what it found last: nobody has taken a lock or committed since, and
        that the partition was not deleted was seen a moment ago."""
        self._check_open()
        return self._look is self._file.look and time.monotonic() < self._fresh_until

    # ---- closing -------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise LogClosedError(f"the cursor of group {self.group!r} in {self._home.partition} is closed")

    @property
    def is_closed(self) -> bool:
        """Whether the cursor was closed. False if close() was interrupted, and has the partition still: call
        it again."""
        return self._has_left

    def _is_at(self, offset: int) -> bool:
        """Whether a scan goes on from there: nobody has closed the cursor, or moved it. -1: it has just
        begun."""
        if self._reader is not None:
            self._let_go()
        return not self._closed and offset in (-1, self._place)

    def _let_go(self) -> None:
        """Closes what an iteration that broke off was reading."""
        self._position = self._position

    def close(self) -> None:
        """Gives the partition up for the next cursor of the group. Nothing is committed; what was committed
        with durable=False is brought to the disk. OSError. From another thread it also ends an iteration that
        waits.
        """
        self._closed = True
        reader, follower = self._reader, self._follower
        if reader is not None:
            reader.stop()
        if follower is not None:
            follower.close()
        lock = self._lock
        try:
            if lock.is_held and lock.is_of_this_process:
                try:
                    self._file.leave(lock)
                finally:
                    self._file.sync()
        finally:
            lock.release()
            self._has_left = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.close)  # it may wait for the disk

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cursor cannot be pickled: open one in the other process")

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return (
            f"<Cursor of group {self.group!r} in {self._home.partition}: at offset {self._position}{state}>"
        )


class _OpenBatch(NamedTuple):
    held: "ref[CursorBatch]"  # if that is dead, its end was broken off before its first line
    start: int  # where the cursor was
    mark: Mark | None


class CursorBatch:
    """Some records of a cursor, which are committed when the `with` block ends well. cursor.batch() makes
    one."""

    _open: _OpenBatch | None = None

    def __init__(self, cursor: Cursor, count: int, timeout: float) -> None:
        self._cursor = cursor
        self._count = count
        self._timeout = timeout

    def __enter__(self) -> list[Record]:
        self._begin()
        return self._gather([], self._timeout)

    async def __aenter__(self) -> list[Record]:
        self._begin()
        try:
            first = await self._cursor._next_async(self._timeout)
        except BaseException:
            self._end()
            raise
        return [] if first is None else self._gather([first], 0)

    def _begin(self) -> None:
        cursor = self._cursor
        cursor._check_no_batch()
        cursor._look_anew()
        start = cursor.position
        self._open = cursor._batch = _OpenBatch(ref(self), start, cursor._mark_at(start))

    def _gather(self, records: list[Record], timeout: float) -> list[Record]:
        cursor, batch = self._cursor, self._open
        assert batch is not None
        again = False
        try:
            while len(records) < self._count:
                try:
                    record = cursor._next(0 if records else timeout)
                except OffsetOutOfRangeError:
                    if again or not records:
                        raise
                    # some of these were read ahead, and were cut off meanwhile: perhaps not all of them
                    again = True
                    records.clear()
                    cursor._go_back(batch)
                    continue
                if record is None:
                    break
                records.append(record)
        except BaseException:
            self._end()
            raise
        return records

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                if self._has_moved():
                    self._cursor.commit()
                self._leave()
        finally:
            self._end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                if self._has_moved():
                    await self._cursor.commit_async()
                self._leave()
        finally:
            self._end()

    def _has_moved(self) -> bool:
        return self._open is not None and self._cursor.position != self._open.start

    def _leave(self) -> None:
        """All went well: the cursor stays where it is."""
        if self._open is not None:
            self._cursor._batch = self._open = None

    def _end(self) -> None:
        """To where it was, unless all went well."""
        if self._open is not None:
            self._cursor._end_batch(self._open)
            self._open = None


def commit_all(cursors: Iterable[tuple[Cursor, int]], durable: bool, metadata: str = "") -> None:
    """Commits positions of cursors; those that share a file in one step, with one sync."""
    by_file: dict[GroupFile, list[tuple[Cursor, Commit]]] = {}
    for cursor, offset in cursors:
        cursor._check_reached(offset)
        cursor._check_floor(offset)
        by_file.setdefault(cursor._file, []).append((cursor, cursor._commit_of(offset, metadata)))
    for file, commits in by_file.items():
        try:
            file.write(partial(_news, commits), partial(_done, commits), durable)
        except BaseException:
            _find_out(file, commits)
            raise


def _news(
    commits: Sequence[tuple[Cursor, Commit]], entries: Mapping[TopicPartition, Entry], is_whole: bool
) -> Changes | None:
    """Those that are not in the file yet. None if that takes a look at the system. What Cursor.commit
    raises."""
    changes = {}
    for cursor, commit in commits:
        if is_whole:
            cursor._check(entries)
            if time.monotonic() >= cursor._known_until:
                cursor._refresh()
            cursor._check_in_log(commit.position.offset)
        elif not cursor._is_fresh():
            return None
        cursor._check_floor(commit.position.offset)  # once more: another thread may have been here
        known = entries.get(cursor._home.tp)
        if known is None or not _is_same(known.commit, commit):
            changes[cursor._home.tp] = commit
    return changes


def _done(commits: Sequence[tuple[Cursor, Commit]]) -> None:
    for cursor, commit in commits:
        cursor._done(commit.position)


def _find_out(file: GroupFile, commits: Sequence[tuple[Cursor, Commit]]) -> None:
    """A commit was broken off: what was written nevertheless is committed, or the next one might go back
    behind it."""
    with suppress(Exception):  # what broke it off is told
        entries = file.read()
        for cursor, commit in commits:
            known = entries.get(cursor._home.tp)
            if known is not None and known.member == file.member and known.commit == commit:
                cursor._done(commit.position)


def _lower(cut: int, offset: int) -> int:
    """The lower one of two offsets, of which -1 is none."""
    return max(cut, offset) if min(cut, offset) < 0 else min(cut, offset)


def _is_same(a: Commit, b: Commit) -> bool:
    """Whether they differ by their times at the most."""
    return a.partition_id == b.partition_id and a.position[:3] == b.position[:3]


def _epoch_before(epochs: tuple[tuple[int, int], ...], offset: int) -> int:
    """The leader epoch of the record before an offset; -1 if it has none."""
    if epochs and epochs[-1][1] < offset:
        return epochs[-1][0]
    at = bisect_right(epochs, offset - 1, key=lambda entry: entry[1])
    return epochs[at - 1][0] if at else -1
