from collections.abc import Callable
from typing import Self, final

from kstore.engine.columns.array import ColumnBatch
from kstore.engine.scan.batch_reader import Reader
from kstore.engine.scan.column_builder import ColumnBuilder, Predicate

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
