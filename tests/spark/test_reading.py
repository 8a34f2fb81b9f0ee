"""Batch queries: every way of reading in Spark gives the rows that kstore's own reader gives."""

import json
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark
from kstore.spark import COLUMNS
from tests.helpers.effort import times
from tests.helpers.files import flip

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TOPICS = ["append.time", "bounded", "codecs", "events", "payments", "recompressed", "state_store", "trimmed"]
TYPES = ("NoTimestampType", "CreateTime", "LogAppendTime")  # by Spark's numbers plus 1
Row = tuple[Any, ...]


def rows_of(root: Path, topics: list[str], isolation: str = "read_uncommitted") -> list[Row]:
    """All columns of all records, as a DataFrame has them with timestamps in ms."""
    rows: list[Row] = []
    store = kstore.LogStore(root)
    for tp in store:
        if tp.topic in topics:
            with store.open(*tp) as log:
                for r in log.records(isolation=isolation):
                    kind = TYPES.index(r.timestamp_type) - 1
                    rows.append((r.key, r.value, *tp, r.offset, r.timestamp, kind, r.headers or None))
    return sorted(rows, key=lambda row: row[2:5])


def collected(frame: Any) -> list[Row]:
    names = (
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "unix_millis(timestamp)",
        "timestampType",
        "headers",
    )
    rows = []
    for key, value, *middle, headers in frame.selectExpr(*names).collect():
        cells = headers and tuple((h.key, h.value and bytes(h.value)) for h in headers)
        rows.append(
            (key if key is None else bytes(key), value if value is None else bytes(value), *middle, cells)
        )
    return sorted(rows, key=lambda row: row[2:5])


def reader(spark: Any, path: Path, **options: str) -> Any:
    kstore.spark.register(spark)
    return spark.read.format("kstore").options(path=str(path), **options)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_every_way_gives_the_rows_of_a_brokers_directory(spark: Any, broker: Path, isolation: str) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    expected = rows_of(broker, TOPICS, isolation)
    assert len(expected) > 400
    for via in ("datasource", "mapInArrow") if spark.version >= "4" else ("mapInArrow",):
        frame = kstore.spark.dataframe(
            spark, broker, TOPICS, via=via, isolation=isolation, includeHeaders=True, minPartitions=6
        )
        assert collected(frame) == expected

    def rdd(as_: Any, names: Any = None) -> list[Any]:
        sc, plan = spark.sparkContext, {"isolation": isolation, "target_bytes": 4000}
        return list(kstore.spark.rdd(sc, broker, TOPICS, as_=as_, columns=names, **plan).collect())

    records = [(*row[:7], row[7] or None) for row in rdd("records", COLUMNS)]
    assert sorted(records, key=lambda row: row[2:5]) == expected
    found = [
        (b.keys[i], b.values[i], b.topic, b.partition, int(b.offsets[i]), int(b.timestamps[i]))
        for b in rdd("batches", ["key", "value", "topic", "partition", "offset", "timestamp"])
        for i in range(len(b))
    ]
    assert sorted(found, key=lambda row: row[2:5]) == [row[:6] for row in expected]
    arrow = rdd("arrow", COLUMNS)
    assert sum(b.num_rows for b in arrow) == len(expected)
    zone = {"timezone": "UTC"} if spark.version >= "4.2" else {}
    assert all(b.schema.equals(to_arrow_schema(frame.schema, **zone)) for b in arrow)


def test_every_way_gives_all_records_of_a_large_log(spark: Any, tmp_path: Path) -> None:
    count = times(40_000)
    for partition, codec in enumerate(("producer", "lz4")):
        path = tmp_path / f"t-{partition}"
        with kstore.open(path, "a", compression_type=codec, internal_segment_bytes=1 << 20) as log:
            for start in range(partition, count, 200_000):
                numbers = range(start, min(start + 200_000, count), 2)
                log.extend([b"%068d" % (n * 7919) for n in numbers], [b"%016d" % n for n in numbers])

    def summed(rows: Any) -> tuple[int, int, int]:
        counted = total = check = 0
        for offset, key, value in rows:
            counted, total = counted + 1, total + offset
            check ^= zlib.crc32(key + value) * 1_000_003 + offset
        return counted, total, check

    def of_arrow(batch: Any) -> Any:
        return zip(*(batch.column(name).to_pylist() for name in names), strict=True)

    def of_batch(batch: Any) -> Any:
        return ((int(offset), batch.keys[i], batch.values[i]) for i, offset in enumerate(batch.offsets))

    names = ["offset", "key", "value"]
    logs = (kstore.open(tmp_path / f"t-{partition}") for partition in (0, 1))
    expected = summed((r.offset, r.key, r.value) for log in logs for r in log)
    assert expected[0] == count
    more: dict[str, Any] = {"columns": names, "target_bytes": times(1 << 20)}
    for as_, rows in (("records", lambda row: [row]), ("batches", of_batch), ("arrow", of_arrow)):
        rdd = kstore.spark.rdd(spark.sparkContext, tmp_path, "t", as_=as_, **more)  # type: ignore[arg-type]
        parts = rdd.mapPartitions(lambda items, rows=rows: [summed(r for item in items for r in rows(item))])
        found = parts.reduce(lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] ^ b[2]))
        assert found == expected, as_
    check = "bit_xor(crc32(concat(key, value)) * 1000003 + offset)"
    for via in ("datasource", "mapInArrow") if spark.version >= "4" else ("mapInArrow",):
        frame = kstore.spark.dataframe(spark, tmp_path, "t", via=via, minPartitions=4)
        assert tuple(frame.selectExpr("count(*)", "sum(offset)", check).first()) == expected, via


@pytest.mark.datasource
def test_projection_and_views(spark: Any, broker: Path) -> None:
    frame = reader(spark, broker, subscribe="events").schema("timestamp timestamp, offset bigint").load()
    assert frame.columns == ["timestamp", "offset"]
    assert frame.count() == 146
    spark.sql(f"CREATE TEMPORARY VIEW events USING kstore OPTIONS (path '{broker}', subscribe 'events')")
    [[count, last]] = spark.sql("SELECT count(*), max(offset) FROM events WHERE partition = 0").collect()
    assert (count, last) == (104, 103)


@pytest.mark.datasource
def test_a_filter_does_not_stay_with_the_frame(spark: Any, broker: Path) -> None:
    frame = reader(spark, broker, subscribe="events").load()
    assert frame.where("offset < 20").count() == 38
    assert frame.count() == 146
    assert frame.where("offset < 20").union(frame).count() == 184


@pytest.mark.datasource
def test_filters_are_pushed_where_spark_then_gives_right_rows(spark: Any) -> None:
    """If this fails, this Spark gives right rows (or wrong ones in another way): see filter_pushdown.md."""
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

    from tests.spark.filter_pushdown import PUSHDOWN, results

    # another method here would tell a source which columns a query needs, or how many rows
    hooks = {name for name in vars(DataSourceReader) if not name.startswith("_")}
    assert hooks <= {"partitions", "read", "pushFilters"}
    if "pushFilters" not in hooks:
        pytest.skip("Spark 4.0 pushes no filters to a source in Python")
    spark.conf.set(PUSHDOWN, "true")
    try:
        found = results(spark)
    finally:
        spark.conf.unset(PUSHDOWN)
    assert all(counted == right for _, right, counted in found[:2])  # the program does what it says
    is_right = all(counted == right for _, right, counted in found)
    own = kstore.spark.KStoreDataSource({"path": "/log", "subscribe": "t"}).reader(StructType([]))
    pushes = type(own).pushFilters is not DataSourceReader.pushFilters
    assert pushes == is_right, found


@pytest.mark.datasource
def test_offsets_times_patterns_and_partitions(spark: Any, broker: Path) -> None:
    def count(**options: str) -> int:
        return int(reader(spark, broker, **options).load().count())

    assert count(subscribePattern="ev.*") == 146
    assert count(subscribePattern="none.*") == 0
    assert count(assign='{"events": [1]}') == 42
    start, end = json.dumps({"events": {"0": 10, "1": -2}}), json.dumps({"events": {"0": 30, "1": -1}})
    assert count(subscribe="events", startingOffsets=start, endingOffsets=end) == 20 + 42
    rows = [row for row in rows_of(broker, ["events"]) if row[3] == 0]
    middle = sorted(row[5] for row in rows)[50]
    first = next(row[4] for row in rows if row[5] >= middle)
    assert count(assign='{"events": [0]}', startingTimestamp=str(middle)) == 104 - first
    assert count(assign='{"events": [0]}', endingTimestamp=str(middle)) == first
    for topics, expected in ((re.compile("events"), 146), ({"events": [0]}, 104)):
        assert kstore.spark.dataframe(spark, broker, topics, columns=["offset"]).count() == expected


@pytest.mark.datasource
def test_a_frame_is_a_snapshot(spark: Any, tmp_path: Path) -> None:
    with kstore.open(tmp_path / "grows-0", "a") as log:
        log.extend([b"v"] * 1000)
        log.flush()
        frame = reader(spark, tmp_path, subscribe="grows").load()
        assert frame.count() == 1000
        log.extend([b"v"] * 2000)
        log.flush()
        assert frame.count() == (1000 if spark.version >= "4.1" else 3000)  # 4.0 plans each action again
        assert reader(spark, tmp_path, subscribe="grows").load().count() == 3000


@pytest.mark.datasource
def test_what_is_wrong_is_reported_at_load(spark: Any, broker: Path, tmp_path: Path) -> None:
    """test_options.py has the other options; here, that Spark's user sees the error."""
    from pyspark.errors import AnalysisException

    for path, options, text in (
        (broker, {"subscribe": "events", "startingOffset": "earliest"}, "the nearest is startingOffsets"),
        (broker, {"subscribe": "nothing"}, "KSTORE_TOPIC_NOT_FOUND: topic nothing, file .*: no such topic"),
        (tmp_path / "nowhere", {"subscribe": "events"}, "KSTORE_PATH_NOT_FOUND: file .*nowhere: no log dir"),
    ):
        with pytest.raises(AnalysisException, match=text):
            reader(spark, path, **options).load()
    with pytest.raises(AnalysisException, match=r"KSTORE_INVALID_SCHEMA: no column offset int; any of"):
        reader(spark, broker, subscribe="events").schema("offset int").load().count()
    kstore.open(tmp_path / "log" / "t-0", "a").close()
    frame = reader(spark, tmp_path / "log", subscribe="t").load()
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(
        AnalysisException, match=r"KSTORE_PATH_NOT_FOUND: file .*/log: no log directory there"
    ):
        frame.count()


def test_a_dataframe_reports_at_once(spark: Any, broker: Path) -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"startingOffset": "earliest"}, "KSTORE_INVALID_OPTION"),
        ({"startingOffsets": {"events": {"0": 0}}}, "KSTORE_INVALID_OPTION"),
        ({"startingOffsets": {"events": {"0": 999, "1": 0}}}, "KSTORE_OFFSET_OUT_OF_RANGE"),
    )
    for options, code in cases:
        for via in ("auto", "mapInArrow"):
            with pytest.raises(ValueError, match=f"^{code}: "):
                kstore.spark.dataframe(spark, broker, "events", columns=["offset"], via=via, **options)


@pytest.mark.datasource
def test_tables_of_the_catalog(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 5)
    kstore.spark.register(spark)
    options = f"USING kstore OPTIONS (path 'file:{tmp_path}', subscribe 't')"
    does_not_work = r"table of the catalog .* does not work.*CREATE TEMPORARY VIEW"
    with pytest.raises(AnalysisException, match=does_not_work):
        spark.sql(f"CREATE TABLE kstore_one {options}")
    spark.sql(f"CREATE TABLE kstore_two (value BINARY) {options}")
    try:
        with pytest.raises(AnalysisException, match=does_not_work):
            spark.sql("SELECT count(*) FROM kstore_two").collect()
        with pytest.raises(AnalysisException, match=r"KSTORE_UNSUPPORTED: a table of the catalog"):
            spark.sql("INSERT INTO kstore_two VALUES (X'00')")
    finally:
        spark.sql("DROP TABLE kstore_two")
    spark.sql(f"CREATE TEMPORARY VIEW kstore_three (offset BIGINT) {options}")
    rows = spark.sql("SELECT * FROM kstore_three").collect()
    assert [row.asDict() for row in rows] == [{"offset": offset} for offset in range(5)]


def test_a_corrupt_batch_is_named(spark: Any, tmp_path: Path) -> None:
    with kstore.open(tmp_path / "broken-0", "a") as log:
        log.append(b"first")
        log.append(b"second" * 100)
        segment = Path(log.segments[0].path)
    flip(segment, -5)
    text = r"KSTORE_CORRUPT_BATCH: topic broken, partition 0, offset 1, file .*/broken-0/0+\.log: "
    for via in ("datasource", "mapInArrow") if spark.version >= "4" else ("mapInArrow",):
        frame = kstore.spark.dataframe(spark, tmp_path, "broken", columns=["value"], via=via)
        with pytest.raises(Exception, match=text):
            frame.collect()
    for as_ in ("batches", "arrow", "records"):
        with pytest.raises(Exception, match=text):
            kstore.spark.rdd(spark.sparkContext, tmp_path, "broken", as_=as_).count()


@pytest.mark.parametrize("strict", [True, False])
def test_retention_under_a_planned_job(spark: Any, tmp_path: Path, strict: bool) -> None:
    with kstore.open(tmp_path / "old-0", "a", retention_bytes=1, file_delete_delay_ms=0) as log:
        log.append(b"gone")
        log.roll()
        log.append(b"here")
        log.flush()
        rdd = kstore.spark.rdd(spark.sparkContext, tmp_path, "old", as_="records", fail_on_data_loss=strict)
        assert rdd.count() == 2
        log.retain()
        if strict:
            with pytest.raises(Exception, match=r"KSTORE_DATA_LOST: topic old, partition 0, offset 0, file "):
                rdd.count()
        else:
            assert [row[3] for row in rdd.collect()] == [b"here"]


@pytest.mark.datasource
def test_many_partitions_in_few_tasks(spark: Any, tmp_path: Path) -> None:
    ends = {}
    for partition in range(30):
        ends[partition] = list(range(partition % 7 + 1))
        with kstore.open(tmp_path / f"t-{partition}", "a") as log:
            log.extend([b"v" * 50] * len(ends[partition]))

    def offsets(frame: Any) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for row in frame.select("partition", "offset").collect():
            found.setdefault(row.partition, []).append(row.offset)
        return found

    def tasks(frame: Any) -> int:
        return int(frame.rdd.getNumPartitions())

    splits = kstore.spark.plan_splits(tmp_path, "t")
    few, many = (len(kstore.spark.pack_splits(splits, parallelism=n)) for n in (2, 20))
    if spark.sparkContext.master.startswith("local"):
        assert few < many < len(splits)
    else:  # on a cluster as many tasks as partitions are expected to find room
        few = len(kstore.spark.pack_splits(splits, parallelism=200))
    for via in ("datasource", "mapInArrow"):
        frame = kstore.spark.dataframe(spark, tmp_path, "t", columns=["partition", "offset"], via=via)
        assert tasks(frame) == few
        assert offsets(frame) == ends
        spark.conf.set("spark.sql.files.minPartitionNum", "20")
        try:
            assert tasks(kstore.spark.dataframe(spark, tmp_path, "t", columns=["offset"], via=via)) == many
        finally:
            spark.conf.unset("spark.sql.files.minPartitionNum")
        assert tasks(kstore.spark.dataframe(spark, tmp_path, "t", via=via, minPartitionNum=20)) == many
    assert kstore.spark.rdd(spark.sparkContext, tmp_path, "t").getNumPartitions() == few
    halves = [tmp_path / "one", tmp_path / "two"]
    for partition in ends:
        half = halves[partition % 2]
        half.mkdir(exist_ok=True)
        (tmp_path / f"t-{partition}").rename(half / f"t-{partition}")
    load = spark.read.format("kstore").option("subscribe", "t").load
    assert offsets(load([str(half) for half in halves])) == ends
    assert offsets(kstore.spark.dataframe(spark, halves, "t")) == ends
