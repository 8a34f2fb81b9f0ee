from collections.abc import Callable, Iterator
from typing import Any, Self, final

from kstore.engine.columns.array import ColumnBatch
from kstore.engine.scan.batch_reader import Skipped
from kstore.errors import LogChangedError

@final
class CursorBatches:
    """Iterates what `make` makes of each batch of a scanner, up to `most` rows or a few more.

    `next_offset` moves when all else is done: from there to the loop of whoever iterates is C code, so no
    interrupt comes between: a batch behind which it is was given. An exception goes to `failed`, which raises
    it; if it does not, this is the end."""

    @property
    def next_offset(self) -> int: ...
    @property
    def change(self) -> LogChangedError | None: ...
    @property
    def is_stopped(self) -> bool: ...
    @property
    def is_done(self) -> bool: ...
    def __init__(
        self,
        scanner: Iterator[ColumnBatch],
        make: Callable[[ColumnBatch], Any],
        failed: Callable[[Exception], object] | None = None,
        most: int = ...,
    ) -> None: ...
    def stop(self) -> None:
        """Nothing more is given; from any thread."""
    @property
    def skipped(self) -> list[Skipped]:
        """What on_error="skip" has left out so far."""
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
