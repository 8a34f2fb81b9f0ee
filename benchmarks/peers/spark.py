"""Spark's side of bench_spark.py: imported by workers too, so it holds what must be picklable."""

import base64
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kstore.spark.arrow import arrow_schema
from kstore.spark.reading.arrow_batches import to_arrow
from kstore.spark.reading.columns import read_columns
from kstore.spark.reading.plan import Split
from kstore.spark.schema import spark_schema

COLUMNS = ("key", "value", "offset", "timestamp")  # what the query needs; a source in Python must be told


def aggregate(batches: Iterable[Any]) -> Iterator[tuple[int, int, int, int]]:
    """Count, last offset, latest timestamp and bytes, from numpy columns."""
    for b in batches:
        size = int(b.keys.offsets[-1]) + int(b.values.offsets[-1])
        yield len(b), int(b.offsets[-1]), int(b.timestamps.max()), size


def empty(items: Iterator[Any]) -> Iterator[Any]:
    """A task that does nothing."""
    return items


class _Part(InputPartition):  # type: ignore[misc]
    def __init__(self, count: int) -> None:
        super().__init__(count)


class _ReadyReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, split: Split, parts: int, count: int) -> None:
        self.split, self.parts, self.count = split, parts, count

    def partitions(self) -> list[Any]:
        return [_Part(self.count // self.parts) for _ in range(self.parts)]

    def read(self, partition: Any) -> Iterator[Any]:
        """The same batch, as kstore made it, again and again."""
        left = partition.value
        schema = arrow_schema(COLUMNS)
        made = read_columns(self.split, COLUMNS)
        next(made)  # the first one is small
        batch = to_arrow(next(made), schema)
        while left > 0:
            yield batch.slice(0, left) if left < batch.num_rows else batch
            left -= batch.num_rows


class ReadyMade(DataSource):  # type: ignore[misc]
    """What Spark takes at most through such a source: batches that cost nothing."""

    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def schema(self) -> Any:
        return spark_schema(COLUMNS)

    def reader(self, schema: Any) -> Any:
        split = pickle.loads(base64.b64decode(self.options["split"]))
        return _ReadyReader(split, int(self.options["parts"]), int(self.options["count"]))


def text_of(split: Split) -> str:
    """A split as an option."""
    return base64.b64encode(pickle.dumps(split)).decode()
