"""A partition of a store has the topic's options, whatever opens it."""

import gc
import json
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from tests.store.stores import DAY, opened, writer

OLD = 1_600_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store whose topic `t` has three old segments."""
    with opened(tmp_path / "data") as store:
        store.create_topic("t", retention_ms=-1, segment_bytes=2 << 20, message_timestamp_before_max_ms=2**62)
        store.create_topic("c", cleanup_policy=["compact"], min_cleanable_dirty_ratio=0.0)
        for _ in range(3):
            writer(store).append(b"v", timestamp=OLD)
            writer(store).roll()
            writer(store, "c").append(b"v", b"k")
        writer(store, "c").roll()
    return tmp_path / "data"


def test_they_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=1 << 21, retention_ms=7) as store:
        made = store.create_topic("t", retention_ms=5, cleanup_policy=("compact", "delete"))
        assert made.options == {"retention_ms": 5, "cleanup_policy": ("compact", "delete")}
        log = writer(store)
        assert (log.config.retention_ms, log.config.segment_bytes) == (5, 1 << 21)
        store.alter_topic("t", retention_ms=None, cleanup_policy=["delete"], flush_messages=9)
        config = log.config
        assert (config.retention_ms, config.flush_messages, config.cleanup_policy) == (7, 9, ("delete",))
        with pytest.warns(UserWarning, match="a store keeps the options"):
            log.configure(flush_messages=10)
    with opened(tmp_path, segment_bytes=1 << 22) as store:
        assert store.describe("t").options == {"cleanup_policy": ("delete",), "flush_messages": 9}
        log = writer(store)
        assert (log.config.segment_bytes, log.config.flush_messages) == (1 << 22, 9)
    described = LogStore(tmp_path).describe("t")
    assert described.options == {"cleanup_policy": ("delete",), "flush_messages": 9}
    assert described.partitions == {0: tmp_path / "t-0"}


def test_wrong_options(tmp_path: Path) -> None:
    """Nothing is made or changed. Options of a whole store and names of arguments are no topic options."""
    with opened(tmp_path) as store:
        store.create_topic("t", internal_segment_bytes=None)
        for options, text in (
            ({"segment_byte": 1}, "segment_byte"),
            ({"segment_byte": None}, "segment_byte"),
            ({"segment_bytes": 1}, "segment_bytes"),
            ({"retention_ms": "x"}, "retention_ms"),
            ({"log_cleaner_enable": False}, "an option of a whole store"),
            ({"log_cleaner_backoff_ms": 1}, "an option of a whole store"),
            ({"partitions": 1}, "add_partitions"),
            ({"durable": 1}, "argument of kstore.open"),
            ({"keepfor": 1}, "keep_for is an argument"),
        ):
            given: Any = options
            with pytest.raises(kstore.InvalidConfigError, match=text):
                store.alter_topic("t", **given)
            if "partitions" not in options:
                with pytest.raises(kstore.InvalidConfigError, match=text):
                    store.create_topic("u", **given)
        for given in ({"durable": 1}, {"keepfor": 1}, {"partitions": 1}):
            with pytest.raises(kstore.InvalidConfigError, match=r"argument of|add_partitions|an argument"):
                kstore.open(tmp_path / "v-0", "a", **given)
        assert store.describe("t").options == {}
        assert list(store.topics) == ["t"]
        assert not (tmp_path / "v-0").exists()


def test_kstore_open(path: Path) -> None:
    with kstore.open(path / "t-0", "a") as log:
        assert (log.config.retention_ms, log.config.segment_bytes) == (-1, 2 << 20)
        assert not any(decision.delete for decision in log.retain())
    for given, expected in (
        ({"segment_bytes": 3 << 20}, (-1, 3 << 20)),
        ({"retention_ms": 5}, (5, 2 << 20)),
        ({"config": kstore.LogConfig(retention_ms=5)}, (5, 2 << 20)),
    ):
        options: Any = given
        with kstore.open(path / "t-0", "r+", **options) as log:
            assert (log.config.retention_ms, log.config.segment_bytes) == expected
    with kstore.open(path / "c-0", "r+") as log:
        assert log.compact().records_removed == 2
    with kstore.open(path / "unknown-0", "a") as log:
        assert log.config == kstore.LogConfig()
    with LogStore(path, mode="a") as store:
        assert store.describe("t").config.segment_bytes == 2 << 20


def test_the_options_of_a_log_become_those_of_the_topic(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", cleanup_policy="compact", compression_type="zstd") as log:
        for i in range(10):
            log.append(b"v", b"%d" % i, OLD)
        log.roll()
    options = {"cleanup_policy": ("compact",), "compression_type": "zstd"}
    for count in (1, 2):
        with opened(tmp_path, retention_ms=DAY) as store:
            assert store.describe("t").options == options
            assert store.describe("t").config.retention_ms == DAY
            assert writer(store).config.cleanup_policy == ("compact",)
            store.retain()
            assert len(store.table("t")) == 10
            with pytest.raises(kstore.InvalidRecordError):
                store.append("t", b"no key")
            store.add_partitions("t", count + 1)
    (tmp_path / "t-0" / "kstore.json").unlink()
    # the store keeps them since it has changed the topic
    assert LogStore(tmp_path).describe("t").options == options


@pytest.mark.parametrize("ends", ["abandon", "garbage"])
def test_a_writer_that_was_not_closed(tmp_path: Path, ends: str) -> None:
    """The clean marker is gone, and no other file of a log directory is there yet but the table of topics."""
    with opened(tmp_path) as store:
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
    assert "config" not in json.loads((tmp_path / "t-0" / "kstore.json").read_text())
