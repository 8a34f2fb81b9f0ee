"""Options of the reader and of the writer, right and wrong, without a session: what Spark's data source makes
of them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.spark import KStoreDataSource, SparkSourceError

pytestmark = [pytest.mark.spark, pytest.mark.datasource, pytest.mark.filterwarnings("ignore")]

READ = {"path": "/log", "subscribe": "t"}
WRITE = {"path": "/log", "topic": "t"}
OPTION = "KSTORE_INVALID_OPTION: "


def reading(options: dict[str, str], *, stream: bool = False) -> Any:
    """The options of a batch query, or of a stream, once they are checked."""
    source = KStoreDataSource(options)
    return (source.streamReader if stream else source.reader)(schema("value")).options


def writing(options: dict[str, str]) -> Any:
    """The options of a job that writes, once they are checked."""
    return KStoreDataSource(options).writer(schema("value"), False).target.options


def schema(*names: str) -> Any:
    from pyspark.sql.types import BinaryType, StructField, StructType

    return StructType([StructField(name, BinaryType()) for name in names])


def test_options_in_any_case_and_their_values() -> None:
    given = {"PATH": "/x", "subscribe": "a, b", "MINPARTITIONS": "3", "includeheaders": "TRUE"}
    options = reading(given)
    assert (options.roots, options.topics, options.min_partitions) == (("/x",), ["a", "b"], 3)
    assert options.include_headers is True
    assert options.starting.offsets == "earliest"
    assert reading(given, stream=True).starting.offsets == "latest"
    for text, size in (("128m", 128 << 20), ("1 KB", 1024), ("5b", 5), ("7", 7), ("2G", 2 << 30)):
        options = reading(READ | {"maxPartitionBytes": text, "openCostInBytes": "0"})
        assert (options.max_partition_bytes, options.open_cost_bytes) == (size, 0)
    for url in ("file:/data/x", "file:///data/x", "file://localhost/data/x", "/data/x", "/data/y/../x"):
        assert reading(READ | {"path": url}).roots == ("/data/x",)
        sink = writing({"path": url, "topic": "t", "stagingPath": url, "checkpointLocation": url})
        assert (sink.root, sink.staging, sink.checkpoint) == ("/data/x",) * 3
        assert writing(WRITE | {"path": url, "checkpointLocation": "s3a://bucket/x"}).checkpoint is None
    for name in ("path", "paths", "PATHS"):  # Spark's load([…]) gives JSON, as the option paths
        several = '["/a", "file:///b", "s3://bucket/c/"]'
        assert reading({"subscribe": "t", name: several}).roots == ("/a", "/b", "s3://bucket/c")
        assert writing({"topic": "t", name: '["/a"]'}).root == "/a"
    for right in (
        {"startingOffsets": '{"t": {"0": 5, "1": 7}, ":positions": {"t": {"0": [0, 0, "id"]}}}'},
        {"startingOffsets": '{"t": {"0": 5, "1": -2}}', "endingOffsets": '{"t": {"0": 5, "1": -1}}'},
        {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": -1}}'},
        {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}', "startingTimestamp": "9"},
        {"startingTimestamp": "5", "endingTimestamp": "5"},
    ):
        reading(READ | right)


MOUNTED = "KSTORE_UNSUPPORTED: file .*: path must lie in a mounted file system"
CATALOG = "CREATE TEMPORARY VIEW"
WRONG_READING = (
    ({"minPartitions": "0"}, OPTION),
    ({"minPartitions": "x"}, "minPartitions is 'x'"),
    ({"minPartitionNum": "0"}, OPTION),
    ({"maxPartitionBytes": "0"}, OPTION),
    ({"maxPartitionBytes": "1 mile"}, OPTION),
    ({"openCostInBytes": "-1"}, OPTION),
    ({"includeHeader": "true"}, "the nearest is includeHeaders"),
    ({"failOnDataLoss": "no"}, "allowed is true or false"),
    ({"isolation": "read"}, "isolation is 'read'"),
    ({"isolation": "read_uncommitted", "kafka.isolation.level": "read_committed"}, "leave one out"),
    ({"kafka.isolation.level": "x"}, "isolation is 'x'"),
    ({"assign": '{"t": [0]}'}, "given is subscribe and assign"),
    ({"subscribePattern": "["}, OPTION),
    ({"startingOffsets": "first"}, "is no JSON .*, allowed are earliest, latest and JSON with offsets"),
    ({"startingOffsets": "{"}, "startingOffsets is no JSON"),
    ({"startingOffsets": "latest"}, "startingOffsets is 'latest', which only streams take"),
    ({"startingOffsets": '{"t": {"0": true}}'}, "offsets and timestamps are numbers"),
    (
        {"startingOffsets": '{"t": {"0": -1}}'},
        "startingOffsets of t has -1, the end, which only streams take",
    ),
    ({"startingOffsets": '{"t": {"0": 1}, "t": {"0": 5}}'}, "a name is there twice"),
    ({"startingOffsets": '{"t": {"0": 1, "00": 5}}'}, "partitions are numbers"),
    ({"startingOffsets": '{"t": {"1_0": 1}}'}, "partitions are numbers"),
    ({"startingOffsets": '{"t": {"\\u0663": 1}}'}, "partitions are numbers"),
    ({"startingOffsets": '{"t": {"0": 9223372036854775808}}'}, "offsets and timestamps are numbers"),
    ({"startingOffsets": '{"t": {"0": NaN}}'}, "offsets and timestamps are numbers"),
    ({"startingOffsets": '{"t":' * 100_000}, "is no JSON"),
    ({"startingTimestamp": "9999999999999999999"}, "allowed is an integer from 0 to 9223372036854775807"),
    ({"startingTimestamp": "5", "endingTimestamp": "4"}, "startingTimestamp 5 lies after endingTimestamp 4"),
    (
        {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'},
        "topic t, partition 0: startingOffsets 5 lies after endingOffsets 4",
    ),
    (
        {"startingOffsetsByTimestamp": '{"t": {"1": 5}}', "endingOffsetsByTimestamp": '{"t": {"1": 4}}'},
        "topic t, partition 1: startingOffsetsByTimestamp 5 lies after",
    ),
    ({"endingOffsets": "earliest"}, OPTION),
    ({"topic": "a"}, "topic is an option of the writer; what to read, subscribe says"),
    ({"kstore.retention.ms": "1"}, "kstore.retention.ms is an option of the writer"),
    ({"path": ""}, OPTION),
    ({"PATH": "file://host/data"}, MOUNTED),
    ({"paths": '["/b"]'}, "path and paths are both given"),
    *(
        ({"path": paths}, OPTION)
        for paths in ('["/a", 5]', '["/a", "/b"', '["/a", "/a/"]', "[]", '["/a", ""]')
    ),
    ({"location": "/warehouse/t"}, CATALOG),
)
WRONG_WRITING = (
    ({"path": ""}, OPTION),
    ({"path": "hdfs://host/data"}, MOUNTED),
    ({"path": '["/a", "/b"]'}, "a sink writes in one log directory"),
    ({"subscribe": "t"}, "an option of the reader; where to write, topic says"),
    ({"topic": "a/b"}, "topic is 'a/b', which is no name of a topic"),
    ({"txnId": " "}, "txnId is empty"),
    ({"ifPublished": "no"}, "ifPublished is 'no'"),
    ({"lockWait": "1y"}, "lockWait is '1y'"),
    (
        {"kstore.compression.type": "none"},
        "compression.type is .none., allowed is .*none is called uncompressed",
    ),
    ({"kstore.segment.byte": "1"}, r"segment\.bytes"),
    (
        {"kstore.compression.type": "lz4", "kafka.compression.type": "none"},
        "kstore.compression.type is 'lz4', and .* is 'none': leave one out",
    ),
    ({"LOCATION": "/warehouse/t"}, CATALOG),
)


def test_wrong_options() -> None:
    for options, text in WRONG_READING:
        given = {k: v for k, v in READ.items() if k not in {name.lower() for name in options}} | options
        with pytest.raises(SparkSourceError, match=text) as e:
            reading(given)
        assert len(str(e.value)) < 1000
    for options, text in WRONG_WRITING:
        with pytest.raises(SparkSourceError, match=text):
            writing(WRITE | options)
    for options, text in (
        ({"endingOffsets": "latest"}, "endingOffsets is an option of batch queries; a stream has no end"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger, 9, is more than"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "1y"}, "maxTriggerDelay is '1y'"),
    ):
        with pytest.raises(SparkSourceError, match=f"{OPTION}{text}"):
            reading(READ | options, stream=True)
    with pytest.raises(SparkSourceError, match="path is missing: the log directory to write in"):
        writing({"topic": "t"})
    with pytest.raises(SparkSourceError, match="path is missing"):
        reading({"subscribe": "t"})
    with pytest.raises(SparkSourceError, match="one of subscribe, subscribePattern and assign"):
        reading({"path": "/log"})
    of_catalog = r"^KSTORE_UNSUPPORTED: a table of the catalog .* does not work.*CREATE TEMPORARY VIEW"
    for call in (lambda: reading({}), lambda: writing({}), lambda: writing({"checkpointLocation": "/c"})):
        with pytest.raises(SparkSourceError, match=of_catalog):
            call()
    with pytest.raises(SparkSourceError, match=f"{OPTION}txnId is for batch jobs"):
        KStoreDataSource(WRITE | {"txnId": "a"}).streamWriter(schema("value"), False)


def test_options_of_sparks_kafka_source_and_sink() -> None:
    """Those for clients of a broker are passed over, others are taken; ported programs give reader and writer
    the same."""
    of_clients = {
        "kafka.bootstrap.servers": "host:9092",
        "groupIdPrefix": "mine",
        "kafka.group.id": "mine",
        "kafka.ssl.key.password": "secret",
        "kafkaConsumer.pollTimeoutMs": "9",
        "fetchOffset.numRetries": "9",
    }
    assert reading(READ | of_clients) == reading(READ)
    committed = {"Kafka.Isolation.Level": "read_committed"}
    for own in ({}, {"isolation": "read_committed"}):
        assert reading(READ | own | committed, stream=True).isolation == "read_committed"
    shared = {"kafka.isolation.level": "read_committed", "kafka.compression.type": "none"}
    assert reading(READ | shared).isolation == "read_committed"
    assert writing(WRITE | shared | {"includeHeaders": "true"}).config.compression_type == "uncompressed"
    assert writing(WRITE | {"kafka.compression.type": "zstd"}).config.compression_type == "zstd"


def test_what_is_passed_over_is_named_once() -> None:
    """In a process of its own; a value is never shown, as it may be a password."""
    program = """
import sys, warnings
from kstore.spark import KStoreDataSource
warnings.simplefilter("always")
shared = {"path": "/log", "kafka.isolation.level": "read_committed", "kafka.compression.type": "none"}
for options in (
    {"path": "/log", "subscribe": "t", "kafka.ssl.key.password": "secret", "groupIdPrefix": "mine"},
    {"path": "/log", "subscribe": "t", "kafka.ssl.key.password": "secret"},
    shared | {"subscribe": "t"},
    shared | {"topic": "t"},
):
    KStoreDataSource(options)
    print("--", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found = [part.count("is passed over") for part in done.stderr.split("--\n")]
    assert found == [2, 0, 1, 1, 0]
    assert "option 'kafka.ssl.key.password' is passed over" in done.stderr
    assert "secret" not in done.stderr
    first, second = (done.stderr.split("--\n")[at] for at in (2, 3))
    assert "'kafka.compression.type'" in first
    assert "'kafka.isolation.level'" in second


OUT_OF_RANGE = "KSTORE_OFFSET_OUT_OF_RANGE: topic t"
ABSENT = (
    ({"endingOffsets": '{"t": {"0": 77}}'}, f"{OUT_OF_RANGE}, partition 0, offset 77"),
    ({"startingOffsets": '{"t": {"0": 77}}'}, f"{OUT_OF_RANGE}, partition 0, offset 77"),
    (
        {"startingOffsets": '{"t": {"0": 77}}', "endingOffsets": "latest"},
        f"{OUT_OF_RANGE}, partition 0, offset 77",
    ),
    ({"startingTimestamp": "9999999999999", "endingOffsets": "latest"}, OUT_OF_RANGE),
    ({"endingOffsets": '{"t": {"0": 1, "1": 1}}'}, "partition 1, .*: endingOffsets names this partition"),
    ({"endingOffsets": '{"t": {}}'}, "partition 0: endingOffsets says nothing about this partition"),
    ({"startingOffsets": '{"t": {"0": 1}, "u": {"0": 1}}'}, "topic u, partition 0, .*names this partition"),
    ({"startingOffsets": "latest", "endingOffsets": "latest"}, "startingOffsets is 'latest', which only"),
    ({"subscribe": "u"}, "KSTORE_TOPIC_NOT_FOUND: topic u"),
)


def test_load_reports_what_is_not_there(tmp_path: Path) -> None:
    """A stream that is restarted goes on where it was: that its options name a start that is gone, or lack a
    partition that is new, is no error."""
    with kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=200) as log:
        for _ in range(5):
            log.append(b"v" * 50)
    given = {"path": str(tmp_path), "subscribe": "t"}
    for options, text in ABSENT:
        with pytest.raises(SparkSourceError, match=text):
            KStoreDataSource(given | options).schema()
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.delete_records(3)
    restarted = given | {"startingOffsets": '{"t": {"0": 1}}'}
    for also in ({}, {"startingTimestamp": "9999999999999"}, {"startingOffsets": "latest"}):
        KStoreDataSource(restarted | also).schema()
    kstore.open(tmp_path / "t-1", "a").close()
    KStoreDataSource(restarted).schema()
    lost = given | {"startingOffsets": '{"t": {"0": 1, "1": 0}}', "endingOffsets": "latest"}
    with pytest.raises(SparkSourceError, match="KSTORE_DATA_LOST: topic t, partition 0, offset 1"):
        KStoreDataSource(lost).schema()
    lenient = {"startingOffsets": '{"t": {"0": 77, "9": 0}}', "failOnDataLoss": "false"}
    KStoreDataSource(given | lenient).schema()
