"""Rows become records once for each transaction, whatever fails on the way."""

import time
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark
from kstore.spark.partitioner import partition_of_key
from kstore.spark.publish import Sink

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]


def write(frame: Any, path: Path, **options: str) -> None:
    kstore.spark.register(frame.sparkSession)
    frame.write.format("kstore").mode("append").options(path=str(path), **options).save()


def values(path: Path, isolation: str = "read_committed") -> list[bytes]:
    found: list[bytes] = []
    store = kstore.LogStore(path)
    for tp in store:
        with store.open(*tp) as log:
            found += [r.value or b"" for r in log.records(isolation=isolation)]
    return sorted(found)


def staged(path: Path) -> list[Path]:
    return [p for p in (path.parent / f".{path.name}.kstore-spark").rglob("*") if p.is_file()]


def numbers(spark: Any, count: int, parts: int = 4) -> Any:
    return spark.range(count, numPartitions=parts).selectExpr("cast(id as string) as value")


def expected(count: int) -> list[bytes]:
    return sorted(str(i).encode() for i in range(count))


def test_copy_of_the_golden_topics_is_the_same(spark: Any, broker: Path, tmp_path: Path) -> None:
    frame = kstore.spark.dataframe(spark, broker, ["codecs", "recompressed"], includeHeaders=True)
    write(frame, tmp_path / "copy", **{"kstore.compression.type": "zstd"})
    source, copy = kstore.LogStore(broker), kstore.LogStore(tmp_path / "copy")
    for topic in ("codecs", "recompressed"):
        with source.open(topic) as one, copy.open(topic) as other:
            assert [(r.key, r.value, r.timestamp, r.headers) for r in one] == [
                (r.key, r.value, r.timestamp, r.headers) for r in other
            ]
            assert {b.codec for b in other.batches()} == {"zstd"}
    assert staged(tmp_path / "copy") == []


def test_routing(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(1000, numPartitions=3).selectExpr(
        "cast(id as string) as value",
        "if(id % 3 = 0, cast(id as string), null) as key",
        "if(id % 5 = 0, 4, null) as partition",
    )
    write(frame, tmp_path / "out", topic="routed", numPartitions="6")
    store = kstore.LogStore(tmp_path / "out")
    assert store.topics == {"routed": [0, 1, 2, 3, 4, 5]}
    free = []
    for tp in store:
        with store.open(*tp) as log:
            for record in log:
                assert record.value is not None
                number = int(record.value)
                if number % 5 == 0:
                    assert tp.partition == 4
                elif number % 3 == 0:
                    assert record.key is not None
                    assert tp.partition == partition_of_key(record.key, 6)
                else:
                    free.append(tp.partition)
            assert log.log_end_offset > 0
    assert len(free) == sum(1 for i in range(1000) if i % 5 and i % 3)
    assert max(map(free.count, range(6))) - min(map(free.count, range(6))) <= 6


def test_the_option_topic_overrides_the_column(spark: Any, tmp_path: Path) -> None:
    """As with Spark's sink for Kafka: a copy within a directory must not go back into its source."""
    with kstore.open(tmp_path / "data" / "orders-0", "a") as log:
        log.extend([b"x"] * 10)
    write(kstore.spark.dataframe(spark, tmp_path / "data", "orders"), tmp_path / "data", topic="copy")
    for topic in ("orders", "copy"):
        with kstore.open(tmp_path / "data" / f"{topic}-0") as log:
            assert [r.value for r in log] == [b"x"] * 10


def test_the_same_transaction_id_is_written_once(spark: Any, tmp_path: Path) -> None:
    frame = numbers(spark, 500)
    for _ in range(2):
        write(frame, tmp_path / "out", topic="t", txnId="load of monday")
    assert values(tmp_path / "out") == expected(500)
    write(frame, tmp_path / "out", topic="t", txnId="load of tuesday")
    assert len(values(tmp_path / "out")) == 1000
    assert staged(tmp_path / "out") == []


def _fails(mark: Path, times: int) -> Any:
    """A function for mapInArrow: the task with row 300 fails so often, after it has handed on rows."""

    def run(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if b"300" in batch.column(0).cast("binary").to_pylist():
                tries = len(mark.read_bytes()) if mark.exists() else 0
                if tries < times:
                    mark.write_bytes(b"x" * (tries + 1))
                    raise RuntimeError("injected")

    return run


def test_a_task_that_fails_once(spark: Any, tmp_path: Path) -> None:
    frame = numbers(spark, 500).mapInArrow(_fails(tmp_path / "mark", 1), "value string")
    write(frame, tmp_path / "out", topic="t")
    assert (tmp_path / "mark").exists()
    assert values(tmp_path / "out") == expected(500)
    assert staged(tmp_path / "out") == []


def test_a_task_that_always_fails(spark: Any, tmp_path: Path) -> None:
    frame = numbers(spark, 500).mapInArrow(_fails(tmp_path / "mark", 99), "value string")
    with pytest.raises(Exception, match=r"injected"):
        write(frame, tmp_path / "out", topic="t", txnId="one")
    assert not (tmp_path / "out").exists()
    until = time.monotonic() + 60
    while staged(tmp_path / "out") and time.monotonic() < until:  # of a task that ran on, and was killed
        time.sleep(0.1)
        Sink(tmp_path / "out").sweep(0)
    assert staged(tmp_path / "out") == []
    write(numbers(spark, 500), tmp_path / "out", topic="t", txnId="one")
    assert values(tmp_path / "out") == expected(500)


def test_large_files_become_segments(spark: Any, tmp_path: Path) -> None:
    """Behind what is there, once for the transaction, and the log is as a clean shutdown leaves it."""
    with kstore.open(tmp_path / "out" / "t-0", "a") as log:
        log.append(b"before")
    count = 180_000
    frame = spark.range(count, numPartitions=2).selectExpr("rpad(cast(id as string), 100, '.') as value")
    for _ in range(2):
        write(frame, tmp_path / "out", topic="t", txnId="one")
    assert staged(tmp_path / "out") == []
    with kstore.open(tmp_path / "out" / "t-0") as log:
        assert log.recovery.clean
        assert not log.recovery.findings
        assert [segment.base_offset for segment in log.segments] == [0, 1, 1 + count // 2]
        found = [r.value for r in log]
    assert found == [b"before", *(str(i).encode().ljust(100, b".") for i in range(count))]


def test_what_may_not_be_written(spark: Any, tmp_path: Path) -> None:
    frame = numbers(spark, 5)
    kstore.spark.register(spark)
    with pytest.raises(Exception, match=r"KSTORE_UNSUPPORTED"):
        frame.write.format("kstore").mode("overwrite").options(path=str(tmp_path / "o"), topic="t").save()
    with pytest.raises(Exception, match=r"KSTORE_INVALID_OPTION: there is neither"):
        write(frame, tmp_path / "o")
    with pytest.raises(Exception, match=r"KSTORE_INVALID_SCHEMA: no column id; a record has value, key"):
        write(spark.range(3), tmp_path / "o", topic="t")
    with pytest.raises(Exception, match=r"KSTORE_INVALID_OPTION.*segment\.bytes"):
        write(frame, tmp_path / "o", topic="t", **{"kstore.segment.byte": "1"})
    has = r"KSTORE_INVALID_RECORD: topic t, partition 7: .*the topic has 1; numPartitions=8 makes a new topic"
    with pytest.raises(Exception, match=has):
        write(frame.selectExpr("value", "7 as partition"), tmp_path / "o", topic="t")
    assert not (tmp_path / "o").exists()


def test_commit_fails_before_publishing(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    with (
        kstore.open(tmp_path / "out" / "t-0", "a"),
        pytest.raises(AnalysisException, match=r"KSTORE_LOG_LOCKED: topic t, partition 0, file .*lock"),
    ):
        write(numbers(spark, 100), tmp_path / "out", topic="t", txnId="one", lockWait="0")
    assert staged(tmp_path / "out") == []
    assert values(tmp_path / "out") == []
    write(numbers(spark, 100), tmp_path / "out", topic="t", txnId="one")
    assert values(tmp_path / "out") == expected(100)


def test_commit_fails_after_publishing(spark: Any, tmp_path: Path) -> None:
    """Spark calls abort all the same; the records stay, and writing them again does nothing."""
    from kstore.spark.datasource import KStoreDataSource
    from kstore.spark.sink import KStoreWriter, batch_writer

    class FailingWriter(KStoreWriter):
        def commit(self, messages: Any) -> None:
            super().commit(messages)
            raise RuntimeError("injected after publishing")

    class FailingSource(KStoreDataSource):
        @classmethod
        def name(cls) -> str:
            return "kstore_failing"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return FailingWriter(batch_writer(self.options, schema, overwrite=overwrite).target)

    spark.dataSource.register(FailingSource)
    options = {"path": str(tmp_path / "out"), "topic": "t", "txnId": "one"}
    frame = numbers(spark, 100)
    with pytest.raises(Exception, match="injected after publishing"):
        frame.write.format("kstore_failing").mode("append").options(**options).save()
    assert values(tmp_path / "out") == expected(100)
    kept = {name: value for name, value in options.items() if name != "path"}
    write(frame, tmp_path / "out", **kept)
    assert values(tmp_path / "out") == expected(100)


def test_writing_as_rows_as_spark_4_0_does(spark: Any, tmp_path: Path, broker: Path) -> None:
    from kstore.spark.sink import KStoreStreamRowWriter, _Target

    class RowWriter(KStoreStreamRowWriter):
        def _write(self, batches: Any) -> Any:  # outside a stream there is no query
            return self.target.write(batches, "rows-0", "rows")

    class RowSource(kstore.spark.KStoreDataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "kstore_rows"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            from pyspark.sql.datasource import DataSourceWriter

            rows = RowWriter(_Target.of(self.options, schema), schema)

            class AsBatch(DataSourceWriter):  # type: ignore[misc]
                def write(self, iterator):  # type: ignore[no-untyped-def] # what is pickled here lacks the globals
                    return rows.write(iterator)

                def commit(self, messages):  # type: ignore[no-untyped-def]
                    rows.commit(messages, 0)

            return AsBatch()

    spark.dataSource.register(RowSource)
    frame = kstore.spark.dataframe(spark, broker, "codecs", includeHeaders=True)
    frame.write.format("kstore_rows").mode("append").options(path=str(tmp_path / "out")).save()
    with kstore.open(broker / "codecs-0") as one, kstore.open(tmp_path / "out" / "codecs-0") as other:
        assert [(r.key, r.value, r.timestamp, r.headers) for r in one] == [
            (r.key, r.value, r.timestamp, r.headers) for r in other
        ]
