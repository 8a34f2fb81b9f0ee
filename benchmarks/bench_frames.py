"""Tables of logs in Polars, DuckDB and pandas, beside the same records in a Parquet file."""

import json
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


@pytest.mark.parametrize("name", ["flat", "nested", "sparse"])
def bench_frames_json(race: Race, data: Data, name: str) -> None:
    """Values in JSON, read from a log and decoded into a struct. Polars: the same texts, in memory, decoded by
    str.json_decode. sparse: a fifth of the fields of nested are missing."""
    pl = pytest.importorskip("polars")
    pytest.importorskip("duckdb")
    count = 1 << 18
    kind = {"id": pl.Int64, "user": pl.String, "amount": pl.Float64, "ok": pl.Boolean}
    if name != "flat":
        kind |= {"tags": pl.List(pl.String), "address": pl.Struct({"city": pl.String, "zip": pl.Int64})}
    address = {"city": "Berlin", "zip": 10115}
    values = []
    for i in range(count):
        row = {"id": i, "user": f"user-{i % 1000}", "amount": i * 0.25, "ok": i % 3 == 0}
        row |= {"tags": ["a", "b"], "address": address} if name != "flat" else {}
        dropped = i % 5 if name == "sparse" else 5
        values.append(json.dumps({key: row[key] for key in row if len(key) % 5 != dropped}).encode())
    path = data.work / f"json_{name}-0"
    if not path.exists():
        with kstore.open(path, "a") as log:
            log.extend(values)
    texts = pl.Series([value.decode() for value in values])
    frame = kstore.polars.scan(path, value_format="json", schema=kind).select("value")
    assert (
        frame.collect()["value"].struct["id"].to_list()
        == texts.str.json_decode(pl.Struct(kind)).struct["id"].to_list()
    )
    race(
        f"frames_json_{name}",
        "record",
        InProcess("kstore", lambda *_: None, lambda _: (count, len(frame.collect()))),
        InProcess("Polars", lambda *_: None, lambda _: (count, len(texts.str.json_decode(pl.Struct(kind))))),
        goals=(Goal("Polars", speed=3),),
        rounds=min(race.rounds, 11),
    )
