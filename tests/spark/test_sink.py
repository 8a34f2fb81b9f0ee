"""Publishing without Spark: once for each transaction, beside other writers, and what a sink refuses."""

import errno
import fcntl
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore.spark import Sink, Source, SparkSourceError, Transaction, pack_splits, partition_of_key
from tests.helpers.files import flip
from tests.helpers.waiting import threads_doing, until
from tests.spark import sinks
from tests.spark.sinks import COUNTS, age, files_in, killed_in_commit, pa, stage, values, wanted

JOURNAL, LOCK = ".kstore-spark-journal", ".kstore-spark-lock"


def publish(sink: Sink, name: str, number: int | None = None, **options: Any) -> bool:
    """Stages and publishes two tasks."""
    transaction = Transaction(name, number)
    job = name if number is None else f"{name}-{number}"
    return sink.publish(transaction, stage(sink, job, **options), counts=COUNTS)


def add(sink: Sink, job: str, topic: str | None = "t", /, **columns: Any) -> list[Any]:
    """Stages these rows of one task."""
    own = sink.stage(job, "p0", topic=topic)
    own.add(pa.RecordBatch.from_pydict(columns))
    return list(own.close())


def ends(root: Path, count: int = 2) -> list[int]:
    return [kstore.open(root / f"t-{partition}").log_end_offset for partition in range(count)]


@pytest.fixture(params=["copied", "moved", "both", "threads"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    return sinks.ways(monkeypatch, request.param)


# ---- once --------------------------------------------------------------------------------------------------


def test_once_for_each_transaction(ram: Path, way: str) -> None:
    sink = Sink(ram / "log")
    assert publish(sink, "q", 0)
    assert publish(sink, "q", 1)
    assert not publish(sink, "q", 1)
    assert publish(sink, "other", 0)
    assert publish(sink, "job")
    assert not publish(sink, "job")
    assert values(ram / "log") == wanted("q-0", "q-1", "other-0", "job")
    assert kstore.LogStore(ram / "log").topics == {"t": [0, 1]}
    for log in (kstore.open(ram / "log" / f"t-{p}") for p in (0, 1)):
        for batch in log.batches():
            batch.ensure_valid()


def test_the_log_line_of_a_commit(ram: Path, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """It says how many bytes were renamed or copied, and how long locks took."""
    caplog.set_level("INFO", "kstore.spark.sink")
    sink = Sink(ram / "log")
    staged = stage(sink, "q-3")
    sizes = [file.size for one in staged for file in one.files]
    holder = kstore.open(ram / "log" / "t-1", "a")
    with threads_doing(lambda: sink.publish(Transaction("q", 3), staged, counts=COUNTS)):
        until((ram / "log" / "t-0").exists)  # it has begun to open the partitions
        kstore.open(ram / "log" / "t-0", "a", wait=60).close()
        holder.close()
    (line,) = caplog.messages
    renamed = {"copied": [], "threads": [], "moved": sizes, "both": [size for size in sizes if size >= 450]}[
        way
    ]
    assert line.startswith(
        f"published micro-batch 3 of query q: 60 records in 2 partitions; {sum(renamed)} bytes in "
        f"{len(renamed)} files renamed, {sum(sizes) - sum(renamed)} bytes copied; "
    )
    took, waited = (float(text) for text in re.findall(r"([0-9.]+) s\b", line))
    assert took >= waited > 0
    caplog.clear()
    sink.publish(Transaction("q", 3), staged, counts=COUNTS)
    assert caplog.messages == ["micro-batch 3 of query q was published before: nothing was written"]


def test_a_micro_batch_that_comes_again(ram: Path) -> None:
    """Spark runs only the last one again, with the same input; all else is a checkpoint that was reset."""
    sink = Sink(ram / "log")

    def run(number: int, rows: int = 20, source: str | None = None) -> bool:
        own = None if source is None else Source(source, f"offsets {source}")
        staged = stage(sink, f"query-{number}", rows=rows)
        return sink.publish(Transaction("query", number), staged, counts=COUNTS, source=own)

    assert run(0, source="a")
    assert not run(0, source="a")
    assert not run(0, source="a", rows=4)  # a query may give other rows the second time, of the same input
    assert not run(0)
    with pytest.warns(
        RuntimeWarning, match=r"batch 0 of query query .*'t': 40.*'t': 8.*checkpoint was reset"
    ):
        assert not run(0, rows=4)
    reset = (
        r"KSTORE_CHECKPOINT_RESET: .*query query has published its micro-batch {}, "
        r".* micro-batch 0{}: .*new, empty"
    )
    with pytest.raises(SparkSourceError, match=reset.format(r"0 \(offsets a\)", r" \(offsets b\)")):
        run(0, source="b")
    assert run(1, source="b")
    with pytest.raises(SparkSourceError, match=reset.format(r"1 \(offsets b\)", r" \(offsets a\)")):
        run(0, source="a")
    with pytest.raises(SparkSourceError, match=reset.format(r"1 \(offsets b\)", "")):
        run(0)
    assert sink.status().queries["query"] == (1, {"t": 40}, ("b", "offsets b"))
    assert values(ram / "log") == wanted("query-0", "query-1", rows=20)


@pytest.mark.datasource
def test_what_the_checkpoint_says_of_the_input(tmp_path: Path) -> None:
    """Whatever is in Spark's files; what the sink keeps of it is short, and different for each."""
    pytest.importorskip("pyspark.sql.datasource")
    from pyspark.sql.types import StringType, StructField, StructType

    sink, offsets = Sink(tmp_path / "log"), tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "6").write_text('v1\n{"batchWatermarkMs":0}\n{"in":{"0":200}}')
    (offsets / "7").write_text('v1\n{"batchWatermarkMs":0}\n{"in":{"0":400}}')
    (offsets / "9").write_text('v1\n{}\n{"in":{"0":5}}\n-')
    (offsets / "11").write_text("v1\n{}\n" + "9" * 2000)
    (offsets / "13").write_text("")
    (offsets / "15").write_bytes(b"v1\n\n\xff")

    def source(number: int, location: Path) -> Source | None:
        given = {"path": str(tmp_path / "log"), "topic": "t", "checkpointLocation": str(location)}
        schema = StructType([StructField("value", StringType())])
        writer = kstore.spark.KStoreDataSource(given).streamWriter(schema, False)
        query = f"query {number}"
        message = SimpleNamespace(job=query, query=query, staged=stage(sink, query))
        writer.commit([message], number)
        return sink.status().queries[query].source

    assert source(17, offsets.parent) is None
    assert source(16, tmp_path / "none") is None
    found = [source(number, offsets.parent) for number in (7, 6, 9, 11, 13, 15)]
    ranges = [one.range for one in found if one is not None]
    assert ranges[:3] == [
        'offsets {"in":{"0":200}} to {"in":{"0":400}}',
        'offsets up to {"in":{"0":200}}',
        'offsets up to {"in":{"0":5}} and -',
    ]
    assert len(ranges[3]) == 501
    assert ranges[4] == ""
    assert len({one.digest for one in found if one is not None}) == 6


def test_two_jobs_of_one_name_at_once(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "log")
    staged = [stage(sink, f"run {at}") for at in range(8)]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda own: sink.publish(Transaction("job"), own), staged))
    assert sorted(done) == [False] * 7 + [True]
    assert ends(tmp_path / "log") == [30, 30]


# ---- rows --------------------------------------------------------------------------------------------------


def test_topics_and_partitions_of_rows(ram: Path) -> None:
    """By the column partition, else by the key as Kafka's producer does, else in turn; by the option topic,
    else by the column."""
    sink, dice = Sink(ram / "log"), random.Random(1)
    keys = [None if dice.random() < 0.2 else dice.randbytes(dice.randrange(40)) for _ in range(300)]
    numbers = [dice.randrange(7) if dice.random() < 0.2 else None for _ in keys]
    columns = {
        "value": [b"%d" % i for i in range(300)],
        "key": pa.array(keys, pa.binary()),
        "partition": pa.array(numbers, pa.int32()),
    }
    own = sink.stage("a", "p0", topic="keyed", counts={"keyed": 7})
    own.add(pa.RecordBatch.from_pydict(columns).slice(10))  # what is not at the beginning of its buffers
    assert sink.publish(Transaction("a"), own.close(), counts={"keyed": 7})
    found: list[int] = []
    free = []
    for partition in range(7):
        for record in kstore.open(ram / "log" / f"keyed-{partition}"):
            at = int(record.value or b"")
            found.append(at)
            if numbers[at] is not None:
                assert partition == numbers[at]
            elif keys[at] is not None:
                assert partition == partition_of_key(keys[at] or b"", 7)
            else:
                free.append(partition)
    assert sorted(found) == list(range(10, 300))
    assert max(map(free.count, range(7))) - min(map(free.count, range(7))) <= 1

    rows = {"value": [b"1", b"2", b"4"], "topic": ["one", "two", "one"]}
    assert sink.publish(Transaction("b"), add(sink, "b", None, **rows))
    assert sink.publish(Transaction("c"), add(sink, "c", "rest", **rows))
    for topic, expected in (("one", [b"1", b"4"]), ("two", [b"2"]), ("rest", [b"1", b"2", b"4"])):
        assert [r.value for r in kstore.open(ram / "log" / f"{topic}-0")] == expected


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"headers": [[{"key": None, "value": b"v"}]]}, ""),
        ({"timestamp": pa.array([-5_000_000], pa.timestamp("us", "UTC"))}, ""),
        ({"partition": pa.array([-1], pa.int32())}, "-1: partitions are numbered from 0, and null "),
        ({"partition": pa.array([2**31 - 1], pa.int32())}, "a row names partition 2147483647"),
        ({"topic": ["../t"]}, r"topic \.\./t: no name of a topic"),
        ({"topic": pa.array([None], pa.string())}, "a row names no topic"),
    ],
)
def test_rows_that_are_no_records(tmp_path: Path, columns: dict[str, Any], text: str) -> None:
    sink = Sink(tmp_path / "log")
    own = sink.stage("job", "p0", topic=None if "topic" in columns else "t")
    with pytest.raises(SparkSourceError, match=f"KSTORE_INVALID_RECORD: .*{text}"):
        own.add(pa.RecordBatch.from_pydict({"value": [b"v"]} | columns))
    own.abandon()
    assert not files_in(tmp_path)


def test_a_topic_of_a_store_keeps_its_configuration(tmp_path: Path) -> None:
    """Staged records are what the topic takes; what the writer is given counts before it."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 2, message_timestamp_type="LogAppendTime", compression_type="zstd")
        store.create_topic("c", 1, cleanup_policy="compact")
    rows = {"value": [b"value" * 20] * 50, "timestamp": pa.array([1_000_000] * 50, pa.timestamp("us", "UTC"))}
    sink = Sink(tmp_path)
    sink.publish(Transaction("one"), add(sink, "one", **rows))
    given = Sink(tmp_path, kstore.LogConfig(compression_type="gzip", message_timestamp_type="CreateTime"))
    given.publish(Transaction("two"), add(given, "two", **rows))
    for partition in (0, 1):
        with kstore.open(tmp_path / f"t-{partition}") as log:
            assert [batch.codec for batch in log.batches()] == ["zstd", "gzip"]
            assert [record.timestamp == 1000 for record in log] == [False] * 25 + [True] * 25
    kstore.open(tmp_path / "alone" / "t-0", "a", compression_type="lz4").close()
    alone = Sink(tmp_path / "alone")
    alone.publish(Transaction("one"), add(alone, "one", **rows))
    assert [batch.codec for batch in kstore.open(tmp_path / "alone" / "t-0").batches()] == ["lz4"]
    with pytest.raises(SparkSourceError, match=r"KSTORE_INVALID_RECORD: topic c, .*no key"):
        add(sink, "three", "c", **rows)


def test_names_and_arguments_that_are_refused(ram: Path) -> None:
    sink = Sink(ram / "log")
    assert publish(sink, "a")
    staged = stage(sink, "b")
    there = sorted(ram.rglob("*"))
    calls: list[tuple[Callable[[], object], str]] = []
    for job in ("", ".", "..", "../log", "a/../../log", "a\0", 5):
        bad: Any = job
        calls += [
            (lambda bad=bad: sink.discard(Transaction("b"), bad), "job"),
            (lambda bad=bad: sink.stage(bad, "p0"), "job"),
            (lambda bad=bad: sink.stage("b", bad), "attempt"),
        ]
    other: Any = "b"
    calls += [
        (lambda: sink.discard(other, "b"), "transaction"),
        (lambda: sink.discard(Transaction("b"), "b", [other]), "staged"),
        (lambda: sink.publish(other, staged), "transaction"),
        (lambda: sink.publish(Transaction("b"), [other]), "staged"),
        (lambda: pack_splits([other]), "splits"),
        (lambda: sink.status(-1), "older_than_s"),
        (lambda: sink.sweep(-1), "older_than_s"),
        *((lambda bad=bad: Sink(ram, lock_wait=bad), "lock_wait") for bad in (-1, "1", float("nan"))),
    ]
    for call, name in calls:
        with pytest.raises((TypeError, ValueError), match=name):
            call()
    assert sorted(ram.rglob("*")) == there
    assert sink.publish(Transaction("b"), staged)
    assert values(ram / "log") == wanted("a", "b")


# ---- staged files ------------------------------------------------------------------------------------------


def test_staged_files_are_copied_in_pieces(ram: Path) -> None:
    sink = Sink(ram / "log", kstore.LogConfig(max_message_bytes=4 << 20))
    rows = [*[b"%d" % i * 20_000 for i in range(100)], *[b"x" * (3 << 20)] * 1, b"last"]
    assert sink.publish(Transaction("a"), add(sink, "a", value=rows))
    assert [r.value for r in kstore.open(ram / "log" / "t-0")] == rows


DAMAGES = {
    "copied, bytes": ("copied", (-1, 1), "CORRUPT_BATCH: topic t, partition 1, file .*: CRC 0x"),
    "copied, a negative size": ("copied", (8, 0xFF), "CORRUPT_BATCH: topic t, partition 1, .*: a batch of -"),
    "copied, a large size": ("copied", (8, 0x7F), "CORRUPT_BATCH: topic t, partition 1, .*: a batch of 2"),
    "copied, cut": ("copied", None, r"STAGING_LOST: .*: \d+ bytes of \d+; nothing was written"),
    "moved, bytes": ("moved", (-1, 1), "CORRUPT_BATCH: topic t, partition 1, .*a/p0"),
    "moved, a size": ("moved", (8, 0x41), "CORRUPT_BATCH: topic t, partition 1, .*a/p0"),
    "moved, a header": ("moved", (30, 0x41), "CORRUPT_BATCH: topic t, partition 1, .*a/p0"),
    "moved, cut": ("moved", None, "STAGING_LOST: topic t, partition 1, .*a/p0"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_staged_files_that_the_disk_changed(ram: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been published then, and the job may be run again."""
    way, at, text = DAMAGES[name]
    sinks.ways(monkeypatch, way)
    sink = Sink(ram / "log")
    staged = [one for one in stage(sink, "a", tasks=1) if one.partition == 1]
    [file] = (Path(one.path, file.name) for one in staged for file in one.files)
    if at is None:
        os.truncate(file, file.stat().st_size - 1)
    else:
        flip(file, *at)
    with pytest.raises(SparkSourceError, match=f"KSTORE_{text}"):
        sink.publish(Transaction("a"), staged, counts=COUNTS)
    sink.discard(Transaction("a"), "a")
    assert not files_in(sink.staging)
    assert sink.publish(Transaction("a"), stage(sink, "b"), counts=COUNTS)
    assert values(ram / "log") == wanted("b")


def test_large_staged_files_are_moved(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very file becomes a segment, behind what is there; readers that were open before read on in it."""
    sinks.ways(monkeypatch, "moved")
    sink = Sink(ram / "log")
    with kstore.open(ram / "log" / "t-1", "a") as log:
        log.append(b"before")
    reader = kstore.open(ram / "log" / "t-1")
    assert len(list(reader)) == 1
    staged = stage(sink, "a")
    inodes = {Path(one.path, file.name).stat().st_ino for one in staged for file in one.files}
    assert sink.publish(Transaction("a"), staged, counts=COUNTS)
    assert inodes <= {path.stat().st_ino for path in (ram / "log").rglob("*.log")}
    assert values(ram / "log") == sorted([*wanted("a"), "before"])
    reader.refresh()
    assert [r.offset for r in reader] == list(range(31))
    assert not Path(sink.staging).exists()


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_staged_files_that_cannot_be_moved(ram: Path, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sinks.ways(monkeypatch, "moved")
    if kind == "CreateTime":

        def refused(*names: str) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr("os.link", refused)
    assert publish(Sink(ram / "log", kstore.LogConfig(message_timestamp_type=kind)), "a")
    assert values(ram / "log") == wanted("a")
    with kstore.open(ram / "log" / "t-0") as log:
        assert all(batch.producer_id >= 0 for batch in log.batches())


def test_files_of_a_task_that_are_removed_while_it_writes(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "log", kstore.LogConfig(internal_segment_bytes=1000))
    own = sink.stage("job", "p0", topic="t")
    for number in range(50):
        own.add(pa.RecordBatch.from_pydict({"value": [b"%d" % number * 50]}))
    min(Path(sink.staging).rglob("*.log")).unlink()
    with pytest.raises(SparkSourceError, match=r"KSTORE_(STAGING_LOST|IO): topic t, partition 0"):
        own.close()
    own.abandon()
    assert publish(sink, "job")


def test_no_attempt_gets_the_directory_of_another(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts count from 0 in every application, so the same names come again; a driver that was taken for
    dead aborts only what its own attempts have staged."""
    sink = Sink(ram / "log")
    first, second = stage(sink, "query-0"), stage(sink, "query-0")
    assert not {one.path for one in first} & {one.path for one in second}
    sink.discard(Transaction("query", 0), "query-0", first)
    assert not any(Path(one.path).exists() for one in first)
    assert sink.publish(Transaction("query", 0), second, counts=COUNTS)
    assert values(ram / "log") == wanted("query-0")
    monkeypatch.setattr("secrets.token_hex", lambda size: "same")
    [one, *_] = stage(sink, "query-1")
    with pytest.raises(SparkSourceError, match=r"KSTORE_IO: topic t, partition 0, .*File exists"):
        stage(sink, "query-1")
    assert Path(one.path).exists()


# ---- sweeping ----------------------------------------------------------------------------------------------


def test_what_is_staged_is_needed_until_it_is_published(ram: Path) -> None:
    sink = Sink(ram / "log", lock_wait=0)
    staged = stage(sink, "a")
    with kstore.open(ram / "log" / "t-1", "a"), pytest.raises(SparkSourceError, match=r"KSTORE_LOG_LOCKED"):
        sink.publish(Transaction("a"), staged, counts=COUNTS)
    sink.sweep()
    assert files_in(sink.staging)
    sink.discard(Transaction("a"), "a")
    assert not files_in(sink.staging)
    with pytest.raises(SparkSourceError, match=r"KSTORE_STAGING_LOST: .*file .*a/p0"):
        sink.publish(Transaction("a"), staged, counts=COUNTS)
    assert publish(sink, "b")
    stage(sink, "c")
    sink.sweep(0)
    assert not Path(sink.staging).exists()


def test_sweeping_leaves_what_is_being_written(ram: Path) -> None:
    """The time of a directory does not change while files in it are written."""
    sink = Sink(ram / "log")
    staged = {job: stage(sink, job) for job in ("running", "dead", "pending")}
    age(sink.staging, 8)
    killed_in_commit(sink, staged["pending"], Transaction("query", 0))
    Path(staged["running"][0].path, staged["running"][0].files[0].name).touch()
    for job in Path(sink.staging).iterdir():
        os.utime(job, (0, 0))
    with (ram / "log" / LOCK).open("a") as lock:  # another job is publishing: a sweep does not wait for it
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sink.sweep() == []
    assert [job.name for job in sink.sweep()] == ["dead"]
    assert sorted(path.name for path in Path(sink.staging).iterdir()) == ["pending", "running"]
    assert sink.recover()
    assert sink.publish(Transaction("running"), staged["running"], counts=COUNTS)
    assert values(ram / "log") == wanted("pending", "running")


def test_staging_in_a_directory_that_others_use(tmp_path: Path) -> None:
    """Nothing of theirs is ever swept, be it another log directory, another sink's staging, or the log
    itself."""
    shared = tmp_path / "shared"
    own, other = (Sink(shared / name / "log", staging=str(shared)) for name in ("a", "b"))
    assert publish(own, "job")
    assert publish(other, "job")
    (shared / "thesis").mkdir()
    (shared / "thesis" / "text").write_text("years of work")
    stage(other, "running")
    dead = stage(own, "dead")
    age(shared, 30)
    assert [job.name for job in own.sweep()] == ["dead"]
    assert not Path(dead[0].path).exists()
    assert [job.name for job in other.status().jobs] == ["running"]
    assert (shared / "thesis" / "text").exists()
    for sink in (own, other):
        assert values(Path(sink.root)) == wanted("job")


@pytest.mark.datasource
def test_what_a_living_job_has_staged_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it wrote its last row long ago, and no other task has written since."""
    pytest.importorskip("pyspark.sql.datasource")
    from pyspark import TaskContext
    from pyspark.sql.types import BinaryType, StructField, StructType

    from kstore.spark.writing import heartbeat

    monkeypatch.setattr(heartbeat, "BEAT_S", 0.01)  # a minute
    task = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 5)
    monkeypatch.setattr(TaskContext, "get", classmethod(lambda cls: task))
    source = kstore.spark.KStoreDataSource({"path": str(tmp_path / "log"), "topic": "t"})
    writer, sink = (
        source.writer(StructType([StructField("value", BinaryType())]), False),
        Sink(tmp_path / "log"),
    )
    swept: list[list[str]] = []

    def beats() -> None:
        """Until the directory of the job has been given a new time since it was old."""
        age(sink.staging, 8)
        [own] = (job for job in Path(sink.staging).iterdir() if job.name != "dead")
        until(lambda: own.stat().st_mtime > time.time() - 86_400)

    def rows() -> Any:
        yield pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
        stage(sink, "dead")
        for _ in range(3):
            beats()
            swept.append([job.name for job in sink.sweep()])
        yield pa.RecordBatch.from_pydict({"value": [b"c"]})

    message = writer.write(rows())
    assert swept == [["dead"], [], []]
    append = kstore.LogWriter.append_batches

    def slow(log: kstore.LogWriter, *arguments: Any) -> Any:
        beats()
        return append(log, *arguments)

    monkeypatch.setattr(kstore.LogWriter, "append_batches", slow)
    writer.commit([message])
    assert [r.value for r in kstore.open(tmp_path / "log" / "t-0")] == [b"a", b"b", b"c"]
    assert not any(thread.name == "kstore-heartbeat" for thread in threading.enumerate())
    assert not Path(sink.staging).exists()


# ---- other writers -----------------------------------------------------------------------------------------


def test_a_partition_that_another_program_writes_is_waited_for(tmp_path: Path) -> None:
    """Meanwhile none of the others is held, so two that want each other's do not wait in vain."""
    sink, root = Sink(tmp_path / "log"), tmp_path / "log"
    holder = kstore.open(root / "t-1", "a")
    staged, done = stage(sink, "job"), []
    with threads_doing(lambda: done.append(sink.publish(Transaction("job"), staged, counts=COUNTS))):
        until((root / "t-0").exists)  # it has begun to open the partitions
        kstore.open(root / "t-0", "a", wait=60).close()
        assert done == []
        holder.close()
    assert done == [True]
    assert values(root) == wanted("job")


def test_a_partition_that_stays_locked(tmp_path: Path) -> None:
    sink, root = Sink(tmp_path / "log", lock_wait=0.05), tmp_path / "log"
    staged = stage(sink, "job")
    with kstore.open(root / "t-1", "a"):
        with pytest.raises(SparkSourceError, match=r"KSTORE_LOG_LOCKED: topic t, partition 1"):
            sink.publish(Transaction("job"), staged, counts=COUNTS)
        kstore.open(root / "t-0", "a").close()
    assert sink.status().pending is None
    with (root / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SparkSourceError, match=r"KSTORE_LOG_LOCKED: .*still is after 0\.05 s"):
            sink.publish(Transaction("job"), staged, counts=COUNTS)
    assert not sink.published("job")
    assert sink.publish(Transaction("job"), staged, counts=COUNTS)
    assert sink.published("job")
    assert values(root) == wanted("job")


def test_a_lock_file_that_is_removed_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that waited does not go on beside the one that made the file again."""
    sink, lock = Sink(tmp_path), tmp_path / LOCK
    staged, flock, tries = stage(sink, "job"), fcntl.flock, []

    def tried(file: Any, how: int) -> None:
        tries.append(how)
        flock(file, how)

    with lock.open("a") as first:
        flock(first, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", tried)
        other = threading.Thread(target=lambda: sink.publish(Transaction("job"), staged))
        other.start()
        until(lambda: tries)
        lock.unlink()
        with lock.open("a") as second:
            flock(second, fcntl.LOCK_EX)
            first.close()
            before = len(tries)
            until(lambda: len(tries) > before + 2)
            assert not sink.published("job")
    other.join()
    assert sink.published("job")


def test_a_partition_that_gets_no_records_is_not_waited_for(tmp_path: Path) -> None:
    sink = Sink(tmp_path, lock_wait=0)
    sink.publish(Transaction("first"), add(sink, "first", value=["a", "b"]), counts={"t": 3})
    assert sink.counts() == {"t": 3}
    own = add(sink, "second", value=["a"], partition=pa.array([1], pa.int32()))
    (tmp_path / "t-3").mkdir()  # a program died as it made it
    with kstore.open(tmp_path / "t-0", "a"), kstore.open(tmp_path / "t-2", "a"):
        sink.publish(Transaction("second"), own, counts={"t": 5})
    assert sink.counts() == {"t": 5}
    found = ends(tmp_path, 5)
    assert (sum(found), found[3:]) == (3, [0, 0])


# ---- the journal -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 3}',
        '{"version": 2, "queries": []}',
        '{"version": 2, "jobs": 5}',
        '{"version": 2, "pending": {}}',
        '{"version": 2, "pending": {"transaction": ["a"], "staged": [[1]], "moved": {}, "marks": {}}}',
        '{"version": 2, "queries": {"q": [1, 2]}}',
        '{"a":' * 100_000,
    ],
)
def test_a_damaged_journal(tmp_path: Path, content: str) -> None:
    sink = Sink(tmp_path)
    staged = stage(sink, "job")
    (tmp_path / JOURNAL).write_text(content)
    calls = (
        sink.status,
        sink.recover,
        sink.forget,
        sink.sweep,
        lambda: sink.publish(Transaction("j"), staged),
    )
    for call in calls:
        with pytest.raises(SparkSourceError, match=f"KSTORE_CORRUPT_FILE: file .*{JOURNAL}: no journal"):
            call()
    assert not (tmp_path / "t-0").exists()
    (tmp_path / JOURNAL).unlink()
    (tmp_path / JOURNAL).mkdir()
    with pytest.raises(SparkSourceError, match=r"KSTORE_IO: file .*journal"):
        sink.status()


def test_the_journal_forgets_the_oldest_ids(ram: Path) -> None:
    """The last 1,000 jobs, and the last micro-batch of the 1,000 queries that published last, are
    remembered."""
    sink = Sink(ram / "log")
    names = [f"query {number}" for number in range(1000)]
    last = [3, {"t": 1}, ["digest", "offsets 1 to 2"]]
    content = {
        "version": 2,
        "queries": dict.fromkeys(names, last),
        "jobs": [f"job {number}" for number in range(1000)],
    }
    (ram / "log").mkdir()
    (ram / "log" / JOURNAL).write_text(json.dumps(content))
    assert publish(sink, "query 0", 4)
    assert publish(sink, "one more", 0)
    assert publish(sink, "job")
    found = sink.status()
    assert list(found.queries) == [*names[2:], "query 0", "one more"]
    assert found.queries["query 0"].number == 4
    assert found.queries["query 5"] == (3, {"t": 1}, ("digest", "offsets 1 to 2"))
    assert found.job_count == 1000
    assert [sink.published(name) for name in ("job 0", "job 1", "job")] == [False, True, True]
