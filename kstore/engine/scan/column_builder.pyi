from collections.abc import Mapping
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
        text: tuple[str, ...] = (),
        datetimes: bool = False,
    ) -> ColumnBuilder: ...
    @property
    def count(self) -> int: ...
    @property
    def schema(self) -> Field: ...

@final
class Predicate:
    def __new__(
        cls,
        start: int,
        stop: int,
        since: int | None = None,
        until: int | None = None,
        key: bytes | None = None,
        key_prefix: bytes | None = None,
        header: str | tuple[str, bytes | None] | Mapping[str, bytes | None] | None = None,
    ) -> Predicate: ...
