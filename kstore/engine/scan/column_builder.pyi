from typing import final

from kstore.engine.columns.array import Field

COLUMNS: tuple[str, ...]
FIELDS: dict[str, int]
TIMESTAMP_TYPES: tuple[str, ...]

@final
class ColumnBuilder:
    def __new__(
        cls,
        columns: tuple[str, ...],
        batch_rows: int,
        batch_bytes: int,
        views: bool,
    ) -> ColumnBuilder: ...
    @property
    def count(self) -> int: ...
    @property
    def schema(self) -> Field: ...
