"""Spark in this process, local[2], beside its own Parquet: reading, writing, planning, and what a task costs.

Only with --all. KSTORE_BENCH_SPARK_RECORDS says how many records; the goals are meant for 5000000.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from operator import add
from pathlib import Path
from typing import Any

import numpy
import pytest

import kstore
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from kstore.spark import dataframe, partition_reader, plan_splits, rdd
from kstore.spark.java import provide

pytestmark = pytest.mark.filterwarnings("ignore")
RECORDS = int(os.environ.get("KSTORE_BENCH_SPARK_RECORDS", "1000000"))
PARTITIONS = 4
TASKS = 32
SPLITS = 5000
ROUNDS = 7
AGGREGATE = ("count(*)", "max(offset)", "max(timestamp)", "sum(length(key) + length(value))")
REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def spark(pytestconfig: pytest.Config) -> Iterator[Any]:
    if not pytestconfig.getoption("all"):
        pytest.skip("Spark: only in `make bench-all`")
    for name in ("pyspark.sql", "pyarrow", "pandas"):
        pytest.importorskip(name, reason=f"Spark: {name} is missing")
    if (reason := provide()) is not None:
        pytest.skip(f"Spark: {reason}")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "OFF")
        .config("spark.python.unix.domain.socket.enabled", "true")  # docs/spark.md says why
        .getOrCreate()
    )
    if session.version < "4":
        pytest.skip(f"Spark: {session.version} has no data sources in Python")
    kstore.spark.register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def logs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """RECORDS records of 100 bytes in four partitions, and the same as Parquet, in as many files."""
    root = tmp_path_factory.mktemp("spark")
    dice = numpy.random.default_rng(1)
    for partition in range(PARTITIONS):
        with kstore.open(root / "log" / f"t-{partition}", "a") as log:
            for _ in range(max(1, RECORDS // PARTITIONS // 50_000)):
                count = min(50_000, RECORDS // PARTITIONS)
                keys, values = (dice.integers(97, 123, (count, size), numpy.uint8) for size in (16, 68))
                log.extend(values, keys, batch_bytes=128 << 10)
    frame = dataframe(spark, root / "log", "t")
    frame.write.option("compression", "none").parquet(str(root / "parquet"))
    yield root
    shutil.rmtree(root, ignore_errors=True)


def job(name: str, work: Callable[[], Any], units: int) -> InProcess[None]:
    def once(_: None) -> tuple[int, int]:
        return units, int(work())

    return InProcess(name, lambda: None, once, warm_up=4)


def aggregated(frame: Any) -> Callable[[], Any]:
    return lambda: frame.selectExpr(*AGGREGATE).first()[0]


def bench_spark_map_partitions(race: Race, spark: Any, logs: Path) -> None:
    """Count, largest offset and timestamp, and bytes of all records: from numpy columns in mapPartitions.
    Parquet: the same of a DataFrame, in the JVM."""
    from benchmarks.peers.spark import aggregate

    def ours() -> int:
        columns = ("key", "value", "offset", "timestamp")
        found = rdd(spark.sparkContext, logs / "log", "t", columns=columns).mapPartitions(aggregate)
        return int(found.map(lambda one: one[0]).fold(0, add))

    parquet = aggregated(spark.read.parquet(str(logs / "parquet")))
    race(
        "spark_map_partitions",
        "record",
        job("kstore", ours, RECORDS),
        job("Parquet", parquet, RECORDS),
        goals=(Goal("Parquet", speed=3),),
        rounds=ROUNDS,
    )


def bench_spark_dataframe(race: Race, spark: Any, logs: Path) -> None:
    """The same of a DataFrame of the data source, of the four columns that the query needs, as of Parquet.
    ready-made: a source in Python that hands on one Arrow batch of kstore again and again, what Spark takes
    at most. mapInArrow: the way of Spark 3.5. all seven: where nobody says which columns are needed."""
    from benchmarks.peers.spark import COLUMNS, ReadyMade, text_of

    spark.dataSource.register(ReadyMade)
    splits = plan_splits(logs / "log", "t")
    ready = spark.read.format("ready_made").options(
        split=text_of(splits[0]), parts=len(splits), count=RECORDS
    )
    race(
        "spark_dataframe",
        "record",
        job("kstore", aggregated(dataframe(spark, logs / "log", "t", columns=COLUMNS)), RECORDS),
        job("ready-made", aggregated(ready.load()), RECORDS),
        job(
            "mapInArrow",
            aggregated(dataframe(spark, logs / "log", "t", columns=COLUMNS, via="mapInArrow")),
            RECORDS,
        ),
        job("all seven", aggregated(dataframe(spark, logs / "log", "t")), RECORDS),
        job("Parquet", aggregated(spark.read.parquet(str(logs / "parquet"))), RECORDS),
        goals=(Goal("ready-made", speed=0.85), Goal("Parquet", speed=0.45)),
        rounds=ROUNDS,
    )


@pytest.mark.parametrize("source", ["jvm", "log"])
def bench_spark_write(race: Race, spark: Any, logs: Path, source: str) -> None:
    """Keys and values into four partitions of a log, staged and published under a transaction id, on the
    disk. Parquet: into files, uncompressed. The rows come from Parquet in the JVM, or from a log through the
    data source."""
    frame = (
        spark.read.parquet(str(logs / "parquet")) if source == "jvm" else dataframe(spark, logs / "log", "t")
    )
    frame = frame.select("key", "value")

    def writer(name: str, write: Callable[[str], None]) -> InProcess[str]:
        def work(path: str) -> tuple[int, int]:
            write(path)
            return RECORDS, 0

        return InProcess(name, lambda: str(logs / "out"), work, warm_up=8, clear=shutil.rmtree)

    def to_log(path: str) -> None:
        given = {"path": path, "topic": "t", "numPartitions": str(PARTITIONS)}
        frame.write.format("kstore").mode("append").options(**given).save()

    race(
        f"spark_write_from_{source}",
        "record",
        writer("kstore", to_log),
        writer("Parquet", lambda path: frame.write.option("compression", "none").parquet(path)),
        goals=(Goal("Parquet", speed=0.6),),
        rounds=ROUNDS,
    )


def bench_spark_plan(race: Race, spark: Any, logs: Path) -> None:
    """1,000 splits planned from indexes and headers, without Spark; the goal is 500 ms."""
    size = sum(split.size for split in plan_splits(logs / "log", "t"))

    def plan() -> int:
        return len(plan_splits(logs / "log", "t", target_bytes=max(1, size // 1000))) * 0

    race("spark_plan", "1,000 splits", job("kstore", plan, 1), rounds=ROUNDS)


@pytest.fixture(scope="module")
def scattered(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The same records twice: one batch in each of 5,000 partitions, and all batches in one partition."""
    root = tmp_path_factory.mktemp("scattered")
    dice = numpy.random.default_rng(2)
    with kstore.open(root / "one" / "t-0", "a") as whole:
        for partition in range(SPLITS):
            count = RECORDS // SPLITS + (partition < RECORDS % SPLITS)
            keys, values = (dice.integers(97, 123, (count, size), numpy.uint8) for size in (16, 68))
            whole.extend(values, keys, batch_bytes=1 << 20)
            with kstore.open(root / "many" / f"t-{partition}", "a") as log:
                log.extend(values, keys, batch_bytes=1 << 20)
    yield root
    shutil.rmtree(root, ignore_errors=True)


def bench_spark_small_splits(race: Race, spark: Any, scattered: Path) -> None:
    """Count, largest timestamp and bytes of all records of a DataFrame over 5,000 splits of one batch each,
    which share tasks. one split: of the same records in one partition. with load(): the frame is made anew in
    every turn, so the 5,000 partitions are listed, opened and planned, too."""

    def frame(path: str) -> Any:
        return dataframe(spark, scattered / path, "t")

    def work(of: Callable[[], Any]) -> Callable[[], Any]:
        columns = ("count(*)", "max(timestamp)", "sum(length(key) + length(value))")
        return lambda: of().selectExpr(*columns).first()[0]

    many, one = frame("many"), frame("one")
    race(
        "spark_small_splits",
        "record",
        job("kstore", work(lambda: many), RECORDS),
        job("one split", work(lambda: one), RECORDS),
        job("with load()", work(lambda: frame("many")), RECORDS),
        job("one split, with load()", work(lambda: frame("one")), RECORDS),
        goals=(Goal("one split", time=3),),
        rounds=ROUNDS,
    )


def bench_spark_task(race: Race, spark: Any, logs: Path) -> None:
    """A task that reads a split of one record; the other gets nothing to do."""
    from benchmarks.peers.spark import empty

    with kstore.open(logs / "one" / "t-0", "a") as log:
        log.append(b"v")
    splits = plan_splits(logs / "one", "t") * TASKS
    sc = spark.sparkContext

    def tasks(run: Any) -> Callable[[], int]:
        return lambda: sc.parallelize(splits, TASKS).mapPartitions(run).count()

    race(
        "spark_task",
        "task",
        job("kstore", tasks(partition_reader()), TASKS),
        job("empty", tasks(empty), TASKS),
        goals=(Goal("empty", time=1.5),),
        rounds=ROUNDS,
    )
