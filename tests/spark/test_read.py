"""The same rows whichever way Spark reads them, and what kstore's own reader gives."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark
from kstore.spark.columns import COLUMNS, arrow_schema, timestamp_type

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TOPICS = ["append.time", "bounded", "codecs", "events", "payments", "recompressed", "state_store", "trimmed"]
Row = tuple[Any, ...]


def rows_of(root: Path, topics: list[str], isolation: str = "read_uncommitted") -> list[Row]:
    """All columns of all records, as the DataFrame has them once timestamps are ms."""
    rows: list[Row] = []
    store = kstore.LogStore(root)
    for tp in store:
        if tp.topic not in topics:
            continue
        with store.open(*tp) as log:
            rows += [
                (r.key, r.value, *tp, r.offset, r.timestamp, timestamp_type(r), r.headers or None)
                for r in log.records(isolation=isolation)
            ]
    return sorted(rows, key=lambda row: row[2:5])


def collected(frame: Any) -> list[Row]:
    frame = frame.selectExpr(
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
    for row in frame.collect():
        key, value, *middle, headers = row
        rows.append(
            (
                None if key is None else bytes(key),
                None if value is None else bytes(value),
                *middle,
                None
                if headers is None
                else tuple((h.key, None if h.value is None else bytes(h.value)) for h in headers),
            )
        )
    return sorted(rows, key=lambda row: row[2:5])


def reader(spark: Any, broker: Path, **options: str) -> Any:
    kstore.spark.register(spark)
    return spark.read.format("kstore").options(path=str(broker), **options)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_all_paths_give_the_rows_of_the_golden_broker(spark: Any, broker: Path, isolation: str) -> None:
    expected = rows_of(broker, TOPICS, isolation)
    assert len(expected) > 400

    frames = [
        kstore.spark.dataframe(
            spark, broker, TOPICS, via=via, isolation=isolation, includeHeaders=True, minPartitions=12
        )
        for via in (("datasource", "mapInArrow") if spark.version >= "4" else ("mapInArrow",))
    ]
    for frame in frames:
        assert collected(frame) == expected

    def of_record(record: Row) -> Row:
        return record

    plan: dict[str, Any] = {"isolation": isolation, "target_bytes": 4000}
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    records = kstore.spark.rdd(
        spark.sparkContext, broker, TOPICS, as_="records", columns=names, **plan
    ).collect()
    assert sorted(((*r[:7], r[7] or None) for r in records), key=lambda row: row[2:5]) == expected

    batches = kstore.spark.rdd(spark.sparkContext, broker, TOPICS, columns=names, **plan).collect()
    found = []
    for b in batches:
        found += [
            (b.keys[i], b.values[i], b.topic, b.partition, int(b.offsets[i]), int(b.timestamps[i]))
            for i in range(len(b))
        ]
    assert sorted(found, key=lambda row: row[2:5]) == [row[:6] for row in expected]

    arrow = kstore.spark.rdd(spark.sparkContext, broker, TOPICS, as_="arrow", **plan).collect()
    assert sum(b.num_rows for b in arrow) == len(expected)
    assert all(b.schema.equals(arrow_schema(COLUMNS[:-1])) for b in arrow)


def test_arrow_schema_is_the_one_spark_expects(spark: Any) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from kstore.spark.schema import spark_schema

    zone = {"timezone": "UTC"} if spark.version >= "4.2" else {}
    expected = to_arrow_schema(spark_schema(COLUMNS), **zone)
    assert arrow_schema(COLUMNS).equals(expected)


@pytest.mark.datasource
def test_sql_and_projection(spark: Any, broker: Path) -> None:
    frame = reader(spark, broker, subscribe="events").schema("timestamp timestamp, offset bigint").load()
    assert frame.columns == ["timestamp", "offset"]
    assert frame.count() == 146
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW events USING kstore OPTIONS (path '{broker}', subscribe 'events')"
    )
    [[count, last]] = spark.sql("SELECT count(*), max(offset) FROM events WHERE partition = 0").collect()
    assert (count, last) == (104, 103)


@pytest.mark.datasource
def test_a_filter_does_not_stay_with_the_frame(spark: Any, broker: Path) -> None:
    frame = reader(spark, broker, subscribe="events").load()
    assert frame.where("offset < 20").count() == 38
    assert frame.count() == 146
    assert frame.where("offset < 20").union(frame).count() == 184


@pytest.mark.datasource
def test_offsets_times_patterns_and_partitions(spark: Any, broker: Path) -> None:
    def count(**options: str) -> int:
        return int(reader(spark, broker, **options).load().count())

    assert count(subscribePattern="ev.*") == 146
    assert count(subscribePattern="none.*") == 0
    assert count(assign='{"events": [1]}') == 42
    ranges = json.dumps({"events": {"0": 10, "1": -2}}), json.dumps({"events": {"0": 30, "1": -1}})
    assert count(subscribe="events", startingOffsets=ranges[0], endingOffsets=ranges[1]) == 20 + 42
    rows = rows_of(broker, ["events"])
    middle = sorted(row[5] for row in rows if row[3] == 0)[50]
    first = next(row[4] for row in rows if row[3] == 0 and row[5] >= middle)
    assert count(assign='{"events": [0]}', startingTimestamp=str(middle)) == 104 - first
    assert count(assign='{"events": [0]}', endingTimestamp=str(middle)) == first


@pytest.mark.datasource
def test_a_frame_is_a_snapshot(spark: Any, tmp_path: Path) -> None:
    with kstore.open(tmp_path / "grows-0", "a") as log:
        log.extend([b"v"] * 1000)
        log.flush()
        frame = reader(spark, tmp_path, subscribe="grows").load()
        assert frame.count() == 1000
        log.extend([b"v"] * 2000)
        log.flush()
        assert frame.count() == (1000 if spark.version >= "4.1" else 3000)  # 4.0 plans every action anew
        assert reader(spark, tmp_path, subscribe="grows").load().count() == 3000


def test_a_pattern_is_a_topic_argument_too(spark: Any, broker: Path) -> None:
    assert kstore.spark.dataframe(spark, broker, re.compile("events"), columns=["offset"]).count() == 146
    assert kstore.spark.dataframe(spark, broker, {"events": [0]}, columns=["offset"]).count() == 104


@pytest.mark.datasource
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"subscribe": "events", "startingOffset": "earliest"},
            "KSTORE_INVALID_OPTION.*nearest is startingOffsets",
        ),
        ({}, "KSTORE_INVALID_OPTION.*one of subscribe, subscribePattern and assign"),
        ({"subscribe": "nothing"}, "KSTORE_TOPIC_NOT_FOUND: topic nothing, file .*: no such topic there"),
        (
            {"subscribe": "events", "startingOffsets": "{"},
            "KSTORE_INVALID_OPTION: startingOffsets is no JSON",
        ),
        ({"subscribe": "events", "failOnDataLoss": "no"}, "KSTORE_INVALID_OPTION.*true or false"),
    ],
)
def test_wrong_options_are_reported_at_load(
    spark: Any, broker: Path, options: dict[str, str], text: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=text):
        reader(spark, broker, **options).load()


@pytest.mark.parametrize("via", ["auto", "mapInArrow"])
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"startingOffset": "earliest"}, "KSTORE_INVALID_OPTION"),
        ({"startingOffsets": {"events": {"0": 0}}}, "KSTORE_INVALID_OPTION"),
        ({"startingOffsets": {"events": {"0": 999, "1": 0}}}, "KSTORE_OFFSET_OUT_OF_RANGE"),
        ({"startingTimestamp": 2**50}, "KSTORE_OFFSET_OUT_OF_RANGE"),
    ],
)
def test_dataframe_reports_at_once(spark: Any, broker: Path, options: Any, code: str, via: Any) -> None:
    with pytest.raises(ValueError, match=f"^{code}: "):
        kstore.spark.dataframe(spark, broker, "events", columns=["offset"], via=via, **options)


@pytest.mark.datasource
def test_tables_and_views_of_the_catalog(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 5)
    kstore.spark.register(spark)
    options = f"USING kstore OPTIONS (path 'file:{tmp_path}', subscribe 't')"
    with pytest.raises(
        AnalysisException, match=r"table of the catalog .* does not work.*CREATE TEMPORARY VIEW"
    ):
        spark.sql(f"CREATE TABLE kstore_one {options}")
    spark.sql(f"CREATE TABLE kstore_two (value BINARY) {options}")
    try:
        with pytest.raises(
            AnalysisException, match=r"table of the catalog .* does not work.*CREATE TEMPORARY VIEW"
        ):
            spark.sql("SELECT count(*) FROM kstore_two").collect()
        with pytest.raises(AnalysisException, match=r"KSTORE_UNSUPPORTED: a table of the catalog"):
            spark.sql("INSERT INTO kstore_two VALUES (X'00')")
    finally:
        spark.sql("DROP TABLE kstore_two")
    spark.sql(f"CREATE TEMPORARY VIEW kstore_three {options}")
    assert spark.sql("SELECT count(*) FROM kstore_three").collect()[0][0] == 5
    spark.sql(f"CREATE TEMPORARY VIEW kstore_four (offset BIGINT) {options}")
    assert [row.asDict() for row in spark.sql("SELECT * FROM kstore_four").collect()] == [
        {"offset": offset} for offset in range(5)
    ]


@pytest.mark.datasource
def test_missing_directory_and_wrong_schema(spark: Any, tmp_path: Path, broker: Path) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=r"KSTORE_PATH_NOT_FOUND: file .*nowhere: no log directory"):
        reader(spark, tmp_path / "nowhere", subscribe="events").load()
    with pytest.raises(AnalysisException, match=r"KSTORE_INVALID_SCHEMA: no column offset int; any of"):
        reader(spark, broker, subscribe="events").schema("offset int").load().count()


@pytest.mark.datasource
def test_a_corrupt_batch_is_named(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import PythonException

    with kstore.open(tmp_path / "broken-0", "a") as log:
        log.append(b"first")
        log.append(b"second" * 100)
        segment = Path(log.segments[0].path)
    data = bytearray(segment.read_bytes())
    data[-5] ^= 1
    segment.write_bytes(data)
    frame = reader(spark, tmp_path, subscribe="broken").schema("value binary").load()
    with pytest.raises(
        PythonException, match=r"KSTORE_CORRUPT_BATCH: topic broken, partition 0, offset 1, file .*log"
    ):
        frame.collect()


@pytest.mark.parametrize("strict", [True, False])
def test_retention_under_a_planned_job(spark: Any, tmp_path: Path, strict: bool) -> None:
    from pyspark.errors import PythonException

    with kstore.open(tmp_path / "old-0", "a", retention_bytes=1, file_delete_delay_ms=0) as log:
        log.append(b"gone")
        log.roll()
        log.append(b"here")
        log.flush()
        rdd = kstore.spark.rdd(spark.sparkContext, tmp_path, "old", as_="records", fail_on_data_loss=strict)
        assert rdd.count() == 2
        log.retain()
        if strict:
            with pytest.raises(
                Exception, match=r"KSTORE_DATA_LOST: topic old, partition 0, offset 0, file "
            ) as e:
                rdd.count()
            assert isinstance(e.value, PythonException) or "Py4J" in type(e.value).__name__
        else:
            assert [row[3] for row in rdd.collect()] == [b"here"]
