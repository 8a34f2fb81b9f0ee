from typing import final

from kstore.engine.columns.array import ColumnBatch, Field

@final
class ConstantColumn:
    """The column `name`, of int32, at place `at` among the columns of `schema`; `with_it` is the schema then."""

    def __new__(cls, name: str, at: int, schema: Field) -> ConstantColumn: ...
    @property
    def with_it(self) -> Field: ...
    def put(self, batch: ColumnBatch, number: int) -> ColumnBatch:
        """The batch with this column, `number` in each row. Its other columns are shared with `batch`."""
