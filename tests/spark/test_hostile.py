"""What nobody should do to Spark's source and sink, and somebody will. Most without a session."""

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from kstore.spark import pack_splits, plan_splits, publish
from kstore.spark.errors import SparkSourceError
from kstore.spark.options import SinkOptions, SourceOptions
from kstore.spark.plan import Bounds
from kstore.spark.publish import JOURNAL, Sink, Transaction

pa = pytest.importorskip("pyarrow")
GIVEN = {"path": "/log", "subscribe": "t"}


def stage(sink: Sink, job: str, topic: str = "t", **columns: Any) -> list[Any]:
    own = sink.stage(job, "p0", topic=topic)
    own.add(pa.RecordBatch.from_pydict(columns or {"value": [b"a", b"b"]}))
    return list(own.close())


# ---- what a plan is asked for ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("log")
    with kstore.open(root / "t-0", "a", index_interval_bytes=1, internal_segment_bytes=2000) as log:
        for number in range(100):
            log.append(b"%d" % number)
    return root


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("starting", "first", "offsets is one of 'earliest', 'latest', not 'first'"),
        ("ending", "earliest", "endingOffsets is 'earliest', allowed are latest"),
        ("starting", {"t": {0: "1"}}, "topic t, partition 0: startingOffsets is an int, not '1'"),
        ("starting", {"t": {0: -3}}, "startingOffsets is from -2"),
        ("ending", {"t": {0: -2}}, "endingOffsets is -2, which is no end"),
        ("starting", Bounds(timestamp=2**70), "a timestamp is from 0"),
        ("starting", Bounds(timestamps={"t": {0: True}}), "startingOffsetsByTimestamp is an int, not True"),
        ("isolation", "committed", "isolation is one of 'read_uncommitted', 'read_committed'"),
        ("target_bytes", "1m", "target_bytes is an int, not '1m'"),
        ("target_bytes", None, "target_bytes is from 1"),
        ("min_partitions", 1.5, "minPartitions is an int, not 1.5"),
        ("max_records_per_partition", True, "maxRecordsPerPartition is an int, not True"),
    ],
)
def test_what_no_plan_can_mean(log: Path, name: str, value: Any, text: str) -> None:
    """Some of these read nothing, or something else, before."""
    with pytest.raises(SparkSourceError, match="KSTORE_INVALID_OPTION: ") as e:
        plan_splits(log, "t", **{name: value})
    assert text in str(e.value)


def test_more_partitions_than_there_are_batches(log: Path) -> None:
    for more in ({"min_partitions": 2**62}, {"target_bytes": 1}):
        splits = plan_splits(log, "t", **more)
        assert len(splits) == 100
        assert [split.start for split in splits] == list(range(100))
    with pytest.raises(SparkSourceError, match=r"KSTORE_INVALID_OPTION: parallelism is an int, not '4'"):
        pack_splits(splits, parallelism="4")  # type: ignore[arg-type]


def test_what_is_not_there_and_what_is(log: Path) -> None:
    with pytest.raises(SparkSourceError, match=r"KSTORE_TOPIC_NOT_FOUND: topic u, .*there are t$"):
        plan_splits(log, "u")
    text = rf"KSTORE_PATH_NOT_FOUND: file {log}/t-0: it is a partition; path is the log directory around it, {log},"
    with pytest.raises(SparkSourceError, match=text):
        plan_splits(log / "t-0", "t")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("startingOffsets", "first", "is no JSON .*, allowed are earliest, latest and JSON with offsets"),
        ("startingOffsets", '{"t": {"0": 1}, "t": {"0": 5}}', "a name is there twice"),
        ("startingOffsets", '{"t": {"0": 1, "00": 5}}', "partitions are numbers"),
        ("startingOffsets", '{"t": {"1_0": 1}}', "partitions are numbers"),
        ("startingOffsets", '{"t": {"\\u0663": 1}}', "partitions are numbers"),
        ("startingOffsets", '{"t": {"0": 9223372036854775808}}', "offsets and timestamps are numbers"),
        ("startingOffsets", '{"t": {"0": NaN}}', "offsets and timestamps are numbers"),
        ("startingOffsets", '{"t":' * 100_000, "is no JSON"),
        ("startingTimestamp", "9999999999999999999", "allowed is an integer from 0 to 9223372036854775807"),
        ("topic", "t", "topic is an option of the writer; what to read, subscribe says"),
    ],
)
def test_options_of_the_reader(name: str, value: str, text: str) -> None:
    with pytest.raises(SparkSourceError, match=f"KSTORE_INVALID_OPTION: .*{text}") as e:
        SourceOptions.of(GIVEN | {name: value}, stream=False)
    assert len(str(e.value)) < 1000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "t"}, "path is missing: the log directory to write in"),
        ({"path": "/log", "subscribe": "t"}, "an option of the reader; where to write, topic says"),
        ({"path": "/log", "topic": "a/b"}, "topic is 'a/b', which is no name of a topic"),
        ({"path": "/log", "topic": "t", "txnId": " "}, "txnId is empty"),
        (
            {"path": "/log", "topic": "t", "kstore.compression.type": "none"},
            "compression.type is .none., allowed is .*none is called uncompressed here",
        ),
    ],
)
def test_options_of_the_writer(options: dict[str, str], text: str) -> None:
    with pytest.raises(SparkSourceError, match=f"KSTORE_INVALID_OPTION: .*{text}"):
        SinkOptions.of(options)


# ---- what a sink meets ----------------------------------------------------------------------------------------------


def test_a_topic_of_a_store_keeps_its_configuration(tmp_path: Path) -> None:
    """Staged records are what the topic takes; what the writer is given counts before it."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 2, message_timestamp_type="LogAppendTime", compression_type="zstd")
        store.create_topic("c", 1, cleanup_policy="compact")
    with kstore.open(tmp_path / "alone" / "t-0", "a", compression_type="lz4"):
        pass
    values = [b"value" * 20] * 50
    times = pa.array([1_000_000] * 50, pa.timestamp("us", "UTC"))
    sink = Sink(tmp_path)
    sink.publish(Transaction("one"), stage(sink, "one", value=values, timestamp=times))
    given = Sink(tmp_path, kstore.LogConfig(compression_type="gzip", message_timestamp_type="CreateTime"))
    given.publish(Transaction("two"), stage(given, "two", value=values, timestamp=times))
    for partition in (0, 1):
        with kstore.open(tmp_path / f"t-{partition}") as log:
            assert [batch.codec for batch in log.batches()] == ["zstd", "gzip"]
            records = list(log)
            assert len(records) == 50
            assert [record.timestamp == 1000 for record in records] == [False] * 25 + [True] * 25
    alone = Sink(tmp_path / "alone")
    alone.publish(Transaction("one"), stage(alone, "one", value=values))
    assert [batch.codec for batch in kstore.open(tmp_path / "alone" / "t-0").batches()] == ["lz4"]
    with pytest.raises(SparkSourceError, match=r"KSTORE_INVALID_RECORD: topic c, .*no key"):
        stage(sink, "three", "c", value=values)


def test_a_transaction_that_broke_off_ends_with_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an option that is the default, where the topic has another."""
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 1, message_timestamp_type="LogAppendTime")
    sink = Sink(tmp_path, kstore.LogConfig(message_timestamp_type="CreateTime"))
    times = pa.array([1_000_000], pa.timestamp("us", "UTC"))
    staged = stage(sink, "one", value=[b"v"], timestamp=times)
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(publish.Transfer, "take", lambda self, one: os._exit(9))
        sink.publish(Transaction("one"), staged)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert Sink(tmp_path).recover()
    assert [record.timestamp for record in kstore.open(tmp_path / "t-0")] == [1000]


def test_staging_in_a_directory_that_others_use(tmp_path: Path) -> None:
    """Nothing of theirs is ever swept, be it another log directory, another sink's staging, or the log itself."""
    shared = tmp_path / "shared"
    sinks = [Sink(shared / name / "log", staging=str(shared)) for name in ("a", "b")]
    for sink in sinks:
        sink.publish(Transaction("job"), stage(sink, "job"))
    (shared / "thesis").mkdir()
    (shared / "thesis" / "text").write_text("years of work")
    stage(sinks[1], "running")
    dead = stage(sinks[0], "dead")
    old = time.time() - 30 * 86_400
    for path in shared.rglob("*"):
        os.utime(path, (old, old))
    assert [job.name for job in sinks[0].sweep()] == ["dead"]
    assert not Path(dead[0].path).exists()
    assert [job.name for job in sinks[1].status().jobs] == ["running"]
    assert (shared / "thesis" / "text").exists()
    for sink in sinks:
        assert kstore.open(Path(sink.root, "t-0")).log_end_offset == 2


@pytest.mark.parametrize("which", ["all", "the first"])
def test_files_of_a_task_that_are_removed_while_it_writes(tmp_path: Path, which: str) -> None:
    """The task fails, and Spark runs it again; before, the commit failed, and the sink was blocked."""
    sink = Sink(tmp_path / "log", kstore.LogConfig(internal_segment_bytes=1000))
    own = sink.stage("job", "p0", topic="t")
    for number in range(50):
        own.add(pa.RecordBatch.from_pydict({"value": [b"%d" % number * 50]}))
    files = sorted(Path(sink.staging).rglob("*.log"))
    assert len(files) > 2
    for file in files if which == "all" else files[:1]:
        file.unlink()
    with pytest.raises(SparkSourceError, match=r"KSTORE_(STAGING_LOST|IO): topic t, partition 0"):
        own.close()
    own.abandon()
    assert sink.publish(Transaction("job"), stage(sink, "job"))
    assert kstore.open(tmp_path / "log" / "t-0").log_end_offset == 2


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
def test_a_journal_that_is_none(tmp_path: Path, content: str) -> None:
    sink = Sink(tmp_path)
    staged = stage(sink, "job")
    (tmp_path / JOURNAL).write_text(content)
    for ask in (
        sink.status,
        sink.recover,
        sink.forget,
        sink.sweep,
        lambda: sink.publish(Transaction("job"), staged),
    ):
        with pytest.raises(SparkSourceError, match=f"KSTORE_CORRUPT_FILE: file .*{JOURNAL}: no journal"):
            ask()
    assert not (tmp_path / "t-0").exists()


def test_a_partition_is_no_log_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kstore.open(tmp_path / "t-0", "a").close()
    before = sorted(tmp_path.rglob("*"))
    sink = Sink(tmp_path / "t-0")
    for ask in (sink.status, sink.counts, lambda: sink.stage("job", "p0")):
        with pytest.raises(SparkSourceError, match=r"KSTORE_PATH_NOT_FOUND: .*it is a partition"):
            ask()
    assert main(["sink", str(tmp_path / "t-0")]) == 1
    assert "it is a partition" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    assert main(["sink", str(tmp_path)]) == 0
    found = capsys.readouterr()
    assert (found.out, "nothing" in found.err) == ("", True)


def test_a_partition_that_gets_no_records_is_not_waited_for(tmp_path: Path) -> None:
    """Whatever another program does there; and a topic of many partitions is not opened as a whole."""
    sink = Sink(tmp_path, lock_wait=0)
    sink.publish(Transaction("first"), stage(sink, "first"), counts={"t": 3})
    assert sink.counts() == {"t": 3}
    own = sink.stage("second", "p0", topic="t")
    own.add(pa.RecordBatch.from_pydict({"value": ["a"], "partition": pa.array([1], pa.int32())}))
    (tmp_path / "t-3").mkdir()  # somebody died as it was made
    with kstore.open(tmp_path / "t-0", "a"), kstore.open(tmp_path / "t-2", "a"):
        sink.publish(Transaction("second"), own.close(), counts={"t": 5})
    assert sink.counts() == {"t": 5}
    ends = [kstore.open(tmp_path / f"t-{number}").log_end_offset for number in range(5)]
    assert (sum(ends), ends[3:]) == (3, [0, 0])


def test_a_lock_file_that_is_removed_while_it_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waited does not go on beside the one that made it anew."""
    sink, waits = Sink(tmp_path), threading.Event()
    staged = stage(sink, "job")
    sleep = time.sleep

    def sleeps(seconds: float) -> None:
        waits.set()
        sleep(seconds)

    monkeypatch.setattr(publish.time, "sleep", sleeps)
    other = threading.Thread(target=lambda: sink.publish(Transaction("job"), staged))
    with sink._locked():
        other.start()
        waits.wait()
        (tmp_path / publish.LOCK).unlink()
        again = sink._locked()
        again.__enter__()
    other.join(0.5)
    assert other.is_alive()
    assert not sink.published("job")
    again.__exit__(None, None, None)
    other.join()
    assert sink.published("job")


@pytest.mark.parametrize(
    "columns",
    [
        {"headers": [[{"key": None, "value": b"v"}]]},
        {"timestamp": pa.array([-5_000_000], pa.timestamp("us", "UTC"))},
        {"partition": pa.array([-1], pa.int32())},
        {"partition": pa.array([2**31 - 1], pa.int32())},
        {"topic": ["../t"]},
        {"topic": [None]},
    ],
)
def test_rows_that_are_no_records(tmp_path: Path, columns: dict[str, Any]) -> None:
    sink = Sink(tmp_path / "log")
    own = sink.stage("job", "p0", topic=None if "topic" in columns else "t")
    with pytest.raises(SparkSourceError, match="KSTORE_INVALID_RECORD: "):
        own.add(pa.RecordBatch.from_pydict({"value": [b"v"]} | columns))
    own.abandon()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_two_jobs_of_one_name_at_once(tmp_path: Path) -> None:
    """One of them is published."""
    sinks = [Sink(tmp_path / "log") for _ in range(8)]
    staged = [stage(sink, f"run {at}") for at, sink in enumerate(sinks)]
    done: list[bool] = []

    def publish(sink: Sink, own: list[Any]) -> None:
        done.append(sink.publish(Transaction("job"), own))

    threads = [threading.Thread(target=publish, args=pair) for pair in zip(sinks, staged, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False] * 7 + [True]
    assert kstore.open(tmp_path / "log" / "t-0").log_end_offset == 2


# ---- what a listener meets ------------------------------------------------------------------------------------------


@pytest.mark.datasource
def test_a_listener_of_what_is_not_there(tmp_path: Path) -> None:
    lag = pytest.importorskip("kstore.spark.lag")
    with pytest.raises(SparkSourceError, match=r"KSTORE_PATH_NOT_FOUND: .*no log directory there"):
        lag.LagListener(tmp_path / "none")
    for given in (None, tmp_path):
        with pytest.raises(SparkSourceError, match="KSTORE_INVALID_OPTION: isolation is one of"):
            lag.LagListener(given, isolation="committed")


@pytest.mark.datasource
def test_a_listener_of_what_sources_say(tmp_path: Path) -> None:
    """Whatever another source gives as its offsets, the listener does not fail, for Spark would leave it out."""
    lag = pytest.importorskip("kstore.spark.lag")
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 5)
    wide = json.dumps({"t": {"0": 2**63, "1": -1, "2": True}})
    for text in (
        None,
        "",
        "null",
        "5",
        "[1]",
        '{"t":' * 100_000,
        '{"t": {"x": 1}}',
        '{"a/b": {"0": 1}}',
        wide,
    ):
        source = SimpleNamespace(description="", endOffset=text, latestOffset=text)
        good = SimpleNamespace(description="", endOffset='{"t": {"0": 2}}', latestOffset='{"t": {"0": 5}}')
        for given in (None, tmp_path):
            listener = lag.LagListener(given)
            progress = SimpleNamespace(id="i", name=None, batchId=1, timestamp="now", sources=[source, good])
            listener.onQueryProgress(SimpleNamespace(progress=progress))
            found = listener.queries["i"].partitions
            is_known = given is not None or lag._ENDS_REPORTED
            assert found["t", 0].offsets == (3 if is_known else None)
            assert listener.prometheus()
