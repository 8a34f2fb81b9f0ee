"""A partition of a store has the topic's options, whoever opens it."""

import gc
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from kstore.__main__ import main

DAY = 86_400_000
OLD = 1_600_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store whose topic `t` has three old segments."""
    with LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("t", retention_ms=-1, segment_bytes=2 << 20, message_timestamp_before_max_ms=2**62)
        store.create_topic("c", cleanup_policy=["compact"], min_cleanable_dirty_ratio=0.0)
        log: Any = store.log("t")
        for _ in range(3):
            log.append(b"v", timestamp=OLD)
            log.roll()
        log = store.log("c")
        for _ in range(3):
            log.append(b"v", b"k")
        log.roll()
    return tmp_path / "data"


def test_kstore_open(path: Path) -> None:
    with kstore.open(path / "t-0", "a") as log:
        assert (log.config.retention_ms, log.config.segment_bytes) == (-1, 2 << 20)
        assert not any(decision.delete for decision in log.retain())
    with kstore.open(path / "t-0", "r+", segment_bytes=3 << 20) as log:  # what is named counts
        assert (log.config.retention_ms, log.config.segment_bytes) == (-1, 3 << 20)
    with kstore.open(path / "t-0", "r+", retention_ms=5) as log:
        assert (log.config.retention_ms, log.config.segment_bytes) == (5, 2 << 20)
    with kstore.open(
        path / "t-0", "r+", config=kstore.LogConfig(retention_ms=5)
    ) as log:  # and so it does here
        assert (log.config.retention_ms, log.config.segment_bytes) == (5, 2 << 20)
    with kstore.open(path / "c-0", "r+") as log:
        assert log.compact().records_removed == 2
    with kstore.open(path / "unknown-0", "a") as log:
        assert log.config == kstore.LogConfig()
    with LogStore(path, mode="a") as store:
        assert store.describe("t").config.segment_bytes == 2 << 20


def test_nobody_said_how_long(path: Path) -> None:
    with LogStore(path, mode="a", background=False) as store:
        store.alter_topic("t", retention_ms=None)
    with kstore.open(path / "t-0", "a") as log, pytest.raises(kstore.InvalidConfigError):
        log.retain()
    assert main(["retain", str(path / "t-0")]) != 0


def test_commands(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = str(path / "t-0")
    assert main(["retain", one, "--dry-run"]) == 0
    assert "delete" not in capsys.readouterr().out
    assert main(["retain", one]) == 0
    assert kstore.open(one).log_start_offset == 0
    assert main(["retain", one, "--dry-run", "--config", "retention.ms=1"]) == 0
    assert "delete" in capsys.readouterr().out
    assert main(["compact", str(path / "c-0")]) == 0
    assert "2 records" in capsys.readouterr().out
    properties = path.parent / "server.properties"
    properties.write_text("log.retention.ms=1\nlog.segment.bytes=5000000\n")
    assert (
        main(["retain", one, "--server-properties", str(properties)]) == 0
    )  # the topic's counts before the broker's
    assert kstore.open(one).log_start_offset == 0
    assert main(["retain", one, "--config", "retention.ms=1"]) == 0
    assert kstore.open(one).log_start_offset == 3


def test_a_damaged_table_is_no_configuration(path: Path) -> None:
    (path / "kstore-topics.json").write_bytes(b"{")
    with pytest.raises(kstore.CorruptCheckpointError):
        kstore.open(path / "t-0", "a")
    assert main(["retain", str(path / "t-0"), "--defaults"]) != 0
    assert kstore.open(path / "t-0").log_end_offset == 3


def test_a_partition_alone_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "kstore-topics.json").write_bytes(b"{")  # no sign of a log directory: nothing else is there
    with kstore.open(tmp_path / "orders", "a") as log:
        assert log.config == kstore.LogConfig()


def test_what_a_log_kept_is_the_topics(tmp_path: Path) -> None:
    """It was written by itself; the store's own retention is for others."""
    with kstore.open(tmp_path / "t-0", "a", cleanup_policy="compact", compression_type="zstd") as log:
        for i in range(10):
            log.append(b"v", b"%d" % i, OLD)
        log.roll()
    options = {"cleanup_policy": ("compact",), "compression_type": "zstd"}
    for count in (1, 2):
        with LogStore(tmp_path, mode="a", background=False, retention_ms=DAY) as store:
            assert store.describe("t").options == options
            assert store.describe("t").config.retention_ms == DAY
            assert store.log("t").config.cleanup_policy == ("compact",)
            store.retain()
            assert len(store.table("t")) == 10
            with pytest.raises(kstore.InvalidRecordError):
                store.append("t", b"no key")
            store.add_partitions("t", count + 1)
    (tmp_path / "t-0" / "kstore-config.json").unlink()
    assert (
        LogStore(tmp_path).describe("t").options == options
    )  # the store keeps them since it has changed the topic


def test_a_damaged_configuration_of_a_log_is_told(tmp_path: Path) -> None:
    for name in ("t-0", "u-0"):
        with kstore.open(tmp_path / name, "a", cleanup_policy="compact") as log:
            log.append(b"v", b"k")
    (tmp_path / "t-0" / "kstore-config.json").write_text("{}")
    with LogStore(tmp_path, mode="a", retention_ms=DAY) as store:
        with pytest.raises(kstore.CorruptCheckpointError):
            store.append("t", b"v", b"k")
        assert [*store.health().partitions] == [("t", 0)]
        store.append("u", b"v", b"k")


@pytest.mark.parametrize("ends", ["abandon", "garbage"])
def test_a_writer_that_nobody_closed(tmp_path: Path, ends: str) -> None:
    """The clean marker is gone, and no other file of a log directory is there yet but the table of topics."""
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", cleanup_policy="compact", retention_ms=-1)
    log: Any = kstore.open(tmp_path / "t-0", "a")
    log.append(b"v", b"k")
    if ends == "abandon":
        log.abandon()
    del log
    gc.collect()
    with kstore.open(tmp_path / "t-0", "a") as log:
        assert log.config.given_options() == {"cleanup_policy": ("compact",), "retention_ms": -1}
        with pytest.raises(kstore.InvalidRecordError):
            log.append(b"no key")
    assert not (tmp_path / "t-0" / "kstore-config.json").exists()
