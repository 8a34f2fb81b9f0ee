"""Batches of records of a cursor that are committed together."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import NamedTuple
from weakref import ref

from kstore.engine.record.batch import Record
from kstore.errors import OffsetOutOfRangeError
from kstore.log.cursors.offset_committer import OffsetCommitter
from kstore.log.follow.feed import Feed
from kstore.log.follow.follower import Follower
from kstore.log.follow.position import Position


class _Block(NamedTuple):
    """The `with` block of a batch, and the position of the cursor before it. If the reference to the batch is
    dead, an interrupt prevented `__exit__`."""

    batch: "ref[CursorBatch]"
    start: Position


class BatchSlot:
    """The open batch of a cursor; a cursor has one at most."""

    def __init__(self, feed: Feed, committer: OffsetCommitter) -> None:
        self._feed = feed
        self._committer = committer
        self._block: _Block | None = None

    @property
    def offset(self) -> int:
        """The offset of the cursor, after giving up a batch whose `__exit__` did not run."""
        block = self._block
        if block is not None and block.batch() is None:
            self.give_up()
        return self._feed.offset

    def check_free(self) -> None:
        """Raise RuntimeError if a batch is open."""
        _ = self.offset
        if self._block is not None:
            raise RuntimeError("a batch of this cursor is open: leave its `with` block first")

    def begin(self, batch: "CursorBatch") -> None:
        """Open a batch. RuntimeError if another one is open."""
        self.check_free()
        self._block = _Block(ref(batch), self._feed.position)

    @property
    def has_moved(self) -> bool:
        """Whether the cursor has moved since the batch was opened."""
        return self._block is not None and self._feed.offset != self._block.start.offset

    def end(self) -> None:
        """End the batch, and leave the cursor at its position."""
        self._block = None

    def give_up(self) -> None:
        """End the batch, and return the cursor to its position before the batch; but not below the last
        commit, because a commit that failed may be on the disk."""
        block, last = self._block, self._committer.last
        if block is not None:
            start = block.start
            if last is not None and self._committer.floor > start.offset:
                start = last.reading_position()
            self._feed.go_to(start)
            self._block = None


class CursorBatch:
    """Records of a cursor that are committed together when the `with` block ends without an exception.

    cursor.batch() creates one.
    """

    def __init__(
        self,
        slot: BatchSlot,
        following: Callable[[float], Follower[Record]],
        commit: Callable[[], None],
        commit_async: Callable[[], Awaitable[None]],
        count: int,
        timeout: float,
    ) -> None:
        self._slot = slot
        self._following = following
        self._commit = commit
        self._commit_async = commit_async
        self._count = count
        self._timeout = timeout
        self._is_open = False

    def __enter__(self) -> list[Record]:
        self._begin()
        return self._gather([], self._timeout)

    async def __aenter__(self) -> list[Record]:
        self._begin()
        try:
            first = await anext(self._following(self._timeout), None)
        except BaseException:
            self._end()
            raise
        return [] if first is None else self._gather([first], 0)

    def _begin(self) -> None:
        self._slot.begin(self)
        self._is_open = True

    def _gather(self, records: list[Record], timeout: float) -> list[Record]:
        try:
            while len(records) < self._count:
                record = next(self._following(0 if records else timeout), None)
                if record is None:
                    break
                records.append(record)
        except OffsetOutOfRangeError:
            if not records:  # with records, the next batch raises the error
                self._end()
                raise
        except BaseException:
            self._end()
            raise
        return records

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._is_open:
                if self._slot.has_moved:
                    self._commit()
                self._leave()
        finally:
            self._end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._is_open:
                if self._slot.has_moved:
                    await self._commit_async()
                self._leave()
        finally:
            self._end()

    def _leave(self) -> None:
        self._slot.end()
        self._is_open = False

    def _end(self) -> None:
        if self._is_open:
            self._slot.give_up()
            self._is_open = False
