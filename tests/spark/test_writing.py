"""Batch jobs that write: rows become records once for each transaction id, whatever fails on the way."""

import time
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark
from kstore.spark import KStoreDataSource, Sink

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]


def write(frame: Any, path: Path, **options: str) -> None:
    kstore.spark.register(frame.sparkSession)
    frame.write.format("kstore").mode("append").options(path=str(path), **options).save()


def values(path: Path) -> list[bytes]:
    found: list[bytes] = []
    store = kstore.LogStore(path)
    for tp in store:
        with store.open(*tp) as log:
            found += [r.value or b"" for r in log.records(isolation="read_committed")]
    return sorted(found)


def staged(path: Path) -> list[Path]:
    return [p for p in (path.parent / f".{path.name}.kstore-spark").rglob("*") if p.is_file()]


def numbers(spark: Any, count: int) -> Any:
    return spark.range(count, numPartitions=3).selectExpr("cast(id as string) as value")


def expected(count: int) -> list[bytes]:
    return sorted(str(i).encode() for i in range(count))


def records(path: Path) -> list[tuple[Any, ...]]:
    with kstore.open(path) as log:
        return [(r.key, r.value, r.timestamp, r.headers) for r in log]


def test_a_copy_of_topics_is_the_same(spark: Any, broker: Path, tmp_path: Path) -> None:
    frame = kstore.spark.dataframe(spark, broker, ["codecs", "recompressed"], includeHeaders=True)
    write(frame, tmp_path / "copy", **{"kstore.compression.type": "zstd"})
    for name in ("codecs-0", "recompressed-0"):
        assert records(broker / name) == records(tmp_path / "copy" / name)
        with kstore.open(tmp_path / "copy" / name) as copy:
            assert {b.codec for b in copy.batches()} == {"zstd"}
    assert staged(tmp_path / "copy") == []


def test_a_transaction_id_is_written_once(spark: Any, tmp_path: Path) -> None:
    ran = spark.sparkContext.accumulator(0)

    def count(batches: Any) -> Any:
        for batch in batches:
            ran.add(1)
            yield batch

    out, frame = tmp_path / "out", numbers(spark, 500).mapInArrow(count, "value string")
    for _ in range(2):
        write(frame, out, topic="t", txnId="load of monday", numPartitions="3")
        assert values(out) == expected(500)
    assert kstore.LogStore(out).topics == {"t": [0, 1, 2]}
    before = ran.value
    with pytest.raises(Exception, match=r"KSTORE_PUBLISHED: .*txnId load of monday was published before"):
        write(frame, out, topic="t", txnId="load of monday", ifPublished="error", lockWait="5s")
    assert ran.value == before
    write(frame, out, topic="t", txnId="load of tuesday", ifPublished="error")
    assert len(values(out)) == 1000
    assert staged(out) == []
    assert Sink(out).status().jobs == ()


def _fails(mark: Path, times: int) -> Any:
    """A function for mapInArrow: the task with row 300 fails so often, after it has passed on rows."""

    def run(batches: Any) -> Any:
        for batch in batches:
            yield batch
            if b"300" in batch.column(0).cast("binary").to_pylist():
                tries = len(mark.read_bytes()) if mark.exists() else 0
                if tries < times:
                    mark.write_bytes(b"x" * (tries + 1))
                    raise RuntimeError("injected")

    return run


def test_a_task_that_fails(spark: Any, tmp_path: Path) -> None:
    """Once: it is run again. Always: the job fails, and may be run again under its id."""
    once, always = tmp_path / "once", tmp_path / "always"
    frame = numbers(spark, 500).mapInArrow(_fails(tmp_path / "mark", 1), "value string")
    write(frame, once, topic="t")
    assert (tmp_path / "mark").exists()
    assert values(once) == expected(500)
    assert staged(once) == []

    frame = numbers(spark, 500).mapInArrow(_fails(tmp_path / "mark 2", 99), "value string")
    with pytest.raises(Exception, match=r"injected"):
        write(frame, always, topic="t", txnId="one")
    assert not always.exists()
    until = time.monotonic() + 60
    while staged(always) and time.monotonic() < until:  # of a task that still ran, and was killed
        time.sleep(0.1)
        Sink(always).sweep(0)
    assert staged(always) == []
    write(numbers(spark, 500), always, topic="t", txnId="one")
    assert values(always) == expected(500)


def test_large_files_become_segments(spark: Any, tmp_path: Path) -> None:
    with kstore.open(tmp_path / "out" / "t-0", "a") as log:
        log.append(b"before")
    count = 30_000
    frame = spark.range(count, numPartitions=2).selectExpr("rpad(cast(id as string), 600, '.') as value")
    for _ in range(2):
        write(frame, tmp_path / "out", topic="t", txnId="one")
    assert staged(tmp_path / "out") == []
    with kstore.open(tmp_path / "out" / "t-0") as log:
        assert log.recovery.clean
        assert not log.recovery.findings
        assert [segment.base_offset for segment in log.segments] == [0, 1, 1 + count // 2]
        found = [r.value for r in log]
    assert found == [b"before", *(str(i).encode().ljust(600, b".") for i in range(count))]


def test_what_may_not_be_written(spark: Any, tmp_path: Path) -> None:
    frame = numbers(spark, 5)
    kstore.spark.register(spark)
    with pytest.raises(Exception, match=r"KSTORE_UNSUPPORTED"):
        frame.write.format("kstore").mode("overwrite").options(path=str(tmp_path / "o"), topic="t").save()
    with pytest.raises(Exception, match=r"KSTORE_INVALID_OPTION: there is neither"):
        write(frame, tmp_path / "o")
    with pytest.raises(Exception, match=r"KSTORE_INVALID_SCHEMA: no column id; a record has value, key"):
        write(spark.range(3), tmp_path / "o", topic="t")
    has = r"KSTORE_INVALID_RECORD: topic t, partition 7: .*the topic has 1; numPartitions=8 makes a new topic"
    with pytest.raises(Exception, match=has):
        write(frame.selectExpr("value", "7 as partition"), tmp_path / "o", topic="t")
    assert not (tmp_path / "o").exists()


def test_a_commit_that_fails(spark: Any, tmp_path: Path) -> None:
    """Before publishing: nothing is there. After it: Spark calls abort all the same, and the records stay."""
    before, after = tmp_path / "before", tmp_path / "after"
    with (
        kstore.open(before / "t-0", "a"),
        pytest.raises(Exception, match=r"KSTORE_LOG_LOCKED: topic t, partition 0, file .*lock"),
    ):
        write(numbers(spark, 100), before, topic="t", txnId="one", lockWait="0")
    assert staged(before) == []
    assert values(before) == []
    write(numbers(spark, 100), before, topic="t", txnId="one")
    assert values(before) == expected(100)

    class Failing(KStoreDataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return "kstore_failing"

        def writer(self, schema: Any, overwrite: bool) -> Any:
            writer = super().writer(schema, overwrite)
            commit = writer.commit

            def fails(messages: Any) -> None:
                commit(messages)
                raise RuntimeError("injected after publishing")

            writer.commit = fails
            return writer

    spark.dataSource.register(Failing)
    frame, options = numbers(spark, 100), {"path": str(after), "topic": "t", "txnId": "one"}
    with pytest.raises(Exception, match="injected after publishing"):
        frame.write.format("kstore_failing").mode("append").options(**options).save()
    assert values(after) == expected(100)
    write(frame, after, topic="t", txnId="one")
    assert values(after) == expected(100)
