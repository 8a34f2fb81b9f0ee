"""What Arrow IPC and Parquet share: rows as a table, and how everything in one is looked at. One thread
each."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from benchmarks.peers.store import Row

TOGETHER = 10_000  # rows of a record batch or a row group


def one_thread() -> None:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def table_of(rows: Sequence[Row]) -> Any:
    offsets, timestamps, keys, values = zip(*rows, strict=True)
    return pa.table(
        {
            "offset": pa.array(offsets, pa.int64()),
            "ts": pa.array(timestamps, pa.int64()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )


def look_at(table: Any) -> tuple[int, int]:
    """Sums of the numbers, lengths of the keys, contents of the values: how many rows, and the sum of their
    offsets."""
    offsets, timestamps, keys, values = table.columns
    pc.sum(timestamps)
    pc.sum(pc.binary_length(keys))
    pc.max(values)
    return table.num_rows, pc.sum(offsets).as_py()


def walk(batches: Any, stop: int) -> tuple[int, int]:
    """Rows as Python objects."""
    seen, last = 0, -1
    for batch in batches:
        if seen + batch.num_rows > stop:
            batch = batch.slice(0, stop - seen)
        for offset, _ts, _key, _value in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            last = offset
            seen += 1
        if seen == stop:
            break
    return seen, last
