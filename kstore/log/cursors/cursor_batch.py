"""Batches of records of a cursor that are committed together."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Generic, Protocol, TypeVar
from weakref import ref

from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Any

    from kstore.engine.record.batch import Record
    from kstore.log.cursors.offset_committer import OffsetCommitter
    from kstore.log.follow.feed import Feed
    from kstore.log.follow.position import Position


Item = TypeVar("Item")
Given_contra = TypeVar("Given_contra", contravariant=True)


class _Loop(Generic[Item]):
    """A loop over a batch: the records whose body reached its end, and whether it has asked for all."""

    def __init__(self) -> None:
        self.completed: list[Item] = []
        self.has_ended = False


class _Records(list[Item]):
    """The records of a batch. `last_loop` is the loop that began last, if there was one."""

    last_loop: _Loop[Item] | None = None

    def __iter__(self) -> Iterator[Item]:
        loop: _Loop[Item] = _Loop()
        self.last_loop = loop
        for record in super().__iter__():
            yield record
            loop.completed.append(record)  # the next one was asked for
        loop.has_ended = True


class Slot(Protocol[Given_contra]):
    """The open batch of a cursor; a cursor has one at most."""

    def begin(self, batch: CursorBatch[Any]) -> None:
        """Open a batch. RuntimeError if another one is open."""

    @property
    def has_moved(self) -> bool:
        """Whether the cursor has moved since the batch was opened."""

    def behind(self, completed: Sequence[Given_contra]) -> Any:
        """What to commit for these first records of the batch; None if that is committed already."""

    def end(self) -> None:
        """End the batch, and leave the cursor at its position."""

    def give_up(self) -> None:
        """End the batch, and return the cursor to its position before the batch; but not below the last
        commit, because a commit that failed may be on the disk."""


class Block(NamedTuple):
    """The `with` block of a batch, and the start of the batch. If the reference to the batch is dead, an
    interrupt prevented `__exit__`."""

    batch: ref[CursorBatch[Any]]
    start: Any


def start_again(feed: Feed, committer: OffsetCommitter, start: Position) -> None:
    """Return to a position, but not below the last commit."""
    last = committer.last
    if last is not None and committer.floor > start.offset:
        start = last.reading_position()
    feed.go_to(start)


class BatchSlot:
    """The open batch of a cursor of one partition."""

    def __init__(self, feed: Feed, committer: OffsetCommitter) -> None:
        self._feed = feed
        self._committer = committer
        self._block: Block | None = None

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

    def begin(self, batch: CursorBatch[Any]) -> None:
        """Open a batch. RuntimeError if another one is open."""
        self.check_free()
        self._block = Block(ref(batch), self._feed.position)

    @property
    def has_moved(self) -> bool:
        """Whether the cursor has moved since the batch was opened."""
        return self._block is not None and self._feed.offset != self._block.start.offset

    def behind(self, completed: Sequence[Record]) -> Record | None:
        """The last of these records; None if it is committed already."""
        last = completed[-1]
        return last if last.offset >= self._committer.floor else None

    def end(self) -> None:
        """End the batch, and leave the cursor at its position."""
        self._block = None

    def give_up(self) -> None:
        """End the batch, and return the cursor to its position before the batch; but not below the last
        commit, because a commit that failed may be on the disk."""
        block = self._block
        if block is not None:
            start_again(self._feed, self._committer, block.start)
            self._block = None


def _leading(given: list[Item], completed: list[Item]) -> list[Item]:
    """The records before the first one that is not completed. The block may have sorted them."""
    done = set(map(id, completed))
    for count, record in enumerate(given):
        if id(record) not in done:
            return given[:count]
    return given


class CursorBatch(Generic[Item]):
    """Records of a cursor that are committed when the `with` block ends: those that the block completed.

    cursor.batch() creates one.
    """

    def __init__(
        self,
        slot: Slot[Item],
        read: Callable[[], list[Item]],
        read_async: Callable[[], Awaitable[list[Item]]],
        commit: Callable[..., None],
        commit_async: Callable[..., Awaitable[None]],
    ) -> None:
        self._slot = slot
        self._read = read
        self._read_async = read_async
        self._commit = commit
        self._commit_async = commit_async
        self._given: list[Item] = []
        self._records: _Records[Item] = _Records()
        self._is_open = False

    def __enter__(self) -> list[Item]:
        with ExitStack() as undo:
            undo.callback(self._end)
            self._begin()
            records = self._give(self._read())
            undo.pop_all()
        return records

    async def __aenter__(self) -> list[Item]:
        with ExitStack() as undo:
            undo.callback(self._end)
            self._begin()
            records = self._give(await self._read_async())
            undo.pop_all()
        return records

    def _begin(self) -> None:
        self._slot.begin(self)
        self._is_open = True

    def _give(self, records: list[Item]) -> list[Item]:
        self._given = records
        self._records = _Records(records)
        return self._records

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_complete(error):
                if self._slot.has_moved:
                    self._commit()
                self._leave()
            elif (behind := self._behind_completed()) is not None:
                self._commit(behind)
        finally:
            self._end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._is_complete(error):
                if self._slot.has_moved:
                    await self._commit_async()
                self._leave()
            elif (behind := self._behind_completed()) is not None:
                await self._commit_async(behind)
        finally:
            self._end()

    def _is_complete(self, error: BaseException | None) -> bool:
        """Whether the block is done with all records: it raised nothing, and left no loop over them early."""
        loop = self._records.last_loop
        return self._is_open and error is None and (loop is None or loop.has_ended)

    def _behind_completed(self) -> Any:
        """What to commit for the records before the first one that a loop, which was left early, has not
        completed; None if there are none.

        After a loop that has ended, an exception may come from work on all records: none is completed then.
        """
        loop = self._records.last_loop
        if not self._is_open or loop is None or loop.has_ended:
            return None
        completed = _leading(self._given, loop.completed)
        return self._slot.behind(completed) if completed else None

    def _leave(self) -> None:
        self._slot.end()
        self._is_open = False

    def _end(self) -> None:
        if self._is_open:
            self._slot.give_up()
            self._is_open = False
