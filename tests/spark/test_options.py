"""Options that are wrong, and those of Spark's Kafka source: what is said, and when. Without a session."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.spark import options as options_module
from kstore.spark.errors import SparkSourceError
from kstore.spark.options import SinkOptions, SourceOptions

GIVEN = {"path": "/data", "subscribe": "t"}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("paths", '["/a", "/b"]', r"path is one log directory; of several, load\(\) each and union\(\)"),
        ("location", "/warehouse/t", "CREATE TEMPORARY VIEW"),
        (
            "path",
            "hdfs://host/data",
            "KSTORE_UNSUPPORTED: file hdfs://host/data: path lies in a mounted file system",
        ),
        ("path", "file://host/data", "KSTORE_UNSUPPORTED: file file://host/data: path lies in a mounted"),
    ],
)
def test_options_of_others(name: str, value: str, text: str) -> None:
    for given in (name, name.lower()):
        with pytest.raises(SparkSourceError, match=text):
            SourceOptions.of(GIVEN | {given: value}, stream=False)
        with pytest.raises(SparkSourceError, match=text):
            SinkOptions.of({"path": "/data", "topic": "t"} | {given: value})


def test_options_of_clients_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one warning each, which never tells a value: it may be a password."""
    monkeypatch.setattr(options_module, "_warned", set())
    given = {
        "kafka.bootstrap.servers": "host:9092",
        "groupIdPrefix": "mine",
        "kafka.group.id": "mine",
        "kafka.ssl.key.password": "secret",
        "kafkaConsumer.pollTimeoutMs": "9",
        "fetchOffset.numRetries": "9",
    }
    wanted = {"path": "/log", "subscribe": "a"}
    for times in (1, 0):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = SourceOptions.of(wanted | given, stream=False)
        assert found == SourceOptions.of(wanted, stream=False)
        texts = [str(one.message) for one in seen]
        assert len(texts) == times * len(given)
        for name, text in zip(given, texts, strict=False):
            assert name in text
            assert "secret" not in text


def test_the_isolation_of_the_kafka_source() -> None:
    wanted = {"path": "/log", "subscribe": "a"}
    for own in ({}, {"isolation": "read_committed"}):
        read = SourceOptions.of(wanted | own | {"Kafka.Isolation.Level": "read_committed"}, stream=True)
        assert read.isolation == "read_committed"
    two = {"isolation": "read_uncommitted", "kafka.isolation.level": "read_committed"}
    with pytest.raises(SparkSourceError, match=r"KSTORE_INVALID_OPTION: .*leave one out"):
        SourceOptions.of(wanted | two, stream=True)
    with pytest.raises(SparkSourceError, match="KSTORE_INVALID_OPTION: isolation is 'x'"):
        SourceOptions.of(wanted | {"kafka.isolation.level": "x"}, stream=True)


def test_a_table_of_the_catalog_has_no_options() -> None:
    for make in (lambda: SourceOptions.of({}, stream=False), lambda: SinkOptions.of({})):
        with pytest.raises(
            SparkSourceError, match=r"table of the catalog .* does not work.*CREATE TEMPORARY VIEW"
        ):
            make()
    with pytest.raises(SparkSourceError, match="path is missing"):
        SourceOptions.of({"subscribe": "t"}, stream=False)


@pytest.mark.parametrize(
    "url", ["file:/data/x", "file:///data/x", "file://localhost/data/x", "/data/x", "/data/y/../x"]
)
def test_urls_of_the_file_system(url: str) -> None:
    assert SourceOptions.of(GIVEN | {"path": url}, stream=False).root == "/data/x"
    sink = SinkOptions.of({"path": url, "topic": "t", "stagingPath": url, "checkpointLocation": url})
    assert (sink.root, sink.staging, sink.checkpoint) == ("/data/x",) * 3
    assert SinkOptions.of({"path": url, "checkpointLocation": "s3a://bucket/x"}).checkpoint is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"startingTimestamp": "5", "endingTimestamp": "4"},
            "startingTimestamp 5 lies after endingTimestamp 4",
        ),
        (
            {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'},
            "topic t, partition 0: startingOffsets 5 lies after endingOffsets 4",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t": {"1": 5}}', "endingOffsetsByTimestamp": '{"t": {"1": 4}}'},
            "topic t, partition 1: startingOffsetsByTimestamp 5 lies after",
        ),
    ],
)
def test_ranges_that_end_before_they_start(options: dict[str, str], text: str) -> None:
    with pytest.raises(SparkSourceError, match=f"KSTORE_INVALID_OPTION: {text}"):
        SourceOptions.of(GIVEN | options, stream=False)


def test_ranges_that_are_right() -> None:
    for options in (
        {"startingOffsets": '{"t": {"0": 5, "1": -2}}', "endingOffsets": '{"t": {"0": 5, "1": -1}}'},
        {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": -1}}'},
        {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}', "startingTimestamp": "9"},
        {"startingTimestamp": "5", "endingTimestamp": "5"},
    ):
        SourceOptions.of(GIVEN | options, stream=False)


@pytest.mark.datasource
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"endingOffsets": '{"t": {"0": 77}}'},
            "KSTORE_OFFSET_OUT_OF_RANGE: topic t, partition 0, offset 77",
        ),
        (
            {"startingOffsets": '{"t": {"0": 77}}', "endingOffsets": "latest"},
            "KSTORE_OFFSET_OUT_OF_RANGE: topic t, partition 0, offset 77",
        ),
        (
            {"startingTimestamp": "9999999999999", "endingOffsets": "latest"},
            "KSTORE_OFFSET_OUT_OF_RANGE: topic t",
        ),
        ({"endingOffsets": '{"u": {"0": 1}}'}, "endingOffsets says nothing about this partition"),
    ],
)
def test_ranges_that_no_log_has_are_told_by_load(tmp_path: Path, options: dict[str, str], text: str) -> None:
    """Of queries that have an end: a stream that is restarted may name a start that is gone."""
    datasource = pytest.importorskip("kstore.spark.datasource")
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 5)
    given = {"path": str(tmp_path), "subscribe": "t"}
    with pytest.raises(SparkSourceError, match=text):
        datasource.KStoreDataSource(given | options).schema()
    datasource.KStoreDataSource(given | {"startingOffsets": '{"t": {"0": 77}}'}).schema()


@pytest.mark.datasource
def test_a_stream_that_no_longer_names_a_partition(tmp_path: Path) -> None:
    """It is there: what has changed is the option."""
    stream = pytest.importorskip("kstore.spark.stream")
    for topic in ("one", "two"):
        with kstore.open(tmp_path / f"{topic}-0", "a") as log:
            log.extend([b"v"] * 5)

    def reader(topics: str, **options: str) -> Any:
        given = {"path": str(tmp_path), "subscribe": topics} | options
        return stream.KStoreStreamReader(SourceOptions.of(given, stream=True), ("value",))

    before = {"one": {"0": 5}, "two": {"0": 2}}
    with pytest.raises(
        SparkSourceError, match=r"KSTORE_DATA_LOST: topic two, .*offset 2, .*does not name it any more"
    ):
        reader("one").latestOffset(before)
    assert reader("one", failOnDataLoss="false").latestOffset(before) == {"one": {"0": 5}}
    shutil.rmtree(tmp_path / "two-0")
    with pytest.raises(SparkSourceError, match=r"KSTORE_DATA_LOST: topic two, .*: the partition is gone"):
        reader("one").latestOffset(before)
