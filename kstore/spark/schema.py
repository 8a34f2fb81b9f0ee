"""What Spark's readers and writers share: the columns in Spark's types, and what a task reads. Imports pyspark."""

from collections.abc import Mapping, Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kstore.log.files.layout import TopicPartition
from kstore.spark.errors import failure
from kstore.spark.options import SourceOptions
from kstore.spark.reading import columns as cols
from kstore.spark.reading.logs import Logs
from kstore.spark.reading.packing import pack_splits
from kstore.spark.reading.plan import Split, split_ranges

try:
    from pyspark.sql.datasource import InputPartition
except ImportError:  # Spark 3.5 has no data sources in Python
    InputPartition = object

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}


def spark_schema(columns: Sequence[str]) -> StructType:
    """The schema of these columns."""
    return StructType([StructField(name, TYPES[name]) for name in columns])


def all_columns(options: SourceOptions) -> tuple[str, ...]:
    """The columns of a reader for which no schema is given."""
    return cols.COLUMNS if options.include_headers else cols.COLUMNS[:-1]


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


def tasks(
    logs: Logs,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    options: SourceOptions,
    parallelism: int | None,
) -> list[tuple[Split, ...]]:
    """What the tasks read of ranges of offsets that were resolved before. `parallelism`: how many can run at once, if the
    options do not say."""
    parallelism = options.min_partitions or options.parallelism or parallelism
    splits = split_ranges(
        logs,
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
        target_bytes=options.max_partition_bytes,
        parallelism=parallelism,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    return pack_splits(
        splits,
        parallelism=parallelism,
        max_records_per_partition=options.max_records_per_partition,
        target_bytes=options.max_partition_bytes,
        open_cost_bytes=options.open_cost_bytes,
    )


class KStorePartition(InputPartition):  # type: ignore[misc]
    """What a task reads."""

    def __init__(self, value: tuple[Split, ...]) -> None:
        self.value = value
