"""The records of logs as a dataset of pyarrow. Imports pyarrow."""

from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset

from kstore.frames.arrow_filter import columns_of, condition_of
from kstore.frames.conditions import ANYTHING
from kstore.frames.json_values import JsonValues
from kstore.frames.table_source import Found, TableSource


class LogDataset(pyarrow.dataset.InMemoryDataset):  # type: ignore[misc]
    """A Dataset whose scanners read logs. DuckDB asks a Dataset for a scanner with its columns and filter.

    Arrow's own code sees a dataset without rows, so methods that pass it on raise NotImplementedError.
    """

    def __init__(self, table: TableSource, json: JsonValues | None) -> None:
        self._table = table
        self._json = json
        types = pa.schema(table.empty())
        if json is not None:
            types = types.set(types.get_field_index("value"), pa.field("value", json.type))
        own = {"topic": pa.field("topic", pa.string()), "partition": pa.field("partition", pa.int32())}
        self._names = table.columns
        super().__init__(
            pa.schema([own.get(name) or types.field(name) for name in table.columns]).empty_table()
        )

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> Any:
        """A Scanner of these columns, of the records that match a filter."""
        asked = columns if isinstance(columns, list) else None
        used = None if filter is None else columns_of(filter)
        names: tuple[str, ...] = self._names
        if asked is not None and (filter is None or used is not None):
            names = tuple(name for name in names if name in asked or name in (used or ())) or ("offset",)
        condition = ANYTHING if filter is None else condition_of(filter)
        schema = pa.schema([self.schema.field(name) for name in names])
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(schema, condition))
        for name in ("fragment_readahead", "batch_readahead", "cache_metadata"):
            options.pop(name, None)  # of files
        return pyarrow.dataset.Scanner.from_batches(
            reader, columns=list(self._names) if columns is None else columns, filter=filter, **options
        )

    def _batches(self, schema: Any, condition: Any) -> Iterator[Any]:
        names = list(schema.names)
        if self._json is not None and "value" in names and "offset" not in names:
            names.append("offset")
        for found in self._table.read(names, condition):
            yield self._batch(found, schema)

    def _batch(self, found: Found, schema: Any) -> Any:
        batch = pa.record_batch(found.batch)
        columns = []
        for field in schema:
            if field.name in ("topic", "partition"):
                assert found.partition is not None
                value = getattr(found.partition, field.name)
                columns.append(pa.repeat(pa.scalar(value, field.type), len(batch)))
            elif field.name == "value" and self._json is not None:
                source = found.partition or self._table
                columns.append(self._json.decode(batch["value"], batch["offset"], source))
            else:
                columns.append(batch[field.name])
        return pa.record_batch(columns, schema=schema)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError("a dataset of logs has no fragments: use scanner, to_table or DuckDB")

    filter = get_fragments = join = join_asof = replace_schema = sort_by = _refuse

    def __reduce__(self) -> NoReturn:
        raise TypeError("a dataset of logs cannot be pickled: make it again from its path")

    def __repr__(self) -> str:
        return f"<LogDataset of {self._table}>"
