"""Jobs that are taken and accepted, one at a time: kstore's share groups, persist-queue, and sqlite3 by
hand."""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from persistqueue import SQLiteAckQueue

import kstore
from benchmarks.bench_shared import Work, processes
from benchmarks.data import Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess

JOBS = {False: 5_000, True: 100}  # in a turn; fewer if each is durable
PROCESSES = 4
VALUE = b"v" * 90
TAKE = """update jobs set state = 1, until = ?, attempts = attempts + 1
where id = (select id from jobs where state = 0 or (state = 1 and until < ?) order by id limit 1)
returning id, value"""


def _database(path: Path, synchronous: str) -> sqlite3.Connection:
    db = sqlite3.connect(path / "db", isolation_level=None, timeout=600)
    db.execute("pragma journal_mode=wal")
    db.execute(f"pragma synchronous={synchronous}")
    return db


def _fill_database(path: Path, jobs: int, synchronous: str) -> sqlite3.Connection:
    db = _database(path, synchronous)
    db.execute(
        "create table jobs (id integer primary key, value blob, state integer default 0, until real, "
        "attempts integer default 0)"
    )
    db.execute("begin")
    db.executemany("insert into jobs (value) values (?)", [(VALUE,)] * jobs)
    db.execute("commit")
    return db


def _work_in_database(db: sqlite3.Connection, jobs: int) -> None:
    """A job is acquired for 30 seconds and then deleted, each in a transaction of its own."""
    for _ in range(jobs):
        now = time.time()
        number, _ = db.execute(TAKE, (now + 30, now)).fetchone()
        db.execute("delete from jobs where id = ?", (number,))


def _fill_log(path: Path, jobs: int) -> None:
    with kstore.open(path / "jobs-0", "a") as log:
        log.extend([VALUE] * jobs)


def _work_in_group(group: kstore.ShareGroup, jobs: int) -> None:
    left = jobs
    for job in group:
        group.acknowledge(job)
        left -= 1
        if not left:
            break


def _contestant(
    name: str, data: Data, jobs: int, fill: Callable[[Path], Any], work: Callable[[Any, int], None]
) -> InProcess[tuple[Any, Path]]:
    def prepare(*args: int) -> tuple[Any, Path]:
        path = data.work / "queue"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        opened = fill(path)
        os.sync()
        return opened, path

    def timed(given: tuple[Any, Path]) -> tuple[int, int]:
        work(given[0], jobs)
        return jobs, jobs

    def clear(given: tuple[Any, Path]) -> None:
        given[0].close()
        shutil.rmtree(given[1])

    return InProcess(name, prepare, timed, clear=clear)


@pytest.mark.parametrize("durable", [False, True], ids=["off", "durable"])
def bench_queue(race: Race, data: Data, durable: bool) -> None:
    """One process takes and accepts jobs of 90 bytes, one at a time, from a queue that has them. sqlite3:
    WAL, a transaction to take and one to delete. persist-queue: SQLiteAckQueue, get() and ack(). Durable:
    each acknowledgement waits for the disk (sqlite3 and persist-queue: synchronous=full, else off)."""
    jobs, synchronous = JOBS[durable], "full" if durable else "off"

    def group(path: Path) -> kstore.ShareGroup:
        _fill_log(path, jobs)
        return kstore.open(path / "jobs-0").share_group("workers", durable=durable)

    def ack_queue(path: Path) -> Any:
        queue = SQLiteAckQueue(str(path), auto_commit=True)
        for db in (queue._getter, queue._putter):  # it has no option for that
            db.execute(f"pragma synchronous={synchronous}")
        for _ in range(jobs):
            queue.put(VALUE)
        return queue

    def work_in_queue(queue: Any, jobs: int) -> None:
        for _ in range(jobs):
            queue.ack(queue.get())

    race(
        f"queue_{'durable' if durable else 'off'}",
        "job",
        _contestant("kstore", data, jobs, group, _work_in_group),
        _contestant("persist-queue", data, jobs, ack_queue, work_in_queue),
        _contestant(
            "sqlite3", data, jobs, lambda path: _fill_database(path, jobs, synchronous), _work_in_database
        ),
        goals=(Goal("persist-queue", speed=3), Goal("sqlite3", speed=2)),
    )


def _in_group(each: int, *, durable: bool) -> Work:
    @contextmanager
    def opened(path: Path) -> Iterator[Callable[[], None]]:
        _fill_once(path, lambda: _fill_log(path, PROCESSES * each))
        with kstore.open(path / "jobs-0").share_group("workers", durable=durable) as group:
            yield lambda: _work_in_group(group, each)

    return opened


def _in_database(each: int, synchronous: str) -> Work:
    @contextmanager
    def opened(path: Path) -> Iterator[Callable[[], None]]:
        _fill_once(path, lambda: _fill_database(path, PROCESSES * each, synchronous).close())
        db = _database(path, synchronous)
        yield lambda: _work_in_database(db, each)
        db.close()

    return opened


def _fill_once(path: Path, fill: Callable[[], object]) -> None:
    """One of the processes fills the queue, and the others wait for it."""
    try:
        (path / "filling").mkdir()
    except FileExistsError:
        while not (path / "filled").exists():
            time.sleep(0.01)
        return
    fill()
    os.sync()
    (path / "filled").touch()


@pytest.mark.parametrize("durable", [False, True], ids=["off", "durable"])
def bench_queue_processes(race: Race, data: Data, durable: bool) -> None:
    """Four processes take and accept the jobs of one queue, in sum."""
    each = JOBS[durable] // 2
    race(
        f"queue_processes_{'durable' if durable else 'off'}",
        "job",
        processes("kstore", data, PROCESSES, each, _in_group(each, durable=durable)),
        processes("sqlite3", data, PROCESSES, each, _in_database(each, "full" if durable else "off")),
    )
