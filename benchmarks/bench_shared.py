"""One log that several processes write (shared=True), beside one writer and beside sqlite3."""

import multiprocessing
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import kstore
from benchmarks.bench_append import records_of, single
from benchmarks.data import Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.written import contestant

PROCESSES = 4
EACH = 5_000  # records of a process in a turn
SYNCED = 100  # durable records of a process or thread in a turn
VALUE, KEY = b"v" * 90, b"key12345"


def bench_shared_append(race: Race, data: Data) -> None:
    """Single appends of one process that shares the log with nobody, and of a writer that does not share."""
    race(
        "shared_append",
        "record",
        contestant("shared", data, lambda: records_of(data), single, shared=True),
        contestant("alone", data, lambda: records_of(data), single),
        goals=(Goal("alone", speed=0.85),),
    )


def bench_shared_extend(race: Race, data: Data) -> None:
    """The same with extend() of arrays."""
    rows = columns(data)

    def work(log: kstore.LogWriter, _: None) -> int:
        log.extend(rows.values, rows.keys)
        return len(rows.values)

    race(
        "shared_extend",
        "record",
        contestant("shared", data, lambda: None, work, shared=True),
        contestant("alone", data, lambda: None, work),
        goals=(Goal("alone", speed=0.97),),
    )


Work = Callable[[Path], AbstractContextManager[Callable[[], None]]]


class Workers:
    """Processes that have opened the log or the database, wait for the start of a turn, and tell its end."""

    def __init__(self, count: int, work: Work, path: Path) -> None:
        with work(path):  # makes the log or the database: sqlite3 fails if several processes do it at once
            pass
        context = multiprocessing.get_context("fork")
        self._ready, self._start, self._end = (context.Barrier(count + 1) for _ in range(3))
        self._processes = [context.Process(target=self._run, args=(work, path)) for _ in range(count)]
        for process in self._processes:
            process.start()
        self._ready.wait()  # starting and opening are not counted, as for one process

    def _run(self, work: Work, path: Path) -> None:
        with work(path) as run:
            self._ready.wait()
            self._start.wait()
            run()
            self._end.wait()

    def turn(self) -> None:
        self._start.wait()
        self._end.wait()

    def join(self) -> None:
        for process in self._processes:
            process.join()


def processes(name: str, data: Data, count: int, each: int, work: Work) -> InProcess[tuple[Workers, Path]]:
    """Each process opens the log or the database before the turn."""

    def prepare(*args: int) -> tuple[Workers, Path]:
        path = data.work / "shared"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return Workers(count, work, path), path

    def timed(given: tuple[Workers, Path]) -> tuple[int, int]:
        given[0].turn()
        return count * each, count * each

    def clear(given: tuple[Workers, Path]) -> None:
        given[0].join()
        shutil.rmtree(given[1])

    return InProcess(name, prepare, timed, clear=clear)


def appending(each: int, **options: Any) -> Work:
    @contextmanager
    def opened(path: Path) -> Iterator[Callable[[], None]]:
        with kstore.open(path / "log-0", "a", shared=True, **options) as log:

            def run() -> None:
                for _ in range(each):
                    log.append(VALUE, KEY)

            yield run

    return opened


def inserting(each: int, synchronous: str) -> Work:
    @contextmanager
    def opened(path: Path) -> Iterator[Callable[[], None]]:
        db = sqlite3.connect(path / "db", isolation_level=None, timeout=600)
        db.execute("pragma journal_mode=wal")
        db.execute(f"pragma synchronous={synchronous}")
        db.execute("create table if not exists log (offset integer primary key, key blob, value blob)")

        def run() -> None:
            for _ in range(each):
                db.execute("insert into log (key, value) values (?, ?)", (KEY, VALUE))

        yield run
        db.close()

    return opened


@pytest.mark.parametrize(("synchronous", "each"), [("off", EACH), ("full", SYNCED)])
def bench_shared_processes(race: Race, data: Data, synchronous: str, each: int) -> None:
    """Single appends of four processes, in sum. sqlite3: WAL, a transaction each, with this synchronous."""
    durability = "group" if synchronous == "full" else "none"
    race(
        f"shared_processes_{synchronous}",
        "record",
        processes("kstore", data, PROCESSES, each, appending(each, durability=durability)),
        processes("sqlite3", data, PROCESSES, each, inserting(each, synchronous)),
        goals=(Goal("sqlite3", speed=3),),
        rounds=min(race.rounds, 11),
    )


def bench_shared_durable(race: Race, data: Data) -> None:
    """Durable appends of eight processes, and of eight threads of one process."""

    def work(log: kstore.LogWriter, _: None) -> int:
        def some() -> None:
            for _ in range(SYNCED):
                log.append(VALUE, KEY)

        threads = [Thread(target=some) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return 8 * SYNCED

    race(
        "shared_durable",
        "record",
        processes("processes", data, 8, SYNCED, appending(SYNCED, durability="group")),
        contestant("threads", data, lambda: None, work, durability="group", by_end=True),
        goals=(Goal("threads", speed=0.8),),
        rounds=min(race.rounds, 11),
    )
