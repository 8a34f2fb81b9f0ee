"""The option key_files of a topic: a store makes .keys files beside sealed segments, and a table asks them."""

from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.testing import failing
from kstore.testing.faults import count_calls
from tests.helpers.store_clock import StoreClock, T

BACKOFF = 15_000


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock()


pytestmark = pytest.mark.usefixtures("sound_calls")


def make(path: Path, clock: StoreClock, **options: Any) -> LogStore:
    given = {"background": False, "internal_segment_bytes": 300, "retention_ms": -1} | options
    return LogStore(path, mode="a", clock=clock, **given)


def fill(store: LogStore, topic: str = "t", count: int = 20, keys: int = 7) -> None:
    for number in store.topics[topic]:
        log = store.log(topic, number)
        assert isinstance(log, kstore.LogWriter)
        for i in range(count):
            log.append(b"%d" % i + b"." * 50, b"key-%d" % (i % keys), timestamp=T)


def stems(path: Path, kind: str) -> list[str]:
    return sorted(file.stem for file in path.glob(f"*{kind}"))


def is_complete(path: Path) -> bool:
    """Whether all segments but the last have a file."""
    return stems(path, ".keys") == stems(path, ".log")[:-1]


def test_made_at_seals_and_cleanings(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock) as store:
        store.create_topic(
            "t",
            2,
            key_files=True,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio=0,
            file_delete_delay_ms=0,
        )
        store.create_topic("u")
        for topic in ("t", "u"):
            fill(store, topic)
        clock.pass_on(store, BACKOFF, runs=3)
        for number in (0, 1):
            path = tmp_path / f"t-{number}"
            assert len(list(kstore.open(path))) < 20  # it was compacted
            assert is_complete(path)
        assert stems(tmp_path / "u-0", ".keys") == []
        fill(store)
        assert not is_complete(tmp_path / "t-0")
        clock.pass_on(store, BACKOFF, runs=3)
        assert is_complete(tmp_path / "t-0")
        assert store.health().ok
        assert store.describe("t").options["key_files"] is True


def test_by_its_own_thread(tmp_path: Path) -> None:
    with LogStore(
        tmp_path,
        mode="a",
        internal_segment_bytes=300,
        retention_ms=-1,
        key_files=True,
        log_cleaner_backoff_ms=0,
    ) as store:
        store.create_topic("t")
        fill(store)
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        assert log._key_maker is None  # it has no thread of its own
        store._work._cleaner.start()
        store._work._cleaner.run_due(2**62)
        assert is_complete(tmp_path / "t-0")


def test_closed_partitions(tmp_path: Path, clock: StoreClock) -> None:
    """They get theirs, too, and are then left alone: not even listed."""
    with make(tmp_path, clock, max_open_partitions=1) as store:
        store.create_topic("t", 3)
        fill(store)
        store.alter_topic("t", key_files=True)
        clock.pass_on(store, BACKOFF, runs=3)
        for number in range(3):
            assert is_complete(tmp_path / f"t-{number}")
        clock.pass_on(store, BACKOFF, runs=3)
        clock.now += BACKOFF
        assert count_calls(lambda: store._work.index(store, clock.now)) == 0
        store.alter_topic("t", key_files=None)
        fill(store)
        clock.pass_on(store, BACKOFF, runs=3)
        assert not is_complete(tmp_path / "t-1")


def test_those_that_can_have_none(tmp_path: Path, clock: StoreClock) -> None:
    """A closed partition with a segment that is damaged is not opened again and again."""
    with make(tmp_path, clock, max_open_partitions=8) as store:
        store.create_topic("t", 2, key_files=True)
        fill(store)
    damaged = tmp_path / "t-0" / (stems(tmp_path / "t-0", ".log")[0] + ".log")
    data = bytearray(damaged.read_bytes())
    data[70] ^= 1
    damaged.write_bytes(data)
    with make(tmp_path, clock, max_open_partitions=8) as store:
        clock.pass_on(store, BACKOFF, runs=3)
        assert stems(tmp_path / "t-0", ".keys") == stems(tmp_path / "t-0", ".log")[1:-1]
        store._open_logs.drop([TopicPartition("t", 0), TopicPartition("t", 1)])
        clock.pass_on(store, BACKOFF, runs=3)
        assert len(store._open_logs) == 0


def test_a_full_disk_is_told(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock) as store:
        store.create_topic("t", key_files=True)
        fill(store)
        told = 0
        for nth in range(1, 12):
            fill(store, count=2)
            store.flush()
            with failing(nth, 28, "half"):
                store._work.index(store, clock.now)
            assert not list((tmp_path / "t-0").glob("*.tmp"))
            told += list(store.health().background) == ["key files of t-0"]
            clock.pass_on(store, BACKOFF, runs=3)
            assert store.health().ok
        assert told > 2
        assert is_complete(tmp_path / "t-0")


def spied(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, object]]:
    """Filled with the ranges of scans."""
    seen: list[tuple[object, object]] = []
    scan = kstore.PartitionLog.scan

    def spy(self: kstore.PartitionLog, *args: Any, **named: Any) -> Any:
        seen.append((named.get("start"), named.get("stop")))
        return scan(self, *args, **named)

    monkeypatch.setattr(kstore.PartitionLog, "scan", spy)
    return seen


def test_a_table_asks_them(tmp_path: Path, clock: StoreClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing but the segment that grows before it answers."""
    with make(tmp_path, clock) as store:
        store.create_topic("t", key_files=True)
        fill(store)
        store.append("t", None, key=b"key-3")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        log.roll()
        store.append("t", b"new", key=b"key-4")
        clock.pass_on(store, BACKOFF, runs=3)
        for table in (store.table("t"), LogStore(tmp_path).table("t")):
            seen = spied(monkeypatch)
            assert table[b"key-4"] == b"new"
            assert table[b"key-5"].startswith(b"19.")
            assert b"key-3" not in table
            assert b"nobody" not in table
            assert {start for start, _ in seen} <= {log.segments[-1].base_offset}
            assert not any(part.offsets for part in table._parts.values())
            monkeypatch.undo()
            assert len(table) == 6
            assert table[b"key-5"].startswith(b"19.")
        # the newest segment may lack it, two may not
        for lacking in (1, 2):
            store.append("t", b"%d" % lacking, key=b"key-4")
            log.roll()
            table = store.table("t")
            assert table[b"key-4"] == b"%d" % lacking
            assert bool(table._parts[0].offsets) == (lacking == 2)
