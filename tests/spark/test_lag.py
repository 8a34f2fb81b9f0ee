"""LagListener: how far queries are behind, by a query's progress and by the logs themselves."""

import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore.spark import SparkSourceError
from tests.helpers.markers import transactional
from tests.helpers.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]
HOUR_MS = 3_600_000
ZERO, ONE = kstore.TopicPartition("in", 0), kstore.TopicPartition("in", 1)


def listener(*args: Any, **options: Any) -> Any:
    pytest.importorskip("pyspark")
    return kstore.spark.LagListener(*args, **options)


def ends_are_reported() -> bool:
    """Whether a query's progress says where the logs end, as it does since Spark 4.2."""
    import pyspark

    return str(pyspark.__version__) >= "4.2"


def fill(path: Path, partition: int, ages_h: list[int]) -> None:
    now = time.time_ns() // 1_000_000
    with kstore.open(path / f"in-{partition}", "a") as log:
        for age in ages_h:
            log.append(b"v", timestamp=now - age * HOUR_MS)


def progress(end: Any, latest: Any = None, *, query: str = "one", name: str | None = None) -> Any:
    """An event as Spark gives it; `end` and `latest` are offsets, or the text that a source gave."""
    texts = [one if isinstance(one, str) else json.dumps(one) for one in (end, latest)]
    source = SimpleNamespace(endOffset=texts[0], latestOffset=texts[1], description="Python")
    kafka = SimpleNamespace(
        endOffset='{"other": {"0": 1}}', latestOffset="", description="KafkaV2[Subscribe[other]]"
    )
    own = SimpleNamespace(
        id=query, name=name, batchId=3, timestamp="2026-11-24T07:00:00.000Z", sources=[kafka, source]
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
    one = own.queries["orders"].partitions[ONE]
    assert one.offsets == 1
    assert 2 * HOUR_MS <= one.ms < 3 * HOUR_MS
    found = json.loads(json.dumps(own.as_dict()))["orders"]
    assert found["partitions"]["in"]["1"] == {"offset": 2, "end_offset": 3, "ms": one.ms, "offsets": 1}
    assert (found["id"], found["batch"], found["offsets"]) == ("one", 3, 3)


def test_what_is_unknown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    end = 9 if ends_are_reported() else None
    own = listener()
    own.onQueryProgress(progress({"in": {"0": 5}}, {"in": {"0": 9}}))
    assert own.queries["one"].partitions == {ZERO: (5, end, None)}
    assert (own.queries["one"].offsets, own.queries["one"].ms) == (end and 4, None)
    own.onQueryProgress(progress({"in": {"0": 5}}))
    assert own.queries["one"].partitions == {ZERO: (5, None, None)}
    assert (own.queries["one"].offsets, own.queries["one"].ms) == (None, None)

    (tmp_path / "removed").mkdir()
    missing = listener(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    missing.onQueryProgress(progress({"in": {"0": 5}}, {"in": {"0": 9}}))
    assert missing.queries["one"].partitions == {ZERO: (5, end, None)}
    assert "in-0 is not known: KSTORE_PATH_NOT_FOUND" in caplog.text
    fill(tmp_path, 0, [1, 1])
    path = tmp_path / "in-0" / f"{0:020}.log"
    path.write_bytes(b"\xff" * path.stat().st_size)
    damaged = listener(tmp_path)
    damaged.onQueryProgress(progress({"in": {"0": 0}}, {"in": {"0": 2}}))
    assert damaged.queries["one"].partitions[ZERO].ms in (None, 0)


def test_what_other_sources_say(tmp_path: Path) -> None:
    """Whatever it is, the listener does not fail, for Spark would then leave it out."""
    with kstore.open(tmp_path / "in-0", "a") as log:
        log.extend([b"v"] * 5)
    for text in (
        *("null", "", "7", "[1]", "no offsets (", '{"in":' * 100_000, '{"a": 1}', '{"in": {"x": 1}}'),
        *('{"in": {"0": "1"}}', '{"a/b": {"0": 1}}', json.dumps({"in": {"0": 2**63, "1": -1, "2": True}})),
    ):
        event = progress(text, text)
        for path in (None, tmp_path):
            own = listener(path)
            own.onQueryProgress(event)
            assert "one" in own.queries
            assert own.prometheus() is not None
            event.progress.sources.append(SimpleNamespace(description="", endOffset=None, latestOffset=None))
            event.progress.sources.append(
                SimpleNamespace(description="", endOffset='{"in": {"0": 2}}', latestOffset='{"in": {"0": 5}}')
            )
            own.onQueryProgress(event)
            is_known = path is not None or ends_are_reported()
            assert own.queries["one"].partitions[ZERO].offsets == (3 if is_known else None)
            del event.progress.sources[-2:]
    own = listener()
    own.onQueryProgress(progress("{'in': {'0': 4}}", "None"))  # as Spark 4.0 writes them
    assert own.queries["one"].partitions == {ZERO: (4, None, None)}


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(SparkSourceError, match=r"KSTORE_PATH_NOT_FOUND: .*no log directory there"):
        listener(tmp_path / "none")
    for given in (None, tmp_path):
        with pytest.raises(SparkSourceError, match="KSTORE_INVALID_OPTION: isolation is one of"):
            listener(given, isolation="committed")


def test_committed_readers_and_retention(tmp_path: Path) -> None:
    """Records of open transactions are not behind; what retention deleted cannot be read any more."""
    fill(tmp_path, 0, [9, 8, 7, 6])
    now = time.time_ns() // 1_000_000
    with kstore.open(tmp_path / "in-0", "a") as log:
        log.delete_records(2)
        log.append_batches(transactional((now, None, b"v", None)))
    committed, all_records = listener(tmp_path, isolation="read_committed"), listener(tmp_path)
    for own, behind in ((committed, 4), (all_records, 5)):
        own.onQueryProgress(progress({"in": {"0": 0}}))
        assert own.queries["one"].offsets == behind
        assert 7 * HOUR_MS <= own.queries["one"].ms < 8 * HOUR_MS


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


def test_a_query_of_spark(spark: Any, tmp_path: Path) -> None:
    fill(tmp_path / "data", 0, [2] * 500)
    kstore.spark.register(spark)
    given = {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    frame = spark.readStream.format("kstore").options(**given).load(str(tmp_path / "data"))
    seen: list[int] = []

    class Noting(kstore.spark.LagListener):  # type: ignore[misc]
        def onQueryProgress(self, event: Any) -> None:
            super().onQueryProgress(event)
            seen.append(self.queries["behind"].offsets)

    own, blind = Noting(tmp_path / "data"), listener()
    for each in (own, blind):
        spark.streams.addListener(each)
    try:
        writing = frame.writeStream.format("noop").queryName("behind").trigger(availableNow=True)
        query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        for each in (own, blind):  # removeListener hangs while an event is on its way
            until(lambda each=each: "behind" in each.queries and not each.queries["behind"].is_active)
    finally:
        for each in (own, blind):
            spark.streams.removeListener(each)
    last = own.queries["behind"]
    assert last.id == str(query.id)
    if ends_are_reported():
        assert seen == [300, 100, 0]
        assert blind.queries["behind"].partitions == last.partitions == {ZERO: (500, 500, 0)}
    else:
        assert seen == [300]
        assert blind.queries["behind"].partitions == {ZERO: (200, None, None)}
        assert last.partitions[ZERO][:2] == (200, 500)
        assert 2 * HOUR_MS <= last.ms < 3 * HOUR_MS
