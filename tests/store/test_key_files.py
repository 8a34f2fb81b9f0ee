"""The option key_files of a topic: the background makes .keys files, and a table uses them."""

from pathlib import Path
from typing import Any

import pytest

from kstore import LogStore
from kstore.testing import count_calls
from tests.helpers.files import flip
from tests.helpers.store_clock import StoreClock
from tests.store.stores import count, fill, with_small_segments, writer

BACKOFF = 15_000

pytestmark = pytest.mark.usefixtures("sound_calls")


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock()


def make(path: Path, clock: StoreClock, **options: Any) -> LogStore:
    return with_small_segments(path, clock, retention_ms=-1, **options)


def stems(path: Path, kind: str) -> list[str]:
    return sorted(file.stem for file in path.glob(f"*{kind}"))


def is_complete(path: Path) -> bool:
    """Whether all segments but the last have a file."""
    return stems(path, ".keys") == stems(path, ".log")[:-1]


def test_they_are_made_of_sealed_and_of_compacted_segments(tmp_path: Path, clock: StoreClock) -> None:
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
            assert count(store, "t", number) < 20  # it was compacted
            assert is_complete(tmp_path / f"t-{number}")
        assert stems(tmp_path / "u-0", ".keys") == []
        fill(store)
        assert not is_complete(tmp_path / "t-0")
        clock.pass_on(store, BACKOFF, runs=3)
        assert is_complete(tmp_path / "t-0")
        assert store.health().ok


def test_closed_partitions_get_theirs_and_stay_closed(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock) as store:
        store.create_topic("t", 3)
        fill(store)
        store.alter_topic("t", key_files=True)
        stem = stems(tmp_path / "t-0", ".log")[0]
    flip(tmp_path / "t-0" / f"{stem}.log", 70)
    with make(tmp_path, clock, max_open_partitions=1) as store:
        clock.pass_on(store, BACKOFF, runs=3)
        assert stems(tmp_path / "t-0", ".keys") == stems(tmp_path / "t-0", ".log")[1:-1]
        assert is_complete(tmp_path / "t-1")
        assert is_complete(tmp_path / "t-2")
    with make(tmp_path, clock) as store:
        clock.pass_on(store, BACKOFF, runs=3)
        for number in range(3):
            store.log("t", number).close()
        clock.pass_on(store, BACKOFF, runs=3)
        assert count_calls(lambda: clock.pass_on(store, BACKOFF)) == 0
        store.alter_topic("t", key_files=None)
        fill(store)
        clock.pass_on(store, BACKOFF, runs=3)
        assert not is_complete(tmp_path / "t-1")


def test_a_table_uses_them(tmp_path: Path, clock: StoreClock) -> None:
    """It does not read the sealed segments before it answers, though the newest of them may lack its file."""

    def read_by(store: LogStore, key: bytes, value: bytes | None) -> int:
        """How many bytes a new table reads until it knows the value of a key."""
        before = store.metrics().topics["t"].bytes_out
        assert store.table("t").get(key) == value
        return store.metrics().topics["t"].bytes_out - before

    with make(tmp_path, clock) as store:
        store.create_topic("t", key_files=True)
        fill(store, count=200, keys=7)
        store.append("t", None, key=b"key-3")
        log = writer(store)
        log.roll()
        store.append("t", b"new", key=b"key-4")
        clock.pass_on(store, BACKOFF, runs=3)
        size = sum(segment.size for segment in log.segments)
        for holder in (store, LogStore(tmp_path)):
            assert read_by(holder, b"key-4", b"new") < size / 10
            assert read_by(holder, b"key-5", b"194" + b"." * 50) < size / 10
            assert read_by(holder, b"key-3", None) < size / 10
            assert read_by(holder, b"nothing", None) < size / 10
            table = holder.table("t")
            assert len(table) == 6
            assert table[b"key-5"] == b"194" + b"." * 50
        for lacking in (1, 2):
            store.append("t", b"%d" % lacking, key=b"key-4")
            log.roll()
            assert (read_by(store, b"key-4", b"%d" % lacking) < size / 10) == (lacking == 1)
