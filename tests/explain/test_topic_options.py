"""The options of a topic in a broker's directory, read from __cluster_metadata-0 beside it."""

import json
import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

import pytest

import kstore
from kstore.broker.cluster_metadata import read_cluster_metadata
from tests.tools.conftest import Run

GOLDEN = Path(__file__).parents[1] / "golden/data/broker/data"
OPTIONS = {
    "bounded": {"index.interval.bytes": "256", "segment.index.bytes": "64", "retention.bytes": "6000"},
    "idle": {"retention.ms": "1234567"},
    "recompressed": {"compression.type": "zstd"},
}


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "data"))


def described(run: Run, *words: object) -> dict[str, str]:
    code, out, err = run("describe", *words, "--json")
    assert (code, err) == (0, "")
    config: dict[str, str] = json.loads(out)["config"]
    return config


def test_options_of_a_real_broker(broker: Path, run: Run) -> None:
    """From the newest snapshot and the log; from the log alone; from the snapshot alone."""
    metadata = broker / "__cluster_metadata-0"
    for step in range(3):
        for topic, options in OPTIONS.items():
            assert described(run, broker, topic) == options
            assert described(run, broker / f"{topic}-0") == options
        for file in metadata.iterdir():
            if step == 0 and file.name.endswith(".checkpoint"):
                file.rename(broker / file.name)
            elif step == 1 and file.name != "partition.metadata":
                file.unlink()
        if step == 1:
            shutil.copy(broker / "00000000000000000103-0000000001.checkpoint", metadata)
    assert "bounded  1 partition  index.interval.bytes=256" in run("topics", broker)[1]


def test_retain_and_compact_need_no_config(broker: Path, run: Run) -> None:
    code, out, _ = run("retain", broker / "bounded-0", "--dry-run")
    assert (code, "retention.bytes is 6000" in out) == (0, True)
    code, out, _ = run("compact", broker / "state_store-0", "--dry-run")
    assert (code, "nothing to do" in out) == (0, True)
    code, out, err = run("retain", broker / "trimmed-0", "--dry-run")  # whose retention is the broker's own
    assert (code, out, "--server-properties" in err) == (2, "", True)
    properties = broker.parent / "server.properties"
    properties.write_text("log.retention.ms=5\n")
    code, out, _ = run("retain", broker / "trimmed-0", "--dry-run", "--server-properties", properties)
    assert (code, "retention.ms is 5" in out) == (0, True)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def text(value: str | None) -> bytes:
    return b"\0" if value is None else varint(len(value) + 1) + value.encode()


def record(kind: int, body: bytes) -> bytes:
    return b"\1" + varint(kind) + b"\0" + body + b"\0"


def topic(name: str, number: int) -> bytes:
    return record(2, text(name) + UUID(int=number).bytes)


def removed(number: int) -> bytes:
    return record(9, UUID(int=number).bytes)


def option(name: str, value: str | None, resource: str = "t", kind: int = 2) -> bytes:
    return record(4, struct.pack(">b", kind) + text(resource) + text(name) + text(value))


BEGIN, END, ABORT = record(23, b""), record(24, b""), record(25, b"")


def found(broker: Path, records: Iterable[bytes]) -> dict[str, str]:
    path = broker / "__cluster_metadata-0"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    with kstore.open(path, "a") as log:
        log.extend(list(records))
    return dict(read_cluster_metadata(path).options_of_topic("t"))


RETENTION = option("retention.ms", "5")


@pytest.mark.parametrize(
    ("records", "options"),
    [
        ([topic("t", 1), RETENTION], {"retention.ms": "5"}),
        ([topic("t", 1), RETENTION, option("retention.ms", "6")], {"retention.ms": "6"}),
        ([topic("t", 1), RETENTION, option("retention.ms", None)], {}),
        ([topic("t", 1), RETENTION, removed(1)], {}),
        ([topic("t", 1), RETENTION, removed(1), topic("t", 2)], {}),
        ([topic("t", 1), BEGIN, RETENTION, ABORT], {}),
        ([topic("t", 1), BEGIN, RETENTION], {}),
        ([topic("t", 1), BEGIN, RETENTION, END], {"retention.ms": "5"}),
        ([topic("t", 1), option("retention.ms", "5", "u")], {}),
    ],
)
def test_changes_of_options(broker: Path, records: list[bytes], options: dict[str, str]) -> None:
    assert found(broker, records) == options


def test_precedence(broker: Path, run: Run) -> None:
    """Of the topic, of this broker, of all brokers; a partition of another topic id has none of the topic's; a
    later Kafka's options are passed over; what kstore has saved in the partition comes first."""
    topic_id = kstore.open(broker / "idle-0").topic_id()
    assert topic_id is not None
    brokers = [option("log.retention.ms", "7", "", 4), option("log.retention.bytes", "8", "", 4)]
    own = option("log.retention.ms", "6", "1", 4)
    mine = [topic("idle", topic_id.int), option("retention.ms", "5", "idle")]
    for records, limits in (
        (brokers, ("7", "8")),
        ([*brokers, own], ("6", "8")),
        ([*brokers, own, *mine], ("5", "8")),
        ([*brokers, own, topic("idle", 1), option("retention.ms", "5", "idle")], ("6", "8")),
        ([*brokers, *mine, option("later.option", "x", "idle")], ("5", "8")),
    ):
        found(broker, records)
        code, out, _ = run("retain", broker / "idle-0", "--dry-run", "--config", "cleanup.policy=delete")
        assert code == 0
        with kstore.open(broker / "idle-0", "r+") as log:
            log.append(b"v", timestamp=1)
        out = run("retain", broker / "idle-0", "--dry-run")[1]
        assert f"retention.ms is {limits[0]}" in out, records
    with kstore.open(broker / "idle-0", "r+", retention_ms=4):
        pass
    assert described(run, broker / "idle-0")["retention.ms"] == "4"


def test_damaged_metadata_is_reported(broker: Path, run: Run) -> None:
    snapshot = broker / "__cluster_metadata-0/00000000000000000103-0000000001.checkpoint"
    data = bytearray(snapshot.read_bytes())
    data[200] ^= 1
    snapshot.write_bytes(data)
    code, out, err = run("describe", broker, "bounded")
    assert (code, "no configuration of its own" in out, str(snapshot) in err) == (0, True, True)
    assert run("retain", broker / "bounded-0", "--dry-run")[0] == 2
    assert run("retain", broker / "bounded-0", "--dry-run", "--config", "retention.bytes=6000")[0] == 0
