"""lmdb: key = offset, value = value, as its users do; for finding by time a second environment."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import lmdb

from benchmarks.peers.store import APPEND, EXTEND, FIND, GET, KEY, SCAN, Row, Store

ROOM = 8 << 30


class Lmdb(Store):
    package = "lmdb"
    subjects = frozenset({APPEND, EXTEND, SCAN, GET, FIND})

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = lmdb.open(str(path), map_size=ROOM, sync=self.durable)
        self.times: Any = None
        self.reading: Any = None
        self.reading_times: Any = None

    @staticmethod
    def load(rows: Sequence[Row]) -> list[tuple[bytes, bytes]]:
        return [(KEY.pack(offset), value) for offset, _, _, value in rows]

    def append(self, loaded: list[tuple[bytes, bytes]]) -> None:
        begin = self.env.begin
        for key, value in loaded:
            with begin(write=True) as transaction:
                transaction.put(key, value, append=True)

    def extend(self, loaded: list[tuple[bytes, bytes]]) -> None:
        with self.env.begin(write=True) as transaction:
            transaction.cursor().putmulti(loaded, append=True)

    def index_times(self, rows: Sequence[Row]) -> None:
        self.times = lmdb.open(str(self.path / "times"), map_size=ROOM, sync=False)
        first: dict[int, int] = {}
        for offset, timestamp, _, _ in rows:
            first.setdefault(timestamp, offset)
        pairs = [(KEY.pack(timestamp), KEY.pack(offset)) for timestamp, offset in first.items()]
        with self.times.begin(write=True) as transaction:
            transaction.cursor().putmulti(pairs, append=True)

    def reopen(self) -> None:
        self.reading = self.env.begin()
        if self.times is not None:
            self.reading_times = self.times.begin()

    def scan(self, stop: int) -> tuple[int, int]:
        seen, last = 0, b""
        for key, _value in islice(self.reading.cursor(), stop):
            last = key
            seen += 1
        return seen, int.from_bytes(last)

    def get(self, offset: int) -> bytes:
        value: bytes = self.reading.get(KEY.pack(offset))
        return value

    def find(self, timestamp: int) -> int:
        cursor = self.reading_times.cursor()
        if not cursor.set_range(KEY.pack(timestamp)):
            raise KeyError(timestamp)
        return int.from_bytes(cursor.value())

    def count(self) -> int:
        entries: int = self.reading.stat()["entries"]
        return entries

    def close(self) -> None:
        self.reading = self.reading_times = None
        self.env.close()
        if self.times is not None:
            self.times.close()
