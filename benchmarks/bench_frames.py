"""Tables of logs in Polars, DuckDB and pandas, beside the same records in a Parquet file."""

from collections.abc import Callable
from typing import Any

import pytest

import kstore
import kstore.arrow
import kstore.polars
from benchmarks.data import Data
from benchmarks.interleave import Goal, Race
from benchmarks.peers import InProcess
from kstore.libraries import library

RECORDS = 2_000_000
FILE = "frames.parquet"


def _written(data: Data) -> kstore.PartitionLog:
    """Records with keys of about 8 bytes, values of 100 and ten a second, as a log and as a Parquet file."""
    path = data.work / "frames-0"
    if not path.exists():
        with kstore.open(path, "a", segment_bytes=128 << 20) as log:
            for first in range(0, RECORDS, 1000):
                numbers = range(first, first + 1000)
                log.extend(
                    [b"%010d" % i * 10 for i in numbers],
                    keys=[b"user-%d" % (i * 7 % 1000) for i in numbers],
                    timestamps=[1711530458631 + 100 * i for i in numbers],
                )
        columns = ["offset", "timestamp", "key", "value"]
        table = kstore.open(path).scan(columns, timestamps="datetime", text=["key", "value"]).to_arrow()
        library("pyarrow.parquet").write_table(table, data.work / FILE)
    return kstore.open(path)


@pytest.mark.parametrize("name", ["polars", "duckdb", "pandas"])
def bench_frames_grouped(race: Race, data: Data, name: str) -> None:
    """2 million records counted by hour and key. Parquet: the same columns in a file that pyarrow wrote."""
    pytest.importorskip(name)
    log = _written(data)
    ours, theirs = {"polars": _polars, "duckdb": _duckdb, "pandas": _pandas}[name](log, str(data.work / FILE))
    race(
        f"frames_grouped_{name}",
        "record",
        _grouping("kstore", ours),
        _grouping("Parquet", theirs),
        goals=(Goal("Parquet", speed=1 / 1.5),),
        rounds=min(race.rounds, 11),
    )


def _grouping(name: str, groups: Callable[[], int]) -> InProcess[None]:
    return InProcess(name, lambda *_: None, lambda _: (RECORDS, groups()))


def _polars(log: kstore.PartitionLog, file: str) -> tuple[Callable[[], int], Callable[[], int]]:
    pl = library("polars")

    def grouped(frame: Any) -> int:
        return len(frame.group_by(pl.col("timestamp").dt.truncate("1h"), "key").len().collect())

    return lambda: grouped(kstore.polars.scan(log.path)), lambda: grouped(pl.scan_parquet(file))


def _duckdb(log: kstore.PartitionLog, file: str) -> tuple[Callable[[], int], Callable[[], int]]:
    duckdb = library("duckdb")

    def grouped(table: str, dataset: Any = None) -> int:
        query = f"select date_trunc('hour', \"timestamp\") as hour, key, count(*) from {table} group by all"
        return len(duckdb.sql(query).fetchnumpy()["hour"])

    return lambda: grouped("dataset", kstore.arrow.dataset(log.path)), lambda: grouped(f"'{file}'")


def _pandas(log: kstore.PartitionLog, file: str) -> tuple[Callable[[], int], Callable[[], int]]:
    pandas = library("pandas")

    def grouped(frame: Any) -> int:
        return len(frame.groupby([frame["timestamp"].dt.floor("h"), "key"]).size())

    def ours() -> int:
        return grouped(log.scan(["timestamp", "key"], timestamps="datetime", text=["key"]).to_pandas())

    return ours, lambda: grouped(pandas.read_parquet(file, columns=["timestamp", "key"]))
