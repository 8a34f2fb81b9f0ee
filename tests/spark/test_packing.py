"""Small splits share tasks: all of them once, in their order, in as many tasks as are wanted. Mostly without a session."""

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark
from kstore.spark import Split, pack_splits, partition_reader, plan_splits
from kstore.spark.columns import FIRST_RECORDS, MAX_RECORDS, arrow_schema
from kstore.spark.errors import SparkSourceError
from kstore.spark.packing import OPEN_COST_BYTES, session_parallelism
from kstore.spark.plan import Piece

NAMES = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


def made(size: int, records: int = 1) -> Split:
    """A split that is nowhere."""
    return Split("/", "t", 0, 0, records, (Piece("0", 0, records, (), 0, 0, size, 0),))


def test_what_a_task_gets() -> None:
    dice = random.Random(1)
    for _ in range(500):
        splits = [made(dice.randrange(1, 200), dice.randrange(1, 50)) for _ in range(dice.randrange(1, 60))]
        parallelism, target, cost = dice.randrange(1, 70), dice.randrange(1, 2000), dice.choice([0, 1, 50])
        records = dice.choice([None, 60, 300])
        groups = pack_splits(
            splits,
            parallelism=parallelism,
            target_bytes=target,
            open_cost_bytes=cost,
            max_records_per_partition=records,
        )
        assert [split for group in groups for split in group] == splits  # the same objects in the same order
        share = max(cost, sum(split.size + cost for split in splits) / parallelism)
        for group in groups:
            size = sum(split.size + cost for split in group) - cost
            assert len(group) == 1 or size <= min(target, share)
            assert len(group) == 1 or records is None or sum(split.stop for split in group) <= records
    assert pack_splits([]) == []


def test_as_few_tasks_as_the_sizes_allow() -> None:
    small = [made(1000)] * 5000
    per_task = ((128 << 20) + OPEN_COST_BYTES) // (1000 + OPEN_COST_BYTES)
    assert len(pack_splits(small, parallelism=1)) == -(-5000 // per_task)
    assert len(pack_splits(small, parallelism=1, open_cost_bytes=0)) == 1
    for parallelism in (250, 500, 2500, 5000, 9999):
        assert len(pack_splits(small, parallelism=parallelism)) == min(parallelism, 5000)
    assert len(pack_splits(small[:3], parallelism=2)) == 2
    assert len(pack_splits(small)) == 200  # where nobody says how many tasks run at once
    assert len(pack_splits([made(100 << 20)] * 3, parallelism=1)) == 3
    for wrong in (
        {"parallelism": 0},
        {"target_bytes": 0},
        {"open_cost_bytes": -1},
        {"max_records_per_partition": 0},
    ):
        with pytest.raises(SparkSourceError, match="KSTORE_INVALID_OPTION: "):
            pack_splits(small, **wrong)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 partitions of few records, and one of many, beside them in order."""
    root = tmp_path_factory.mktemp("many")
    dice = random.Random(2)
    for partition in range(60):
        with kstore.open(
            root / f"t-{partition}", "a", compression_type=dice.choice(["lz4", "uncompressed"])
        ) as log:
            for at in range(dice.randrange(40)):
                key = None if dice.random() < 0.3 else b"key %d" % at
                headers = {} if dice.random() < 0.5 else {"h": b"%d" % at, "none": None}
                log.append(dice.randbytes(dice.randrange(100)) or None, key, headers=headers)
    with kstore.open(root / "t-30", "a") as log:
        log.extend([b"v" * 100] * 150_000, batch_bytes=16 << 10)
    return root


def rows(batches: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_readers_give_the_same_of_groups_and_of_splits(many: Path) -> None:
    pytest.importorskip("pyarrow")
    splits = plan_splits(many, "t")
    groups = pickle.loads(pickle.dumps(pack_splits(splits, parallelism=2)))
    assert 2 <= len(groups) <= 5 < len(splits)
    for as_, of in (("records", list), ("arrow", rows)):
        read = partition_reader(as_, NAMES)
        whole = of(list(read(groups)))
        assert whole == [row for split in splits for row in of(list(read([split])))]
    assert len(whole) == sum(split.stop - split.start for split in splits) > 150_000
    counts = [len(batch) for batch in partition_reader()(groups)]
    assert counts == [len(batch) for batch in partition_reader()(splits)]


def test_small_batches_are_joined(many: Path) -> None:
    """But for the first, which a LIMIT waits for, and none is larger than those of one split."""
    pytest.importorskip("pyarrow")
    read = partition_reader("arrow", NAMES)
    groups = [tuple(plan_splits(many, "t"))]
    batches = list(read(groups))
    assert all(batch.schema.equals(arrow_schema(NAMES)) for batch in batches)
    sizes = [batch.num_rows for batch in batches]
    assert FIRST_RECORDS <= sizes[0] < 2 * FIRST_RECORDS
    assert max(sizes) <= 1.5 * MAX_RECORDS
    assert len(sizes) < 8


@pytest.mark.datasource
def test_micro_batches_are_packed_too(many: Path) -> None:
    stream = pytest.importorskip("kstore.spark.stream")
    options_of = pytest.importorskip("kstore.spark.options").SourceOptions.of

    def planned(**options: str) -> list[Any]:
        given = {"path": str(many), "subscribe": "t", "startingOffsets": "earliest"} | options
        reader = stream.KStoreStreamReader(options_of(given, stream=True), ("offset",), 2)
        reader = pickle.loads(pickle.dumps(reader))
        start = reader.initialOffset()
        tasks = reader.partitions(start, reader.latestOffset(start))
        read = [batch for task in tasks for batch in reader.read(task)]
        assert sum(batch.num_rows for batch in read) == sum(
            end for end in reader.latestOffset()["t"].values()
        )
        return tasks

    splits = len(plan_splits(many, "t"))
    assert 2 <= len(planned()) <= 5
    assert len(planned(minPartitions="1000")) >= splits
    for task in planned(maxRecordsPerPartition="100"):
        spans = [split.stop - split.start for split in task.value]
        assert sum(spans) <= 100 or len(spans) == 1
    assert len(planned(openCostInBytes="200m")) == splits
    assert 5 < len(planned(minPartitionNum="100")) < splits


@pytest.mark.spark
@pytest.mark.datasource
@pytest.mark.filterwarnings("ignore")
def test_frames_have_few_tasks_and_all_rows_in_order(spark: Any, many: Path) -> None:
    def offsets(frame: Any) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in frame.select("partition", "offset").collect():
            found.setdefault(row.partition, []).append(row.offset)
        return found

    ends = {
        tp.partition: list(range(log.log_end_offset))
        for tp in kstore.LogStore(many)
        if (log := kstore.open(many / str(tp))).log_end_offset
    }

    def tasks(parallelism: int | None) -> int:
        return len(pack_splits(plan_splits(many, "t"), parallelism=parallelism))

    usual, hundred = tasks(session_parallelism(spark)), tasks(100)
    assert usual < len(plan_splits(many, "t"))
    assert usual != hundred
    for via in ("datasource", "mapInArrow"):
        frame = kstore.spark.dataframe(spark, many, "t", columns=["partition", "offset"], via=via)
        assert frame.rdd.getNumPartitions() == usual
        assert offsets(frame) == ends
        spark.conf.set("spark.sql.files.minPartitionNum", "100")
        try:
            frame = kstore.spark.dataframe(spark, many, "t", columns=["offset"], via=via)
            assert frame.rdd.getNumPartitions() == hundred
        finally:
            spark.conf.unset("spark.sql.files.minPartitionNum")
        told = kstore.spark.dataframe(spark, many, "t", via=via, minPartitionNum=100)
        assert told.rdd.getNumPartitions() == hundred
    wide = kstore.spark.dataframe(spark, many, "t", minPartitions=60)
    assert wide.rdd.getNumPartitions() >= min(60, len(ends))
    assert kstore.spark.rdd(spark.sparkContext, many, "t").getNumPartitions() == usual
    halves = [many / "one", many / "two"]
    for at, half in enumerate(halves):
        half.mkdir()
        for partition in range(at, 60, 2):
            (many / f"t-{partition}").rename(half / f"t-{partition}")
    try:
        both = spark.read.format("kstore").option("subscribe", "t").load([str(half) for half in halves])
        assert offsets(both) == ends
        assert offsets(kstore.spark.dataframe(spark, halves, "t")) == ends
        listed = (
            spark.readStream.format("kstore").option("subscribe", "t").option("startingOffsets", "earliest")
        )
        query = listed.load(json.dumps([f"file:{half}" for half in halves])).writeStream.format("memory")
        query.queryName("halves").trigger(availableNow=True).start().awaitTermination()
        assert spark.table("halves").count() == sum(map(len, ends.values()))
    finally:
        for half in halves:
            for path in half.iterdir():
                path.rename(many / path.name)
            half.rmdir()
