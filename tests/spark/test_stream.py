"""Streams: every record once, in batches as large as asked for, through restarts, rolling, retention and replays."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import kstore
import kstore.spark

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


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
    query.awaitTermination(60)
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
    assert rows == [200, 200, 100]
    assert values(out) == list(range(500))

    fill(data, 500, 300)
    fill(data, 800, 100, partition=1)  # a new partition starts at its beginning
    query = run(source(spark, data), checkpoint, out)
    assert sorted(values(out)) == list(range(900))
    ends = query.lastProgress["sources"][0]["endOffset"]
    assert (json.loads(ends) if isinstance(ends, str) else ends) == {"in": {"0": 800, "1": 100}}
    run(source(spark, data), checkpoint, out)
    assert len(values(out)) == 900

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
