"""A sink as its operators see it: locks are waited for, its state is told, and there is a way out of every state."""

import json
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.__main__ import main
from kstore.log.writer import LogWriter
from kstore.spark import publish
from kstore.spark.errors import SparkSourceError
from kstore.spark.publish import Sink, Transaction

pa = pytest.importorskip("pyarrow")


def stage(sink: Sink, job: str) -> list[Any]:
    own = sink.stage(job, "p0", topic="t", default_count=2)
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
    assert found.queries == {"query": 7}
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
    assert [job.name for job in sink.sweep()] == ["dead"]
    assert [job.name for job in sink.status().jobs] == ["broken", "running"]
    shutil.rmtree(staged[1].path)
    assert sink.status().not_staged == (f"{staged[1].path}/{staged[1].files[0].name}",)
    before = sink.status()
    assert sink.status() == before


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
    assert "staged: dead, " in run("--older-than", "0", "--sweep") or not Path(sink.staging, "dead").exists()
    assert run().startswith("pending: job broken, 2 records\nstaged: broken, ")
    assert json.loads(run("--json"))["pending"] == ["broken", None]
    shutil.rmtree(staged[1].path)
    assert "  not in staging: " in run()
    assert main(["sink", str(tmp_path / "log"), "--recover"]) == 1
    assert "KSTORE_STAGING_LOST" in capsys.readouterr().err
    with pytest.raises(SparkSourceError, match="KSTORE_STAGING_LOST"):
        sink.publish(Transaction("later"), stage(sink, "later"))
    run("--forget")
    assert "pending" not in run()
    assert sink.publish(Transaction("later"), stage(sink, "again"))
    assert ends(tmp_path / "log") == [2, 1]
    break_off(sink)
    assert "pending" not in run("--recover")
    assert ends(tmp_path / "log") == [3, 2]
    assert main(["sink", str(tmp_path / "log"), "--forget"]) == 0
    assert "no transaction to give up" in capsys.readouterr().err
    sink.publish(Transaction("query", 3), stage(sink, "query-3"))
    assert "published: micro-batch 3 of query query" in run()


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
