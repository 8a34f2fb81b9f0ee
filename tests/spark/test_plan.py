"""Splits without Spark: every record in exactly one, whatever the range, the size and the isolation."""

import pickle
import random
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
import pytest

import kstore
from kstore.engine.record.batch import Record
from kstore.spark import Split, murmur2, partition_of_key, plan_splits
from kstore.spark.columns import iterate, mapped_root, read_columns, timestamp_type
from kstore.spark.errors import SparkSourceError
from kstore.spark.options import SourceOptions
from kstore.spark.partitioner import partitions_of_keys
from kstore.spark.plan import Bounds
from tests.helpers.calls import count_calls

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
BROKER = GOLDEN / "broker" / "data"
SCENARIOS = (
    "big_offsets",
    "broker/data",
    "compact_2_cleaned",
    "compact_txn_4_markers_gone",
    "crash_torn_tail",
    "magic0",
    "magic1_",
    "magic_upgrade",
    "multi_batch",
    "overflow_segment",
    "swap_1",
    "transactions",
    "transactions_tv2",
    "truncated",
)
PLANS: tuple[dict[str, Any], ...] = (
    {},
    {"target_bytes": 3000},
    {"max_records_per_partition": 7},
    {"min_partitions": 5},
    {"target_bytes": 2000, "max_records_per_partition": 11},
)


def read(splits: list[Split]) -> list[Record]:
    return [record for split in splits for record in iterate(pickle.loads(pickle.dumps(split)))]


def columns(splits: list[Split]) -> list[tuple[Any, ...]]:
    names = ("key", "value", "timestamp", "timestampType", "headers")
    found = []
    for split in splits:
        for batch in read_columns(split, names):
            batch = pickle.loads(pickle.dumps(batch))
            found += [
                (int(o), int(t), int(kind), batch.keys[i], batch.values[i], batch.headers[i])
                for i, (o, t, kind) in enumerate(
                    zip(batch.offsets, batch.timestamps, batch.timestamp_types, strict=True)
                )
            ]
    return found


def cells(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, timestamp_type(r), r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("scenario", [s for s in SCENARIOS if (GOLDEN / s).is_dir()])
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_splits_hold_what_the_log_holds(scenario: str, isolation: Any) -> None:
    root, dice = GOLDEN / scenario, random.Random(scenario)
    store = kstore.LogStore(root)
    for topic, partition in store:
        if topic.startswith("__"):
            continue
        asked = {topic: [partition]}
        with store.open(topic, partition) as log:
            everything = list(log.records(isolation=isolation))
            for plan in PLANS:
                splits = plan_splits(root, asked, isolation=isolation, **plan)
                assert read(splits) == everything
                assert columns(splits) == cells(everything)
                assert all(a.stop == b.start for a, b in pairwise(splits))
            first, end = log.log_start_offset, log.log_end_offset
            if isolation == "read_committed":
                end = log.last_stable_offset()
            for _ in range(5):
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
                expected = list(log.records(start, stop, isolation=isolation))
                assert read(splits) == expected
                assert columns(splits) == cells(expected)


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
    assert [r.value for r in read(splits)] == [b"%d" % i for i in range(10)]
    assert [row[4] for row in columns(splits)] == [b"%d" % i for i in range(10)]


def test_the_first_batch_is_small_and_none_is_large(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 200_000)
        log.extend([b"v" * 100_000] * 200, batch_bytes=1 << 20)
    [split] = plan_splits(tmp_path, "t")
    batches = list(read_columns(split, ["value"]))
    assert len(batches[0]) <= 1000
    assert max(map(len, batches)) <= 65_536
    assert max(len(b.values.data) for b in batches if b.values is not None) < 10 << 20
    assert numpy.concatenate([b.offsets for b in batches]).tolist() == list(range(200_200))


def test_errors_name_code_and_place(tmp_path: Path) -> None:
    def code(*args: Any, **options: Any) -> str:
        with pytest.raises(SparkSourceError) as caught:
            plan_splits(*args, **options)
        assert str(caught.value).startswith(caught.value.code + ": ")
        return caught.value.code

    assert code(tmp_path / "no", "t") == "KSTORE_PATH_NOT_FOUND"
    assert code(BROKER, "t") == "KSTORE_TOPIC_NOT_FOUND"
    assert code(BROKER, {"events": [7]}) == "KSTORE_TOPIC_NOT_FOUND"
    assert code(BROKER, "events", starting={"events": {0: 5}}) == "KSTORE_INVALID_OPTION"
    assert code(BROKER, "trimmed", starting={"trimmed": {0: 5}}) == "KSTORE_DATA_LOST"
    assert code(BROKER, "trimmed", ending={"trimmed": {0: 500}}) == "KSTORE_OFFSET_OUT_OF_RANGE"
    assert code(BROKER, "trimmed", ending={"trimmed": {0: -2}}) == "KSTORE_INVALID_OPTION"
    assert code(BROKER, "events", starting=Bounds(timestamp=2**50)) == "KSTORE_OFFSET_OUT_OF_RANGE"
    assert code(BROKER, "events", starting={"events": {0: 5, 1: 0, 2: 0}}) == "KSTORE_INVALID_OPTION"
    assert code(BROKER, "events", ending=Bounds(timestamps={"event": {0: 5}})) == "KSTORE_INVALID_OPTION"
    assert code(BROKER, "events", min_partitions=0) == "KSTORE_INVALID_OPTION"
    assert code("", "events") == code([], "events") == code([BROKER, ""], "events") == "KSTORE_INVALID_OPTION"
    assert code([BROKER, f"{BROKER}/"], "events") == "KSTORE_INVALID_OPTION"
    assert code(BROKER / "events-0", "events") == "KSTORE_PATH_NOT_FOUND"
    late = Bounds(timestamp=2**50, when_none_later="latest")
    assert plan_splits(BROKER, "events", starting=late) == []
    assert plan_splits(BROKER, re.compile("nothing")) == []
    lenient = plan_splits(BROKER, "trimmed", starting={"trimmed": {0: 5}}, fail_on_data_loss=False)
    assert lenient[0].start == 19


def test_options_in_any_case_and_their_values() -> None:
    given = {"PATH": "/x", "subscribe": "a, b", "MINPARTITIONS": "3", "includeheaders": "TRUE"}
    options = SourceOptions.of(given, stream=False)
    assert (options.roots, options.topics, options.min_partitions) == (("/x",), ["a", "b"], 3)
    assert options.include_headers is True
    assert options.starting.offsets == "earliest"
    assert SourceOptions.of(given, stream=True).starting.offsets == "latest"
    for wrong in (
        {"minPartitions": "0"},
        {"startingOffsets": "latest"},
        {"startingOffsets": '{"a": {"0": true}}'},
        {"startingOffsets": '{"a": {"0": -1}}'},
        {"maxPartitionBytes": "0"},
        {"maxPartitionBytes": "1 mile"},
        {"openCostInBytes": "-1"},
        {"minPartitionNum": "0"},
        {"endingOffsets": "earliest"},
        {"isolation": "read"},
        {"assign": '{"a": [0]}'},
        {"subscribePattern": "["},
        {"topic": "a"},
        {"path": "s3://x"},
        {"path": ""},
    ):
        with pytest.raises(SparkSourceError, match=r"^KSTORE_(INVALID_OPTION|UNSUPPORTED): "):
            SourceOptions.of({"path": "/x", "subscribe": "a"} | wrong, stream=False)


def test_the_root_as_an_executor_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSTORE_ROOT_MAP", "/data/kafka=/mnt/k:/other/=/o")
    assert mapped_root("/data/kafka") == "/mnt/k"
    assert mapped_root("/data/kafka/logs") == "/mnt/k/logs"
    assert mapped_root("/data/kafka2") == "/data/kafka2"
    assert mapped_root("/other/a") == "/o/a"


def test_murmur2_is_kafkas() -> None:
    known = {  # what Kafka's Utils.murmur2 gives
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in known} == known
    dice = random.Random(1)
    keys = [dice.randbytes(dice.randrange(50)) for _ in range(2000)]
    offsets = numpy.cumsum([0, *map(len, keys)]).astype(numpy.int32)
    for count in (1, 2, 7, 1000):
        found = partitions_of_keys(offsets, numpy.frombuffer(b"".join(keys), numpy.uint8), count)
        assert found.tolist() == [partition_of_key(key, count) for key in keys]
    for wrong in ([0, 4], [-1, 2], [2, 1]):
        with pytest.raises(ValueError, match="offsets outside"):
            partitions_of_keys(numpy.array(wrong, numpy.int32), numpy.zeros(3, numpy.uint8), 5)
    with pytest.raises(ValueError, match="offsets outside"):
        partitions_of_keys(numpy.array([0, 3], numpy.int32), numpy.zeros(3, numpy.uint8), 0)


def test_kstore_imports_neither_spark_nor_arrow() -> None:
    text = (
        "import sys, kstore, kstore.spark; "
        "sys.exit(any(name.partition('.')[0] in ('pyspark', 'pyarrow', 'pandas') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
    text = "import sys, kstore; sys.exit('kstore.spark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0


@pytest.mark.parametrize(
    ("topics", "bounds"),
    [(5, {}), (b"t", {}), ([None], {}), ("t", {"starting": 5}), ("t", {"ending": ["latest"]})],
)
def test_what_names_no_topics_or_offsets_is_refused(
    tmp_path: Path, topics: Any, bounds: dict[str, Any]
) -> None:
    kstore.open(tmp_path / "t-0", "a").close()
    with pytest.raises(SparkSourceError, match="KSTORE_INVALID_OPTION"):
        plan_splits(tmp_path, topics, **bounds)


def test_topics_may_be_any_iterable(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"x")
    assert plan_splits(tmp_path, iter(["t"])) == plan_splits(tmp_path, "t")  # type: ignore[arg-type]


def test_records_that_are_known_to_be_lost(tmp_path: Path) -> None:
    """A file is missing, or recovery cuts the log off: an error, unless the range has nothing of it or losses are passed over."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for start in range(0, 30, 10):
            log.extend([b"%d" % i for i in range(start, start + 10)])
            log.roll()
    (tmp_path / "t-0" / f"{10:020d}.log").unlink()  # its index tells of it
    with pytest.raises(SparkSourceError, match=r"KSTORE_DATA_LOST.*offsets 10 to 19"):
        plan_splits(tmp_path, "t")
    assert len(read(plan_splits(tmp_path, "t", starting={"t": {0: 20}}))) == 10
    assert len(read(plan_splits(tmp_path, "t", ending={"t": {0: 10}}))) == 10
    assert len(read(plan_splits(tmp_path, "t", fail_on_data_loss=False))) == 20


def test_damage_before_sound_records(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    for i in range(10):
        log.append(b"%d" % i)
    log.flush()
    log.abandon()
    batch = list(kstore.open(log.path).batches())[4]
    with Path(batch.file).open("r+b") as file:
        file.seek(batch.position + batch.size - 1)
        file.write(b"\xff")
    for checkpoint in Path(log.path).glob("recovery-point*"):
        checkpoint.unlink()
    with pytest.raises(SparkSourceError, match=r"KSTORE_DATA_LOST.*5 sound batches"):
        plan_splits(tmp_path, "t")
    assert len(read(plan_splits(tmp_path, "t", fail_on_data_loss=False))) == 4


@pytest.mark.parametrize("segment_bytes", [500, 100_000])
@pytest.mark.parametrize(
    ("then", "is_noted"),
    [(0, True), (4, True), (10, True), (40, True), (0, False)],  # not: as if a broker had done it
)
@pytest.mark.parametrize(
    "read", [lambda split: list(iterate(split)), lambda split: list(read_columns(split, ["value"]))]
)
def test_a_log_that_was_truncated_since(
    tmp_path: Path, segment_bytes: int, then: int, is_noted: bool, read: Any
) -> None:
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=segment_bytes) as log:
        for _ in range(40):
            log.append(b"old....")
        splits = plan_splits(tmp_path, "t", target_bytes=600)
        patient = plan_splits(tmp_path, "t", target_bytes=600, fail_on_data_loss=False)
        log.truncate_to(20)
        for _ in range(then):
            log.append(b"new....")
        if not is_noted:
            (tmp_path / "t-0" / "kstore-truncations.json").unlink()
        with pytest.raises(SparkSourceError, match="KSTORE_DATA_LOST"):
            list(map(read, splits))
        list(map(read, patient))
        if is_noted:
            assert [(record.offset, record.value) for split in patient for record in iterate(split)] == [
                (record.offset, record.value) for record in kstore.open(log.path).records(0, 40)
            ]
