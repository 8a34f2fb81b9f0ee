from typing import final

from kstore.engine.columns.array import ColumnBatch, Field

@final
class ConstantColumn:
    def __new__(cls, name: str, at: int, schema: Field) -> ConstantColumn: ...
    @property
    def with_it(self) -> Field: ...
    def put(self, batch: ColumnBatch, number: int) -> ColumnBatch: ...
