"""A transaction that broke off is finished exactly, whatever clocks and timestamps say and whoever came between."""

import functools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.engine.io.file import calls_made, fail_call
from kstore.spark import publish, transfer
from kstore.spark.errors import SparkSourceError
from kstore.spark.journal import REMEMBERED_JOBS, REMEMBERED_QUERIES, Journal, LastBatch
from kstore.spark.publish import JOURNAL, Sink, Source, Transaction
from kstore.spark.staging import Staged

pa = pytest.importorskip("pyarrow")
HOUR_MS = 3_600_000
ROWS = 40


@pytest.fixture
def ram() -> Iterator[Path]:
    """A directory in memory, where the system has such."""
    shm = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=["copied", "moved"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether batches of staged files are copied, or the files renamed."""
    if request.param == "moved":
        monkeypatch.setattr(transfer, "_LARGE", 0)
    return str(request.param)


def stage(
    sink: Sink, job: str = "query-0", *, age_h: int = 0, tasks: int = 2, rows: int = ROWS
) -> list[Staged]:
    """Rows 0, 1 … of each task, in two partitions."""
    at = (int(time.time() * 1000) - age_h * HOUR_MS) * 1000
    staged: list[Staged] = []
    for task in range(tasks):
        own = sink.stage(job, f"p{task:05d}-t{task}", topic="t", default_count=2, task=task)
        names = [f"{task}-{i}" for i in range(rows)]
        own.add(
            pa.RecordBatch.from_pydict(
                {
                    "value": names,
                    "partition": pa.array([i % 2 for i in range(rows)], pa.int32()),
                    "timestamp": pa.array([at] * rows, pa.timestamp("us", tz="UTC")),
                }
            )
        )
        staged += own.close()
    return staged


def values(root: Path) -> list[str]:
    found: list[str] = []
    for partition in (0, 1):
        with kstore.open(root / f"t-{partition}") as log:
            found += [(r.value or b"").decode() for r in log]
    return sorted(found)


WANTED = sorted(f"{task}-{i}" for task in range(2) for i in range(ROWS))
FIRST = Transaction("query", 0)


def dies(sink: Sink, staged: list[Staged], transaction: Transaction = FIRST, **options: Any) -> None:
    """The driver is killed in the commit: one of partition 1's two staged logs is published, nothing after it."""
    child = os.fork()
    if child == 0:
        taken, take = [], transfer.Transfer.take

        def killed(self: Any, one: Staged) -> None:
            taken.append(one.partition)
            if taken.count(1) == 2:
                os._exit(9)
            take(self, one)

        try:
            transfer.Transfer.take = killed  # type: ignore[method-assign]
            sink.publish(transaction, staged, counts={"t": 2}, **options)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_no_attempt_gets_the_directory_of_another(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts count from 0 in every application, so the same names come again."""
    sink = Sink(ram / "log")
    first, second = stage(sink), stage(sink)
    assert not {one.path for one in first} & {one.path for one in second}
    assert [one.record_count for one in first] == [one.record_count for one in second] == [ROWS // 2] * 4
    assert sink.publish(FIRST, second, counts={"t": 2})
    assert values(ram / "log") == WANTED
    monkeypatch.setattr("secrets.token_hex", lambda size: "same")
    [one, *_] = stage(sink, "query-1")
    own = sink.stage("query-1", "p00000-t0", topic="t")
    with pytest.raises(SparkSourceError, match=r"KSTORE_IO: topic t, partition 0, .*File exists"):
        own.add(pa.RecordBatch.from_pydict({"value": ["v"]}))
    own.abandon()
    assert Path(one.path).exists()


@pytest.mark.parametrize("age_h", [0, 25, 24 * 30])
@pytest.mark.parametrize("later_h", [0, 25])
def test_killed_in_the_commit(
    ram: Path, way: str, age_h: int, later_h: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With records of today and of last month, finished at once and a day later, by a driver that stages all again."""
    sink = Sink(ram / "log")
    dies(sink, stage(sink, age_h=age_h))
    assert 0 < len(values(ram / "log")) < len(WANTED)
    monkeypatch.setattr(
        publish,
        "LogWriter",
        functools.partial(publish.LogWriter, clock=lambda: int(time.time() * 1000) + later_h * HOUR_MS),
    )
    for _ in range(3):
        again = stage(sink, age_h=age_h)
        assert not sink.publish(FIRST, again, counts={"t": 2})
        sink.discard(FIRST, "query-0")
        assert values(ram / "log") == WANTED
    assert sink.publish(Transaction("query", 1), stage(sink, "query-1", tasks=1), counts={"t": 2})
    assert len(values(ram / "log")) == len(WANTED) + ROWS
    assert not Path(sink.staging).exists()


def test_finishing_breaks_off_too(ram: Path, way: str) -> None:
    """At every third of its system calls: killed there, killed half way in it, or told of an error."""
    counting = Sink(ram / "count")
    dies(counting, stage(counting, age_h=48))
    fail_call(0)
    assert counting.recover()
    calls, broken = calls_made(), 0
    for nth in range(1, calls + 1, 3):
        sink = Sink(ram / str(nth) / "log")
        dies(sink, stage(sink, age_h=48))
        child = os.fork()
        if child == 0:
            try:
                fail_call(nth, how=("kill", "kill_half", "error")[nth // 3 % 3])
                sink.recover()
                os._exit(0)
            finally:
                os._exit(1)
        broken += os.waitpid(child, 0)[1] != 0
        sink.recover()
        assert values(ram / str(nth) / "log") == WANTED, nth
    assert broken > calls // 6


@pytest.mark.parametrize("age_h", [0, 24 * 30])
def test_others_write_before_it_is_finished(ram: Path, way: str, age_h: int) -> None:
    sink = Sink(ram / "log")
    with kstore.open(ram / "log" / "t-1", "a") as log:
        log.append(b"before")
    dies(sink, stage(sink, age_h=age_h))
    for partition in (0, 1):
        with kstore.open(ram / "log" / f"t-{partition}", "a") as log:
            log.append(b"stranger")
            log.roll()
            log.append(b"stranger")
    assert sink.recover()
    assert values(ram / "log") == sorted([*WANTED, *["stranger"] * 4, "before"])
    assert not sink.recover()


def test_it_is_finished_as_it_was_begun(ram: Path) -> None:
    """By a program with another configuration, which would compress otherwise, and refuse these timestamps by now."""
    config = kstore.LogConfig(compression_type="zstd", message_timestamp_before_max_ms=26 * HOUR_MS)
    sink = Sink(ram / "log", config)
    dies(sink, stage(sink, age_h=25))
    assert Sink(ram / "log", kstore.LogConfig(message_timestamp_before_max_ms=HOUR_MS)).recover()
    assert values(ram / "log") == WANTED
    with kstore.open(ram / "log" / "t-1") as log:
        assert {batch.codec for batch in log.batches()} == {"zstd"}


def _cut(root: Path, offset: int, then: int = 0) -> None:
    with kstore.open(root / "t-1", "a") as log:
        log.truncate_to(offset)
        for _ in range(then):
            log.append(b"stranger")


def _doubled(root: Path) -> None:
    """A batch of the transaction twice, which no writer of ours leaves."""
    with kstore.open(root / "t-1", "a") as log:
        *_, last = log.batches()
        log.append_batches(last.data, origin="coordinator")


def _deleted(root: Path) -> None:
    with kstore.open(root / "t-1", "a", file_delete_delay_ms=0) as log:
        log.roll()
        log.delete_records(-1)
        log.retain()


@pytest.mark.parametrize(
    ("way", "change", "text"),
    [
        (
            "copied",
            lambda root: _cut(root, 1),
            "LOG_CHANGED: topic t, partition 1: the log was truncated: it ended at offset 2 .* now ends at 1",
        ),
        (
            "moved",
            lambda root: _cut(root, 1),
            "LOG_CHANGED: topic t, partition 1: the log was truncated: it ended at offset 2 .* now ends at 1",
        ),
        (
            "copied",
            lambda root: _cut(root, 1, 50),
            "LOG_CHANGED: topic t, partition 1: the log was truncated: .* now has another batch before",
        ),
        (
            "moved",
            lambda root: _cut(root, 3),
            "STAGING_LOST: topic t, partition 1, .* of 80 records 40 are in",
        ),
        (
            "moved",
            lambda root: _cut(root, 2, 50),
            "STAGING_LOST: topic t, partition 1, .* of 80 records 40 are in",
        ),
        ("copied", _deleted, "LOG_CHANGED: topic t, partition 1: offsets 2 to 22 .exclusive. were deleted"),
        (
            "copied",
            _doubled,
            "LOG_CHANGED: topic t, partition 1: of its copied records, number 0 follows on number 19",
        ),
    ],
    indirect=["way"],
)
def test_what_came_between_leaves_no_right_answer(ram: Path, way: str, change: Any, text: str) -> None:
    """An error that says so, the same at every attempt; forget() gives the transaction up, then all is as ever."""
    sink = Sink(ram / "log")
    with kstore.open(ram / "log" / "t-1", "a") as log:
        log.append(b"before")
        log.append(b"before")
    dies(sink, stage(sink))
    change(ram / "log")
    before = values(ram / "log")
    for attempt in (sink.recover, lambda: sink.publish(Transaction("other"), stage(sink, "other"))):
        with pytest.raises(SparkSourceError, match=f"KSTORE_.*{text}") as e:
            attempt()
        assert "micro-batch 0 of query query" in str(e.value)
        assert "kstore.spark.Sink(" in str(e.value)
        assert values(ram / "log") == before
    assert sink.forget()
    assert not sink.forget()
    assert sink.publish(Transaction("other"), stage(sink, "other"), counts={"t": 2})
    assert values(ram / "log") == sorted([*before, *WANTED])


def test_what_was_cut_off_as_a_whole_is_appended_again(ram: Path) -> None:
    """As after a power cut, which takes what was not synced."""
    sink = Sink(ram / "log")
    dies(sink, stage(sink))
    _cut(ram / "log", 0, 3)
    assert sink.recover()
    assert values(ram / "log") == sorted([*WANTED, *["stranger"] * 3])


def test_moved_files_that_retention_took_were_there(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_LARGE", 0)
    sink = Sink(ram / "log")
    dies(sink, stage(sink))
    _deleted(ram / "log")
    assert sink.recover()
    assert [v for v in values(ram / "log") if v.startswith("0-")] == sorted(
        f"0-{i}" for i in range(0, ROWS, 2)
    )
    with kstore.open(ram / "log" / "t-1") as log:
        assert (log.log_start_offset, log.log_end_offset) == (ROWS // 2, ROWS)


def test_staging_that_is_lost(ram: Path, way: str) -> None:
    """Before the transaction begins, after it began and before its first record, and half way."""
    sink = Sink(ram / "log")
    staged = stage(sink)
    Path(staged[-1].path, staged[-1].files[0].name).unlink()
    with pytest.raises(
        SparkSourceError, match=r"KSTORE_STAGING_LOST: .*: 0 bytes of \d+; nothing was written"
    ):
        sink.publish(FIRST, staged, counts={"t": 2})
    assert not sink.recover()

    child = os.fork()
    if child == 0:
        transfer.Transfer.take = lambda self, one: os._exit(9)  # type: ignore[method-assign]
        sink.publish(FIRST, stage(sink), counts={"t": 2})
    os.waitpid(child, 0)
    shutil.rmtree(sink.staging)
    assert sink.publish(FIRST, stage(sink), counts={"t": 2})  # with what the restarted driver has staged
    assert values(ram / "log") == WANTED

    dies(sink, stage(sink, "query-1"), Transaction("query", 1))
    shutil.rmtree(sink.staging)
    before = values(ram / "log")
    text = r"KSTORE_STAGING_LOST: topic t, partition 1, file .*: it is not in the log.*; of 80 records \d+ are in the logs; .*forget\(\)"
    for _ in range(2):
        with pytest.raises(SparkSourceError, match=text):
            sink.recover()
        assert values(ram / "log") == before
    assert sink.forget()
    assert sink.publish(Transaction("query", 2), stage(sink, "query-2"), counts={"t": 2})


def test_a_micro_batch_that_comes_again(ram: Path) -> None:
    """Spark runs only the last one again, with the same input; all else is a checkpoint that was reset."""
    sink = Sink(ram / "log")

    def run(number: int, rows: int = ROWS, source: str | None = None) -> bool:
        own = None if source is None else Source(source, f"offsets {source}")
        staged = stage(sink, f"query-{number}", rows=rows)
        return sink.publish(Transaction("query", number), staged, counts={"t": 2}, source=own)

    assert run(0, source="a")
    assert not run(0, source="a")
    assert not run(
        0, source="a", rows=4
    )  # a query may give other rows the second time; the input is the same
    assert not run(0)
    with pytest.warns(
        RuntimeWarning, match=r"micro-batch 0 of query query .*'t': 80.*'t': 8.*checkpoint was reset"
    ):
        assert not run(0, rows=4)
    reset = r"KSTORE_CHECKPOINT_RESET: .*query query has published its micro-batch {}, .* micro-batch 0{}: .*new, empty"
    with pytest.raises(SparkSourceError, match=reset.format(r"0 \(offsets a\)", r" \(offsets b\)")):
        run(0, source="b")
    assert run(1, source="b")
    with pytest.raises(SparkSourceError, match=reset.format(r"1 \(offsets b\)", r" \(offsets a\)")):
        run(0, source="a")
    with pytest.raises(SparkSourceError, match=reset.format(r"1 \(offsets b\)", "")):
        run(0)
    assert sink.status().queries["query"] == (1, {"t": 2 * ROWS}, ("b", "offsets b"))
    assert len(values(ram / "log")) == 2 * len(WANTED)


def test_sweeping_leaves_what_is_being_written(ram: Path) -> None:
    """The time of a directory does not change while files in it are written."""
    sink = Sink(ram / "log")
    staged = {job: stage(sink, job) for job in ("running", "dead", "pending")}
    week = time.time() - 8 * 86_400
    for path in [*Path(sink.staging).rglob("*"), *Path(sink.staging).iterdir()]:
        os.utime(path, (week, week))
    dies(sink, staged["pending"])
    one = Path(staged["running"][0].path, staged["running"][0].files[0].name)
    os.utime(one)
    for job in Path(sink.staging).iterdir():
        os.utime(job, (week, week))
    with Sink(ram / "log")._locked():  # another job is publishing: nobody waits for it only to sweep
        sink.sweep()
    assert len(list(Path(sink.staging).iterdir())) == 3
    sink.sweep()
    assert sorted(path.name for path in Path(sink.staging).iterdir()) == ["pending", "running"]
    assert sink.recover()
    assert sink.publish(Transaction("running"), staged["running"], counts={"t": 2})
    assert len(values(ram / "log")) == 2 * len(WANTED)


def test_aborting_one_run_leaves_what_another_has_staged(ram: Path) -> None:
    """A driver that was taken for dead aborts the micro-batch that its successor is about to commit."""
    sink = Sink(ram / "log")
    old, new = stage(sink), stage(sink)
    sink.discard(FIRST, "query-0", old)
    assert not any(Path(one.path).exists() for one in old)
    assert sink.publish(FIRST, new, counts={"t": 2})
    assert values(ram / "log") == WANTED


def test_ids_are_pruned(ram: Path) -> None:
    """Those that published longest ago: the journal does not grow for ever, and the last id of a query is the newest."""
    sink = Sink(ram / "log")
    journal = Journal.read(sink.root)
    own = [Staged("t", 0, "/nowhere", 1, ())]
    Path(sink.root).mkdir()
    names = [f"query {number}" for number in range(REMEMBERED_QUERIES)]
    journal.queries = dict.fromkeys(names, LastBatch(3, {"t": 1}, Source("digest", "offsets 1 to 2")))
    journal.jobs = [f"job {number}" for number in range(REMEMBERED_JOBS)]
    for transaction in (Transaction("query 0", 4), Transaction("one more", 0), Transaction("job")):
        journal.begin(transaction, own, {}, {}, {}, None)
        journal.end()
    found = sink.status()
    assert list(found.queries) == [*names[2:], "query 0", "one more"]
    assert found.queries["query 0"].number == 4
    assert found.queries["query 5"] == (3, {"t": 1}, ("digest", "offsets 1 to 2"))
    assert found.job_count == REMEMBERED_JOBS
    assert [sink.published(name) for name in ("job 0", "job 1", "job")] == [False, True, True]


def test_journals_of_an_older_version(ram: Path) -> None:
    sink = Sink(ram / "log")
    (ram / "log").mkdir()
    journal = ram / "log" / JOURNAL
    old: dict[str, Any] = {"version": 1, "producer": 7, "epoch": 3, "queries": {"query": 4}, "jobs": ["one"]}
    journal.write_text(json.dumps(old | {"pending": None}))
    assert not sink.publish(Transaction("one"), stage(sink, "one"), counts={"t": 2})
    assert not sink.publish(Transaction("query", 4), stage(sink, "query-4"), counts={"t": 2})
    assert sink.publish(Transaction("query", 5), stage(sink, "query-5"), counts={"t": 2})
    assert values(ram / "log") == WANTED
    text = json.loads(journal.read_text())
    text["queries"]["query"][2] = "digest"  # as the first journals of version 2 had it
    journal.write_text(json.dumps(text))
    assert sink.status().queries == {"query": (5, {"t": 2 * ROWS}, ("digest", ""))}
    journal.write_text(json.dumps(old | {"pending": {"transaction": ["two", None], "staged": []}}))
    with pytest.raises(SparkSourceError, match=r"KSTORE_UNSUPPORTED: .*an older kstore began a transaction"):
        sink.publish(Transaction("three"), stage(sink, "three"), counts={"t": 2})
