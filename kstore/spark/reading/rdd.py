"""Logs as RDDs: what runs in mapPartitions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kstore.spark.arrow import COLUMNS
from kstore.spark.errors import failure
from kstore.spark.paths import Paths
from kstore.spark.reading.arrow_batches import read_arrow
from kstore.spark.reading.columns import read_columns, read_tuples
from kstore.spark.reading.packing import pack_splits, parallelism_of
from kstore.spark.reading.plan import Split, Topics, plan_splits

As = Literal["batches", "arrow", "records"]
_DEFAULTS: dict[str, tuple[str, ...]] = {
    "batches": ("key", "value", "offset", "timestamp"),
    "arrow": COLUMNS[:-1],
    "records": ("offset", "timestamp", "key", "value"),
}


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """From an iterator of splits, or of tuples of them, to what they hold; made by partition_reader.
    Picklable: it holds names only."""

    as_: As
    columns: tuple[str, ...]

    def __call__(self, items: Iterable[Split | Iterable[Split]]) -> Iterator[Any]:
        for item in items:
            splits = (item,) if isinstance(item, Split) else item
            if self.as_ == "arrow":
                yield from read_arrow(splits, self.columns)
                continue
            for split in splits:
                if self.as_ == "records":
                    yield from read_tuples(split, self.columns)
                else:
                    yield from read_columns(split, self.columns)


def partition_reader(as_: As = "batches", columns: Sequence[str] | None = None) -> PartitionReader:
    """What to give to mapPartitions of an RDD of splits, or of what pack_splits gives.

    "batches" yields ColumnBatch, numpy columns to aggregate in the worker; "arrow" yields pyarrow.RecordBatch
    in the schema of Spark's Kafka source; "records" yields tuples, (offset, timestamp in ms, key, value)
    unless `columns` says otherwise. Tuples that cross to the JVM cost 1.3 to 3 us each, on top of the
    reading: aggregate in the worker, or use dataframe(). `columns` are names of kstore.spark.COLUMNS; what is
    not named is not decoded into columns.
    """
    if as_ not in _DEFAULTS:
        raise ValueError(f"as_ is one of {', '.join(_DEFAULTS)}, not {as_!r}")
    chosen = tuple(columns) if columns is not None else _DEFAULTS[as_]
    for name in chosen:
        if name not in COLUMNS:
            raise failure("KSTORE_INVALID_SCHEMA", f"no column {name!r}; there are {', '.join(COLUMNS)}")
    return PartitionReader(as_, chosen)


def rdd(
    sc: Any,
    path: Paths,
    topics: Topics,
    *,
    as_: As = "batches",
    columns: Sequence[str] | None = None,
    **plan: Any,
) -> Any:
    """An RDD of what partition_reader yields; `plan` as for plan_splits. A partition of it is a split, or
    several small ones, as pack_splits has them; `min_partitions` asks for at least about so many."""
    reader = partition_reader(as_, columns)
    splits = plan_splits(path, topics, **plan)
    own = {name: plan[name] for name in ("max_records_per_partition", "target_bytes") if name in plan}
    tasks = pack_splits(splits, parallelism=plan.get("min_partitions") or parallelism_of(sc), **own)
    return sc.parallelize(tasks, max(1, len(tasks))).mapPartitions(reader)
