"""Cursors beside the logs that they read, and beside sqlite3 where positions are kept."""

import shutil
import sqlite3
from collections import deque
from collections.abc import Callable
from pathlib import Path

import kstore
from benchmarks.data import ROWS, Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess

COMMITS = 300
PARTITIONS = 4


def _written(data: Data, partitions: int) -> Path:
    """A store's directory whose topic has some partitions and 138,000 records."""
    path = data.work / f"cursors-{partitions}"
    if not path.exists():
        rows = columns(data)
        path.mkdir()
        with kstore.LogStore(path, mode="a", background=False) as store:
            store.create_topic("t", partitions)
            store.extend("t", rows.values, rows.keys, rows.timestamps(0, ROWS))
    return path


def _count_all(path: Path) -> Callable[[None], tuple[int, int]]:
    """Iterates all partitions, one after the other."""

    def work(_: None) -> tuple[int, int]:
        for number in range(PARTITIONS):
            deque(kstore.open(path / f"t-{number}"), maxlen=0)
        return ROWS, ROWS

    return work


def bench_cursor(race: Race, data: Data) -> None:
    """138,000 records as Record objects, opening counted. kstore: log.cursor(). The log: iterating it. store: a cursor
    over four partitions; four logs: iterating these."""
    one, four = _written(data, 1) / "t-0", _written(data, PARTITIONS)

    def cursor(_: None) -> tuple[int, int]:
        with kstore.open(one).cursor("g") as records:
            deque(records, maxlen=0)
            return ROWS, records.position

    def log(_: None) -> tuple[int, int]:
        deque(kstore.open(one), maxlen=0)
        return ROWS, ROWS

    def store(_: None) -> tuple[int, int]:
        with kstore.LogStore(four).cursor("g", ["t"]) as records:
            deque(records, maxlen=0)
            return ROWS, ROWS - sum(records.lag().values())

    race(
        "cursor",
        "record",
        InProcess("kstore", lambda *args: None, cursor),
        InProcess("the log", lambda *args: None, log),
        InProcess("store", lambda *args: None, store),
        InProcess("four logs", lambda *args: None, _count_all(four)),
        goals=(Goal("the log", speed=0.9),),
    )


def bench_cursor_commit(race: Race, data: Data) -> None:
    """300 commits of a position, none synced. kstore: commit(offset, durable=False). sqlite3: an upsert of group, topic,
    partition and offset, a transaction each, WAL, synchronous=off."""
    path, kept = _written(data, 1) / "t-0", data.work / "commits"

    def begin(*args: int) -> kstore.Cursor:
        for file in path.parent.glob("kstore-cursors-*"):
            file.unlink()
        return kstore.open(path).cursor("g")

    def commit(cursor: kstore.Cursor) -> tuple[int, int]:
        for offset in range(COMMITS):
            cursor.commit(offset, durable=False)
        committed = cursor.committed
        return COMMITS, committed.offset if committed is not None else -1

    def connect(*args: int) -> sqlite3.Connection:
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        db = sqlite3.connect(kept / "db", isolation_level=None)
        db.execute("pragma journal_mode=wal")
        db.execute("pragma synchronous=off")
        db.execute(
            "create table positions (grp text, topic text, part int, position int, primary key (grp, topic, part))"
        )
        return db

    def upsert(db: sqlite3.Connection) -> tuple[int, int]:
        for offset in range(COMMITS):
            db.execute("insert or replace into positions values ('g', 't', 0, ?)", (offset + 1,))
        return COMMITS, db.execute("select position from positions").fetchone()[0]

    race(
        "cursor_commit",
        "commit",
        InProcess("kstore", begin, commit, clear=lambda cursor: cursor.close()),
        InProcess("sqlite3", connect, upsert, clear=lambda db: db.close()),
        goals=(Goal("sqlite3", speed=5),),
    )
