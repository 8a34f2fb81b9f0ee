"""What Spark's readers and writers share: the columns in Spark's types, and what a task reads. Imports pyspark."""

from collections.abc import Iterator, Sequence
from typing import Any

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

from kstore.spark import columns as cols
from kstore.spark.errors import failure
from kstore.spark.options import SourceOptions
from kstore.spark.plan import Split

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


def read_arrow(split: Split, columns: Sequence[str]) -> Iterator[Any]:
    """The records of a split as Arrow batches with these columns."""
    schema = cols.arrow_schema(columns)
    for batch in cols.read_columns(split, columns):
        yield cols.to_arrow(batch, schema)


class KStorePartition(InputPartition):  # type: ignore[misc]
    """What a task reads."""

    def __init__(self, value: Split) -> None:
        self.value = value
