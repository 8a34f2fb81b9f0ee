from collections.abc import Iterator
from typing import Any, final

import numpy
from numpy.typing import NDArray

from kstore.engine.io.buffers import Buffer

@final
class Field:
    """A column's name and type, by Arrow's format string."""

    @property
    def name(self) -> str: ...
    @property
    def format(self) -> bytes: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def children(self) -> tuple[Field, ...]: ...
    @property
    def dictionary(self) -> ArrayData | None: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class ArrayData:
    """One column of a batch. `values` is for fixed widths; `offsets` and `data`, or `views`, for the
    others."""

    @property
    def field(self) -> Field: ...
    @property
    def length(self) -> int: ...
    @property
    def null_count(self) -> int: ...
    @property
    def buffers(self) -> tuple[Buffer | None, ...]: ...
    @property
    def children(self) -> tuple[ArrayData, ...]: ...
    @property
    def name(self) -> str: ...
    @property
    def values(self) -> NDArray[Any]:
        """The rows as a numpy array; of names (timestamp_type, codec) their numbers in `field.dictionary`."""
    @property
    def offsets(self) -> NDArray[numpy.int32]:
        """Where in `data` (of headers: in the rows of the child) each row begins, and the last ends."""
    @property
    def data(self) -> NDArray[numpy.uint8]:
        """The bytes of all rows, one behind the other."""
    @property
    def views(self) -> NDArray[Any]:
        """With views=True: (size, first four bytes, buffer, offset in it) a row; the buffers are
        `buffers[2:-1]`."""
    @property
    def validity(self) -> NDArray[numpy.bool_] | None:
        """Which rows are not null, as an array of bool; None if all are."""
    def to_list(self) -> list[Any]:
        """The rows as Python objects, like those of Record."""
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

@final
class ColumnBatch:
    """Some rows of a log, column by column. It outlives its log and its scan, and its columns outlive it."""

    def __new__(cls, values: ArrayData) -> ColumnBatch: ...
    @property
    def values(self) -> ArrayData: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[ArrayData, ...]: ...
    @property
    def nbytes(self) -> int:
        """Bytes of memory that the columns refer to, each buffer counted once."""
    def column(self, name: str) -> ArrayData:
        """KeyError where it was not asked for."""
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as tuples of Python objects, for tests and small things."""
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """(schema, array) capsules of a struct array. `requested_schema` is not looked at, as Arrow
        permits."""

__pyx_capi__: dict[str, object]  # what other extension modules cimport

@final
class Source:
    """Behind a stream: its schema, the batches to come, and the text of the last error."""

def schema_capsule(field: Field) -> object:
    """A new capsule with a schema, for __arrow_c_schema__."""

def array_capsule(values: ArrayData) -> object:
    """A new capsule with an array, for __arrow_c_array__."""

def stream_capsule(field: Field, batches: Iterator[ColumnBatch]) -> object:
    """A new capsule with a stream of what `batches` gives, for __arrow_c_stream__; what it raises ends the
    stream."""

def leading_columns(batch: ColumnBatch, count: int) -> ColumnBatch:
    """A batch of the first columns of another one, which they share."""

@final
class ConstantColumn:
    """The column `name`, of int32, at place `at` among the columns of `schema`; `with_it` is the schema
    then."""

    def __new__(cls, name: str, at: int, schema: Field) -> ConstantColumn: ...
    @property
    def with_it(self) -> Field: ...
    def put(self, batch: ColumnBatch, number: int) -> ColumnBatch:
        """The batch with this column, `number` in each row. Its other columns are shared with `batch`."""
