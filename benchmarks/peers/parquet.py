"""A Parquet file: row groups of 10,000 rows, no dictionary, not packed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from benchmarks.peers.arrow import TOGETHER, look_at, one_thread, table_of, walk
from benchmarks.peers.store import COLUMNS, EXTEND, SCAN, Row, Store


class Parquet(Store):
    """It sits out lookups: the least that it reads is a row group."""

    package = "pyarrow"
    subjects = frozenset({EXTEND, SCAN, COLUMNS})

    def __init__(self, path: Path) -> None:
        one_thread()
        self.path = str(path / "rows.parquet")

    @staticmethod
    def load(rows: Sequence[Row]) -> Any:
        return table_of(rows)

    def extend(self, loaded: Any) -> None:
        pq.write_table(
            loaded,
            self.path,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            row_group_size=TOGETHER,
        )

    def scan(self, stop: int) -> tuple[int, int]:
        with pq.ParquetFile(self.path) as file:
            return walk(file.iter_batches(TOGETHER, use_threads=False), stop)

    def columns(self) -> tuple[int, int]:
        return look_at(pq.read_table(self.path, use_threads=False))

    def count(self) -> int:
        rows: int = pq.read_metadata(self.path).num_rows
        return rows
