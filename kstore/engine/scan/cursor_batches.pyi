from collections.abc import Callable, Iterator
from typing import Any, Self, final

from kstore.engine.columns.array import ColumnBatch
from kstore.errors import LogChangedError

@final
class CursorBatches:
    """Iterates what `make` makes of each batch of a scanner, and moves the cursor behind the batch.

    It moves when all else is done: from there to the loop of whoever iterates is C code, so no interrupt
    comes between: a batch behind which a cursor stands was given. It ends after `most` rows, or more, and
    when somebody else has moved the cursor. An exception goes to `failed`, which raises it; if it does not,
    this is the end."""

    is_at_end: bool
    was_moved: bool
    change: LogChangedError | None
    def __init__(
        self,
        cursor: Any,
        scanner: Iterator[ColumnBatch],
        make: Callable[[ColumnBatch], Any],
        is_cut: Callable[[], bool],
        failed: Callable[[Exception], object] | None = None,
        most: int = ...,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
