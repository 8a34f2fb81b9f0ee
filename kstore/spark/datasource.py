"""The data source "kstore" for spark.read, spark.readStream and their writers, and dataframe(). Imports pyspark."""

import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal

from pyspark.sql.types import StructType

from kstore.log.files.layout import TopicPartition
from kstore.spark import columns as cols
from kstore.spark.errors import failure
from kstore.spark.options import SourceOptions
from kstore.spark.plan import Logs, Split, Topics, chosen, resolve, split_ranges
from kstore.spark.schema import TYPES, KStorePartition, all_columns, columns_of, read_arrow, spark_schema

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader
except ImportError:  # Spark 3.5 has no data sources in Python; dataframe() does without
    DataSource = DataSourceReader = object


def plan(options: SourceOptions) -> list[Split]:
    """The splits of a batch query."""
    logs = Logs(options.root, options.isolation)
    return split_ranges(
        logs,
        _ranges(logs, options),
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
        fail_on_data_loss=options.fail_on_data_loss,
    )


def _ranges(logs: Logs, options: SourceOptions) -> dict[TopicPartition, tuple[int, int]]:
    """What a batch query reads of every partition."""
    partitions = chosen(logs, options.topics)
    lossy = {"fail_on_data_loss": options.fail_on_data_loss}
    starts = resolve(logs, partitions, options.starting, start=True, **lossy)
    ends = resolve(logs, partitions, options.ending, start=False, **lossy)
    return {tp: (starts[tp], ends[tp]) for tp in partitions}


class KStoreReader(DataSourceReader):  # type: ignore[misc]
    """A batch query. It has no pushFilters: Spark 4.1 to 4.3 would give wrong rows (spec spark 5.1)."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[KStorePartition]:
        """The splits, planned now."""
        return [KStorePartition(split) for split in plan(self.options)]

    def read(self, partition: Any) -> Iterator[Any]:
        """Arrow batches; of the one empty partition that Spark makes where there are none, nothing."""
        if partition is not None and partition.value is not None:
            yield from read_arrow(partition.value, self.columns)


class KStoreDataSource(DataSource):  # type: ignore[misc]
    """Logs in kstore's directories, with the schema and options of Spark's Kafka source; `path` is the log directory."""

    @classmethod
    def name(cls) -> str:
        """What format() calls it."""
        return "kstore"

    def schema(self) -> StructType:
        """The columns where the user gives none. Also the first to be asked, so everything is checked here."""
        cols.require_pyarrow()
        streams = ("startingoffsets", "maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay")
        try:
            options = SourceOptions.of(self.options, stream=False)
        except ValueError:
            if not any(name.lower() in streams for name in self.options):
                raise
            options = SourceOptions.of(self.options, stream=True)
        logs = Logs(options.root, options.isolation)
        chosen(logs, options.topics)
        # Spark does not say whether a batch query or a stream begins. What has an end is a batch query. A stream that is
        # restarted goes on where it was, so its options may name offsets that are gone.
        if any(name.lower().startswith("ending") for name in self.options):
            _ranges(logs, options)
        return spark_schema(all_columns(options))

    def reader(self, schema: StructType) -> KStoreReader:
        """For spark.read."""
        cols.require_pyarrow()
        return KStoreReader(SourceOptions.of(self.options, stream=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> Any:
        """For spark.readStream."""
        from kstore.spark.stream import KStoreStreamReader  # not in Spark 3.5

        cols.require_pyarrow()
        return KStoreStreamReader(SourceOptions.of(self.options, stream=True), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For df.write."""
        from kstore.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """For df.writeStream."""
        from kstore.spark.sink import stream_writer

        return stream_writer(self.options, schema)


# ---- from a program -----------------------------------------------------------------------------------------------


def register(spark: Any) -> None:
    """Makes format("kstore") known to a session. KSTORE_NO_PYARROW, KSTORE_UNSUPPORTED."""
    if DataSource is object:
        raise failure(
            "KSTORE_UNSUPPORTED", "Spark 3.5 has no data sources in Python; use kstore.spark.dataframe"
        )
    cols.require_pyarrow()
    _compare_pythons()
    try:
        spark.dataSource.register(KStoreDataSource)
    except Exception as e:  # Spark 4.0 refuses the name once it has found pyspark_kstore, which is this one
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(e):
            raise


def _compare_pythons() -> None:
    """Workers run python3 from the PATH unless told otherwise, not the interpreter of the driver."""
    if "PYSPARK_PYTHON" in os.environ:
        return
    found = shutil.which("python3")
    if found is None or os.path.dirname(found) != os.path.dirname(sys.executable):  # noqa: PTH120
        warnings.warn(
            f"Spark's workers will run {found}, not {sys.executable}: set PYSPARK_PYTHON before the session begins "
            "if kstore is installed only here",
            RuntimeWarning,
            stacklevel=3,
        )


def dataframe(
    spark: Any,
    path: str | PathLike[str],
    topics: Topics,
    *,
    columns: Sequence[str] | None = None,
    via: Literal["auto", "datasource", "mapInArrow"] = "auto",
    **options: Any,
) -> Any:
    """A DataFrame of topics: names, a compiled pattern, or {topic: partitions}; options as of format("kstore").

    `columns` is what to read of kstore.spark.COLUMNS: fewer are faster. Through the data source where Spark has them,
    else through mapInArrow, with the same columns and rows. It is a snapshot: records that come later are in another
    dataframe().
    """
    given = {name: _text(value) for name, value in options.items()} | _topic_option(topics)
    given["path"] = fspath(path)
    chosen_columns = None if columns is None else tuple(columns)
    if chosen_columns is not None:
        for name in chosen_columns:
            if name not in TYPES:
                raise failure("KSTORE_INVALID_SCHEMA", f"no column {name!r}; there are {', '.join(TYPES)}")
    if via == "datasource" or (via == "auto" and DataSource is not object):
        register(spark)
        reader = spark.read.format("kstore").options(**given)
        if chosen_columns is not None:
            reader = reader.schema(spark_schema(chosen_columns))
        return reader.load()
    cols.require_pyarrow()
    checked = SourceOptions.of(given, stream=False)
    splits = plan(checked)
    if chosen_columns is None:
        chosen_columns = all_columns(checked)
    schema = spark_schema(chosen_columns)
    if not splits:
        return spark.createDataFrame([], schema)
    numbers = spark.range(len(splits), numPartitions=len(splits))
    return numbers.mapInArrow(_MapInArrow(tuple(splits), chosen_columns), schema)


class _MapInArrow:
    """From rows with numbers of splits to their records."""

    def __init__(self, splits: tuple[Split, ...], columns: tuple[str, ...]) -> None:
        self.splits = splits
        self.columns = columns

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read_arrow(self.splits[number], self.columns)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        import json

        return json.dumps(value)
    return str(value)


def _topic_option(topics: Topics) -> dict[str, str]:
    if isinstance(topics, re.Pattern):
        return {"subscribePattern": topics.pattern}
    if isinstance(topics, Mapping):
        return {"assign": _text({topic: list(own) for topic, own in topics.items()})}
    return {"subscribe": topics if isinstance(topics, str) else ",".join(topics)}
