"""The data source "kstore" for spark.read, spark.readStream and their writers, and dataframe(). Imports
pyspark."""

import json
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal

from pyspark.sql.types import StructType

from kstore.spark.arrow import require_pyarrow
from kstore.spark.errors import SparkSourceError, failure
from kstore.spark.options import warn_of_passed_over
from kstore.spark.paths import Paths
from kstore.spark.reading.arrow_batches import read_arrow
from kstore.spark.reading.batch_query import KStoreReader, all_columns, check_there, columns_of, plan
from kstore.spark.reading.packing import context_of, session_parallelism
from kstore.spark.reading.plan import Split, Topics
from kstore.spark.reading.source_options import SourceOptions
from kstore.spark.schema import TYPES, spark_schema

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # Spark 3.5 has no data sources in Python; dataframe() does without
    DataSource = object


class KStoreDataSource(DataSource):  # type: ignore[misc]
    """Logs in kstore's directories, with the schema and options of Spark's Kafka source; `path` is the log
    directory."""

    # How many tasks of the session can run at once, as far as register() knows.
    parallelism: int | None = None

    @classmethod
    def name(cls) -> str:
        """What format() calls it."""
        return "kstore"

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        warn_of_passed_over(options)

    def schema(self) -> StructType:
        """The columns where the user gives none. Then load() asks for it, so everything is checked here.
        Spark does not say whether a batch query or a stream begins; what has an end is a batch query."""
        require_pyarrow()
        is_batch = any(name.lower().startswith("ending") for name in self.options)
        try:
            options = SourceOptions.of(self.options, stream=False)
        except SparkSourceError:
            if is_batch:
                raise
            options = SourceOptions.of(self.options, stream=True)
        check_there(options, is_batch=is_batch)
        return spark_schema(all_columns(options))

    def reader(self, schema: StructType) -> KStoreReader:
        """For spark.read."""
        require_pyarrow()
        options = SourceOptions.of(self.options, stream=False)
        return KStoreReader(options, columns_of(schema), self.parallelism)

    def streamReader(self, schema: StructType) -> Any:
        """For spark.readStream."""
        from kstore.spark.reading.stream import KStoreStreamReader  # not in Spark 3.5

        require_pyarrow()
        options = SourceOptions.of(self.options, stream=True)
        return KStoreStreamReader(options, columns_of(schema), self.parallelism)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For df.write."""
        from kstore.spark.writing.writers import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """For df.writeStream."""
        from kstore.spark.writing.writers import stream_writer

        return stream_writer(self.options, schema)


# ---- from a program ----------------------------------------------------------------------------------------


def register(spark: Any) -> None:
    """Makes format("kstore") known to a session. KSTORE_NO_PYARROW, KSTORE_UNSUPPORTED."""
    if DataSource is object:
        raise failure(
            "KSTORE_UNSUPPORTED", "Spark 3.5 has no data sources in Python; use kstore.spark.dataframe"
        )
    require_pyarrow()
    _compare_pythons()
    # A class of this session, pickled with what it holds: nothing else reaches the process that plans.
    own = type("KStoreDataSource", (KStoreDataSource,), {"parallelism": session_parallelism(spark)})
    try:
        spark.dataSource.register(own)
    except Exception as e:  # Spark 4.0 refuses the name once it has found pyspark_kstore, which is this one
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(e):
            raise


def _compare_pythons() -> None:
    """Workers run python3 from the PATH unless told otherwise, not the interpreter of the driver."""
    if "PYSPARK_PYTHON" in os.environ:
        return
    found = shutil.which("python3")
    if found is None or os.path.dirname(found) != os.path.dirname(sys.executable):
        warnings.warn(
            f"Spark's workers will run {found}, not {sys.executable}: set PYSPARK_PYTHON before the session "
            "begins if kstore is installed only here",
            RuntimeWarning,
            stacklevel=3,
        )


def dataframe(
    spark: Any,
    path: Paths,
    topics: Topics,
    *,
    columns: Sequence[str] | None = None,
    via: Literal["auto", "datasource", "mapInArrow"] = "auto",
    **options: Any,
) -> Any:
    """A DataFrame of topics in a log directory `path`, or in several: names, a compiled pattern, or {topic:
    partitions}; options as of format("kstore").

    `columns` is what to read of kstore.spark.COLUMNS: fewer are faster. Through the data source where Spark
    has them, else through mapInArrow, with equal columns and rows. It is a snapshot: records that come
    later are in another dataframe().
    """
    given = {name: _text(value) for name, value in options.items()} | _topic_option(topics)
    paths = [fspath(path)] if isinstance(path, str | PathLike) else [fspath(one) for one in path]
    given["path"] = paths[0] if len(paths) == 1 else json.dumps(paths)
    chosen_columns = None if columns is None else tuple(columns)
    if chosen_columns is not None:
        for name in chosen_columns:
            if name not in TYPES:
                raise failure("KSTORE_INVALID_SCHEMA", f"no column {name!r}; there are {', '.join(TYPES)}")
    parallelism = session_parallelism(spark)
    if parallelism is not None and "minpartitionnum" not in {name.lower() for name in given}:
        given["minPartitionNum"] = str(parallelism)
    checked_options = SourceOptions.of(given, stream=False)
    if via == "datasource" or (via == "auto" and DataSource is not object):
        register(spark)
        reader = spark.read.format("kstore").options(**given)
        if chosen_columns is not None:  # load() does not ask the source then
            if context_of(spark) is not None:
                check_there(checked_options, is_batch=True)
            reader = reader.schema(spark_schema(chosen_columns))
        return reader.load()
    require_pyarrow()
    warn_of_passed_over(given)
    planned = plan(checked_options)
    if chosen_columns is None:
        chosen_columns = all_columns(checked_options)
    schema = spark_schema(chosen_columns)
    if not planned:
        return spark.createDataFrame([], schema)
    numbers = spark.range(len(planned), numPartitions=len(planned))
    return numbers.mapInArrow(_MapInArrow(planned, chosen_columns), schema)


class _MapInArrow:
    """From rows with numbers of tasks to the records that they read."""

    def __init__(self, tasks: list[tuple[Split, ...]], columns: tuple[str, ...]) -> None:
        self.tasks = tasks
        self.columns = columns

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_arrow(self.tasks[number], self.columns)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value)
    return str(value)


def _topic_option(topics: Topics) -> dict[str, str]:
    if isinstance(topics, re.Pattern):
        return {"subscribePattern": topics.pattern}
    if isinstance(topics, Mapping):
        return {"assign": _text({topic: list(own) for topic, own in topics.items()})}
    return {"subscribe": topics if isinstance(topics, str) else ",".join(topics)}
