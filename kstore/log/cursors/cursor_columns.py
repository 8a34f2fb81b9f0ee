"""Records of a cursor as columns."""

from __future__ import annotations

from functools import partial
from itertools import chain

from kstore.arguments import integer
from kstore.engine.columns.array import leading_columns
from kstore.engine.scan.column_scanner import CursorBatches
from kstore.light_typing import TYPE_CHECKING
from kstore.log.follow.follower import Follower
from kstore.log.read import scan
from kstore.log.threads.one_thread import OneThread
from kstore.log.threads.resumed import Resumed, in_turns
from kstore.log.view.run import scan_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from typing import Any

    from kstore.engine.columns.array import ColumnBatch
    from kstore.log.follow.feed import Feed, Read
    from kstore.log.threads.one_thread import Iterated

_OFFSET = "offset"
BATCH_ROWS, BATCH_BYTES = 1 << 14, 4 << 20


class ColumnOptions:
    """The columns to read and the size of batches, checked. TypeError, ValueError."""

    def __init__(self, columns: Iterable[str] | None, batch_rows: int, batch_bytes: int) -> None:
        self.columns = scan.checked_columns(columns)
        self._batch_rows = integer("batch_rows", batch_rows, 1, 2**31 - 1)
        self._batch_bytes = integer("batch_bytes", batch_bytes, 1)
        # the cursor moves by the offset column
        self.read = self.columns if _OFFSET in self.columns else (*self.columns, _OFFSET)

    def shown(self, batch: ColumnBatch) -> ColumnBatch:
        """A batch that was read, with the requested columns only."""
        return batch if self.read == self.columns else leading_columns(batch, len(self.columns))

    def reader(
        self,
        isolation: str,
        on_error: str,
        make: Callable[[ColumnBatch], Any] = lambda batch: batch,
        failed: Callable[[Exception], object] | None = None,
        most: int = 1 << 62,
    ) -> Read:
        """A reader of a view that yields `make(batch)` for batches of about `most` rows at most. It passes
        exceptions to `failed`."""
        wanted = scan.Wanted(self.read, self._batch_rows, self._batch_bytes, on_error=on_error)

        def read(view: Any, start: int, stop: int) -> CursorBatches:
            found = scan_of(view, wanted, start, stop, isolation, ends_at_change=True)
            return CursorBatches(iter(found), lambda batch: make(self.shown(batch)), failed, most)

        return read


class CursorColumns:
    """Records of a cursor as ColumnBatch objects. Cursor.scan() creates one.

    `for` and `async for` both work, and continue from the position of the cursor.
    """

    def __init__(
        self,
        name: str,
        iterated: Iterated,
        feed: Feed,
        options: ColumnOptions,
        on_error: str,
        follow: bool,
        timeout: float | None,
    ) -> None:
        self._name = name
        self._iterated = iterated
        self._feed = feed
        self._columns = options.columns
        self._read = options.reader(feed.isolation, on_error)
        self._read(feed.view, 0, 0)  # checks the names of the columns
        self._follow = follow
        self._timeout = timeout

    def __iter__(self) -> Iterator[ColumnBatch]:
        self._feed.check_open()
        if self._follow:
            return self._following()
        return chain.from_iterable(OneThread(self._iterated, partial(self._feed.runs, self._read)))

    def __aiter__(self) -> AsyncIterator[ColumnBatch]:
        self._feed.check_open()
        return self._following() if self._follow else Resumed(partial(in_turns, self.__iter__, 1))

    def _following(self) -> Follower[ColumnBatch]:
        return Follower(self._feed, self._read, self._timeout)

    def __repr__(self) -> str:
        return f"<CursorColumns of {self._name}: {', '.join(self._columns)}>"
