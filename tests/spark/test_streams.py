"""Streams: every record once, in batches as large as asked for, through restarts, rolling, retention and
replays."""

import ast
import importlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark
from kstore.spark import KStoreDataSource

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]


def fill(path: Path, first: int, count: int, partition: int = 0) -> None:
    with kstore.open(path / f"in-{partition}", "a", internal_segment_bytes=4000) as log:
        for at in range(first, first + count, 50):
            log.extend([str(i).encode() for i in range(at, min(at + 50, first + count))])


def source(spark: Any, path: Path | str, **options: str) -> Any:
    kstore.spark.register(spark)
    given = {"path": str(path), "subscribe": "in", "startingOffsets": "earliest"} | options
    return spark.readStream.format("kstore").options(**given).load()


def run(frame: Any, checkpoint: Path, out: Path, sink: str = "kstore") -> Any:
    """All there is now, into a kstore log."""
    query = (
        frame.selectExpr("value")
        .writeStream.format(sink)
        .options(path=str(out), topic="out", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert not query.isActive
    return query


def plain(offsets: Any) -> dict[str, dict[str, int]]:
    """The offsets alone, without what detects truncations."""
    return {topic: own for topic, own in offsets.items() if not topic.startswith(":")}


def values(out: Path) -> list[int]:
    with kstore.open(out / "out-0") as log:
        return [int(r.value or b"") for r in log]


def test_from_log_to_log_with_limit_and_restart(spark: Any, tmp_path: Path) -> None:
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"
    fill(data, 0, 500)
    query = run(source(spark, data, maxOffsetsPerTrigger="200"), checkpoint, out)
    rows = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    limits = spark.version >= "4.2"  # before, AvailableNow knows no limits: it ends after one such batch
    assert rows == ([200, 200, 100] if limits else [200])
    assert values(out) == list(range(sum(rows)))
    fill(data, 500, 300)
    fill(data, 800, 100, partition=1)  # a new partition starts at its beginning
    query = run(source(spark, data, **({"maxBytesPerTrigger": "2k"} if limits else {})), checkpoint, out)
    assert sorted(values(out)) == list(range(900))
    assert not limits or sum(p["numInputRows"] > 0 for p in query.recentProgress) > 2
    ends = query.lastProgress["sources"][0]["endOffset"]
    if limits:
        latest = query.lastProgress["sources"][0]["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        assert latest == {"in": {"0": 800, "1": 100}, ":source": str(data)}
    assert plain(ast.literal_eval(ends) if isinstance(ends, str) else ends) == {"in": {"0": 800, "1": 100}}


def test_a_micro_batch_that_runs_again(spark: Any, tmp_path: Path) -> None:
    """As after a crash between publishing and Spark's note of it; with another checkpoint it is another
    query. The input is in two log directories."""
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"
    fill(data / "one", 0, 100)
    fill(data / "two", 100, 50, partition=1)
    both = json.dumps([f"file:{data}/one", f"file:{data}/two"])
    run(source(spark, both), checkpoint, out)
    commit = max((checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    commit.unlink()
    (checkpoint / "commits" / f".{commit.name}.crc").unlink(missing_ok=True)
    run(source(spark, both), checkpoint, out)
    assert sorted(values(out)) == list(range(150))
    run(source(spark, both), tmp_path / "another", out)
    assert len(values(out)) == 300


def test_a_checkpoint_that_was_reset(spark: Any, tmp_path: Path) -> None:
    """It keeps the id of the query and counts micro-batches from 0 again: what they hold was never
    published."""
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"
    fill(data, 0, 100)
    run(source(spark, data), checkpoint, out)
    for name in ("offsets", "commits"):
        shutil.rmtree(checkpoint / name)
    fill(data, 100, 100)
    text = (
        r"KSTORE_CHECKPOINT_RESET: .*micro-batch 0 \(offsets up to .*in.*0.*: 100}.*\), and now gives another "
        r"micro-batch 0 \(offsets up to .*in.*0.*: ?200}.*\): .*new, empty checkpoint"
    )
    with pytest.raises(Exception, match=text):
        run(source(spark, data), checkpoint, out)
    assert values(out) == list(range(100))
    run(source(spark, data, startingOffsets='{"in": {"0": 100}}'), tmp_path / "another", out)
    assert values(out) == list(range(200))


def test_retention_between_two_runs(spark: Any, tmp_path: Path) -> None:
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"
    fill(data, 0, 100)
    run(source(spark, data), checkpoint, out)
    fill(data, 100, 400)
    with kstore.open(data / "in-0", "a") as log:
        log.delete_records(300)
        log.retain()
    with pytest.raises(Exception, match=r"KSTORE_DATA_LOST: topic in, partition 0, offset 100, file "):
        run(source(spark, data), checkpoint, out)
    assert values(out) == list(range(100))
    run(source(spark, data, failOnDataLoss="false"), checkpoint, out)
    assert values(out) == [*range(100), *range(300, 500)]


def test_a_running_query_beside_appends_rolls_retention_and_removal(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    data = tmp_path / "data"
    fill(data, 0, 100)
    rows: list[int] = []

    def take(frame: Any, number: int) -> None:
        rows.extend(int(row.value) for row in frame.selectExpr("cast(value as string) as value").collect())

    query = source(spark, data).writeStream.foreachBatch(take).start()
    try:
        query.processAllAvailable()
        assert rows == list(range(100))
        with kstore.open(data / "in-0", "a", retention_bytes=1, file_delete_delay_ms=0) as log:
            log.extend([str(i).encode() for i in range(100, 200)])
            log.flush()
            query.processAllAvailable()
            log.roll()
            log.retain()
            log.extend([str(i).encode() for i in range(200, 300)])
            log.flush()
            query.processAllAvailable()
        assert rows == list(range(300))
        shutil.rmtree(data)
        with pytest.raises(StreamingQueryException, match=r"KSTORE_(PATH_NOT_FOUND|DATA_LOST): .*/data"):
            query.awaitTermination(300)
    finally:
        query.stop()


def test_a_query_that_waits_for_enough_offsets(spark: Any, tmp_path: Path) -> None:
    if spark.version < "4.2":
        pytest.skip("needs read limits, which came with Spark 4.2")
    fill(tmp_path, 0, 10)
    frame = source(spark, tmp_path, minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    query = frame.writeStream.format("memory").queryName("waiting").start()
    try:
        query.processAllAvailable()
        fill(tmp_path, 10, 99)
        query.processAllAvailable()
        assert spark.table("waiting").count() == 10
        fill(tmp_path, 109, 1)
        query.processAllAvailable()
        assert spark.table("waiting").count() == 110
    finally:
        query.stop()


def test_the_pipeline_of_the_examples(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = str(Path(__file__).parents[2] / "examples")
    monkeypatch.syspath_prepend(examples)
    spark.sparkContext.addPyFile(f"{examples}/pipeline.py")  # else workers do not find it
    pipeline = importlib.import_module("pipeline")
    assert pipeline.land(tmp_path) > 400
    found, wanted = pipeline.run(spark, tmp_path), pipeline.expected()
    assert found["batches"] >= 2
    assert found["sizes"] == wanted["sizes"]
    assert found["parquet"] == found["windows"] == wanted["windows"]


# ---- without a session -------------------------------------------------------------------------------------


def reader(path: Path, **options: str) -> Any:
    given = {"path": str(path), "subscribe": "in", "startingOffsets": "earliest"} | options
    from pyspark.sql.types import BinaryType, StructField, StructType

    schema = StructType([StructField("value", BinaryType())])
    return KStoreDataSource(given).streamReader(schema)


def test_a_limit_is_shared_in_proportion(tmp_path: Path) -> None:
    for partition, end in enumerate((1000, 101, 7)):
        fill(tmp_path, 0, end, partition)
    begin = {"in": {"0": 0, "1": 100, "2": 7}}
    for most, ends in ((2000, (1000, 101, 7)), (1001, (1000, 101, 7)), (500, (500, 100, 7))):
        found = reader(tmp_path, maxOffsetsPerTrigger=str(most)).latestOffset(begin)
        assert plain(found) == {"in": {str(partition): end for partition, end in enumerate(ends)}}
    for most in range(1, 50):
        found = reader(tmp_path, maxOffsetsPerTrigger=str(most)).latestOffset(begin)["in"]
        assert sum(found.values()) - 107 == most


@pytest.mark.parametrize("most", [1, 700, 3000, 20_000, 10**9])
def test_a_limit_of_bytes(tmp_path: Path, most: int) -> None:
    """Micro-batches end between batches of records and have so many bytes at most, or one batch."""
    for partition, end in enumerate((1000, 101, 7)):
        fill(tmp_path, 0, end, partition)
    own = reader(tmp_path, maxBytesPerTrigger=str(most))
    at, found, sizes = own.initialOffset(), 0, []
    while (end := own.latestOffset(at)) != at:
        splits = [split for task in own.partitions(at, end) for split in task.value]
        sizes.append(sum(split.size for split in splits))
        assert sizes[-1] <= most or sum(split.stop - split.start for split in splits) <= 50
        assert most < 10**5 or len(sizes) == 1
        found += sum(batch.num_rows for task in own.partitions(at, end) for batch in own.read(task))
        at = end
    assert found == 1108
    assert plain(at) == {"in": {"0": 1000, "1": 101, "2": 7}}
    total = sum(file.stat().st_size for file in tmp_path.glob("in-*/*.log"))
    assert sum(sizes) == total
    if 700 < most < total:
        assert len(sizes) < 3 * total / most


def test_a_partition_that_appears_as_an_empty_directory(tmp_path: Path) -> None:
    """While a stream runs: it is an empty log, and its first records are in the next micro-batch."""
    fill(tmp_path, 0, 10)
    own = reader(tmp_path)
    at = own.latestOffset(own.initialOffset())
    (tmp_path / "in-1").mkdir()
    at = own.latestOffset(at)
    assert plain(at) == {"in": {"0": 10, "1": 0}}
    fill(tmp_path, 0, 5, partition=1)
    end = own.latestOffset(at)
    assert plain(end) == {"in": {"0": 10, "1": 5}}
    tasks = pickle.loads(pickle.dumps(own.partitions(at, end)))
    assert sum(batch.num_rows for task in tasks for batch in own.read(task)) == 5


def test_a_trigger_waits_for_enough_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = pytest.importorskip("pyspark.sql.streaming.datasource")
    if not hasattr(limits, "ReadMinRows"):
        with pytest.raises(ValueError, match=r"KSTORE_UNSUPPORTED: minOffsetsPerTrigger needs Spark 4\.2"):
            reader(tmp_path, minOffsetsPerTrigger="9")
        pytest.skip("needs read limits, which came with Spark 4.2")
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    fill(tmp_path, 0, 100)
    own = reader(tmp_path, minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    limit = own.getDefaultReadLimit()
    assert limit == limits.ReadMinRows(50)
    at = own.latestOffset(own.initialOffset(), limit)
    assert plain(at) == {"in": {"0": 100}}
    fill(tmp_path, 100, 49)
    now = 9.9
    assert own.latestOffset(at, limit) == at
    assert plain(own.latestOffset(at, limits.ReadAllAvailable())) == {"in": {"0": 149}}
    now = 10.0
    assert plain(own.latestOffset(at, limit)) == {"in": {"0": 149}}
    at = {"in": {"0": 149}}
    fill(tmp_path, 149, 60)
    assert plain(own.latestOffset(at, limit)) == {"in": {"0": 209}}
    own.prepareForTriggerAvailableNow()
    assert plain(own.latestOffset({"in": {"0": 200}}, limit)) == {"in": {"0": 209}}

    both = reader(tmp_path, minOffsetsPerTrigger="50", maxOffsetsPerTrigger="60")
    limit = both.getDefaultReadLimit()
    for begin, end in ((0, 60), (180, 180), (100, 160)):
        assert plain(both.latestOffset({"in": {"0": begin}}, limit)) == {"in": {"0": end}}


def test_a_micro_batch_is_planned_of_the_logs_as_they_are(tmp_path: Path) -> None:
    """And not as they were when its end was chosen, so an error says what they hold now."""
    fill(tmp_path, 0, 50)
    own = reader(tmp_path)
    own.prepareForTriggerAvailableNow()
    start = own.initialOffset()
    end = own.latestOffset(start)
    fill(tmp_path, 50, 20)
    assert own.reportLatestOffset() == {"in": {"0": 70}, ":source": str(tmp_path)}
    with kstore.open(tmp_path / "in-0", "r+") as log:
        log.delete_records(30)
    with pytest.raises(ValueError, match=r"KSTORE_DATA_LOST: .*the log holds offsets 30 to 70 \(exclusive\)"):
        own.partitions(start, end)


def test_a_query_that_no_longer_names_a_partition(tmp_path: Path) -> None:
    for topic in ("one", "two"):
        with kstore.open(tmp_path / f"{topic}-0", "a") as log:
            log.extend([b"v"] * 5)
    before = {"one": {"0": 5}, "two": {"0": 2}}
    lost = r"KSTORE_DATA_LOST: topic two, "
    with pytest.raises(ValueError, match=rf"{lost}.*offset 2, .*does not name it any more"):
        reader(tmp_path, subscribe="one").latestOffset(before)
    lenient = reader(tmp_path, subscribe="one", failOnDataLoss="false")
    assert plain(lenient.latestOffset(before)) == {"one": {"0": 5}}
    shutil.rmtree(tmp_path / "two-0")
    with pytest.raises(ValueError, match=rf"{lost}.*: the partition is gone"):
        reader(tmp_path, subscribe="one").latestOffset(before)


def test_tasks_of_a_micro_batch(tmp_path: Path) -> None:
    for partition in range(40):
        fill(tmp_path, 0, partition, partition)

    def planned(**options: str) -> list[Any]:
        own = pickle.loads(pickle.dumps(reader(tmp_path, **options)))
        start = own.initialOffset()
        end = own.latestOffset(start)
        tasks: list[Any] = own.partitions(start, end)
        read = sum(batch.num_rows for task in tasks for batch in own.read(task))
        assert read == sum(plain(end)["in"].values())
        return tasks

    with kstore.open(tmp_path / "in-0", "a", internal_segment_bytes=4 << 20) as log:
        log.extend([b"v" * 1000] * 24_000, batch_bytes=16 << 10)
    for parallelism, count in (("1", 1), ("3", 3), ("100", 6)):  # none is below 4 MiB
        splits = [split for task in planned(minPartitionNum=parallelism) for split in task.value]
        assert sum(split.partition == 0 for split in splits) == count
    shutil.rmtree(tmp_path / "in-0")
    assert len(planned(minPartitionNum="2")) in (2, 3)
    assert len(planned(minPartitions="1000")) == len(planned(openCostInBytes="200m")) == 39
    for task in planned(maxRecordsPerPartition="100", minPartitionNum="1"):
        spans = [split.stop - split.start for split in task.value]
        assert sum(spans) <= 100 or len(spans) == 1
