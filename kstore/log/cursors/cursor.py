"""A cursor: the durable position of a reader in one partition."""

from __future__ import annotations

from functools import partial
from itertools import chain

from kstore.arguments import ISOLATION, ON_ERROR, boolean, choice, integer, number
from kstore.engine.record.batch import Record
from kstore.engine.scan.batch_reader import RecordReader
from kstore.errors import OffsetOutOfRangeError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.cursors.arguments import (
    check_commit,
    check_delivered,
    checked_group,
    checked_place,
    checked_timeout,
    offset_of,
)
from kstore.log.cursors.cursor_batch import BatchSlot, CursorBatch
from kstore.log.cursors.cursor_columns import BATCH_BYTES, BATCH_ROWS, ColumnOptions, CursorColumns
from kstore.log.cursors.offset_commits import lag_behind
from kstore.log.cursors.offset_committer import OffsetCommitter, commit_all
from kstore.log.follow.feed import Feed, read_by
from kstore.log.follow.follower import Follower
from kstore.log.follow.position import position_in
from kstore.log.follow.waiting import Waitable
from kstore.log.read.left_out import LeftOut
from kstore.log.threads.async_call import in_thread
from kstore.log.threads.closing import Closing
from kstore.log.threads.one_thread import Iterated, OneThread
from kstore.log.threads.resumed import TASK_TURN, Resumed, in_turns
from kstore.page import notebook_table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from datetime import datetime
    from types import TracebackType
    from typing import Any, NoReturn

    from kstore.engine.scan.batch_reader import Skipped
    from kstore.log.cursors.offset_commits import OffsetAndMetadata
    from kstore.log.follow.sources import Source
    from kstore.typed import Column


def feed_of(
    committer: OffsetCommitter,
    source: Source,
    start: str | int | datetime,
    isolation: str,
    left_out: LeftOut,
    *,
    is_member: bool = False,
) -> Feed:
    """The feed of a cursor, from the committed position on, or from `start` if there is none. `is_member`:
    the cursor also reads other partitions."""

    def hint(offset: int | str) -> str:
        arguments = f'"{offset}"' if isinstance(offset, str) else f"{offset}"
        if is_member:  # without them, seek() would move the other partitions
            arguments += f', "{committer.home.tp.topic}", {committer.home.tp.partition}'
        return f"seek({arguments}) goes on with what is there"

    view = source.view()
    if committer.last is None:
        position = position_in(view.snapshot, offset_of(view, start, isolation))
    else:
        position = committer.last.reading_position()
    return Feed(source, position, isolation, left_out, hint)


class Cursor(Closing, Waitable):
    """A reader of a log whose position is saved on disk for a group. log.cursor() creates one.

    Iterating yields the records from the committed position on; iterating again continues. `commit()` saves
    the position, so that the next cursor of the group begins there. In a group, one cursor reads a partition
    at a time: close it, or use a `with` statement. Closing commits nothing. `async for` works too.

    One thread or task at a time may iterate it; any may call `commit` and `close`. In a forked child, commits
    raise LogClosedError.
    """

    def __init__(
        self,
        source: Callable[[], Source],
        group: str,
        start: str | int | datetime = "earliest",
        *,
        follow: bool = False,
        timeout: float | None = None,
        isolation: str = "read_uncommitted",
        on_error: str = "raise",
        wait: float = 0,
    ) -> None:
        self.group = checked_group(group)
        start = checked_place("start", start)
        self._follow = boolean("follow", follow)
        self._timeout = checked_timeout(timeout, follow)
        choice("isolation", isolation, ISOLATION)
        self._on_error = choice("on_error", on_error, ON_ERROR)
        wait = number("wait", wait, 0)
        known = source()
        self._committer = OffsetCommitter(known.path, group)
        self._read = read_by(RecordReader, isolation, on_error)
        self._iterated = Iterated()
        self._follower: Follower[Record] | None = None
        try:
            self._committer.open(wait)
            self._feed = feed_of(self._committer, known, start, isolation, LeftOut())
            self._slot = BatchSlot(self._feed, self._committer)
        except BaseException:
            self._committer.close()
            raise

    # ---- position ------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """The offset of the next record that iterating yields."""
        return self._slot.offset

    @property
    def skipped(self) -> list[Skipped]:
        """The damage that on_error="skip" has skipped: for each, the file, the byte, the size and the
        error."""
        return self._feed.skipped

    @property
    def committed(self) -> OffsetAndMetadata | None:
        """The last commit as OffsetAndMetadata, or None."""
        return self._committer.committed

    @property
    def lag(self) -> int:
        """The number of offsets from the position, or the log start if that is above it, to the present end
        of the log."""
        self._committer.check_open()
        return max(lag_behind(self._feed.source.view(), self.position), 0)

    def seek(self, place: str | int | datetime) -> int:
        """Move to another position, forwards or backwards, and return its offset.

        place: "earliest", "latest" (with isolation="read_committed" the last stable offset), an offset, or a
        datetime: the first record with this timestamp or a later one. The next commit() saves the position;
        it may be lower than the saved one. OffsetOutOfRangeError for an offset outside the log, RuntimeError
        in the block of a batch().
        """
        place = checked_place("place", place)
        self._committer.check_open()
        self._slot.check_free()
        view = self._feed.source.view()
        offset = offset_of(view, place, self._feed.isolation)
        self._feed.seek(view, offset, is_number=isinstance(place, int))
        self._committer.floor = offset
        return offset

    # ---- reading -------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        """Raise LogClosedError if the cursor is closed. End a batch whose `__exit__` did not run."""
        self._committer.check_open()
        _ = self.position

    def __iter__(self) -> Iterator[Record]:
        self._check_open()
        if self._follow:
            return self._following(self._timeout)
        return chain.from_iterable(OneThread(self._iterated, partial(self._feed.runs, self._read)))

    def __aiter__(self) -> AsyncIterator[Record]:
        self._check_open()
        if self._follow:
            return self._following(self._timeout)
        return Resumed(partial(in_turns, self.__iter__, TASK_TURN))

    def _following(self, timeout: float | None) -> Follower[Record]:
        """A follower from the position on."""
        if self._follower is None:
            self._follower = Follower(self._feed, self._read, timeout)
        self._follower.timeout = timeout
        return self._follower

    def looks(self) -> Iterator[float]:
        """Yield how many seconds to wait before the next check for a record, for `kstore.wait`. Internal."""
        if not self._committer.is_closed:
            self._check_open()
            yield from self._following(self._timeout).looks()

    def signals(self) -> tuple[Any, ...]:
        """Return the files that become readable when there may be a record, for `kstore.wait`. Internal."""
        return self._following(self._timeout).signals()

    def scan(
        self,
        columns: Iterable[Column] | None = None,
        *,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
    ) -> CursorColumns:
        """Read the records from the position on as columns: `for batch in jobs.scan(["offset", "value"]): …;
        jobs.commit()`.

        Each batch advances the position. `async for` works too. With follow=True the iteration waits for more
        records at the end, as iterating the cursor does.

        columns, batch_rows, batch_bytes: as in PartitionLog.scan.
        """
        self._check_open()
        options = ColumnOptions(columns, batch_rows, batch_bytes)
        return CursorColumns(
            repr(self),
            self._iterated,
            self._feed,
            options,
            self._on_error,
            self._follow,
            self._timeout,
        )

    def batch(self, count: int, timeout: float = 0.0) -> CursorBatch[Record]:
        """Read up to `count` records as a list, and commit them when the `with` block ends:
        `with jobs.batch(100, timeout=1) as records:`. `async with` works too.

        The list has the records that are in the log. If there are none, the call waits up to `timeout`
        seconds for the first one, and may return an empty list. If `break`, `return` or an exception leaves a
        loop over the list, only the records before the present one are committed: a record is done when the
        loop asks for the next one, or ends. An exception outside of such a loop commits nothing. The cursor
        then continues with the first record that is not committed. A cursor has one open batch at a time:
        another one raises RuntimeError.
        """
        count = integer("count", count, 1)
        timeout = number("timeout", timeout, 0)
        self._committer.check_open()
        return CursorBatch(
            self._slot,
            partial(self._records, count, timeout),
            partial(self._records_async, count, timeout),
            self.commit,
            self.commit_async,
        )

    def _records(self, count: int, timeout: float, first: Record | None = None) -> list[Record]:
        """Up to `count` records, those after `first` if that is given. Without it, wait for one."""
        records = [] if first is None else [first]
        try:
            while len(records) < count:
                record = next(self._following(0 if records else timeout), None)
                if record is None:
                    break
                records.append(record)
        except OffsetOutOfRangeError:
            if not records:  # with records, the next batch raises the error
                raise
        return records

    async def _records_async(self, count: int, timeout: float) -> list[Record]:
        first = await anext(self._following(timeout), None)
        return [] if first is None else self._records(count, 0, first)

    # ---- committing ----------------------------------------------------------------------------------------

    def commit(self, record: Record | int | None = None, *, durable: bool = True, metadata: str = "") -> None:
        """Save a position, at which the next cursor of the group begins.

        record: a Record, if it and all records before it are done, or an int: the offset of the next record
        to read, as in Kafka. `commit(record)` and `commit(record.offset + 1)` do the same. Default: behind
        the last record that was yielded, `commit(cursor.position)`. durable: True returns when the position
        survives a power cut. False is faster: the position survives the end of the process, and a power cut
        after the next durable commit or close(). metadata: a text to save with the position, of at most 4096
        bytes.

        ValueError for an offset beyond `position`, or if the saved position would move backwards without a
        seek(); OffsetOutOfRangeError if the log ends before it, because it was truncated. CursorLockedError
        if the lock was lost, LogClosedError if the cursor is closed or belongs to the parent of this process,
        LogNotFoundError if the partition was deleted. OSError: the saved position is the old one or the new
        one.
        """
        check_commit(durable, metadata)
        if isinstance(record, Record):
            offset = record.offset + 1
        elif record is None:
            offset = self.position
        else:
            offset = integer("record", record, kind="a Record or the offset of the next one")
        self._committer.check_open()
        check_delivered("record", offset, self.position)
        commit = self._committer.commit_of(self._feed.position_of(offset), metadata)
        commit_all([(self._committer, commit)], durable)

    async def commit_async(self, record: Record | int | None = None, *, metadata: str = "") -> None:
        """Commit durably in another thread, without blocking the event loop. A task that is cancelled ends
        when the commit is done or has not begun.
        """
        if record is None:  # the position at the call
            record = self.position
        await in_thread(partial(self.commit, record, metadata=metadata))

    def forget(self) -> None:
        """Remove the committed position, durably, with a tombstone. The cursor keeps its own. OSError."""
        self._committer.forget()

    # ---- closing -------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether the cursor is closed. False if close() was interrupted and the cursor still has the
        partition: call close() again."""
        return self._committer.has_left

    def close(self) -> None:
        """Release the partition for the next cursor of the group. Nothing is committed; commits with
        durable=False are synced. From another thread, close() also ends an iteration that waits. OSError.
        """
        self._committer.is_closed = True
        self._feed.close()
        if self._follower is not None:
            self._follower.close()
        self._committer.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await in_thread(self.close)  # close() may wait for the disk

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cursor cannot be pickled: open one in the other process")

    def _repr_html_(self) -> str:
        if self._committer.is_closed:
            return repr(self)
        committed = self.committed
        row = (self.position, "-" if committed is None else committed.offset, self.lag)
        title = f"Cursor of group {self.group} in {self._committer.home.partition}"
        return notebook_table(title, ("position", "committed", "lag"), [row])

    def __repr__(self) -> str:
        state = ", closed" if self._committer.is_closed else ""
        where = self._committer.home.partition
        return f"<Cursor of group {self.group!r} in {where}: at offset {self.position}{state}>"
