"""Batch queries: what their tasks read, and Spark's reader. Imports pyspark."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import StructType

from kstore.log.files.layout import TopicPartition
from kstore.spark.arrow import COLUMNS
from kstore.spark.errors import failure
from kstore.spark.reading.arrow_batches import read_arrow
from kstore.spark.reading.logs import Logs
from kstore.spark.reading.packing import tasks
from kstore.spark.reading.plan import Range, Split, check_named, checked, chosen, ranges_of
from kstore.spark.reading.source_options import SourceOptions
from kstore.spark.schema import TYPES

try:
    from pyspark.sql.datasource import DataSourceReader, InputPartition
except ImportError:  # Spark 3.5 has no data sources in Python; dataframe() does without
    DataSourceReader = InputPartition = object


class KStorePartition(InputPartition):  # type: ignore[misc]
    """What a task reads."""

    def __init__(self, value: tuple[Split, ...]) -> None:
        self.value = value


def read_partition(partition: Any, columns: tuple[str, ...]) -> Iterator[Any]:
    """Arrow batches of a task; none of the empty partition that Spark makes if there are no others."""
    if partition is not None and partition.value is not None:
        yield from read_arrow(partition.value, columns)


def all_columns(options: SourceOptions) -> tuple[str, ...]:
    """The columns of a reader for which no schema is given."""
    return COLUMNS if options.include_headers else COLUMNS[:-1]


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns that a schema asks for: any of ours, in any order. KSTORE_INVALID_SCHEMA."""
    accepted = ", ".join(f"{name} {kind.simpleString()}" for name, kind in TYPES.items())
    names = []
    for column in schema.fields:
        if column.name not in TYPES or column.dataType != TYPES[column.name] or column.name in names:
            raise failure(
                "KSTORE_INVALID_SCHEMA",
                f"no column {column.name} {column.dataType.simpleString()}; any of these, once: {accepted}",
            )
        if not column.nullable:
            raise failure("KSTORE_INVALID_SCHEMA", f"column {column.name} must be nullable")
        names.append(column.name)
    return tuple(names)


def plan(options: SourceOptions, parallelism: int | None = None) -> list[tuple[Split, ...]]:
    """What the tasks of a batch query read."""
    logs = Logs(options.roots, options.isolation)
    return tasks(logs, _ranges(logs, options), options, parallelism)


def _ranges(logs: Logs, options: SourceOptions) -> dict[TopicPartition, Range]:
    """What a batch query reads of every partition."""
    return ranges_of(
        logs,
        chosen(logs, options.topics),
        options.starting,
        options.ending,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def check_there(options: SourceOptions, *, is_batch: bool) -> None:
    """Whether there is what options name. A stream that is restarted goes on where it was, so the start that
    its options name may be gone, and they may lack partitions that came since. SparkSourceError."""
    logs = Logs(options.roots, options.isolation)
    if is_batch:
        _ranges(logs, options)
        return
    partitions = chosen(logs, options.topics)
    table = options.starting.table
    if table is not None and options.fail_on_data_loss:
        check_named(logs, partitions, table, "startingOffsets")
        for tp in partitions:
            offset = table.get(tp.topic, {}).get(tp.partition, 0)
            if offset > logs.end(tp):
                checked(logs, tp, offset, fail_on_data_loss=True)


class KStoreReader(DataSourceReader):  # type: ignore[misc]
    """A batch query. It has no pushFilters: no released Spark gives right rows with it
    (tests/spark/filter_pushdown.md)."""

    def __init__(
        self, options: SourceOptions, columns: tuple[str, ...], parallelism: int | None = None
    ) -> None:
        self.options = options
        self.columns = columns
        self.parallelism = parallelism

    def partitions(self) -> list[KStorePartition]:
        """What the tasks read, planned now."""
        return [KStorePartition(task) for task in plan(self.options, self.parallelism)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow batches."""
        return read_partition(partition, self.columns)
