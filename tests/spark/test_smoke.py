"""The way of records through Spark, once: what `make test` has time for."""

from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.spark,
    pytest.mark.datasource,
    pytest.mark.filterwarnings("ignore"),
]


def test_columns_in_tasks_a_job_and_a_stream(spark: Any, broker: Path, tmp_path: Path) -> None:
    """mapPartitions of columns; a batch query that writes; a stream that reads what was written, and writes
    it again."""

    def read(*logs: Path) -> list[tuple[Any, ...]]:
        return sorted((r.timestamp, r.key or b"", r.value or b"") for log in logs for r in kstore.open(log))

    wanted = read(broker / "events-0", broker / "events-1")

    rdd = kstore.spark.rdd(spark.sparkContext, broker, "events", columns=["value"])
    assert rdd.map(lambda batch: int(batch.values.lengths.sum())).sum() == sum(
        len(value) for *_, value in wanted
    )

    frame = kstore.spark.dataframe(spark, broker, "events", columns=["key", "value", "timestamp"])
    target = {"path": str(tmp_path / "out"), "topic": "job", "txnId": "one"}
    frame.write.format("kstore").mode("append").options(**target).save()
    assert read(tmp_path / "out" / "job-0") == wanted

    source = {"path": str(tmp_path / "out"), "subscribe": "job", "startingOffsets": "earliest"}
    stream = spark.readStream.format("kstore").options(**source).load().select("key", "value", "timestamp")
    target = {
        "path": str(tmp_path / "out"),
        "topic": "stream",
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    query = stream.writeStream.format("kstore").options(**target).trigger(availableNow=True).start()
    query.awaitTermination()
    assert read(tmp_path / "out" / "stream-0") == wanted
