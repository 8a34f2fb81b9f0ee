"""Values in JSON as columns, decoded by pyarrow.json without a Python object for each record.

pyarrow.json reads lines of objects. Each value becomes the only field of such a line. A value that is not
JSON cannot swallow the next line, because a line ends inside an object, and one that makes two rows is
counted.
"""

from __future__ import annotations

from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from kstore.frames.table_source import TableSource

_BLOCK = 4 << 20  # bytes that a thread decodes at once
_SAMPLE = 1000  # records


class JsonValues:
    """The type of values, and their decoding."""

    def __init__(self, schema: Any) -> None:
        """`schema`: a type or schema of pyarrow, or one of Polars: a mapping of names to types, or a
        Struct."""
        self.type = _arrow_type(schema)

    @classmethod
    def of(cls, schema: Any, table: TableSource) -> JsonValues:
        """The type that a schema has; without one, that of the first values of a table. ValueError."""
        if schema is not None:
            return cls(schema)
        pa = library("pyarrow")
        batches = [pa.record_batch(found.batch)["value"] for found in table.read(["value"], most=_SAMPLE)]
        values = pa.chunked_array(batches, pa.binary()).combine_chunks()
        if len(values) == values.null_count:
            raise ValueError(f"{table} has no value to take a schema from: pass schema=…")
        try:
            return cls(_without_nulls(_parsed(values, None).type))
        except pa.ArrowInvalid as e:
            raise ValueError(f"the first values of {table} are not JSON of one schema: {e}") from None

    def decode(self, values: Any, offsets: Any, source: object) -> Any:
        """An Arrow array of the values. ValueError names the first record whose value has another type."""
        pa = library("pyarrow")
        try:
            return _parsed(values, self.type)
        except pa.ArrowInvalid:
            at, reason = self._first_wrong(values)
            raise ValueError(
                f"{source}: the value of the record at offset {offsets[at]} is not JSON of the schema: "
                f"{reason}"
            ) from None

    def _first_wrong(self, values: Any) -> tuple[int, str]:
        pa = library("pyarrow")
        low, high, reason = 0, len(values), ""
        while high - low > 0:
            middle = (low + high + 1) // 2
            try:
                _parsed(values.slice(low, middle - low), self.type)
            except pa.ArrowInvalid as e:
                reason = str(e)
                if high == middle:
                    break
                high = middle
            else:
                low = middle
        return low, reason


def _parsed(values: Any, kind: Any) -> Any:
    pa = library("pyarrow")
    pj, pc = library("pyarrow.json"), library("pyarrow.compute")
    if len(values) == 0:
        return pa.array([], kind)
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pc.fill_null(values, b"null"))
    joined = pc.binary_join(lines, b'}\n{"v":')[0].as_buffer()
    text = pa.py_buffer(b"".join([b'{"v":', joined, b"}"]))
    # a block ends behind a line, so there is but one block where values have lines of their own
    is_plain = pc.sum(pc.count_substring(lines.values, b"\n")).as_py() == 0
    found = pj.read_json(
        pa.BufferReader(text),
        pj.ReadOptions(use_threads=True, block_size=_BLOCK if is_plain else max(len(text), 1)),
        pj.ParseOptions(
            explicit_schema=None if kind is None else pa.schema([("v", kind)]),
            unexpected_field_behavior="infer" if kind is None else "ignore",
            newlines_in_values=not is_plain,
        ),
    )
    if found.num_rows != len(values):
        raise pa.ArrowInvalid("a value has more than one document")
    return found["v"].combine_chunks()


def _without_nulls(kind: Any) -> Any:
    """A type with text where the sample had nothing but null."""
    pa = library("pyarrow")
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_nulls(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_nulls(kind.value_type))
    return kind


def _arrow_type(schema: Any) -> Any:
    pa = library("pyarrow")
    if isinstance(schema, pa.DataType):
        return schema
    if isinstance(schema, pa.Schema):
        return pa.struct(list(schema))
    pl = library("polars")
    kind = pl.Struct(schema) if hasattr(schema, "keys") else schema
    return _small(pl.DataFrame(schema={"v": kind}).to_arrow().schema.field("v").type)


def _small(kind: Any) -> Any:
    """A type of Polars with the 32-bit offsets that pyarrow.json decodes."""
    pa = library("pyarrow")
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_small(field.type)) for field in kind])
    return kind
