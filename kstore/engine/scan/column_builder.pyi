from typing import final

from kstore.engine.columns.array import Field

COLUMNS: tuple[str, ...]
FIELDS: dict[str, int]
TIMESTAMP_TYPES: tuple[str, ...]

@final
class ColumnBuilder:
    """Columns under construction, for one thread at a time. A batch has at most `batch_rows` rows and, but for one
    record that has more by itself, about `batch_bytes` bytes of keys, values and headers."""

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
