"""Some records of a cursor, which are committed together."""

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
    """The block of a batch, and where the cursor was before it. If `batch` is dead, the end of the block was
    broken off before its first line."""

    batch: "ref[CursorBatch]"
    start: Position


class BatchSlot:
    """The place for the one batch of a cursor whose block was not left."""

    def __init__(self, feed: Feed, committer: OffsetCommitter) -> None:
        self._feed = feed
        self._committer = committer
        self._block: _Block | None = None

    @property
    def offset(self) -> int:
        """Where the cursor is. A batch whose block was left is ended, if nothing could be done at its end."""
        block = self._block
        if block is not None and block.batch() is None:
            self.give_up()
        return self._feed.offset

    def check_free(self) -> None:
        """RuntimeError in the block of a batch."""
        _ = self.offset
        if self._block is not None:
            raise RuntimeError("a batch of this cursor is open: leave its `with` block first")

    def begin(self, batch: "CursorBatch") -> None:
        """The block of a batch begins. RuntimeError in that of another one."""
        self.check_free()
        self._block = _Block(ref(batch), self._feed.position)

    @property
    def has_moved(self) -> bool:
        """Whether the cursor has moved in the block of this moment."""
        return self._block is not None and self._feed.offset != self._block.start.offset

    def end(self) -> None:
        """The block has ended well: the cursor stays where it is."""
        self._block = None

    def give_up(self) -> None:
        """The block has ended: the cursor goes to where it was before, but not before what is committed: a
        commit that failed may be on the disk."""
        block, last = self._block, self._committer.last
        if block is not None:
            start = block.start
            if last is not None and self._committer.floor > start.offset:
                start = last.reading_position()
            self._feed.go_to(start)
            self._block = None


class CursorBatch:
    """Some records of a cursor, which are committed when the `with` block ends well. cursor.batch() makes
    one."""

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
            if not records:  # else the next batch raises it
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
