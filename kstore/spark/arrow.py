"""The columns of a record in Arrow's types, those of Spark's Kafka source. Needs no Spark."""

from collections.abc import Sequence
from typing import Any

from kstore.errors import LibraryError
from kstore.libraries import library
from kstore.spark.errors import failure

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns there are, in the order of Spark's Kafka source; headers come when they are asked for."""


def require_pyarrow() -> Any:
    """The module pyarrow; KSTORE_NO_PYARROW."""
    try:
        return library("pyarrow")
    except LibraryError as e:
        raise failure("KSTORE_NO_PYARROW", f"{e}: pip install kstore[spark], on every machine") from e


def arrow_schema(columns: Sequence[str]) -> Any:
    """The Arrow schema of these columns: what Spark takes for the types of its Kafka source, nullable
    throughout."""
    pa = require_pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])
