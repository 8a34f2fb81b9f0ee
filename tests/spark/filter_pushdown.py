"""Wrong rows from Spark 4.1 to 4.3 where a data source in Python takes filters: the program for Spark's
tracker, with the text in filter_pushdown.md. It needs nothing but pyspark[sql]: python filter_pushdown.py
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, LessThan

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
COUNT = 100


class NumbersReader(DataSourceReader):  # type: ignore[misc]
    """The numbers from 0 on, up to what a pushed `id < x` says."""

    def __init__(self) -> None:
        self.stop = COUNT

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:
        """Takes `id < x`, gives everything else back."""
        for filter in filters:
            if isinstance(filter, LessThan) and filter.attribute == ("id",):
                self.stop = min(self.stop, filter.value)
            else:
                yield filter

    def read(self, partition: Any) -> Iterator[tuple[int]]:
        """Rows."""
        for number in range(self.stop):
            yield (number,)


class Numbers(DataSource):  # type: ignore[misc]
    """format("numbers")."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: Any) -> NumbersReader:
        return NumbersReader()


def results(spark: Any) -> list[tuple[str, int, int]]:
    """What is counted, the right number, and what Spark counts."""
    spark.dataSource.register(Numbers)

    def load() -> Any:
        return spark.read.format("numbers").load()

    once = load()
    both = load()
    two = load()
    return [
        ("where, of a frame of its own", 20, load().where("id < 20").count()),
        ("where, the first use of a frame", 20, once.where("id < 20").count()),
        ("the same frame, then without where", COUNT, once.count()),
        ("union of where and the frame", 20 + COUNT, both.where("id < 20").union(both).count()),
        ("union of two wheres", 20 + 50, two.where("id < 20").union(two.where("id < 50")).count()),
    ]


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master("local[1]").config(PUSHDOWN, "true").getOrCreate()
    found = results(session)
    print("Spark", session.version)
    for text, right, counted in found:
        print(f"{'right' if counted == right else 'WRONG'}: {text}: {counted}, expected {right}")
    session.stop()
    sys.exit(any(counted != right for _, right, counted in found))
