"""A store deletes nothing that a group has not committed, whoever asks: retain() or the background."""

from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore, LogWriter, TopicPartition

T = 1_700_000_000_000
DAY = 86_400_000


def make(path: Path, **options: Any) -> LogStore:
    """All of it is old; ten records in each of three topics' partitions, one a segment."""
    given: dict[str, Any] = {"background": False, "retention_ms": DAY, "internal_segment_bytes": 100}
    store = LogStore(path, mode="a", clock=lambda: T + 2 * DAY, **given | options)
    for topic in ("a", "b", "c"):
        if topic not in store.topics:
            store.create_topic(topic, 2)
            for number in range(2):
                log = store.log(topic, number)
                assert isinstance(log, LogWriter)
                for _ in range(10):
                    log.append(b"v" * 20, timestamp=T)
    return store


def commit(path: Path, group: str, topics: list[str], count: int) -> None:
    """The group has read so many records of partition 0 of these topics."""
    for topic in topics:
        with kstore.open(path / f"{topic}-0").cursor(group) as cursor:
            for _, record in zip(range(count), cursor, strict=False):
                cursor.commit(record)


def starts(store: LogStore) -> dict[str, list[int]]:
    return {topic: [store.log(topic, n).log_start_offset for n in (0, 1)] for topic in store.topics}


def test_what_groups_have_not_committed_stays(tmp_path: Path) -> None:
    with make(tmp_path) as store:
        commit(tmp_path, "one", ["a", "b"], 4)
        commit(tmp_path, "two", ["a"], 6)
        assert store.retain(dry_run=True, keep_for=["nobody"])
        store.retain(keep_for=["nobody"])  # has committed nothing: nothing is deleted
        assert starts(store) == {key: [0, 0] for key in "abc"}
        decisions = store.retain(keep_for=["one", "two"], dry_run=True)
        assert sum(d.delete for d in decisions[TopicPartition("a", 0)]) == 4
        assert starts(store) == {key: [0, 0] for key in "abc"}
        store.retain(keep_for=["one", "two"])
        # who reads nothing of c keeps nothing there
        assert starts(store) == {"a": [4, 0], "b": [4, 0], "c": [10, 10]}
        store.retain(keep_for=["two"])
        assert starts(store) == {"a": [6, 0], "b": [10, 10], "c": [10, 10]}
        store.retain()
        assert starts(store) == {key: [10, 10] for key in "abc"}


@pytest.mark.parametrize("of", ["a log", "a store"])
def test_what_a_share_group_has_not_acknowledged_stays(tmp_path: Path, of: str) -> None:
    """Also a record that was delivered, and those behind a truncation."""
    with make(tmp_path) as store:
        log = store.log("a")
        assert isinstance(log, LogWriter)

        def start() -> int:
            log.retain(keep_for=["workers"]) if of == "a log" else store.retain(keep_for=["workers"])
            return log.log_start_offset

        assert start() == 0
        with log.share_group("workers") as group:
            jobs = list(group)
            for job in (*jobs[:3], *jobs[5:]):
                group.acknowledge(job)
            assert start() == 3
            group.acknowledge(jobs[3])
            group.acknowledge(jobs[4])
            log.truncate_to(6)
            log.append(b"w" * 20, timestamp=T)
        assert start() == 6


def test_in_the_background(tmp_path: Path) -> None:
    with make(tmp_path) as store:
        commit(tmp_path, "one", ["a"], 4)
    with make(tmp_path, keep_for=["one"]) as store:
        store._upkeep.run_due(T + 2 * DAY)
        store._upkeep.run_due(T + 2 * DAY + 300_000)
        assert starts(store) == {"a": [4, 0], "b": [10, 10], "c": [10, 10]}
        commit(tmp_path, "one", ["a"], 3)
        store.retain()
        assert starts(store)["a"] == [7, 0]
        assert store.health().ok


@pytest.mark.parametrize("of", ["a log", "a store"])
def test_a_group_needs_what_came_after_a_truncation(tmp_path: Path, of: str) -> None:
    with make(tmp_path) as store:
        commit(tmp_path, "one", ["a"], 8)
        log = store.log("a")
        assert isinstance(log, LogWriter)
        log.truncate_to(3)
        for _ in range(10):
            log.append(b"w" * 20, timestamp=T)
        if of == "a log":
            log.retain(keep_for=["one"])
        else:
            store.retain(keep_for=["one"])
        assert log.log_start_offset == 3
        with log.cursor("one") as cursor, pytest.raises(kstore.OffsetOutOfRangeError) as found:
            next(iter(cursor))
        assert found.value.end == 3


def test_several_directories_and_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "one")
    (tmp_path / "one").mkdir()
    with LogStore(tmp_path / "link", tmp_path / "two", mode="a", retention_ms=1, background=False) as store:
        store.create_topic("t", 2, internal_segment_bytes=100, message_timestamp_before_max_ms=2**62)
        for number in range(2):
            log = store.log("t", number)
            assert isinstance(log, LogWriter)
            for _ in range(10):
                log.append(b"v" * 20, timestamp=1)
        with store.cursor("g", ["t"]) as cursor:
            for _, _record in zip(range(13), cursor, strict=False):
                pass
            cursor.commit()
        store.retain(keep_for=["g"])
        assert sorted(store.log("t", n).log_start_offset for n in (0, 1)) == [3, 10]


def test_a_directory_that_was_made_anew_has_no_position(tmp_path: Path) -> None:
    with make(tmp_path) as store:
        commit(tmp_path, "one", ["a", "b"], 4)
        store.delete_topic("a")
        store.create_topic("a")
        log = store.log("a")
        assert isinstance(log, LogWriter)
        for _ in range(10):
            log.append(b"v" * 20, timestamp=T)
        store.retain(keep_for=["one"])
        assert log.log_start_offset == 10


def test_damage_deletes_nothing(tmp_path: Path) -> None:
    with make(tmp_path, keep_for=["one"]) as store:
        commit(tmp_path, "one", ["a"], 4)
        path = tmp_path / "kstore-cursors-one.positions"
        path.write_bytes(path.read_bytes()[:30] + b"\xff" * 300)
        with pytest.raises(kstore.CorruptRecordError):
            store.retain()
        store._upkeep.run_due(T + 2 * DAY)
        store._upkeep.run_due(T + 2 * DAY + 300_000)
        assert "retention of the store" in store.health().background
        assert starts(store) == {key: [0, 0] for key in "abc"}
