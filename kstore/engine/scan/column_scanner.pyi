from collections.abc import Callable, Iterator
from typing import Any, Self, final

from kstore.engine.columns.array import ColumnBatch
from kstore.engine.scan.batch_reader import Reader, Skipped
from kstore.engine.scan.column_builder import ColumnBuilder, Predicate
from kstore.errors import LogChangedError

@final
class ColumnScanner(Reader):
    on_pause: Callable[[], object] | None
    def configure(
        self,
        rows: ColumnBuilder,
        predicate: Predicate,
        *,
        split_end: int = -1,
        after: int = -1,
        in_order: bool = False,
    ) -> Self: ...
    @property
    def reached(self) -> tuple[int, int, int]: ...
    @property
    def finished(self) -> bool: ...
    @property
    def place(self) -> tuple[int, int]: ...
    @property
    def ended(self) -> bool: ...
    def __next__(self) -> ColumnBatch: ...

@final
class CursorBatches:
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
    def stop(self) -> None: ...
    @property
    def skipped(self) -> list[Skipped]: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
