"""Logs as RDDs: what runs in mapPartitions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

from kstore.engine.record.batch import Record
from kstore.spark import columns as cols
from kstore.spark.errors import failure
from kstore.spark.plan import Split, Topics, plan_splits

As = Literal["batches", "arrow", "records"]
_DEFAULTS: dict[str, tuple[str, ...]] = {
    "batches": ("key", "value", "offset", "timestamp"),
    "arrow": cols.COLUMNS[:-1],
    "records": ("offset", "timestamp", "key", "value"),
}


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """From an iterator of splits to what they hold; made by partition_reader. Picklable: it holds names only."""

    as_: As
    columns: tuple[str, ...]

    def __call__(self, splits: Iterable[Split]) -> Iterator[Any]:
        for split in splits:
            if self.as_ == "records":
                yield from _tuples(split, self.columns)
            else:
                batches = cols.read_columns(split, self.columns)
                if self.as_ == "batches":
                    yield from batches
                else:
                    schema = cols.arrow_schema(self.columns)
                    for batch in batches:
                        yield cols.to_arrow(batch, schema)


def partition_reader(as_: As = "batches", columns: Sequence[str] | None = None) -> PartitionReader:
    """What to give to mapPartitions of an RDD of splits.

    "batches" yields ColumnBatch, numpy columns to aggregate in the worker; "arrow" yields pyarrow.RecordBatch in the
    schema of Spark's Kafka source; "records" yields tuples, (offset, timestamp in ms, key, value) unless `columns` says
    otherwise. Tuples that cross to the JVM cost 1.3 to 3 us each, on top of the reading: aggregate in the worker, or
    use dataframe(). `columns` are names of kstore.spark.COLUMNS; what is not named is not decoded into columns.
    """
    if as_ not in _DEFAULTS:
        raise ValueError(f"as_ is one of {', '.join(_DEFAULTS)}, not {as_!r}")
    chosen = tuple(columns) if columns is not None else _DEFAULTS[as_]
    for name in chosen:
        if name not in cols.COLUMNS:
            raise failure("KSTORE_INVALID_SCHEMA", f"no column {name!r}; there are {', '.join(cols.COLUMNS)}")
    return PartitionReader(as_, chosen)


def rdd(
    sc: Any,
    path: str | PathLike[str],
    topics: Topics,
    *,
    as_: As = "batches",
    columns: Sequence[str] | None = None,
    **plan: Any,
) -> Any:
    """An RDD of what partition_reader yields, one partition a split; `plan` as for plan_splits."""
    reader = partition_reader(as_, columns)
    splits = plan_splits(path, topics, **plan)
    return sc.parallelize(splits, max(1, len(splits))).mapPartitions(reader)


def _tuples(split: Split, columns: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    if columns == _DEFAULTS["records"]:
        for record in cols.iterate(split):
            yield record.offset, record.timestamp, record.key, record.value
        return
    for record in cols.iterate(split):
        yield tuple(_cell(split, record, name) for name in columns)


def _cell(split: Split, record: Record, name: str) -> Any:
    match name:
        case "topic":
            return split.topic
        case "partition":
            return split.partition
        case "timestampType":
            return cols.timestamp_type(record)
        case _:
            return getattr(record, name)
