"""Whether filters may be pushed down to a source in Python: kstore does where Spark then gives right rows, so far nowhere."""

from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]


def takes_filters(reader: Any) -> bool:
    from pyspark.sql.datasource import DataSourceReader

    return reader.pushFilters is not DataSourceReader.pushFilters


def test_filters_are_pushed_where_spark_then_gives_right_rows(spark: Any) -> None:
    """If this fails, this Spark gives right rows (or wrong ones in another way): see filter_pushdown.md."""
    from pyspark.sql.datasource import DataSourceReader

    from kstore.spark.datasource import KStoreReader

    if not hasattr(DataSourceReader, "pushFilters"):
        pytest.skip("Spark 4.0 pushes no filters to a source in Python")
    from tests.spark.filter_pushdown import PUSHDOWN, results

    spark.conf.set(PUSHDOWN, "true")
    try:
        found = results(spark)
    finally:
        spark.conf.unset(PUSHDOWN)
    assert all(counted == right for _, right, counted in found[:2])  # the program does what it says
    is_right = all(counted == right for _, right, counted in found)
    assert takes_filters(KStoreReader) == is_right, found


def test_spark_asks_a_source_for_nothing_else() -> None:
    """A way to tell a source which columns a query needs, or how many rows, would be another method here."""
    from pyspark.sql.datasource import DataSourceReader

    hooks = {name for name in vars(DataSourceReader) if not name.startswith("_")}
    assert hooks <= {"partitions", "read", "pushFilters"}
