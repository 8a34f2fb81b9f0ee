from typing import Self, final

from kstore.engine.columns.array import ColumnBatch
from kstore.engine.scan.batch_reader import Reader
from kstore.engine.scan.column_builder import ColumnBuilder
from kstore.engine.scan.predicate import Predicate

@final
class ColumnScanner(Reader):
    """Iterates ColumnBatch objects; `configure` it first. One thread at a time.

    An error comes after the rows that lie before it, and again whenever it is asked for more."""

    def configure(
        self,
        rows: ColumnBuilder,
        predicate: Predicate,
        *,
        split_end: int = -1,
        after: int = -1,
        in_order: bool = False,
    ) -> Self:
        """`after`: the last offset before what is read here. in_order: base timestamps rise from batch to batch."""
    @property
    def reached(self) -> tuple[int, int, int]:
        """(position behind the last batch, its last offset, base offset of the first batch met or -1)."""
    @property
    def finished(self) -> bool: ...
    @property
    def place(self) -> tuple[int, int]:
        """(index of the segment, position in it) of what is read next."""
    @property
    def ended(self) -> bool: ...
    def __next__(self) -> ColumnBatch: ...
