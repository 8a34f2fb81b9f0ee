"""sqlite3: a table by offset, in WAL mode, without syncs unless they are asked for; for finding by time an
index."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.store import APPEND, EXTEND, FIND, GET, SCAN, Row, Store

TOGETHER = 10_000  # rows of a transaction
INSERT = "insert into log values (?, ?, ?, ?)"


class Sqlite(Store):
    package = "sqlite3"
    subjects = frozenset({APPEND, EXTEND, SCAN, GET, FIND})

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path / "db", isolation_level=None)
        self.db.execute("pragma journal_mode=wal")
        self.db.execute(f"pragma synchronous={'full' if self.durable else 'off'}")
        self.db.execute("create table log (offset integer primary key, ts integer, key blob, value blob)")

    def append(self, loaded: Sequence[Row]) -> None:
        execute = self.db.execute
        for row in loaded:
            execute(INSERT, row)

    def extend(self, loaded: Sequence[Row]) -> None:
        for at in range(0, len(loaded), TOGETHER):
            self.db.execute("begin")
            self.db.executemany(INSERT, loaded[at : at + TOGETHER])
            self.db.execute("commit")

    def index_times(self, rows: Sequence[Row]) -> None:
        self.db.execute("create index by_time on log (ts)")

    def scan(self, stop: int) -> tuple[int, int]:
        seen, last = 0, -1
        query = "select offset, ts, key, value from log where offset < ? order by offset"
        for offset, _ts, _key, _value in self.db.execute(query, (stop,)):
            last = offset
            seen += 1
        return seen, last

    def get(self, offset: int) -> bytes:
        value: bytes = self.db.execute("select value from log where offset = ?", (offset,)).fetchone()[0]
        return value

    def find(self, timestamp: int) -> int:
        query = "select offset from log where ts >= ? order by ts, offset limit 1"
        offset: int = self.db.execute(query, (timestamp,)).fetchone()[0]
        return offset

    def count(self) -> int:
        count: int = self.db.execute("select count(*) from log").fetchone()[0]
        return count

    def close(self) -> None:
        self.db.close()
