"""Options that are wrong, and those of Spark's Kafka source: what is said, and when. Without a session."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.spark import options as options_module
from kstore.spark import plan_splits
from kstore.spark.columns import iterate
from kstore.spark.errors import SparkSourceError
from kstore.spark.logs import roots_of
from kstore.spark.options import SinkOptions, SourceOptions, warn_of_passed_over

GIVEN = {"path": "/data", "subscribe": "t"}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("location", "/warehouse/t", "CREATE TEMPORARY VIEW"),
        (
            "path",
            "hdfs://host/data",
            "KSTORE_UNSUPPORTED: file hdfs://host/data: path must lie in a mounted file system",
        ),
        ("path", "file://host/data", "KSTORE_UNSUPPORTED: file file://host/data: path must lie in a mounted"),
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
            warn_of_passed_over(wanted | given)
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


def test_options_that_reader_and_writer_are_both_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ported programs give one set of options to both: each passes over what only means something to the other."""
    monkeypatch.setattr(options_module, "_warned", set())
    shared = {"path": "/log", "kafka.isolation.level": "read_committed", "kafka.compression.type": "none"}
    with pytest.warns(RuntimeWarning, match="option 'kafka.compression.type' is passed over") as seen:
        warn_of_passed_over(shared | {"subscribe": "t"})
    assert len(seen) == 1
    assert SourceOptions.of(shared | {"subscribe": "t"}, stream=False).isolation == "read_committed"
    with pytest.warns(RuntimeWarning, match="option 'kafka.isolation.level' is passed over") as seen:
        warn_of_passed_over(shared)
    assert len(seen) == 1
    sink = SinkOptions.of(shared | {"includeHeaders": "true"})
    assert sink.config.compression_type == "uncompressed"
    assert (
        SinkOptions.of({"path": "/log", "kafka.compression.type": "zstd"}).config.compression_type == "zstd"
    )
    with pytest.raises(
        SparkSourceError, match=r"kstore.compression.type is 'lz4', and .* is 'none': leave one out"
    ):
        SinkOptions.of(shared | {"kstore.compression.type": "lz4"})
    with pytest.raises(SparkSourceError, match=r"kstore.retention.ms is an option of the writer"):
        SourceOptions.of({"path": "/log", "subscribe": "t", "kstore.retention.ms": "1"}, stream=False)


def test_a_table_of_the_catalog_has_no_options() -> None:
    to_table = {"checkpointLocation": "/c"}
    for make in (
        lambda: SourceOptions.of({}, stream=False),
        lambda: SinkOptions.of({}),
        lambda: SinkOptions.of(to_table),
    ):
        with pytest.raises(
            SparkSourceError,
            match=r"^KSTORE_UNSUPPORTED: a table of the catalog .* does not work.*CREATE TEMPORARY VIEW",
        ):
            make()
    with pytest.raises(SparkSourceError, match="path is missing"):
        SourceOptions.of({"subscribe": "t"}, stream=False)


@pytest.mark.parametrize(
    "url", ["file:/data/x", "file:///data/x", "file://localhost/data/x", "/data/x", "/data/y/../x"]
)
def test_urls_of_the_file_system(url: str) -> None:
    assert SourceOptions.of(GIVEN | {"path": url}, stream=False).roots == ("/data/x",)
    assert roots_of(url) == roots_of([url]) == ("/data/x",)
    sink = SinkOptions.of({"path": url, "topic": "t", "stagingPath": url, "checkpointLocation": url})
    assert (sink.root, sink.staging, sink.checkpoint) == ("/data/x",) * 3
    assert SinkOptions.of({"path": url, "checkpointLocation": "s3a://bucket/x"}).checkpoint is None


@pytest.mark.parametrize("name", ["path", "paths", "PATHS"])
def test_several_log_directories(name: str) -> None:
    """Spark's load([…]) gives JSON, as the option paths."""
    given = {"subscribe": "t", name: '["/a", "file:///b"]'}
    assert SourceOptions.of(given, stream=False).roots == ("/a", "/b")
    with pytest.raises(SparkSourceError, match="KSTORE_INVALID_OPTION: a sink writes in one log directory"):
        SinkOptions.of({name: '["/a", "/b"]'})
    assert SinkOptions.of({name: '["/a"]'}).root == "/a"
    for wrong in ('["/a", 5]', '["/a", "/b"', '["/a", "/a/"]', "[]", '["/a", ""]'):
        with pytest.raises(SparkSourceError, match="KSTORE_INVALID_OPTION: "):
            SourceOptions.of({"subscribe": "t", name: wrong}, stream=False)
    with pytest.raises(SparkSourceError, match="path and paths are both given"):
        SourceOptions.of({"subscribe": "t", "path": "/a", "paths": '["/b"]'}, stream=False)


def test_partitions_of_several_log_directories(tmp_path: Path) -> None:
    """As a broker with several has them; none may hold another's partition."""
    for place, partition in (("one", 0), ("two", 1), ("one", 2)):
        with kstore.open(tmp_path / place / f"t-{partition}", "a") as log:
            log.extend([f"{place} {partition}".encode()] * 3)
    both = [tmp_path / "one", tmp_path / "two"]
    splits = plan_splits(both, "t")
    assert [(split.root, split.partition) for split in splits] == [
        (str(tmp_path / place), partition) for place, partition in (("one", 0), ("two", 1), ("one", 2))
    ]
    values = [record.value for split in splits for record in iterate(split)]
    assert values == [b"one 0"] * 3 + [b"two 1"] * 3 + [b"one 2"] * 3
    with pytest.raises(
        SparkSourceError, match=r"KSTORE_PATH_NOT_FOUND: file .*/gone: no log directory there"
    ):
        plan_splits([*both, tmp_path / "gone"], "t")
    shutil.copytree(tmp_path / "one" / "t-2", tmp_path / "two" / "t-2")
    with pytest.raises(
        SparkSourceError, match=r"topic t, partition 2: two of the directories hold .*one and .*two"
    ):
        plan_splits(both, "t")


def test_sizes() -> None:
    for text, size in (("128m", 128 << 20), ("1 KB", 1024), ("5b", 5), ("7", 7), ("2G", 2 << 30)):
        given = SourceOptions.of(GIVEN | {"maxPartitionBytes": text, "openCostInBytes": "0"}, stream=True)
        assert (given.max_partition_bytes, given.open_cost_bytes) == (size, 0)


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
        ({"endingOffsets": '{"t": {"0": 1, "1": 1}}'}, "partition 1, .*: endingOffsets names this partition"),
        ({"endingOffsets": '{"t": {}}'}, "partition 0: endingOffsets says nothing about this partition"),
        (
            {"startingOffsets": '{"t": {"0": 77}}'},
            "KSTORE_OFFSET_OUT_OF_RANGE: topic t, partition 0, offset 77",
        ),
        (
            {"startingOffsets": '{"t": {"0": 1}, "u": {"0": 1}}'},
            "topic u, partition 0, .*names this partition",
        ),
        ({"startingOffsets": "latest", "endingOffsets": "latest"}, "startingOffsets is 'latest', which only"),
        ({"subscribe": "u"}, "KSTORE_TOPIC_NOT_FOUND: topic u"),
        ({"assign": '{"t": [0]}'}, "given is subscribe and assign"),
        ({"includeHeader": "true"}, "the nearest is includeHeaders"),
        ({"minPartitions": "x"}, "minPartitions is 'x'"),
    ],
)
def test_wrong_options_are_told_by_load(tmp_path: Path, options: dict[str, str], text: str) -> None:
    datasource = pytest.importorskip("kstore.spark.datasource")
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 5)
    given = {"path": str(tmp_path), "subscribe": "t"}
    with pytest.raises(SparkSourceError, match=text):
        datasource.KStoreDataSource(given | options).schema()


@pytest.mark.datasource
def test_what_a_restarted_stream_may_say(tmp_path: Path) -> None:
    """It goes on where it was: that its options name a start that is gone, or lack a partition that is new, is no error."""
    datasource = pytest.importorskip("kstore.spark.datasource")
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=200) as log:
        for _ in range(5):
            log.append(b"v" * 50)
        log.delete_records(3)
    given = {"path": str(tmp_path), "subscribe": "t", "startingOffsets": '{"t": {"0": 1}}'}
    for also in ({}, {"startingTimestamp": "9999999999999"}, {"startingOffsets": "latest"}):
        datasource.KStoreDataSource(given | also).schema()
    kstore.open(tmp_path / "t-1", "a").close()
    datasource.KStoreDataSource(given).schema()
    with pytest.raises(SparkSourceError, match="KSTORE_DATA_LOST: topic t, partition 0, offset 1"):
        datasource.KStoreDataSource(
            given | {"startingOffsets": '{"t": {"0": 1, "1": 0}}', "endingOffsets": "latest"}
        ).schema()
    lenient = {"startingOffsets": '{"t": {"0": 77, "9": 0}}', "failOnDataLoss": "false"}
    datasource.KStoreDataSource(given | lenient).schema()


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
