"""Logs below URLs: Spark's readers and streams give the rows of the local log, and leave nothing on the
disk."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark
from kstore.spark import Bounds, SparkSourceError, partition_reader, plan_splits
from tests.spark.web import Web, serving

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
TIME = 1_711_530_000_000


def fill(root: Path, first: int, count: int) -> None:
    with kstore.LogStore(root, mode="a", internal_segment_bytes=1 << 20) as store:
        if "t" not in store.topics:
            store.create_topic("t", 2)
        for partition in (0, 1):
            log = store.log("t", partition)
            for at in range(first, first + count, 100):
                numbers = range(at, at + 100)
                log.extend([b"%01000d" % i for i in numbers], timestamps=[TIME + i for i in numbers])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    fill(path, 0, 5000)
    return path


@pytest.fixture
def web(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A server of the logs. Local directories that show them are in one that is empty at the end."""
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    with serving(root) as web:
        yield web
    assert os.listdir(own) == []  # noqa: PTH208


def rows(path: Any, **plan: Any) -> list[tuple[Any, ...]]:
    splits = plan_splits(path, "t", **plan)
    return list(partition_reader("records", ["partition", "offset", "timestamp", "value"])(splits))


@pytest.mark.parametrize("plan", [{}, {"target_bytes": 1 << 20}, {"isolation": "read_committed"}])
def test_the_rows_are_those_of_the_local_logs(root: Path, web: Web, plan: dict[str, Any]) -> None:
    assert rows(web.url, **plan) == rows(root, **plan)


def test_a_time_range_reads_its_part(root: Path, web: Web) -> None:
    bounds = {"starting": Bounds(timestamp=TIME + 2500), "ending": Bounds(timestamp=TIME + 2550)}
    assert rows(web.url, **bounds) == rows(root, **bounds) != []
    size = sum(file.stat().st_size for file in root.glob("*/*.log"))
    assert web.bytes_sent() < size / 2  # of each of 10 segments the end, and one part


def test_what_is_gone(root: Path, web: Web) -> None:
    splits = plan_splits(web.url, "t")
    with pytest.raises(SparkSourceError, match="KSTORE_TOPIC_NOT_FOUND"):
        plan_splits(web.url, "other")
    with pytest.raises(SparkSourceError, match=f"KSTORE_PATH_NOT_FOUND: file {web.url}/none: "):
        plan_splits(f"{web.url}/none", "t")
    shutil.rmtree(root / "t-0")
    with pytest.raises(SparkSourceError, match=r"KSTORE_DATA_LOST: topic t, partition 0, "):
        list(partition_reader()(splits))
    max((root / "t-1").glob("*.log")).unlink()
    with pytest.raises(SparkSourceError, match=r"KSTORE_DATA_LOST: topic t, partition 1, "):
        list(partition_reader()(splits[1:]))


@pytest.mark.parametrize("option", ["path", "stagingPath"])
def test_a_sink_needs_a_file_system(option: str, tmp_path: Path) -> None:
    from kstore.spark.writing.sink_options import SinkOptions

    given = {"path": str(tmp_path), "topic": "t"} | {option: "s3://bucket/logs"}
    with pytest.raises(SparkSourceError, match=f"KSTORE_UNSUPPORTED: .*{option} must lie in a mounted"):
        SinkOptions.of(given)


@pytest.mark.datasource
def test_a_stream_lists_again(root: Path, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    given = {"path": web.url, "subscribe": "t", "startingOffsets": "earliest"}
    own = kstore.spark.KStoreDataSource(given).streamReader(StructType([StructField("value", BinaryType())]))

    def read(start: Any, end: Any) -> int:
        return sum(batch.num_rows for task in own.partitions(start, end) for batch in own.read(task))

    start = own.initialOffset()
    end = own.latestOffset(start)
    assert end["t"] == {"0": 5000, "1": 5000}
    assert read(start, end) == 10_000
    fill(root, 5000, 100)
    assert own.latestOffset(end) == end  # it was listed in this second
    now = 1.0
    more = own.latestOffset(end)
    assert more["t"] == {"0": 5100, "1": 5100}
    assert read(end, more) == 200
    with kstore.open(root / "t-0", "a") as log:
        log.truncate_to(100)
    now = 2.0
    with pytest.raises(SparkSourceError, match="KSTORE_DATA_LOST: topic t, partition 0"):
        own.latestOffset(more)


@pytest.mark.spark
@pytest.mark.datasource
@pytest.mark.filterwarnings("ignore")
def test_batch_queries_and_streams(spark: Any, root: Path, tmp_path: Path) -> None:
    kstore.spark.register(spark)
    with serving(root) as web:
        frame = spark.read.format("kstore").option("subscribe", "t").load(web.url)
        local = spark.read.format("kstore").option("subscribe", "t").load(str(root))
        assert frame.count() == 10_000
        assert frame.exceptAll(local).count() == local.exceptAll(frame).count() == 0
        options = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4000"}
        stream = spark.readStream.format("kstore").options(**options).load(web.url)
        query = (
            stream.select("value", "partition")
            .writeStream.format("kstore")
            .options(path=str(tmp_path / "out"), topic="t", numPartitions="2")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.processAllAvailable()
        query.stop()
    for partition in (0, 1):
        wanted = [record.value for record in kstore.open(root / f"t-{partition}")]
        assert [record.value for record in kstore.open(tmp_path / "out" / f"t-{partition}")] == wanted
