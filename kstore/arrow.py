"""Logs as datasets of pyarrow, which DuckDB queries: `kstore.arrow.dataset`. Needs pyarrow."""

from __future__ import annotations

from kstore.frames.json_values import table_and_json
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from typing import Any, Literal

    from kstore.log.partition import PartitionLog
    from kstore.store.log_store import LogStore

__all__ = ["dataset"]


def dataset(
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
    """Return a pyarrow.dataset.Dataset of a log, or of topics of a store.

    DuckDB queries it by the name of its variable. Each query reads the logs as they are then. A query, and
    to_table(columns=…, filter=…), reads only the columns and partitions that it needs, and passes by records
    outside of what its filters on offset, timestamp and key allow; DuckDB's EXPLAIN shows them as Filters.

    The arguments, the columns and the errors are those of kstore.polars.scan; `schema` also accepts a schema
    or type of pyarrow. The methods scanner, to_table, to_batches, head, take and count_rows work; those
    that make another dataset raise NotImplementedError.
    """
    library("pyarrow.dataset")
    from kstore.frames.arrow_dataset import LogDataset

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
    )
    return LogDataset(table, json)
