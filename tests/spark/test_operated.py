"""A sink as its operators see it: locks are waited for, its state is told, and there is a way out of every state."""

import json
import os
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from kstore.log.writer import LogWriter
from kstore.spark import publish
from kstore.spark.checkpoint import source_of
from kstore.spark.errors import SparkSourceError
from kstore.spark.publish import Sink, Transaction

pa = pytest.importorskip("pyarrow")


def stage(sink: Sink, job: str, topic: str = "t") -> list[Any]:
    own = sink.stage(job, "p0", topic=topic, default_count=2)
    own.add(pa.RecordBatch.from_pydict({"value": ["a", "b"], "partition": pa.array([0, 1], pa.int32())}))
    return list(own.close())


def ends(root: Path) -> list[int]:
    return [kstore.open(root / f"t-{p}").log_end_offset for p in (0, 1)]


def break_off(sink: Sink) -> list[Any]:
    """A driver dies after the first partition's records."""
    staged = stage(sink, "broken")

    def dies(self: Any, one: Any) -> None:
        if one.partition == 1:
            os._exit(9)
        take(self, one)

    take = publish.Transfer.take
    child = os.fork()
    if child == 0:
        try:
            publish.Transfer.take = dies  # type: ignore[method-assign]
            sink.publish(Transaction("broken"), staged, counts={"t": 2})
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    return staged


def test_a_partition_that_another_program_has_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile none of the others is held, so two that want each other's do not wait in vain."""
    sink = Sink(tmp_path / "log")
    holder = kstore.open(tmp_path / "log" / "t-1", "a")
    refused = threading.Event()
    free: list[bool] = []
    make = publish.LogWriter

    def opened(path: str, *args: Any) -> LogWriter:
        try:
            return make(path, *args)
        except kstore.LogLockedError:
            refused.set()
            raise

    def lets_go() -> None:
        refused.wait()
        kstore.open(tmp_path / "log" / "t-0", "a", wait=60).close()
        free.append(True)
        holder.close()

    monkeypatch.setattr(publish, "LogWriter", opened)
    other = threading.Thread(target=lets_go)
    other.start()
    assert sink.publish(Transaction("job"), stage(sink, "job"), counts={"t": 2})
    other.join()
    assert free
    assert ends(tmp_path / "log") == [1, 1]


def test_a_partition_that_stays_locked(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "log", lock_wait=0.05)
    staged = stage(sink, "job")
    with kstore.open(tmp_path / "log" / "t-1", "a"):
        with pytest.raises(SparkSourceError, match=r"KSTORE_LOG_LOCKED: topic t, partition 1"):
            sink.publish(Transaction("job"), staged, counts={"t": 2})
        kstore.open(tmp_path / "log" / "t-0", "a").close()
    assert sink.status().pending is None
    with (
        sink._locked(),
        pytest.raises(SparkSourceError, match=r"KSTORE_LOG_LOCKED: .*still is after 0\.05 s"),
    ):
        sink.publish(Transaction("job"), staged, counts={"t": 2})
    assert not sink.published("job")
    assert sink.publish(Transaction("job"), staged, counts={"t": 2})
    assert sink.published("job")
    assert ends(tmp_path / "log") == [1, 1]
    for wrong in (-1, "1", float("nan")):
        with pytest.raises((TypeError, ValueError), match="lock_wait"):
            Sink(tmp_path, lock_wait=wrong)  # type: ignore[arg-type]


def test_status(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "log")
    with pytest.raises(SparkSourceError, match="KSTORE_PATH_NOT_FOUND"):
        sink.status()
    sink.publish(Transaction("query", 7), stage(sink, "query-7"), counts={"t": 2})
    staged = break_off(sink)
    stage(sink, "dead")
    stage(sink, "running")
    old = time.time() - 8 * 86_400
    for path in [Path(sink.staging, "dead"), *Path(sink.staging, "dead").rglob("*")]:
        os.utime(path, (old, old))
    found = sink.status()
    assert (found.pending, found.record_count, found.not_staged) == (Transaction("broken"), 2, ())
    assert found.queries == {"query": (7, {"t": 2}, None)}
    assert found.in_logs == {"t-0": 1, "t-1": 0}
    assert [(job.name, job.fate) for job in found.jobs] == [
        ("broken", "pending"),
        ("dead", "swept"),
        ("running", "running"),
    ]
    for job in found.jobs:
        assert job.size == sum(
            p.stat().st_size for p in Path(sink.staging, job.name).rglob("*") if p.is_file()
        )
    assert found.jobs[1].written == pytest.approx(old)
    assert [job.fate for job in sink.status(1e9).jobs] == ["pending", "running", "running"]
    assert "no task has written there for 6912" in found.jobs[1].reason
    assert [job.name for job in sink.sweep(dry_run=True)] == ["dead"]
    assert len(sink.status().jobs) == 3
    assert [job.name for job in sink.sweep()] == ["dead"]
    assert [job.name for job in sink.status().jobs] == ["broken", "running"]
    shutil.rmtree(staged[1].path)
    assert sink.status().not_staged == (f"{staged[1].path}/{staged[1].files[0].name}",)
    before = sink.status()
    assert sink.status() == before
    with kstore.open(tmp_path / "log" / "t-0", "a") as log:
        log.truncate_to(0)
    assert sink.status().in_logs == {"t-0": None, "t-1": 0}  # its mark is gone: nobody can tell
    for ask in (sink.status, sink.sweep):
        with pytest.raises(ValueError, match="older_than_s"):
            ask(-1)


def test_what_a_living_job_has_staged_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it wrote its last row long ago, and no other task has written since."""
    pytest.importorskip("pyspark.sql.datasource")
    from pyspark.sql.types import BinaryType, StructField, StructType

    from kstore.spark import heartbeat
    from kstore.spark import sink as writers

    monkeypatch.setattr(heartbeat, "BEAT_S", 0.01)
    task = SimpleNamespace(partitionId=lambda: 0, taskAttemptId=lambda: 5)
    monkeypatch.setattr(writers, "TaskContext", SimpleNamespace(get=lambda: task))
    given = {"path": str(tmp_path / "log"), "topic": "t"}
    writer = writers.batch_writer(given, StructType([StructField("value", BinaryType())]), overwrite=False)
    sink, old = Sink(tmp_path / "log"), time.time() - 8 * 86_400
    own = Path(sink.job_directory(writer.job))
    swept: list[list[str]] = []

    def age() -> None:
        for path in [*Path(sink.staging).rglob("*")]:
            os.utime(path, (old, old))

    def rows() -> Any:
        yield pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
        stage(sink, "dead")
        for _ in range(3):
            age()
            _until(lambda: own.stat().st_mtime > old + 1)
            swept.append([job.name for job in sink.sweep()])
        yield pa.RecordBatch.from_pydict({"value": [b"c"]})

    message = writer.write(rows())
    assert not any(thread.name == "kstore-heartbeat" for thread in threading.enumerate())
    assert swept == [["dead"], [], []]
    take = publish.Transfer.take

    def slow(self: Any, one: Any) -> None:
        age()
        _until(lambda: own.stat().st_mtime > old + 1)
        take(self, one)

    monkeypatch.setattr(publish.Transfer, "take", slow)
    writer.commit([message])
    assert kstore.open(tmp_path / "log" / "t-0").log_end_offset == 3
    assert not any(thread.name == "kstore-heartbeat" for thread in threading.enumerate())
    assert not Path(sink.staging).exists()
    stage(sink, "dead", "u")
    age()
    assert [job.name for job in sink.sweep()] == ["dead"]


def _until(true: Any) -> None:
    while not true():  # pytest-timeout ends it
        time.sleep(0.005)


def test_what_the_checkpoint_says_of_the_input(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "6").write_text('v1\n{"batchWatermarkMs":0}\n{"in":{"0":200}}')
    (offsets / "7").write_text('v1\n{"batchWatermarkMs":0}\n{"in":{"0":400}}')
    (offsets / "9").write_text('v1\n{}\n{"in":{"0":5}}\n-')
    (offsets / "10").write_text("v1\n{}\n" + "9" * 2000)
    (offsets / "11").write_text("")
    (offsets / "12").write_bytes(b"v1\n\n\xff")
    assert source_of(None, 7) is None
    assert source_of(str(tmp_path), 8) is None
    found = [source_of(str(tmp_path), number) for number in (7, 6, 9, 10, 11, 12)]
    ranges = [one.range for one in found if one is not None]
    assert ranges[:3] == [
        'offsets {"in":{"0":200}} to {"in":{"0":400}}',
        'offsets up to {"in":{"0":200}}',
        'offsets up to {"in":{"0":5}} and -',
    ]
    assert len(ranges[3]) == 501
    assert ranges[4] == ""
    assert len({one.digest for one in found if one is not None}) == 6


def test_a_journal_that_cannot_be_read(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "log")
    (tmp_path / "log" / publish.JOURNAL).mkdir(parents=True)
    for ask in (sink.status, lambda: sink.published("job")):
        with pytest.raises(SparkSourceError, match=r"KSTORE_IO: file .*journal"):
            ask()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lost staged files block the sink, and the command gives the transaction up."""

    def run(*more: str) -> str:
        assert main(["sink", str(tmp_path / "log"), *more]) == 0
        return capsys.readouterr().out

    assert main(["sink", str(tmp_path / "none")]) == 1
    assert "KSTORE_PATH_NOT_FOUND" in capsys.readouterr().err
    sink = Sink(tmp_path / "log")
    staged = break_off(sink)
    stage(sink, "dead")
    before = sorted(tmp_path.rglob("*"))
    assert run("--older-than", "0", "--sweep", "--dry-run").startswith("would be swept: dead, ")
    assert sorted(tmp_path.rglob("*")) == before
    assert run("--older-than", "0", "--sweep").startswith("swept: dead, ")
    assert not Path(sink.staging, "dead").exists()
    assert run().startswith(
        "pending: job broken, 2 records\n  in t-0 already: 1\n  in t-1 already: 0\nstaged: broken, "
    )
    told = json.loads(run("--json"))
    assert told["pending"] == {"name": "broken", "number": None}
    assert told["in_logs"] == {"t-0": 1, "t-1": 0}
    assert [job["fate"] for job in told["jobs"]] == ["pending"]
    assert main(["sink", str(tmp_path / "log"), "--dry-run"]) == 2
    assert "--dry-run goes with" in capsys.readouterr().err
    shutil.rmtree(staged[1].path)
    assert "  not in staging: " in run()
    assert main(["sink", str(tmp_path / "log"), "--recover"]) == 1
    assert "KSTORE_STAGING_LOST" in capsys.readouterr().err
    with pytest.raises(SparkSourceError, match="KSTORE_STAGING_LOST"):
        sink.publish(Transaction("later"), stage(sink, "later"))
    would = "job broken, 2 records, of which are in the logs already: 1 in t-0, 0 in t-1\n"
    assert run("--forget", "--dry-run") == f"would be given up: {would}"
    assert run("--recover", "--dry-run") == f"would be finished: {would}"
    assert run().startswith("pending")
    assert run("--forget").startswith(f"given up: {would}")
    assert "pending" not in run()
    assert sink.publish(Transaction("later"), stage(sink, "again"))
    assert ends(tmp_path / "log") == [2, 1]
    break_off(sink)
    assert run("--recover").startswith("finished: job broken, 2 records")
    assert "pending" not in run()
    assert ends(tmp_path / "log") == [3, 2]
    assert main(["sink", str(tmp_path / "log"), "--forget"]) == 0
    assert "no transaction to give up" in capsys.readouterr().err
    sink.publish(Transaction("query", 3), stage(sink, "query-3"))
    source = publish.Source("digest", "offsets 5 to 9")
    sink.publish(Transaction("query", 4), stage(sink, "query-4"), source=source)
    assert "published: micro-batch 4 of query query (offsets 5 to 9)\npublished: 2 batch jobs\n" in run()


@pytest.mark.spark
@pytest.mark.datasource
def test_a_job_that_was_published_is_refused_before_it_runs(spark: Any, tmp_path: Path) -> None:
    from kstore.spark.datasource import register

    ran = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            ran.add(1)
            yield batch

    def write(**more: str) -> None:
        rows = spark.range(9).selectExpr("cast(id as string) as value").mapInArrow(count, "value string")
        options = {"path": str(tmp_path / "out"), "topic": "t", "txnId": "one", "lockWait": "5s"} | more
        rows.write.format("kstore").mode("append").options(**options).save()

    register(spark)
    write(ifPublished="error")
    once = ran.value
    assert once > 0
    with pytest.raises(Exception, match=r"KSTORE_PUBLISHED: .*txnId one was published before"):
        write(ifPublished="error")
    assert ran.value == once
    write()
    assert kstore.open(tmp_path / "out" / "t-0").log_end_offset == 9
    assert Sink(tmp_path / "out").status().jobs == ()
    with pytest.raises(Exception, match=r"KSTORE_INVALID_OPTION: ifPublished is 'no'"):
        write(ifPublished="no")
