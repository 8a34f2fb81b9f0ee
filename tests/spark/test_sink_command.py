"""A sink as its operators see it: Sink.status() and `kstore sink` show its state, and a way out of every
state."""

import json
import shutil
import time
from pathlib import Path

import pytest

import kstore
from kstore.__main__ import main
from kstore.spark import Sink, Source, SparkSourceError, Transaction
from tests.spark.sinks import COUNTS, age, killed_in_commit, stage

BROKEN = Transaction("broken")


def ends(root: Path) -> list[int]:
    return [kstore.open(root / f"t-{p}").log_end_offset for p in (0, 1)]


def test_status(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "log")
    with pytest.raises(SparkSourceError, match="KSTORE_PATH_NOT_FOUND"):
        sink.status()
    sink.publish(Transaction("query", 7), stage(sink, "query-7"), counts=COUNTS)
    staged = stage(sink, "broken")
    killed_in_commit(sink, staged, BROKEN)
    stage(sink, "dead")
    stage(sink, "running")
    age(Path(sink.staging, "dead"), 8)
    found = sink.status()
    assert (found.pending, found.record_count, found.not_staged) == (BROKEN, 60, ())
    assert found.queries == {"query": (7, {"t": 60}, None)}
    assert found.in_logs == {"t-0": 30, "t-1": 15}
    fates = [("broken", "pending"), ("dead", "swept"), ("running", "running")]
    assert [(job.name, job.fate) for job in found.jobs] == fates
    for job in found.jobs:
        files = [path for path in Path(sink.staging, job.name).rglob("*") if path.is_file()]
        assert job.size == sum(path.stat().st_size for path in files)
    assert found.jobs[1].written == pytest.approx(time.time() - 8 * 86_400, abs=3600)
    assert [job.fate for job in sink.status(1e9).jobs] == ["pending", "running", "running"]
    assert "no task has written there for 69" in found.jobs[1].reason
    assert [job.name for job in sink.sweep(dry_run=True)] == ["dead"]
    assert len(sink.status().jobs) == 3
    assert [job.name for job in sink.sweep()] == ["dead"]
    assert [job.name for job in sink.status().jobs] == ["broken", "running"]
    shutil.rmtree(staged[1].path)
    assert sink.status().not_staged == (f"{staged[1].path}/{staged[1].files[0].name}",)
    assert sink.status() == sink.status()
    with kstore.open(tmp_path / "log" / "t-0", "a") as log:
        log.truncate_to(0)
    assert sink.status().in_logs == {"t-0": None, "t-1": 15}  # what it is counted from is gone


def test_a_partition_is_no_log_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kstore.open(tmp_path / "t-0", "a").close()
    before = sorted(tmp_path.rglob("*"))
    sink = Sink(tmp_path / "t-0")
    for call in (sink.status, sink.counts, lambda: sink.stage("job", "p0")):
        with pytest.raises(SparkSourceError, match=r"KSTORE_PATH_NOT_FOUND: .*it is a partition"):
            call()
    assert main(["sink", str(tmp_path / "t-0")]) == 1
    assert "it is a partition" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
    assert main(["sink", str(tmp_path)]) == 0
    found = capsys.readouterr()
    assert (found.out, "nothing" in found.err) == ("", True)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "log"

    def run(*more: str) -> str:
        assert main(["sink", str(root), *more]) == 0
        return capsys.readouterr().out

    assert main(["sink", str(tmp_path / "none")]) == 1
    assert "KSTORE_PATH_NOT_FOUND" in capsys.readouterr().err
    sink = Sink(root)
    staged = stage(sink, "broken")
    killed_in_commit(sink, staged, BROKEN)
    stage(sink, "dead")
    before = sorted(tmp_path.rglob("*"))
    assert run("--older-than", "0", "--sweep", "--dry-run").startswith("would be swept: dead, ")
    assert sorted(tmp_path.rglob("*")) == before
    assert run("--older-than", "0", "--sweep").startswith("swept: dead, ")
    assert not Path(sink.staging, "dead").exists()
    assert run().startswith(
        "pending: job broken, 60 records\n  in t-0 already: 30\n  in t-1 already: 15\nstaged: broken, "
    )
    found = json.loads(run("--json"))
    assert found["pending"] == {"name": "broken", "number": None}
    assert found["in_logs"] == {"t-0": 30, "t-1": 15}
    assert [job["fate"] for job in found["jobs"]] == ["pending"]
    assert main(["sink", str(root), "--dry-run"]) == 2
    assert "--dry-run goes with" in capsys.readouterr().err

    shutil.rmtree(staged[3].path)
    assert "  not in staging: " in run()
    assert main(["sink", str(root), "--recover"]) == 1
    assert "KSTORE_STAGING_LOST" in capsys.readouterr().err
    with pytest.raises(SparkSourceError, match="KSTORE_STAGING_LOST"):
        sink.publish(Transaction("later"), stage(sink, "later"))
    would = "job broken, 60 records, of which are in the logs already: 30 in t-0, 15 in t-1\n"
    assert run("--forget", "--dry-run") == f"would be given up: {would}"
    assert run("--recover", "--dry-run") == f"would be finished: {would}"
    assert run().startswith("pending")
    assert run("--forget").startswith(f"given up: {would}")
    assert "pending" not in run()
    assert sink.publish(Transaction("later"), stage(sink, "again"))
    assert ends(root) == [60, 45]

    killed_in_commit(sink, stage(sink, "broken"), BROKEN)
    assert run("--recover").startswith("finished: job broken, 60 records")
    assert "pending" not in run()
    assert ends(root) == [90, 75]
    assert main(["sink", str(root), "--forget"]) == 0
    assert "no transaction to give up" in capsys.readouterr().err
    source = Source("digest", "offsets 5 to 9")
    sink.publish(Transaction("query", 4), stage(sink, "query-4"), source=source)
    assert "published: micro-batch 4 of query query (offsets 5 to 9)\npublished: 2 batch jobs\n" in run()


def test_a_lost_partition_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records with a key must not go to another partition because the last one is lost."""
    with kstore.LogStore(tmp_path / "log", mode="a") as store:
        store.create_topic("t", 3)
        store.create_topic("u")
    for name in ("t-2", "u-0"):
        shutil.rmtree(tmp_path / "log" / name)
    assert Sink(tmp_path / "log").counts() == {"t": 3, "u": 1}
    assert main(["sink", str(tmp_path / "log")]) == 0
    assert "nothing is pending" in capsys.readouterr().err
