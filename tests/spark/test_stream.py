"""Streams: every record once, in batches as large as asked for, through restarts, rolling, retention and replays."""

import ast
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]


def fill(path: Path, first: int, count: int, partition: int = 0) -> None:
    with kstore.open(path / f"in-{partition}", "a", internal_segment_bytes=4000) as log:
        for at in range(first, first + count, 50):
            log.extend([str(i).encode() for i in range(at, min(at + 50, first + count))])


def source(spark: Any, path: Path, **options: str) -> Any:
    kstore.spark.register(spark)
    given = {"path": str(path), "subscribe": "in", "startingOffsets": "earliest"} | options
    return spark.readStream.format("kstore").options(**given).load()


def run(frame: Any, checkpoint: Path, out: Path) -> Any:
    """All there is now, into a kstore log."""
    query = (
        frame.selectExpr("value")
        .writeStream.format("kstore")
        .options(path=str(out), topic="out", checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert not query.isActive
    return query


def values(out: Path) -> list[int]:
    with kstore.open(out / "out-0") as log:
        return [int(r.value or b"") for r in log]


def test_stream_from_log_to_log_with_limit_and_restart(spark: Any, tmp_path: Path) -> None:
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"
    fill(data, 0, 500)
    query = run(source(spark, data, maxOffsetsPerTrigger="200"), checkpoint, out)
    rows = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    limits = spark.version >= "4.2"  # before, AvailableNow knows no limits: it is over after one such batch
    assert rows == ([200, 200, 100] if limits else [200])
    assert values(out) == list(range(sum(rows)))

    fill(data, 500, 300)
    fill(data, 800, 100, partition=1)  # a new partition starts at its beginning
    query = run(source(spark, data), checkpoint, out)
    assert sorted(values(out)) == list(range(900))
    ends = query.lastProgress["sources"][0]["endOffset"]
    assert (ast.literal_eval(ends) if isinstance(ends, str) else ends) == {"in": {"0": 800, "1": 100}}

    # a crash after publishing, before Spark noted it: the last micro-batch runs again
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    commits[-1].unlink()
    (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    run(source(spark, data), checkpoint, out)
    assert sorted(values(out)) == list(range(900))
    # with another checkpoint it is another query
    shutil.rmtree(checkpoint)
    run(source(spark, data), checkpoint, out)
    assert len(values(out)) == 1800


def test_a_checkpoint_that_was_reset(spark: Any, tmp_path: Path) -> None:
    """It keeps the id of the query, and counts micro-batches from 0 again: what they hold was never published."""
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"
    fill(data, 0, 100)
    run(source(spark, data), checkpoint, out)
    for name in ("offsets", "commits"):
        shutil.rmtree(checkpoint / name)
    fill(data, 100, 100)
    for starting in ("earliest", '{"in": {"0": 100}}'):
        with pytest.raises(
            Exception,
            match=r"KSTORE_CHECKPOINT_RESET: .*micro-batch 0 \(offsets up to .*in.*0.*: 100}}\), and now gives another "
            r"micro-batch 0 \(offsets up to .*in.*0.*: ?200}}\): .*new, empty checkpoint",
        ):
            run(source(spark, data, startingOffsets=starting), checkpoint, out)
        assert values(out) == list(range(100))
        shutil.rmtree(checkpoint / "offsets")
    run(source(spark, data, startingOffsets='{"in": {"0": 100}}'), tmp_path / "another", out)
    assert values(out) == list(range(200))


@pytest.mark.parametrize("strict", ["true", "false"])
def test_retention_between_two_runs(spark: Any, tmp_path: Path, strict: str) -> None:
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"
    fill(data, 0, 100)
    run(source(spark, data, failOnDataLoss=strict), checkpoint, out)
    fill(data, 100, 400)
    with kstore.open(data / "in-0", "a") as log:
        log.delete_records(300)
        log.retain()
    if strict == "true":
        with pytest.raises(Exception, match=r"KSTORE_DATA_LOST: topic in, partition 0, offset 100, file "):
            run(source(spark, data, failOnDataLoss=strict), checkpoint, out)
        assert values(out) == list(range(100))
    else:
        run(source(spark, data, failOnDataLoss=strict), checkpoint, out)
        assert values(out) == [*range(100), *range(300, 500)]


def test_commit_of_a_micro_batch_fails_after_publishing(spark: Any, tmp_path: Path) -> None:
    from kstore.spark.datasource import KStoreDataSource

    if spark.version < "4.2":
        pytest.skip("needs several micro-batches of one AvailableNow")
    from kstore.spark.sink import KStoreStreamWriter, stream_writer

    mark = tmp_path / "failed once"

    class FailingWriter(KStoreStreamWriter):
        def commit(self, messages: Any, batchId: int) -> None:
            super().commit(messages, batchId)
            if batchId == 1 and not mark.exists():
                mark.touch()
                raise RuntimeError("injected after publishing")

    class FailingSource(KStoreDataSource):
        @classmethod
        def name(cls) -> str:
            return "kstore_failing_stream"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            return FailingWriter(stream_writer(self.options, schema).target)

    spark.dataSource.register(FailingSource)
    data, out = tmp_path / "data", tmp_path / "out"
    fill(data, 0, 500)

    def once() -> None:
        query = (
            source(spark, data, maxOffsetsPerTrigger="200")
            .selectExpr("value")
            .writeStream.format("kstore_failing_stream")
            .options(path=str(out), topic="out", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(Exception, match=r"injected after publishing|Writing job failed"):
        once()
    assert values(out) == list(range(400))
    once()
    assert values(out) == list(range(500))


def test_a_running_query_sees_what_is_appended_rolled_and_retained(spark: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, 0, 100)
    rows: list[int] = []

    def take(frame: Any, number: int) -> None:
        rows.extend(int(row.value) for row in frame.selectExpr("cast(value as string) as value").collect())

    query = source(spark, data).writeStream.foreachBatch(take).start()
    try:
        query.processAllAvailable()
        assert rows == list(range(100))
        with kstore.open(data / "in-0", "a", retention_bytes=1, file_delete_delay_ms=0) as log:
            log.extend([str(i).encode() for i in range(100, 200)])
            log.flush()
            query.processAllAvailable()
            log.roll()
            log.retain()
            log.extend([str(i).encode() for i in range(200, 300)])
            log.flush()
            query.processAllAvailable()
        assert rows == list(range(300))
    finally:
        query.stop()


def test_shares_of_a_limit() -> None:
    from kstore.log.files.layout import TopicPartition
    from kstore.spark.stream import _limited

    a, b, c = (TopicPartition("t", p) for p in range(3))
    begin = {a: 0, b: 100, c: 7}
    assert _limited(begin, {a: 1000, b: 400, c: 7}, None) == {a: 1000, b: 400, c: 7}
    assert _limited(begin, {a: 1000, b: 400, c: 7}, 130) == {a: 100, b: 130, c: 7}
    for most in range(1, 50):
        limited = _limited(begin, {a: 1000, b: 101, c: 7}, most)
        assert sum(limited[tp] - begin[tp] for tp in begin) == most


def test_a_trigger_waits_for_enough_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kstore.spark import stream
    from kstore.spark.options import SourceOptions

    if stream.ReadMinRows is None:
        pytest.skip("needs read limits, which came with Spark 4.2")
    now = 0.0
    monkeypatch.setattr(stream.time, "monotonic", lambda: now)

    def reader(**options: str) -> Any:
        given = {"path": str(tmp_path), "subscribe": "in", "startingOffsets": "earliest"}
        return stream.KStoreStreamReader(SourceOptions.of(given | options, stream=True), ("value",))

    fill(tmp_path, 0, 100)
    own = reader(minOffsetsPerTrigger="50", maxTriggerDelay="10s")
    limit = own.getDefaultReadLimit()
    assert limit == stream.ReadMinRows(50)
    at = own.latestOffset(own.initialOffset(), limit)
    assert at == {"in": {"0": 100}}
    fill(tmp_path, 100, 49)
    now = 9.9
    assert own.latestOffset(at, limit) == at
    assert own.latestOffset(at, stream.ReadAllAvailable()) == {"in": {"0": 149}}
    now = 10.0
    assert own.latestOffset(at, limit) == {"in": {"0": 149}}
    at = {"in": {"0": 149}}
    fill(tmp_path, 149, 60)
    assert own.latestOffset(at, limit) == {"in": {"0": 209}}
    own.prepareForTriggerAvailableNow()
    assert own.latestOffset({"in": {"0": 200}}, limit) == {"in": {"0": 209}}

    both = reader(minOffsetsPerTrigger="50", maxOffsetsPerTrigger="60")
    limit = both.getDefaultReadLimit()
    assert both.latestOffset({"in": {"0": 0}}, limit) == {"in": {"0": 60}}
    assert both.latestOffset({"in": {"0": 180}}, limit) == {"in": {"0": 180}}
    assert both.latestOffset({"in": {"0": 100}}, limit) == {"in": {"0": 160}}
    with pytest.raises(ValueError, match=r"KSTORE_INVALID_OPTION: minOffsetsPerTrigger, 9, is more than"):
        reader(minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8")
    with pytest.raises(ValueError, match=r"KSTORE_INVALID_OPTION: maxTriggerDelay is '1y'"):
        reader(minOffsetsPerTrigger="9", maxTriggerDelay="1y")
    monkeypatch.setattr(stream, "ReadMinRows", None)
    with pytest.raises(ValueError, match=r"KSTORE_UNSUPPORTED: minOffsetsPerTrigger needs Spark 4\.2"):
        reader(minOffsetsPerTrigger="9")


def test_a_query_that_waits_for_enough_offsets(spark: Any, tmp_path: Path) -> None:
    if spark.version < "4.2":
        pytest.skip("needs read limits, which came with Spark 4.2")
    fill(tmp_path, 0, 10)
    frame = source(spark, tmp_path, minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    query = frame.writeStream.format("memory").queryName("waiting").start()
    try:
        query.processAllAvailable()
        fill(tmp_path, 10, 99)
        query.processAllAvailable()
        assert spark.table("waiting").count() == 10
        fill(tmp_path, 109, 1)
        query.processAllAvailable()
        assert spark.table("waiting").count() == 110
    finally:
        query.stop()
