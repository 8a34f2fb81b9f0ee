"""Columns as an Arrow stream, and as tables of other libraries."""

from __future__ import annotations

from kstore.engine.columns.array import schema_capsule, stream_capsule
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from kstore.engine.columns.array import ColumnBatch, Field


class ArrowStream:
    """An iterable of ColumnBatch objects of one schema."""

    _schema: Field

    @property
    def schema(self) -> Field:
        """The type of the batches, as an Arrow struct."""
        return self._schema

    def __iter__(self) -> Iterator[ColumnBatch]:
        raise NotImplementedError

    def __arrow_c_schema__(self) -> object:
        return schema_capsule(self._schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with a stream of the batches. `requested_schema` is ignored, as Arrow permits."""
        return stream_capsule(self._schema, iter(self))

    def to_arrow(self) -> Any:
        """Read all records into a pyarrow.Table. LibraryError if pyarrow is not installed."""
        return library("pyarrow").table(self)

    def to_pandas(self) -> Any:
        """Read all records into a pandas.DataFrame. LibraryError if pandas or pyarrow is not installed."""
        library("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Read all records into a polars.DataFrame. LibraryError if Polars is not installed."""
        return library("polars").DataFrame(self)
