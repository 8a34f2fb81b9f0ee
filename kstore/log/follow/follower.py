"""Following a log: its records from a position on, and then those that are appended."""

from __future__ import annotations

from functools import partial
from itertools import chain
from threading import get_ident
from time import monotonic
from typing import Generic, TypeVar

from kstore.engine.columns.array import ColumnBatch
from kstore.engine.io.synchronization import EventFd
from kstore.engine.record.batch import Record, RecordBatch
from kstore.errors import KstoreError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.follow.readable import wait_readable, wait_readable_async
from kstore.log.follow.waiting import Waitable
from kstore.log.threads.closing import Closing
from kstore.log.threads.one_thread import BUSY, Iterated, OneThread
from kstore.log.threads.resumed import TASK_TURN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

    from kstore.engine.scan.batch_reader import Skipped
    from kstore.log.follow.feed import Feed, Read
    from kstore.log.follow.position import Position


Item = TypeVar("Item", bound=RecordBatch | Record | ColumnBatch)

# s: for changes that inotify does not report, such as those that another machine makes to a share
_HEARTBEAT = 1.0
_POLLS = (0.001, 0.05)  # s: how often to ask at first and at last, where the system does not report changes


class Follower(Closing, Waitable, Generic[Item]):
    """An iterator of the records (or batches) from an offset on, which waits for more at the end.
    log.follow() creates one.

    `for` and `async for` both work. The iteration ends if nothing was appended for `timeout` seconds, when
    the follower is closed, and when its log is a LogWriter of this process that is closed and was read to its
    end. OffsetOutOfRangeError if the record at `offset` is deleted before it is read, or records before it
    are truncated: `end` of the error is then the first offset that was removed. To continue, follow the log
    from `position` of the error. One thread or task at a time may iterate; any may call `close`.
    """

    def __init__(self, feed: Feed, read: Read, timeout: float | None) -> None:
        self.timeout = timeout
        self._feed = feed
        self._read = read
        self._busy = 0  # the thread that looks for the next one, or waits for it; 0 for none
        self._items: Iterator[Any] = iter(())
        self._iterated = Iterated()
        self._taken = 0
        self._event = EventFd()
        feed.source.begin()

    @property
    def offset(self) -> int:
        """The offset of the next record."""
        return self._feed.offset

    @property
    def position(self) -> Position:
        """The Position of the next record. A follower that starts there detects a truncation below it; one
        that starts at `offset` does not."""
        return self._feed.position

    @property
    def skipped(self) -> list[Skipped]:
        """The damage that on_error="skip" has skipped: for each, the file, the byte, the size and the
        error."""
        return self._feed.skipped

    def take(self) -> Item | None:
        """Return the next record (or batch) if there is one, else None, without waiting.

        OffsetOutOfRangeError if the record at the position was deleted; CorruptRecordError, OSError.
        """
        self._enter()
        try:
            return self._look(_Wait(0))
        finally:
            self._busy = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        item: Item | None = next(self._items, None)
        if item is not None:
            return item
        self._enter()
        try:
            wait = _Wait(self.timeout)
            while (item := self._look(wait)) is None:
                if wait.pause is None:
                    raise StopIteration
                self._woken(wait_readable(self.signals(), wait.pause), wait)
            return item
        finally:
            self._busy = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        import asyncio

        self._taken += 1
        if self._taken % TASK_TURN == 0:
            await asyncio.sleep(0)
        self._enter()
        try:
            wait = _Wait(self.timeout)
            while (item := self._look(wait)) is None:
                if wait.pause is None:
                    raise StopAsyncIteration
                self._woken(await wait_readable_async(self.signals(), wait.pause), wait)
            return item
        finally:
            self._busy = 0

    def _enter(self) -> None:
        """RuntimeError while another thread looks for the next one, or waits for it."""
        me = get_ident()
        if self._busy not in (0, me):
            raise RuntimeError(BUSY)
        self._busy = me

    def _look(self, wait: _Wait) -> Item | None:
        """The next item, or None. Then `wait.pause` is how long to sleep before the next call, or None if the
        iteration ends."""
        item: Item | None = next(self._items, None)
        if item is not None:
            return item
        feed, ended = self._feed, True
        if not feed.is_closed:
            ended = feed.source.ended
            # Armed first and looked at then, or what comes between would be slept through.
            feed.source.arm(self._event)
            self._items = chain.from_iterable(OneThread(self._iterated, partial(feed.runs, self._read)))
            item = next(self._items, None)
        wait.pause = None if ended or feed.is_closed else wait.seconds(feed.source.reports_changes)
        return item

    def looks(self) -> Iterator[float]:
        """Yield how many seconds to wait before the next check for a record, for `kstore.wait`. Internal."""
        wait = _Wait(None)
        while not self._is_ready():
            source = self._feed.source
            pause = wait.seconds(source.reports_changes)
            assert pause is not None
            began = monotonic()
            yield pause
            if not source.reports_changes or monotonic() - began >= pause:
                source.mark_stale()

    def _is_ready(self) -> bool:
        """Whether iterating would not wait. Else the signals report the next change."""
        self._enter()
        try:
            feed = self._feed
            self._event.clear()
            if feed.is_closed or feed.source.ended:
                return True
            feed.source.arm(self._event)
            return feed.has_more(self._read)
        except (KstoreError, OSError):  # iterating raises it
            return True
        finally:
            self._busy = 0

    def signals(self) -> tuple[Any, ...]:
        """Return the files that become readable when there may be a record, for `kstore.wait`. Internal."""
        return self._event, self._feed.source.watch

    def _woken(self, by_signal: bool, wait: _Wait) -> None:
        if by_signal:
            self._event.clear()
        elif not self._feed.source.reports_changes or not wait.is_over():
            self._feed.source.mark_stale()

    def close(self) -> None:
        """End the iteration, also in a thread that waits in it."""
        self._feed.close()
        self._event.set()

    def __repr__(self) -> str:
        state = ", closed" if self._feed.is_closed else ""
        return f"<Follower of {self._feed.source.path}: at offset {self.offset}{state}>"


class _Wait:
    """How long one wait for the next item may last, and how much of it at a time."""

    def __init__(self, timeout: float | None) -> None:
        self.pause: float | None = None
        self._deadline = None if timeout is None else monotonic() + timeout
        self._poll = _POLLS[0]

    def seconds(self, reports_changes: bool) -> float | None:
        """How long to sleep now; None when the time is over."""
        most = _HEARTBEAT
        if not reports_changes:
            most = self._poll
            self._poll = min(2 * most, _POLLS[1])
        if self._deadline is None:
            return most
        left = self._deadline - monotonic()
        return min(left, most) if left > 0 else None

    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._deadline is not None and self._deadline <= monotonic()
