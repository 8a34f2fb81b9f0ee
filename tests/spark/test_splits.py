"""Splits and tasks, without Spark: every record in exactly one, whatever the range, the size and the
isolation."""

import pickle
import random
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest

import kstore
import kstore.spark
from kstore.spark import (
    Bounds,
    SparkSourceError,
    Split,
    murmur2,
    pack_splits,
    partition_of_key,
    partition_reader,
    plan_splits,
)
from tests.helpers import murmur2 as plain
from tests.helpers.calls import count_calls
from tests.helpers.effort import some

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
BROKER = GOLDEN / "broker" / "data"
SCENARIOS = (  # of every magic, with transactions, gaps, a torn tail and an unfinished cleaning
    "broker/data",
    "compact_txn_4_markers_gone",
    "crash_torn_tail",
    "magic0",
    "magic_upgrade",
    "multi_batch",
    "overflow_segment",
    "swap_1",
    "transactions_tv2",
    "truncated",
)
PLANS: tuple[dict[str, Any], ...] = (
    {},
    {"target_bytes": 3000},
    {"min_partitions": 5},
    {"target_bytes": 2000, "max_records_per_partition": 11},
)
NAMES = ("offset", "timestamp", "timestampType", "key", "value", "headers")


def read(items: Any) -> list[tuple[Any, ...]]:
    """The records of splits, or of tuples of splits, as tuples (NAMES)."""
    return list(partition_reader("records", NAMES)(pickle.loads(pickle.dumps(list(items)))))


def from_columns(items: Any) -> list[tuple[Any, ...]]:
    """The same from the columns of `partition_reader("batches")`."""
    found = []
    for batch in partition_reader("batches", NAMES)(items):
        batch = pickle.loads(pickle.dumps(batch))
        numbers = zip(batch.offsets, batch.timestamps, batch.timestamp_types, strict=True)
        found += [
            (int(o), int(t), int(kind), batch.keys[i], batch.values[i], batch.headers[i])
            for i, (o, t, kind) in enumerate(numbers)
        ]
    return found


def cells(records: Any) -> list[tuple[Any, ...]]:
    kinds = {"CreateTime": 0, "LogAppendTime": 1}
    return [
        (r.offset, r.timestamp, kinds.get(r.timestamp_type, -1), r.key, r.value, r.headers) for r in records
    ]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_splits_hold_what_the_log_holds(isolation: Any) -> None:
    dice = random.Random(1)
    for root in (GOLDEN / scenario for scenario in SCENARIOS):
        store = kstore.LogStore(root)
        for topic, partition in store:
            if topic.startswith("__"):
                continue
            asked = {topic: [partition]}
            with store.open(topic, partition) as log:
                everything = cells(log.records(isolation=isolation))
                for plan in PLANS:
                    splits = plan_splits(root, asked, isolation=isolation, **plan)
                    assert read(splits) == everything, root
                    assert from_columns(splits) == everything, root
                    assert all(a.stop == b.start for a, b in pairwise(splits))
                first, end = log.log_start_offset, log.log_end_offset
                if isolation == "read_committed":
                    end = log.last_stable_offset()
                for _ in range(3):
                    start = dice.randint(first, end)
                    stop = dice.randint(start, end)
                    splits = plan_splits(
                        root,
                        asked,
                        starting={topic: {partition: start}},
                        ending={topic: {partition: stop}},
                        target_bytes=2500,
                        isolation=isolation,
                    )
                    expected = cells(log.records(start, stop, isolation=isolation))
                    assert read(splits) == from_columns(splits) == expected, (root, start, stop)


def test_no_batch_is_in_two_splits_and_splits_are_small(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=1 << 20, compression_type="lz4") as log:
        log.extend([random.randbytes(100) for _ in range(50_000)], batch_bytes=8192)
        batches = [(b.base_offset, b.next_offset) for b in log.batches()]
        size = sum(s.size for s in log.segments)
    splits = plan_splits(tmp_path, "t", target_bytes=300_000)
    assert len(splits) == round(size / 300_000)
    starts = {base for base, _ in batches}
    assert all(split.start in starts for split in splits)
    assert sum(split.size for split in splits) == size
    assert max(split.size for split in splits) < 330_000
    assert len(pickle.dumps(splits[0])) < 500
    assert len(plan_splits(tmp_path, "t")) == 1
    limited = plan_splits(tmp_path, "t", max_records_per_partition=1000)
    most = max(end - base for base, end in batches)
    assert all(split.stop - split.start <= 1000 + most for split in limited)
    with kstore.open(tmp_path / "u-0", "a", index_interval_bytes=1, internal_segment_bytes=2000) as log:
        for number in range(100):
            log.append(b"%d" % number)
    for more in ({"min_partitions": 2**62}, {"target_bytes": 1}):
        assert [split.start for split in plan_splits(tmp_path, "u", **more)] == list(range(100))


def test_the_work_of_planning_grows_with_the_splits(tmp_path: Path) -> None:
    """And with nothing else: ten times as many take ten times the calls, not a hundred times."""
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=4 << 20) as log:
        log.extend([b"v" * 1000] * 100_000, batch_bytes=16384)
    plan_splits(tmp_path, "t", target_bytes=100_000)
    few = count_calls(lambda: plan_splits(tmp_path, "t", target_bytes=1_000_000))
    many = count_calls(lambda: plan_splits(tmp_path, "t", target_bytes=100_000))
    assert len(plan_splits(tmp_path, "t", target_bytes=100_000)) > 900
    assert many < 10 * few


def test_what_was_compacted_since_is_looked_for_again(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(10):
            log.append(b"%d" % i)
            log.roll()
    splits = plan_splits(tmp_path, "t")
    merged = b"".join(p.read_bytes() for p in sorted((tmp_path / "t-0").glob("*.log")))
    for path in (tmp_path / "t-0").glob("0*"):
        path.unlink()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(merged)
    assert [row[4] for row in read(splits)] == [b"%d" % i for i in range(10)]
    assert from_columns(splits) == read(splits)


def test_the_first_batch_of_columns_is_small_and_none_is_large(tmp_path: Path) -> None:
    """LIMIT waits for the first."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 200_000)
        log.extend([b"v" * 100_000] * 200, batch_bytes=1 << 20)
    batches = list(partition_reader("batches", ["value"])(plan_splits(tmp_path, "t")))
    assert len(batches[0]) <= 1000
    assert max(map(len, batches)) <= 65_536
    assert max(len(b.values.data) for b in batches) < 10 << 20
    assert numpy.concatenate([b.offsets for b in batches]).tolist() == list(range(200_200))


def test_partitions_of_several_log_directories(tmp_path: Path) -> None:
    """As a broker with several has them; no two may hold the same partition."""
    places = (("one", 0), ("two", 1), ("one", 2))
    for place, partition in places:
        with kstore.open(tmp_path / place / f"t-{partition}", "a") as log:
            log.extend([f"{place} {partition}".encode()] * 3)
    both = [tmp_path / "one", tmp_path / "two"]
    splits = plan_splits(both, "t")
    assert [(split.root, split.partition) for split in splits] == [
        (str(tmp_path / place), partition) for place, partition in places
    ]
    assert [row[4] for row in read(splits)] == [b"one 0"] * 3 + [b"two 1"] * 3 + [b"one 2"] * 3
    with pytest.raises(
        SparkSourceError, match=r"KSTORE_PATH_NOT_FOUND: file .*/gone: no log directory there"
    ):
        plan_splits([*both, tmp_path / "gone"], "t")
    shutil.copytree(tmp_path / "one" / "t-2", tmp_path / "two" / "t-2")
    with pytest.raises(SparkSourceError, match=r"partition 2: two of the directories hold .*one and .*two"):
        plan_splits(both, "t")


OPTION = "KSTORE_INVALID_OPTION"
REFUSED: tuple[tuple[Any, Any, dict[str, Any], str, str], ...] = (
    ("no", "t", {}, "KSTORE_PATH_NOT_FOUND", ""),
    (BROKER / "events-0", "events", {}, "KSTORE_PATH_NOT_FOUND", f"it is a partition; path is .*, {BROKER},"),
    (BROKER, "t", {}, "KSTORE_TOPIC_NOT_FOUND", "topic t, .*no such topic there; there are "),
    (BROKER, {"events": [7]}, {}, "KSTORE_TOPIC_NOT_FOUND", ""),
    *((BROKER, topics, {}, OPTION, "") for topics in (5, b"events", [None])),
    *((paths, "events", {}, OPTION, "") for paths in ("", [], [BROKER, ""], [BROKER, f"{BROKER}/"])),
    (BROKER, "trimmed", {"starting": {"trimmed": {0: 5}}}, "KSTORE_DATA_LOST", ""),
    (BROKER, "trimmed", {"ending": {"trimmed": {0: 500}}}, "KSTORE_OFFSET_OUT_OF_RANGE", ""),
    (BROKER, "events", {"starting": Bounds(timestamp=2**50)}, "KSTORE_OFFSET_OUT_OF_RANGE", ""),
    *(
        (BROKER, "events", bounds, OPTION, text)
        for bounds, text in (
            ({"starting": {"events": {0: 5}}}, "startingOffsets says nothing about this partition"),
            ({"starting": {"events": {0: 5, 1: 0, 2: 0}}}, "partition 2, .*names this partition"),
            ({"starting": {"events": {0: "1", 1: 0}}}, "startingOffsets is an int, not '1'"),
            ({"starting": {"events": {0: -3, 1: 0}}}, "startingOffsets is from -2"),
            ({"ending": {"events": {0: -2, 1: 0}}}, "endingOffsets is -2, which is no end"),
            ({"ending": Bounds(timestamps={"event": {0: 5}})}, ""),
            ({"starting": Bounds(timestamp=2**70)}, "a timestamp is from 0"),
            ({"starting": Bounds(timestamps={"events": {0: True, 1: 0}})}, "is an int, not True"),
            ({"starting": 5}, ""),
            ({"starting": "first"}, "offsets is one of 'earliest', 'latest', not 'first'"),
            ({"ending": ["latest"]}, ""),
            ({"ending": "earliest"}, "endingOffsets is 'earliest', allowed are latest"),
            ({"isolation": "committed"}, "isolation is one of 'read_uncommitted', 'read_committed'"),
            ({"target_bytes": "1m"}, "target_bytes is an int, not '1m'"),
            ({"target_bytes": None}, "target_bytes is from 1"),
            ({"min_partitions": 0}, ""),
            ({"min_partitions": 1.5}, "minPartitions is an int, not 1.5"),
            ({"max_records_per_partition": True}, "maxRecordsPerPartition is an int, not True"),
        )
    ),
)


def test_what_no_plan_can_mean() -> None:
    for path, topics, options, code, text in REFUSED:
        with pytest.raises(SparkSourceError, match=f"^{code}: .*{text}") as e:
            plan_splits(path, topics, **options)
        assert e.value.code == code
    late = Bounds(timestamp=2**50, when_none_later="latest")
    assert plan_splits(BROKER, "events", starting=late) == []
    assert plan_splits(BROKER, re.compile("nothing")) == []
    assert plan_splits(BROKER, iter(["events"])) == plan_splits(BROKER, "events")  # type: ignore[arg-type]
    lenient = plan_splits(BROKER, "trimmed", starting={"trimmed": {0: 5}}, fail_on_data_loss=False)
    assert lenient[0].start == 19


def test_the_root_as_an_executor_sees_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open(tmp_path / "data" / "logs" / "t-0", "a") as log:
        log.append(b"v")
    splits = plan_splits(tmp_path / "data" / "logs", "t")
    (tmp_path / "data").rename(tmp_path / "mounted")
    with pytest.raises(SparkSourceError):
        read(splits)
    wrong = f"{tmp_path}/dat={tmp_path}/nowhere:{tmp_path}/data/log=/nowhere"
    monkeypatch.setenv("KSTORE_ROOT_MAP", f"{wrong}:{tmp_path}/data/={tmp_path}/mounted")
    assert [row[4] for row in read(splits)] == [b"v"]


def test_records_that_are_known_to_be_lost(tmp_path: Path) -> None:
    """A missing file, or records that recovery would cut off, are an error, unless they are outside the range
    or losses are passed over."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for start in range(0, 30, 10):
            log.extend([b"%d" % i for i in range(start, start + 10)])
            log.roll()
    (tmp_path / "t-0" / f"{10:020d}.log").unlink()  # its index shows that it was there
    with pytest.raises(SparkSourceError, match=r"KSTORE_DATA_LOST.*offsets 10 to 19"):
        plan_splits(tmp_path, "t")
    assert len(read(plan_splits(tmp_path, "t", starting={"t": {0: 20}}))) == 10
    assert len(read(plan_splits(tmp_path, "t", ending={"t": {0: 10}}))) == 10
    assert len(read(plan_splits(tmp_path, "t", fail_on_data_loss=False))) == 20

    damaged = kstore.open(tmp_path / "u-0", "a")
    for i in range(10):
        damaged.append(b"%d" % i)
    damaged.flush()
    damaged.abandon()
    batch = list(kstore.open(damaged.path).batches())[4]
    with Path(batch.file).open("r+b") as file:
        file.seek(batch.position + batch.size - 1)
        file.write(b"\xff")
    for checkpoint in tmp_path.rglob("recovery-point*"):
        checkpoint.unlink()
    with pytest.raises(SparkSourceError, match=r"KSTORE_DATA_LOST.*5 sound batches"):
        plan_splits(tmp_path, "u")
    assert len(read(plan_splits(tmp_path, "u", fail_on_data_loss=False))) == 4


def test_timestamps_that_spark_cannot_hold(tmp_path: Path) -> None:
    """An error that names the record, as in Spark's Kafka source; without the column all records are read."""
    pytest.importorskip("pyarrow")
    most = (2**63 - 1) // 1000
    with kstore.open(tmp_path / "t-0", "a", message_timestamp_after_max_ms=2**63 - 1) as log:
        for timestamp in (most, 1_700_000_000_000, most + 1, 0):
            log.append(b"v", timestamp=timestamp)

    def arrow(*columns: str, stop: int = 4) -> list[Any]:
        splits = plan_splits(tmp_path, "t", ending={"t": {0: stop}})
        return list(partition_reader("arrow", columns)(splits))

    with pytest.raises(
        SparkSourceError, match=rf"^KSTORE_TIMESTAMP_OUT_OF_RANGE: topic t, .*offset 2: .*{most + 1} ms"
    ):
        arrow("timestamp", "offset")
    [offsets] = arrow("offset")
    assert offsets.column(0).to_pylist() == [0, 1, 2, 3]
    [times] = arrow("timestamp", stop=2)
    assert times.column(0).cast("int64").to_pylist() == [most * 1000, 1_700_000_000_000_000]
    assert [time for _, time, *_ in read(plan_splits(tmp_path, "t"))] == [
        most,
        1_700_000_000_000,
        most + 1,
        0,
    ]


def test_times_below_the_log_start(tmp_path: Path) -> None:
    start = 1_700_000_000_000
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=3000, index_interval_bytes=100) as log:
        for second in range(300):
            log.append(b"v", timestamp=start + second * 1000)
        log.delete_records(150)
    for second, first in ((0, 150), (100, 150), (149, 150), (150, 150), (200, 200)):
        bound = Bounds(timestamp=start + second * 1000)
        assert [row[0] for row in read(plan_splits(tmp_path, "t", starting=bound))] == [*range(first, 300)]
        assert [row[0] for row in read(plan_splits(tmp_path, "t", ending=bound))] == [*range(150, first)]


TRUNCATED = [
    (segment_bytes, then, is_noted)
    for segment_bytes in (500, 100_000)
    for then, is_noted in ((0, True), (4, True), (10, True), (40, True), (0, False))
]


@pytest.mark.parametrize(("segment_bytes", "then", "is_noted"), some(TRUNCATED, 4, "splits"))
def test_a_log_that_was_truncated_since(
    tmp_path: Path, segment_bytes: int, then: int, is_noted: bool
) -> None:
    """By kstore, or as by a broker, which leaves no note."""
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=segment_bytes) as log:
        for _ in range(40):
            log.append(b"old....")
        splits = plan_splits(tmp_path, "t", target_bytes=600)
        lenient = plan_splits(tmp_path, "t", target_bytes=600, fail_on_data_loss=False)
        log.truncate_to(20)
        for _ in range(then):
            log.append(b"new....")
        if not is_noted:
            (tmp_path / "t-0" / "kstore.json").unlink()
        for way in (read, from_columns):
            with pytest.raises(SparkSourceError, match="KSTORE_DATA_LOST"):
                way(splits)
            found = way(lenient)
            if is_noted:
                assert found == cells(kstore.open(log.path).records(0, 40))


[ANY] = plan_splits(BROKER, {"events": [1]})


def made(size: int, records: int = 1) -> Split:
    """A split that is nowhere; only its size and its offsets count for tasks."""
    return Split("/", "t", 0, 0, records, (ANY.pieces[0]._replace(size=size),))


def test_what_a_task_gets() -> None:
    dice = random.Random(1)
    for _ in range(200):
        splits = [made(dice.randrange(1, 200), dice.randrange(1, 50)) for _ in range(dice.randrange(1, 20))]
        parallelism, target, cost = dice.randrange(1, 30), dice.randrange(1, 2000), dice.choice([0, 1, 50])
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
    per_task = ((128 << 20) + (64 << 10)) // (1000 + (64 << 10))
    assert len(pack_splits(small, parallelism=1)) == -(-5000 // per_task)
    assert len(pack_splits(small, parallelism=1, open_cost_bytes=0)) == 1
    for parallelism in (250, 500, 2500, 5000, 9999):
        assert len(pack_splits(small, parallelism=parallelism)) == min(parallelism, 5000)
    assert len(pack_splits(small)) == -(-5000 // (((4 << 20) + (64 << 10)) // (1000 + (64 << 10))))
    # if it is not known how many tasks run at once
    assert 100 < len(pack_splits([made(4 << 20)] * 1000)) <= 200
    assert len(pack_splits([made(100 << 20)] * 3, parallelism=1)) == 3
    for wrong in (
        {"parallelism": 0},
        {"parallelism": "4"},
        {"target_bytes": 0},
        {"open_cost_bytes": -1},
        {"max_records_per_partition": 0},
    ):
        with pytest.raises(SparkSourceError, match=f"{OPTION}: "):
            pack_splits(small, **wrong)  # type: ignore[arg-type]


def test_readers_give_the_same_of_tasks_and_of_splits(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    dice = random.Random(2)
    for partition in range(30):
        codec = dice.choice(["lz4", "uncompressed"])
        with kstore.open(tmp_path / f"t-{partition}", "a", compression_type=codec) as log:
            for at in range(dice.randrange(20)):
                key = None if dice.random() < 0.3 else b"key %d" % at
                headers = {} if dice.random() < 0.5 else {"h": b"%d" % at, "none": None}
                log.append(dice.randbytes(dice.randrange(100)) or None, key, headers=headers)
    with kstore.open(tmp_path / "t-15", "a") as log:
        log.extend([b"v" * 100] * 70_000, batch_bytes=16 << 10)
    splits = plan_splits(tmp_path, "t")
    tasks = pack_splits(splits, parallelism=2)
    assert 2 <= len(tasks) <= 5 < len(splits)
    assert read(tasks) == read(splits)
    assert len(read(tasks)) == sum(split.stop - split.start for split in splits) > 70_000
    assert from_columns(tasks) == from_columns(splits)
    arrow = partition_reader("arrow", NAMES)
    one_by_one = [batch for split in splits for batch in arrow([split])]
    assert pa.Table.from_batches(arrow(tasks)).equals(pa.Table.from_batches(one_by_one))
    assert pa.Table.from_batches(arrow(tasks)).column("offset").to_pylist() == [row[0] for row in read(tasks)]
    batches = list(arrow([tuple(splits)]))
    assert 1000 <= batches[0].num_rows < 2000
    assert max(batch.num_rows for batch in batches) <= 1.5 * 65_536
    assert len(batches) < 8


def test_partitions_of_keys_are_kafkas() -> None:
    """The plain function is compared with Kafka's values in store/test_topics."""
    dice = random.Random(1)
    for key in (dice.randbytes(dice.randrange(50)) for _ in range(500)):
        assert murmur2(key) % 2**32 == plain.murmur2(key)
        for count in (1, 2, 7, 1000):
            assert partition_of_key(key, count) == plain.partition_of(key, count)


def test_kstore_imports_neither_spark_nor_arrow() -> None:
    text = (
        "import sys, kstore; alone = 'kstore.spark' not in sys.modules; import kstore.spark; "
        "own = {name.partition('.')[0] for name in sys.modules}; "
        "sys.exit(not alone or bool(own & {'pyspark', 'pyarrow', 'pandas'}))"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
