"""Logs as lazy frames of Polars: `kstore.polars.scan`. Needs Polars."""

from __future__ import annotations

from kstore.frames.conditions import ANYTHING
from kstore.frames.json_values import table_and_json
from kstore.frames.polars_filter import condition_of
from kstore.frames.table_source import NAMES
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from os import PathLike
    from typing import Any, Literal

    from kstore.frames.json_values import JsonValues
    from kstore.frames.table_source import Found, TableSource
    from kstore.log.partition import PartitionLog
    from kstore.store.log_store import LogStore

__all__ = ["scan"]


def scan(
    source: str | PathLike[str] | PartitionLog | LogStore,
    topic: str | Iterable[str] | None = None,
    *,
    partitions: Iterable[int] | None = None,
    text: Iterable[Literal["key", "value"]] = ("key", "value"),
    timestamps: Literal["ms", "datetime"] = "datetime",
    value_format: Literal["json"] | None = None,
    schema: Any = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    threads: int | None = None,
    in_order: bool = False,
    on_error: Literal["raise", "skip"] = "raise",
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Return a polars.LazyFrame of a log, or of topics of a store.

    The columns are topic, partition, offset, timestamp, timestamp_type, key, value and headers; topic and
    partition are missing if a single log's directory does not have the name of a partition. Each collect()
    reads the logs as they are then. It reads only the columns and partitions that the query needs, and
    passes by records outside of what its filters on offset, timestamp, key and headers allow; explain() shows
    the filters as SELECTION. head() and slice() end the reading early.

    source: the path or URL of a partition or of a log directory, an open log or an open store. topic: a
    name, or several. Default: all topics of a store. partitions: numbers. Default: all. text: the columns
    read as UTF-8 text, else bytes; a key or value that is not UTF-8 raises an error with its offset.
    timestamps: "datetime" is Datetime("ms", "UTC"), "ms" is Int64. value_format: "json" decodes the values
    into a Struct, with DuckDB. schema: its fields, as types of Polars or pyarrow. Default: those of the first
    1,000 values; a later value of another type raises ValueError. A field that is not in the schema is
    ignored, one that is missing is null. isolation, in_order and on_error: as in PartitionLog.scan. A filter
    `timestamp < t` ends the reading early only with in_order=True. threads: how many decode at the same time.
    Default: half of the processors, at most 4.
    storage_options: those of fsspec for a URL, as in kstore.open.

    Raises LogNotFoundError, LibraryError, TypeError and ValueError. collect() raises the errors of reading,
    such as CorruptRecordError and LogClosedError.
    """
    register = library("polars.io.plugins").register_io_source
    table, json = table_and_json(
        source,
        topic,
        partitions,
        threads,
        storage_options,
        text=text,
        value_format=value_format,
        schema=schema,
        timestamps=timestamps,
        isolation=isolation,
        in_order=in_order,
        on_error=on_error,
        views=value_format is None,
    )
    frame = _Frame(table, json)
    return register(
        frame.read,
        schema=frame.schema,
        is_pure=True,
        explain_name="kstore",
        explain_detail=f"{table}" + (", timestamps in order" if in_order else ""),
    )


class _Frame:
    """The source of a LazyFrame."""

    def __init__(self, table: TableSource, json: JsonValues | None) -> None:
        self._table = table
        self._json = json
        pl = library("polars")
        names = {"topic": pl.String(), "partition": pl.Int32()}
        types = dict(pl.DataFrame(table.empty()).schema)
        if json is not None:
            types["value"] = pl.from_arrow(library("pyarrow").array([], json.type)).dtype
        self.schema = {name: names.get(name) or types[name] for name in table.columns}

    def read(
        self, columns: list[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        """Frames of these columns; `n_rows` counts rows before the predicate."""
        asked = list(self.schema) if columns is None else columns
        roots = [] if predicate is None else predicate.meta.root_names()
        names = [name for name in self.schema if name in asked or name in roots]
        condition = ANYTHING if predicate is None or n_rows is not None else condition_of(predicate)
        if self._json is not None and "value" in names and "offset" not in names:
            read = [*names, "offset"]
        else:
            read = names
        for found in self._table.read(read, condition, n_rows):
            frame = self._frame(found, names)
            if n_rows is not None:
                frame = frame.head(n_rows)
                n_rows -= len(frame)
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame.select(asked)

    def _frame(self, found: Found, names: list[str]) -> Any:
        pl = library("polars")
        frame = pl.DataFrame(found.batch)
        if self._json is not None and "value" in names:
            pa = library("pyarrow")
            batch = pa.record_batch(found.batch)
            value = self._json.decode(batch["value"], batch["offset"], found.partition or self._table)
            frame = frame.with_columns(pl.from_arrow(value).alias("value"))
        if found.partition is not None:
            literals = zip(NAMES, found.partition, strict=True)
            frame = frame.with_columns(
                pl.lit(value, self.schema[name]).alias(name) for name, value in literals if name in names
            )
        return frame
