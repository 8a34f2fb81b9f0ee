"""kstore in Spark: logs become RDDs and DataFrames, and results go back into a log, without a broker.

`plan_splits`, `partition_reader` and `rdd` need pyspark 3.5 or later and no pyarrow; `dataframe` and the data source
"kstore" need pyarrow (pip install kstore[spark]). Nothing of pyspark is imported before it is used.
"""

from typing import TYPE_CHECKING, Any

from kstore.spark.columns import COLUMNS, ColumnBatch
from kstore.spark.errors import SparkSourceError
from kstore.spark.partitioner import murmur2, partition_of_key
from kstore.spark.plan import Bounds, Split, plan_splits
from kstore.spark.publish import Sink, SinkStatus, StagedJob
from kstore.spark.rdd import PartitionReader, partition_reader, rdd

if TYPE_CHECKING:
    from kstore.spark.datasource import KStoreDataSource, dataframe, register

__all__ = [
    "COLUMNS",
    "Bounds",
    "ColumnBatch",
    "KStoreDataSource",
    "PartitionReader",
    "Sink",
    "SinkStatus",
    "SparkSourceError",
    "Split",
    "StagedJob",
    "dataframe",
    "murmur2",
    "partition_of_key",
    "partition_reader",
    "plan_splits",
    "rdd",
    "register",
]

_LATER = ("KStoreDataSource", "dataframe", "register")


def __getattr__(name: str) -> Any:
    if name in _LATER:  # these import pyspark
        from kstore.spark import datasource

        return getattr(datasource, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
