"""What a frame reads, when it reads it, and what it says of itself."""

from __future__ import annotations

import datetime
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

import pytest

import kstore
import kstore.arrow
import kstore.polars
from tests.helpers.markers import end_transaction, transactional

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")

FIRST = datetime.datetime(2024, 3, 27, 9, tzinfo=datetime.UTC)


def at(second: int) -> datetime.datetime:
    return FIRST + datetime.timedelta(seconds=second)


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One partition of 100,000 records, a second apart, about 20 MB."""
    path = tmp_path_factory.mktemp("frames") / "orders-0"
    first = int(FIRST.timestamp() * 1000)
    with kstore.open(path, "a", segment_bytes=4 << 20) as log:
        for begin in range(0, 100_000, 500):
            numbers = range(begin, begin + 500)
            log.extend(
                [b"%0200d" % i for i in numbers],
                keys=[b"user-%d" % (i % 7) for i in numbers],
                timestamps=[first + 1000 * i for i in numbers],
            )
    return path


class Counted:
    """The bytes that system calls of this process read."""

    def __enter__(self) -> Self:
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = self._now() - self._before

    @staticmethod
    def _now() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])


def test_a_time_range_reads_its_part(orders: Path) -> None:
    """1 % of the time is at most 3 % of the bytes."""
    size = sum(segment.size for segment in kstore.open(orders).segments)
    time = pl.col("timestamp")
    frame = kstore.polars.scan(orders, in_order=True)
    found = frame.filter(time >= at(50_000), time < at(51_000)).select("offset")
    with Counted() as by_polars:
        rows = found.collect()["offset"].to_list()
    assert rows == list(range(50_000, 51_000))
    assert by_polars.bytes < 0.03 * size
    dataset = kstore.arrow.dataset(orders, in_order=True)  # noqa: F841 - DuckDB finds it by its name
    query = f"""select "offset" from dataset
        where "timestamp" >= '{at(50_000).isoformat()}' and "timestamp" < '{at(51_000).isoformat()}'"""
    with Counted() as by_duckdb:
        assert [offset for (offset,) in duckdb.sql(query).fetchall()] == rows
    assert by_duckdb.bytes < 0.03 * size


@pytest.mark.parametrize(
    ("narrow", "share"),
    [
        (lambda frame: frame.filter(pl.col("offset").is_between(70_000, 70_100)), 0.03),
        (lambda frame: frame.filter(pl.col("timestamp") >= at(99_000)), 0.03),
        (lambda frame: frame.filter(pl.col("partition") == 1), 0.01),
        (lambda frame: frame.filter(pl.col("topic") == "other"), 0.01),
        (lambda frame: frame.head(10), 0.03),
    ],
)
def test_other_filters_read_their_part(orders: Path, narrow: Any, share: float) -> None:
    size = sum(segment.size for segment in kstore.open(orders).segments)
    frame = narrow(kstore.polars.scan(orders))
    with Counted() as read:
        frame.collect()
    assert read.bytes < share * size


def test_filters_on_times_in_milliseconds(orders: Path) -> None:
    """Polars compares numbers with columns of Datetime("ms"), too."""
    log = kstore.open(orders)
    since, until = log.get(25_000).timestamp, log.get(50_000).timestamp
    for timestamps in ("ms", "datetime"):
        frame = kstore.polars.scan(orders, timestamps=timestamps)  # type: ignore[arg-type]
        found = frame.filter(pl.col("timestamp") >= since, pl.col("timestamp") < until).collect()
        assert found["offset"].to_list() == list(range(25_000, 50_000))
    dataset = kstore.arrow.dataset(orders, timestamps="ms")  # noqa: F841 - DuckDB finds it by its name
    query = f'select count(*) from dataset where "timestamp" >= {since} and "timestamp" < {until}'
    assert duckdb.sql(query).fetchall() == [(25_000,)]


def test_explain(orders: Path) -> None:
    time = pl.col("timestamp")
    frame = kstore.polars.scan(orders, in_order=True).filter(time >= at(5)).select("key")
    text = frame.explain()
    assert "PYTHON[kstore] SCAN" in text
    assert "PROJECT 2/8 COLUMNS" in text
    assert 'SELECTION: col("timestamp") >= 2024-03-27 09:00:05 UTC' in text
    assert f"INFO: {orders}, timestamps in order" in text
    assert "SLICE: Positive { offset: 0, len: 3 }" in kstore.polars.scan(orders).head(3).explain()
    dataset = kstore.arrow.dataset(orders)  # noqa: F841
    plan = duckdb.sql('explain select key from dataset where "offset" < 9').fetchall()[0][1]
    assert 'Filters: "offset" < 9' in plan
    assert "Projections: key" in plan


def test_schema(orders: Path) -> None:
    """The types that are told before anything is read are those of the rows."""
    for given in ({}, {"text": ["key"], "timestamps": "ms"}, {"text": []}):
        frame = kstore.polars.scan(orders, **given)
        assert frame.head(1).collect().schema == frame.collect_schema()
        dataset = kstore.arrow.dataset(orders, **given)
        assert dataset.head(1).schema == dataset.schema
    assert dict(kstore.polars.scan(orders).collect_schema()) == {
        "topic": pl.String,
        "partition": pl.Int32,
        "offset": pl.Int64,
        "timestamp": pl.Datetime("ms", "UTC"),
        "timestamp_type": pl.Categorical,
        "key": pl.String,
        "value": pl.String,
        "headers": pl.List(pl.Struct({"key": pl.String, "value": pl.Binary})),
    }


def test_a_frame_reads_what_is_there_when_it_is_collected(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("a")
        frame = kstore.polars.scan(tmp_path).select("topic", "partition", "offset")
        dataset = kstore.arrow.dataset(tmp_path, "a")
        assert frame.collect().rows() == []
        assert dataset.count_rows() == 0
        store.create_topic("b", partitions=2)
        store.log("b", 1).append(b"1")
        store.log("a").append(b"2")
        assert frame.collect().rows() == [("a", 0, 0), ("b", 1, 0)]
        assert kstore.polars.scan(tmp_path, ["b"], partitions=[1]).collect().height == 1
        assert dataset.count_rows() == 1


def test_an_open_log_or_store(tmp_path: Path) -> None:
    """It is read as it is, and a closed one raises."""
    log = kstore.open(tmp_path / "named", "a")  # not the name of a partition
    log.append(b"1", key=b"k")
    frame = kstore.polars.scan(log)
    assert frame.collect_schema().names() == [
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
    ]
    log.append(b"2")
    assert frame.select("value").collect().rows() == [("1",), ("2",)]
    log.close()
    with pytest.raises(kstore.LogClosedError):
        frame.collect()
    assert kstore.polars.scan(tmp_path / "named").collect().height == 2
    with kstore.LogStore(tmp_path / "store", mode="a") as store:
        store.create_topic("a")
        frame = kstore.polars.scan(store)
        store.append("a", b"3")
        assert frame.select("value").collect().rows() == [("3",)]
        dataset = kstore.arrow.dataset(store, "a")
    with pytest.raises(kstore.LogClosedError):
        dataset.to_table()


def test_collected_in_threads(orders: Path) -> None:
    frame = kstore.polars.scan(orders, threads=2)
    found: list[int] = []

    def collect(part: int) -> None:
        mine = frame.filter(pl.col("offset") % 4 == part).select(pl.col("offset").sum()).collect().item()
        found.append(mine)

    threads = [threading.Thread(target=collect, args=(part,)) for part in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sum(found) == sum(range(100_000))


def test_a_self_join_reads_once(orders: Path) -> None:
    frame = kstore.polars.scan(orders).select("offset", "key")
    assert frame.join(frame, on="offset").select(pl.len()).collect().item() == 100_000


def test_committed_and_compacted(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "paid-0", "a", cleanup_policy="compact") as log:
        log.append(b"1", key=b"a", timestamp=10)
        log.append_batches(transactional((11, b"b", b"2", None)))
        end_transaction(log, "ABORT", 12)
        log.append(b"3", key=b"a", timestamp=13)
        log.roll()
        log.append(b"4", key=b"c", timestamp=14)
        log.append_batches(transactional((15, b"d", b"5", None), sequence=1))
    read = {"text": ["key", "value"], "timestamps": "ms"}
    for isolation, values in (
        ("read_uncommitted", ["1", "2", "3", "4", "5"]),
        ("read_committed", ["1", "3", "4"]),
    ):
        frame = kstore.polars.scan(tmp_path / "paid-0", isolation=isolation, **read)
        assert frame.select("value").collect()["value"].to_list() == values
        dataset = kstore.arrow.dataset(tmp_path / "paid-0", isolation=isolation, **read)
        assert dataset.to_table(columns=["value"])["value"].to_pylist() == values
        later = frame.filter(pl.col("timestamp") >= 13).select("value").collect()["value"].to_list()
        assert later == [value for value in values if value >= "3"]
    with kstore.open(tmp_path / "paid-0", "a") as log:
        log.compact()
    frame = kstore.polars.scan(tmp_path / "paid-0", isolation="read_committed")
    kept = kstore.open(tmp_path / "paid-0").records(isolation="read_committed")
    assert frame.select("offset", "value").collect().rows() == [
        (each.offset, each.value.decode()) for each in kept
    ]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "raw-0", "a") as log:
        log.append(b"1", key=b"k")
        log.append(b"\xff", key=b"k")
    frame = kstore.polars.scan(tmp_path / "raw-0")
    assert frame.select("key").collect().height == 2  # a column that is not read is not checked
    with pytest.raises(ValueError, match="value of the record at offset 1 is not UTF-8"):
        frame.collect()
    assert kstore.polars.scan(tmp_path / "raw-0", text=["key"]).collect()["value"].to_list() == [
        b"1",
        b"\xff",
    ]


@pytest.mark.parametrize("make", [kstore.polars.scan, kstore.arrow.dataset])
def test_wrong_arguments(tmp_path: Path, make: Any) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("a")
        store.append("a", b"1")
    wrong: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
        (kstore.LogNotFoundError, "no topic", (tmp_path, "b"), {}),
        (kstore.LogNotFoundError, "no partition", (tmp_path / "b-0",), {}),
        (kstore.LogNotFoundError, "partition", (tmp_path, "a"), {"partitions": [3]}),
        (TypeError, "topic and partitions are for a store", (tmp_path / "a-0",), {"partitions": [0]}),
        (TypeError, "source", (3,), {}),
        (ValueError, "text", (tmp_path,), {"text": ["offset"]}),
        (ValueError, "timestamps", (tmp_path,), {"timestamps": "s"}),
        (ValueError, "isolation", (tmp_path,), {"isolation": "all"}),
        (ValueError, "value_format", (tmp_path,), {"value_format": "xml"}),
        (TypeError, "value_format", (tmp_path,), {"schema": {}}),
    ]
    for kind, text, given, options in wrong:
        with pytest.raises(kind, match=text):
            make(*given, **options)


def test_a_dataset_gives_nothing_away(orders: Path) -> None:
    """To Arrow's own code it has no rows: methods that would hand it on raise an error."""
    dataset = kstore.arrow.dataset(orders)
    for name in ("filter", "get_fragments", "join", "join_asof", "replace_schema", "sort_by"):
        with pytest.raises(NotImplementedError):
            getattr(dataset, name)("offset")
    assert dataset.take([1, 3], columns=["offset"]).to_pylist() == [{"offset": 1}, {"offset": 3}]
    assert sum(batch.num_rows for batch in dataset.to_batches(columns=["key"])) == 100_000


@pytest.mark.parametrize("name", ["polars", "pyarrow"])
def test_without_the_library(orders: Path, name: str) -> None:
    make = "kstore.polars.scan" if name == "polars" else "kstore.arrow.dataset"
    program = f"""
import sys
sys.modules[{name!r}] = None
import kstore, kstore.polars, kstore.arrow
try:
    {make}({str(orders)!r})
except kstore.LibraryError as e:
    print(e)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert f"pip install {name}" in done.stdout or f"{name} cannot be imported" in done.stdout


def test_what_is_named_twice_is_read_once(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("o", partitions=2)
        store.log("o", 0).extend([b"%d" % i for i in range(10)])
        assert sum(len(batch) for batch in store.scan("o", partitions=[0, 0])) == 10
        assert kstore.polars.scan(store, ["o", "o"], partitions=[0, 0, 1]).collect().height == 10
        with pytest.raises(ValueError, match="names no topic"):
            kstore.polars.scan(store, [])
