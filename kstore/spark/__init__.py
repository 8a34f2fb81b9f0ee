"""kstore in Spark: logs become RDDs and DataFrames, and results go back into a log, without a broker.

`plan_splits`, `pack_splits`, `partition_reader` and `rdd` need pyspark 3.5 or later and no pyarrow;
`dataframe` and the data source "kstore" need pyarrow (pip install kstore[spark]). Nothing of pyspark is
imported before it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kstore.spark.arrow import COLUMNS
from kstore.spark.errors import SparkSourceError
from kstore.spark.reading.columns import ColumnBatch
from kstore.spark.reading.packing import pack_splits
from kstore.spark.reading.plan import Bounds, Split, plan_splits
from kstore.spark.reading.rdd import PartitionReader, partition_reader, rdd
from kstore.spark.writing.partitioner import murmur2, partition_of_key
from kstore.spark.writing.sink import LastBatch, Sink, SinkStatus, Source, StagedJob, Transaction

if TYPE_CHECKING:
    from kstore.spark.datasource import KStoreDataSource, dataframe, register
    from kstore.spark.reading.lag import Lag, LagListener, QueryLag

__all__ = [
    "COLUMNS",
    "Bounds",
    "ColumnBatch",
    "KStoreDataSource",
    "Lag",
    "LagListener",
    "LastBatch",
    "PartitionReader",
    "QueryLag",
    "Sink",
    "SinkStatus",
    "Source",
    "SparkSourceError",
    "Split",
    "StagedJob",
    "Transaction",
    "dataframe",
    "murmur2",
    "pack_splits",
    "partition_of_key",
    "partition_reader",
    "plan_splits",
    "rdd",
    "register",
]

_LATER = {  # these import pyspark
    "KStoreDataSource": "datasource",
    "dataframe": "datasource",
    "register": "datasource",
    "Lag": "reading.lag",
    "LagListener": "reading.lag",
    "QueryLag": "reading.lag",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"kstore.spark.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
