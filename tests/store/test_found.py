"""What a search for defects found in a store, and does not find any more."""

import contextlib
import errno
from pathlib import Path

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.engine.io.file import fail_call
from kstore.engine.record.hashes import murmur2
from tests.store.test_interrupted_changes import filled, opened


def test_partitions_that_are_not_here(tmp_path: Path) -> None:
    """A directory was not mounted, say, and is empty: nothing that needs all partitions passes over those."""
    store, _ = filled(tmp_path)
    store.close()
    (tmp_path / "b").rename(tmp_path / "away")
    (here,) = LogStore(tmp_path / "a").topics["old"]
    gone = TopicPartition("old", 1 - here)
    for mode in ("r", "a"):
        dirs = [tmp_path / "a"] if mode == "r" else [tmp_path / "a", tmp_path / "b"]
        with LogStore(*dirs, mode=mode) as store:  # type: ignore[arg-type]
            assert store.health().missing == [gone]
            assert not store.health().ok
            with pytest.raises(kstore.LogFailedError, match="are in none of the directories"):
                store.scan("old")
            assert len(list(store.scan("old", partitions=[here]))) == 1
    with opened(tmp_path) as store:
        for refused in (store.delete_topic, lambda topic: store.add_partitions(topic, 3)):
            with pytest.raises(kstore.LogFailedError, match="are in none of the directories"):
                refused("old")
        assert store.health().unfinished == ""
        assert store.append("old", b"v", next(b"%d" % i for i in range(9) if murmur2(b"%d" % i) % 2 == here))
    for path in (tmp_path / "b").iterdir():
        path.unlink()
    (tmp_path / "b").rmdir()
    (tmp_path / "away").rename(tmp_path / "b")
    with opened(tmp_path) as store:
        assert store.health().ok
        assert store.topics == {"old": [0, 1]}


def test_a_topic_that_somebody_writes_is_not_deleted(tmp_path: Path) -> None:
    store, logs = filled(tmp_path)
    place = logs[1].path
    logs[1].close()
    with kstore.open(place, "a") as other:
        with pytest.raises(kstore.LogLockedError, match="old-1"):
            store.delete_topic("old")
        assert store.health().ok
        other.append(b"v")
        assert store.topics == {"old": [0, 1]}
        assert store.log("old", 0).log_end_offset == 1
    store.delete_topic("old")
    store.close()


def test_one_damaged_table_of_two(tmp_path: Path) -> None:
    store, _ = filled(tmp_path)
    store.alter_topic("old", segment_bytes=1 << 22)
    store.close()
    (tmp_path / "a" / "kstore-topics.json").write_bytes(b"\0" * 100)
    with pytest.warns(kstore.DataLossWarning, match="newest sound copy"):
        store = opened(tmp_path)
    assert store.describe("old").options == {"segment_bytes": 1 << 22}
    store.close()
    opened(tmp_path).close()


def test_directories_of_two_stores(tmp_path: Path) -> None:
    """Topics keep their options, whichever table is the newer."""
    for name, topic in (("a", "one"), ("b", "two"), ("c", "one")):
        with LogStore(tmp_path / name, mode="a") as store:
            store.create_topic(topic, segment_bytes=1 << 22)
    with opened(tmp_path) as store:
        for topic in ("one", "two"):
            assert store.describe(topic).options == {"segment_bytes": 1 << 22}
        store.delete_topic("two")
    with opened(tmp_path) as store:
        assert store.topics == {"one": [0]}
    with pytest.raises(kstore.KstoreError, match="remove one of them"):
        LogStore(tmp_path / "a", tmp_path / "c", mode="a")


def test_flush_goes_on_after_a_failure(tmp_path: Path) -> None:
    store, logs = filled(tmp_path)
    for log in logs:
        log.append(b"v")
    fail_call(1, errno.EIO, own=True)
    try:
        with pytest.raises(OSError, match="Input/output"):
            store.flush()
    finally:
        fail_call(0)
    assert sorted(log.durable_offset for log in logs) == [0, 2]
    with contextlib.suppress(OSError, kstore.KstoreError):
        store.close()
