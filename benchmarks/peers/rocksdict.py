"""rocksdict (RocksDB): key = offset, value = value; for finding by time a second one."""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from benchmarks.peers.store import APPEND, EXTEND, FIND, GET, KEY, SCAN, Row, Store

TOGETHER = 1000  # rows of a WriteBatch


class Rocks(Store):
    package = "rocksdict"
    subjects = frozenset({APPEND, EXTEND, SCAN, GET, FIND})

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: Any = Rdict(str(path / "rows"), Options(raw_mode=True))
        if self.durable:
            options = WriteOptions()
            options.sync = True
            self.rows.set_write_options(options)
        self.times: Any = None

    @staticmethod
    def load(rows: Sequence[Row]) -> list[tuple[bytes, bytes]]:
        return [(KEY.pack(offset), value) for offset, _, _, value in rows]

    def append(self, loaded: list[tuple[bytes, bytes]]) -> None:
        rows = self.rows
        for key, value in loaded:
            rows[key] = value

    def extend(self, loaded: list[tuple[bytes, bytes]]) -> None:
        _write(self.rows, loaded)

    def index_times(self, rows: Sequence[Row]) -> None:
        first: dict[int, int] = {}
        for offset, timestamp, _, _ in rows:
            first.setdefault(timestamp, offset)
        self.times = Rdict(str(self.path / "times"), Options(raw_mode=True))
        _write(self.times, [(KEY.pack(timestamp), KEY.pack(offset)) for timestamp, offset in first.items()])
        self.times.flush()

    def reopen(self) -> None:
        self.rows.flush()

    def scan(self, stop: int) -> tuple[int, int]:
        seen, last = 0, b""
        for key, _value in islice(self.rows.items(), stop):
            last = key
            seen += 1
        return seen, int.from_bytes(last)

    def get(self, offset: int) -> bytes:
        value: bytes = self.rows[KEY.pack(offset)]
        return value

    def find(self, timestamp: int) -> int:
        return int.from_bytes(next(iter(self.times.values(from_key=KEY.pack(timestamp)))))

    def count(self) -> int:
        return sum(1 for _ in self.rows.keys())  # noqa: SIM118 - no dict

    def close(self) -> None:
        self.rows.close()
        if self.times is not None:
            self.times.close()


def _write(to: Any, pairs: list[tuple[bytes, bytes]]) -> None:
    for at in range(0, len(pairs), TOGETHER):
        batch = WriteBatch(raw_mode=True)
        for key, value in pairs[at : at + TOGETHER]:
            batch.put(key, value)
        to.write(batch)
