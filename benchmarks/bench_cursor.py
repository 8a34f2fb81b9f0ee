"""Cursors beside the logs that they read, and beside sqlite3 where positions are kept."""

import shutil
import sqlite3
from collections import deque
from pathlib import Path

import pytest

import kstore
from benchmarks.data import ROWS, Data, columns
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from benchmarks.peers.process import Peer

COMMITS = 300
PARTITIONS = 4
TIMES = 10


def _written(data: Data, partitions: int, *, tiny: bool = False, times: int = 1) -> Path:
    """A store's directory whose topic has some partitions and so many times 138,000 records. Tiny ones have a
    byte of value and no key."""
    path = data.work / f"cursors-{partitions}{'-tiny' if tiny else ''}"
    if not path.exists():
        rows = columns(data)
        path.mkdir()
        with kstore.LogStore(path, mode="a", background=False) as store:
            store.create_topic("t", partitions)
            for _ in range(times):
                if not tiny:
                    store.extend("t", rows.values, rows.keys, rows.timestamps(0, ROWS))
                    continue
                for number in range(partitions):
                    log = store.log("t", number)
                    assert isinstance(log, kstore.LogWriter)
                    log.extend(
                        [b"v"] * (ROWS // partitions), timestamps=rows.timestamps(0, ROWS // partitions)
                    )
    return path


def _logs(path: Path) -> list[kstore.PartitionLog]:
    return [kstore.open(log) for log in sorted(path.glob("t-*"))]


def bench_cursor(race: Race, data: Data) -> None:
    """138,000 records as Record objects, opening counted. kstore: log.cursor(). The log: iterating it."""
    one = _written(data, 1) / "t-0"

    def cursor(_: None) -> tuple[int, int]:
        with kstore.open(one).cursor("g") as records:
            deque(records, maxlen=0)
            return ROWS, records.position

    def log(_: None) -> tuple[int, int]:
        deque(kstore.open(one), maxlen=0)
        return ROWS, ROWS

    race(
        "cursor",
        "record",
        InProcess("kstore", lambda *args: None, cursor),
        InProcess("the log", lambda *args: None, log),
        goals=(Goal("the log", speed=0.9),),
    )


@pytest.mark.parametrize("records", ["rows", "tiny"])
def bench_cursor_of_store(race: Race, data: Data, records: str) -> None:
    """1,380,000 records of four partitions, as TopicRecord objects; opening is not counted. kstore:
    store.cursor(). Four logs: iterating one after the other, as Record objects. Tiny: a byte each, without a
    key."""
    path = _written(data, PARTITIONS, tiny=records == "tiny", times=TIMES)

    def prepare(*args: int) -> kstore.StoreCursor:
        return kstore.LogStore(path).cursor("g", ["t"])

    def store(cursor: kstore.StoreCursor) -> tuple[int, int]:
        deque(cursor, maxlen=0)
        return TIMES * ROWS, sum(cursor.positions().values())

    def logs(given: list[kstore.PartitionLog]) -> tuple[int, int]:
        for log in given:
            deque(log, maxlen=0)
        return TIMES * ROWS, sum(log.log_end_offset for log in given)

    race(
        f"cursor_of_store_{records}",
        "record",
        InProcess("kstore", prepare, store, clear=lambda cursor: cursor.close()),
        InProcess("four logs", lambda *args: _logs(path), logs),
        goals=(Goal("four logs", speed=0.9),),
    )


def bench_cursor_commit(race: Race, data: Data, limit: Peer) -> None:
    """300 commits of a position, none synced. kstore: commit(offset + 1, durable=False). sqlite3: an upsert of
    group, topic, partition and offset, a transaction each, WAL, synchronous=off. C: a lock, two stat calls, a
    write and an unlock, and nothing else."""
    path, kept = _written(data, 1) / "t-0", data.work / "commits"

    def begin(*args: int) -> kstore.Cursor:
        for file in path.parent.glob("kstore-cursors-*"):
            file.unlink()
        cursor = kstore.open(path).cursor("g")
        deque(cursor, maxlen=0)
        return cursor

    def commit(cursor: kstore.Cursor) -> tuple[int, int]:
        for offset in range(COMMITS):
            cursor.commit(offset + 1, durable=False)
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
        limit.contestant("C", "commits"),
        goals=(Goal("sqlite3", speed=5),),
        arguments=lambda turn: (COMMITS,),
    )
