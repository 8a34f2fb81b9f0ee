"""The records of a cursor as columns."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from kstore.arguments import integer
from kstore.engine.columns.array import ColumnBatch, leading_columns
from kstore.engine.scan.cursor_batches import CursorBatches
from kstore.log.read.changed import Changed, cut_since
from kstore.log.read.scan import checked_columns
from kstore.log.threads.one_thread import OneThread
from kstore.log.threads.resumed import Resumed

_OFFSET = "offset"
BATCH_ROWS, BATCH_BYTES = 1 << 14, 4 << 20


class Wanted:
    """Which columns, and how large the batches are. TypeError, ValueError."""

    def __init__(self, columns: Iterable[str] | None, batch_rows: int, batch_bytes: int) -> None:
        self.columns = checked_columns(columns)
        self.batch_rows = integer("batch_rows", batch_rows, 1, 2**31 - 1)
        self.batch_bytes = integer("batch_bytes", batch_bytes, 1)
        # the offset says how far the cursor has come
        self.read = self.columns if _OFFSET in self.columns else (*self.columns, _OFFSET)

    def shown(self, batch: ColumnBatch) -> ColumnBatch:
        """What was asked for of a batch that was read."""
        return batch if self.read == self.columns else leading_columns(batch, len(self.columns))

    def there(
        self,
        cursor: Any,
        make: Callable[[ColumnBatch], Any] = lambda batch: batch,
        failed: Callable[[Exception], object] | None = None,
        most: int = 1 << 62,
    ) -> Iterator[CursorBatches]:
        """What `make` makes of the batches up to the end of the log as it is now, or of `most` rows or a few
        more. Each moves the cursor behind it when it is given. `failed` is told what fails."""
        view = cursor._view
        stop = cursor._refreshed_end()
        cursor._let_go()
        at = cursor._position
        changes = Changed()
        while at < stop and not cursor._closed:
            is_cut = cut_since(view)
            scan = view.scan(
                self.read,
                start=at,
                stop=stop,
                isolation=cursor._isolation,
                on_error=cursor._on_error,
                batch_rows=self.batch_rows,
                batch_bytes=self.batch_bytes,
            )
            scan._tells_change = True
            cursor._check_range()  # after it: what is deleted from here on makes the scan raise
            batches = CursorBatches(
                cursor, iter(scan), lambda batch: make(self.shown(batch)), is_cut, failed, most
            )
            try:
                yield batches
            finally:
                cursor._left_out.note(scan.skipped)
            if batches.is_at_end:
                cursor._pass_to(stop)
                return
            if batches.change is not None:
                changes.met(cursor._position, batches.change)
                stop = cursor._look_again()
            elif not batches.was_moved:
                return
            at = cursor._position
        cursor._check_range()


class CursorColumns:
    """The records of a cursor as ColumnBatch objects. Cursor.scan() makes one.

    `for` and `async for` both work, and go on from where the cursor is.
    """

    def __init__(self, cursor: Any, wanted: Wanted) -> None:
        self._cursor = cursor
        self._wanted = wanted
        cursor._view.scan(wanted.read, start=0, stop=0)  # which checks the names

    def __iter__(self) -> Iterator[ColumnBatch]:
        self._cursor._check_open()
        return chain.from_iterable(OneThread(self._cursor, self._batches))

    def _batches(self) -> Iterator[CursorBatches]:
        cursor = self._cursor
        while True:
            yield from self._wanted.there(cursor)
            if not (cursor._follow and not cursor._closed and cursor._wait()):
                return

    def __aiter__(self) -> AsyncIterator[ColumnBatch]:
        self._cursor._check_open()
        return Resumed(self._batches_async)

    async def _batches_async(self) -> AsyncGenerator[ColumnBatch, None]:
        import asyncio

        cursor = self._cursor
        while True:
            for batch in chain.from_iterable(self._wanted.there(cursor)):
                yield batch
                await asyncio.sleep(0)
            if not (cursor._follow and not cursor._closed and await cursor._wait_async()):
                return

    def __repr__(self) -> str:
        return f"<CursorColumns of {self._cursor!r}: {', '.join(self._wanted.columns)}>"
