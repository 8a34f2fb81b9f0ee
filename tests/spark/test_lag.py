"""LagListener: how far queries are behind, as a query's progress and the logs themselves say."""

import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore.log.files.layout import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]
HOUR_MS = 3_600_000
ZERO, ONE = TopicPartition("in", 0), TopicPartition("in", 1)


def listener(*args: Any, **options: Any) -> Any:
    pytest.importorskip("pyspark")
    return kstore.spark.LagListener(*args, **options)


def fill(path: Path, partition: int, ages_h: list[int]) -> None:
    now = time.time_ns() // 1_000_000
    with kstore.open(path / f"in-{partition}", "a") as log:
        for age in ages_h:
            log.append(b"v", timestamp=now - age * HOUR_MS)


@pytest.fixture(autouse=True)
def ends_reported(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Spark 4.2 and later, whatever Spark is there; but for the test that asks Spark."""
    from kstore.spark import lag

    if "spark" not in request.fixturenames:
        monkeypatch.setattr(lag, "_ENDS_REPORTED", True)


def progress(
    end: Any, latest: Any = None, *, query: str = "one", name: str | None = None, batch: int = 3
) -> Any:
    """An event as Spark gives it."""
    source = SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest), description="Python")
    kafka = SimpleNamespace(
        endOffset='{"other": {"0": 1}}', latestOffset="", description="KafkaV2[Subscribe[other]]"
    )
    own = SimpleNamespace(
        id=query, name=name, batchId=batch, timestamp="2026-11-24T07:00:00.000Z", sources=[kafka, source]
    )
    return SimpleNamespace(progress=own)


def test_offsets_and_time_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, 0, [9, 8, 7])
    fill(tmp_path, 1, [5, 4])
    own = listener(tmp_path)
    assert own.queries == {}
    caplog.set_level(logging.INFO, "kstore.spark.lag")
    own.onQueryProgress(progress({"in": {"0": 1, "1": 2}}, name="orders"))
    query = own.queries["orders"]
    assert (query.id, query.batch, query.offsets, query.is_active) == ("one", 3, 2, True)
    assert query.partitions[ZERO][:2] == (1, 3)
    assert 8 * HOUR_MS <= query.partitions[ZERO].ms < 9 * HOUR_MS
    assert query.partitions[ONE] == (2, 2, 0)
    assert query.ms == query.partitions[ZERO].ms
    [line] = caplog.messages
    assert line.startswith("query orders, micro-batch 3: offsets behind 2, time behind 288")
    assert line.endswith(" s, most in in-0: 2")

    fill(tmp_path, 1, [2])  # nothing was read since
    own.onQueryIdle(SimpleNamespace(id="one"))
    own.onQueryIdle(SimpleNamespace(id="of another session"))
    assert own.queries["orders"].partitions[ONE].offsets == 1
    assert 2 * HOUR_MS <= own.queries["orders"].partitions[ONE].ms < 3 * HOUR_MS
    told = json.loads(json.dumps(own.as_dict()))["orders"]
    assert told["partitions"]["in"]["1"] == {
        "offset": 2,
        "end_offset": 3,
        "ms": own.queries["orders"].partitions[ONE].ms,
        "offsets": 1,
    }
    assert (told["id"], told["batch"], told["offsets"]) == ("one", 3, 3)


def test_what_is_unknown_is_said_to_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A partition that is not there, a damaged one, a directory that was removed; without a path there are no times."""
    own = listener()
    own.onQueryProgress(progress({"in": {"0": 5, "1": 2}}, {"in": {"0": 9, "1": 2}}))
    assert own.queries["one"].partitions == {ZERO: (5, 9, None), ONE: (2, 2, 0)}
    assert (own.queries["one"].offsets, own.queries["one"].ms) == (4, None)
    own.onQueryProgress(progress({"in": {"0": 5}}))
    assert own.queries["one"].partitions == {ZERO: (5, None, None)}
    assert (own.queries["one"].offsets, own.queries["one"].ms) == (None, None)

    (tmp_path / "removed").mkdir()
    missing = listener(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    missing.onQueryProgress(progress({"in": {"0": 5}}, {"in": {"0": 9}}))
    assert missing.queries["one"].partitions == {ZERO: (5, 9, None)}
    assert "in-0 is not known: KSTORE_PATH_NOT_FOUND" in caplog.text
    fill(tmp_path, 0, [1, 1])
    path = tmp_path / "in-0" / f"{0:020}.log"
    path.write_bytes(b"\xff" * path.stat().st_size)
    caplog.clear()
    damaged = listener(tmp_path)
    damaged.onQueryProgress(progress({"in": {"0": 0}}, {"in": {"0": 2}}))
    assert damaged.queries["one"].partitions[ZERO].ms in (None, 0)


@pytest.mark.parametrize("end", [None, 7, [1], {"a": 1}, {"in": {"x": 1}}, {"in": {"0": "1"}}])
def test_sources_of_another_kind(end: Any) -> None:
    own = listener()
    own.onQueryProgress(progress(end))
    assert own.queries["one"].partitions == {}
    assert (own.queries["one"].offsets, own.queries["one"].ms) == (0, 0)


def test_offsets_as_spark_4_0_writes_them(tmp_path: Path) -> None:
    event = progress({})
    event.progress.sources[1].endOffset = "{'in': {'0': 4}}"
    event.progress.sources[1].latestOffset = "None"
    own = listener()
    own.onQueryProgress(event)
    assert own.queries["one"].partitions == {ZERO: (4, None, None)}
    event.progress.sources[1].endOffset = "no offsets ("
    own.onQueryProgress(event)
    assert own.queries["one"].partitions == {}


def test_committed_readers_and_retention(tmp_path: Path) -> None:
    """Records of open transactions are not behind; what retention took cannot be read any more."""
    fill(tmp_path, 0, [9, 8, 7, 6])
    with kstore.open(tmp_path / "in-0", "a") as log:
        log.delete_records(2)
        open_at = log.log_end_offset
        log.append_batches(_transactional())
    committed, all_records = listener(tmp_path, isolation="read_committed"), listener(tmp_path)
    for own, behind in ((committed, open_at), (all_records, open_at + 1)):
        own.onQueryProgress(progress({"in": {"0": 0}}))
        assert own.queries["one"].offsets == behind
        assert 7 * HOUR_MS <= own.queries["one"].ms < 8 * HOUR_MS


def _transactional() -> bytes:
    now = time.time_ns() // 1_000_000
    return kstore.encode_batch(
        [(now, None, b"v", None)], producer_id=5, producer_epoch=0, base_sequence=0, transactional=True
    )


def test_ended_queries_are_kept_for_a_while() -> None:
    own = listener()
    for number in range(120):
        own.onQueryProgress(progress({"in": {"0": number}}, query=str(number), name=f"q{number}"))
        if number != 7:
            own.onQueryTerminated(SimpleNamespace(id=str(number)))
    own.onQueryTerminated(SimpleNamespace(id="of another session"))
    assert len(own.queries) == 101
    assert own.queries["q7"].is_active
    assert not own.queries["q119"].is_active
    assert "q18" not in own.queries
    own.onQueryProgress(progress({"in": {"0": 3}}, query="119", name="q119"))  # begun again
    assert own.queries["q119"].is_active


def test_as_prometheus_reads_it(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    fill(tmp_path, 0, [9, 8])
    own = listener(tmp_path)
    own.onQueryProgress(progress({"in": {"0": 1}}, name='a "b"'))
    own.onQueryProgress(progress({"in": {"0": 1}}, query="two"))
    own.onQueryTerminated(SimpleNamespace(id="two"))
    offsets, seconds = parser.text_string_to_metric_families(own.prometheus())
    labels = {"query": 'a "b"', "topic": "in", "partition": "0"}
    assert [(s.labels, s.value) for s in offsets.samples] == [(labels, 1.0)]
    assert [s.labels for s in seconds.samples] == [labels]
    assert 8 * 3600 <= seconds.samples[0].value < 9 * 3600


def test_a_query_of_spark(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After every trigger, by the listener; and what Spark's own progress says of the end of the logs."""
    fill(tmp_path / "data", 0, [2] * 500)
    kstore.spark.register(spark)
    given = {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    frame = spark.readStream.format("kstore").options(**given).load(str(tmp_path / "data"))
    own, blind = listener(tmp_path / "data"), listener()
    seen: list[int] = []
    note = own._note
    own._note = lambda query: (note(query), seen.append(query.offsets))
    spark.streams.addListener(own)
    spark.streams.addListener(blind)
    try:
        writing = frame.writeStream.format("noop").queryName("behind").trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        while "behind" not in own.queries or own.queries["behind"].is_active:
            time.sleep(0.05)  # pytest-timeout ends it
        while "behind" not in blind.queries or blind.queries["behind"].is_active:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(own)
        spark.streams.removeListener(blind)
    assert seen == ([300, 100, 0] if spark.version >= "4.2" else [300])
    last = own.queries["behind"]
    assert last.id == str(query.id)
    if spark.version >= "4.2":
        assert last.partitions == {ZERO: (500, 500, 0)}
        assert blind.queries["behind"].partitions == last.partitions
    else:
        assert blind.queries["behind"].partitions == {ZERO: (200, None, None)}
        assert last.partitions[ZERO][:2] == (200, 500)
        assert 2 * HOUR_MS <= last.ms < 3 * HOUR_MS
