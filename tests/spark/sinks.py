"""What tests of the sink have in common: records that are staged, a driver that is killed, what is
published."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.spark import Sink, Transaction

pa = pytest.importorskip("pyarrow")
HOUR_MS = 3_600_000
ROWS = 30
COUNTS = {"t": 2}


def stage(
    sink: Sink,
    job: str,
    *,
    tasks: int = 2,
    rows: int = ROWS,
    topic: str = "t",
    age_h: int = 0,
    **columns: Any,
) -> list[Any]:
    """Rows JOB-TASK-0, JOB-TASK-1 … of each task, in turn for two partitions; or these columns instead."""
    at = (int(time.time() * 1000) - age_h * HOUR_MS) * 1000
    staged: list[Any] = []
    for task in range(tasks):
        own = sink.stage(job, f"p{task}", topic=topic, counts={topic: 2}, task=task)
        for start in (0, rows // 2):
            numbers = range(start, start + rows // 2)
            given = columns or {
                "value": [f"{job}-{task}-{i}" for i in numbers],
                "partition": pa.array([i % 2 for i in numbers], pa.int32()),
                "timestamp": pa.array([at] * len(numbers), pa.timestamp("us", tz="UTC")),
            }
            own.add(pa.RecordBatch.from_pydict(given))
        staged += own.close()
    return staged


def wanted(*jobs: str, tasks: int = 2, rows: int = ROWS) -> list[str]:
    """What is published of such jobs."""
    return sorted(f"{job}-{task}-{i}" for job in jobs for task in range(tasks) for i in range(rows))


def values(root: Path) -> list[str]:
    """All values in a log directory."""
    found: list[str] = []
    store = kstore.LogStore(root)
    for tp in store:
        with store.open(*tp) as log:
            found += [(r.value or b"").decode() for r in log]
    return sorted(found)


def files_in(directory: str | Path) -> list[Path]:
    return [path for path in Path(directory).rglob("*") if path.is_file()]


def age(directory: str | Path, days: float) -> None:
    """Lets all in a directory, and it itself, be so old."""
    old = time.time() - days * 86_400
    for path in [Path(directory), *Path(directory).rglob("*")]:
        os.utime(path, (old, old))


def in_child(work: Callable[[], object]) -> int:
    """The exit code of a child that does this work: 0, or that with which it ended itself; below 0, the
    signal."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_in_commit(sink: Sink, staged: list[Any], transaction: Transaction, staged_logs: int = 3) -> None:
    """A driver is killed in its commit, once so many staged logs are in the logs: of the usual four,
    partition 0's two and one of partition 1."""

    def publish() -> None:
        done = 0

        def counted(real: Any) -> Any:
            def call(log: kstore.LogWriter, *arguments: Any) -> Any:
                nonlocal done
                if done == staged_logs:
                    os._exit(9)
                done += 1
                return real(log, *arguments)

            return call

        for name in ("adopt", "append_batches"):
            setattr(kstore.LogWriter, name, counted(getattr(kstore.LogWriter, name)))
        sink.publish(transaction, staged, counts=COUNTS)

    assert in_child(publish) == 9


def ways(monkeypatch: pytest.MonkeyPatch, way: str) -> str:
    """How staged files get into the logs: "copied", as small ones; "moved", as those of 8 MiB; "both", those
    of two tasks differing; "threads", copied in a thread for each partition, as when much is published."""
    from kstore.spark.writing import sink, transfer

    if way == "threads":
        monkeypatch.setattr(sink, "_THREADED", 0)
        monkeypatch.setattr("os.cpu_count", lambda: 3)
    elif way != "copied":
        monkeypatch.setattr(transfer, "_LARGE", 0 if way == "moved" else 450)
    return way
