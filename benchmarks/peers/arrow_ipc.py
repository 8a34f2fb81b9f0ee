"""An Arrow IPC file: record batches of 10,000 rows, mapped."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from benchmarks.peers.arrow import TOGETHER, look_at, one_thread, table_of, walk
from benchmarks.peers.store import COLUMNS, EXTEND, FIND, GET, SCAN, Row, Store


class ArrowIpc(Store):
    package = "pyarrow"
    subjects = frozenset({EXTEND, SCAN, COLUMNS, GET, FIND})

    def __init__(self, path: Path) -> None:
        one_thread()
        self.path = str(path / "rows.arrow")
        self.file: Any = None
        self.batches: list[Any] = []
        self.firsts: list[int] = []

    @staticmethod
    def load(rows: Sequence[Row]) -> Any:
        return table_of(rows)

    def extend(self, loaded: Any) -> None:
        with pa.ipc.new_file(self.path, loaded.schema) as out:
            out.write_table(loaded, max_chunksize=TOGETHER)

    def index_times(self, rows: Sequence[Row]) -> None:
        self.firsts = [batch["ts"][0].as_py() for batch in self.batches]

    def reopen(self) -> None:
        self.file = pa.memory_map(self.path)
        self.batches = list(self._read())

    def _read(self) -> Iterator[Any]:
        reader = pa.ipc.open_file(self.file)
        return (reader.get_batch(i) for i in range(reader.num_record_batches))

    def scan(self, stop: int) -> tuple[int, int]:
        return walk(self._read(), stop)

    def columns(self) -> tuple[int, int]:
        return look_at(pa.ipc.open_file(self.file).read_all())

    def get(self, offset: int) -> bytes:
        value: bytes = self.batches[offset // TOGETHER]["value"][offset % TOGETHER].as_py()
        return value

    def find(self, timestamp: int) -> int:
        at = max(bisect_right(self.firsts, timestamp - 1) - 1, 0)
        while at < len(self.batches):  # equal timestamps may begin in the batch before
            batch = self.batches[at]
            row = int(batch["ts"].to_numpy().searchsorted(timestamp))
            if row < batch.num_rows:
                offset: int = batch["offset"][row].as_py()
                return offset
            at += 1
        raise KeyError(timestamp)

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def close(self) -> None:
        self.batches = []
        if self.file is not None:
            self.file.close()
