"""A store whose directories were not closed cleanly: what was flushed and closed is not recovered again, all else is."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore, TopicPartition
from tests.helpers.processes import environment

DIES = """
import os, sys, kstore
store = kstore.LogStore(sys.argv[1], mode="a", background=False, max_open_partitions=int(sys.argv[2]))
for topic in store.topics:
    for number in store.topics[topic]:
        store.log(topic, number).extend([b"%d" % i for i in range(40)])
if sys.argv[3] == "stored":
    for directory in store._directories:
        directory.keeper.store()  # as the background does every minute
os._exit(0)
"""


def die(data: Path, most: int, stored: str = "stored") -> None:
    subprocess.run(
        [sys.executable, "-c", DIES, str(data), str(most), stored], env=environment(), check=True, timeout=60
    )


def make(data: Path, count: int) -> None:
    with LogStore(data, mode="a", background=False) as store:
        store.create_topic("t", count)


def recovered(store: LogStore) -> int:
    return sum(topic.recovered_segments for topic in store.metrics().topics.values())


def values(store: LogStore, number: int) -> list[bytes | None]:
    return [record.value for record in store.open("t", number)]


ALL = [b"%d" % i for i in range(40)]


def test_what_was_closed_is_not_recovered(tmp_path: Path) -> None:
    make(tmp_path, 30)
    die(tmp_path, 4)
    with LogStore(tmp_path, mode="a", background=False) as store:
        assert store.health().ok
        assert recovered(store) <= 5
        assert all(values(store, number) == ALL for number in range(30))
    assert LogStore(tmp_path).closed_cleanly
    for number in range(30):
        log = kstore.open(tmp_path / f"t-{number}")
        assert log.recovery.clean
        assert not log.recovery.findings
        assert log.log_end_offset == 40
    die(tmp_path, 4, "not stored")
    with LogStore(tmp_path, mode="a", background=False) as store:
        assert recovered(store) == 30  # nothing says that they were closed
        assert all(values(store, number) == ALL * 2 for number in range(30))


def grow(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


LOG, INDEX, TIMES = (f"{0:020d}.{kind}" for kind in ("log", "index", "timeindex"))
CHANGES: dict[str, Callable[[Path], object]] = {
    "a torn batch": lambda path: grow(path / LOG, (path / LOG).read_bytes()[:30]),
    "zeros behind": lambda path: grow(path / LOG, bytes(100)),
    "another batch": lambda path: grow(
        path / LOG, kstore.encode_batch([(1, None, b"more", None)], base_offset=40)
    ),
    "a bit of the last batch": lambda path: flip(path / LOG, -1),
    "shortened": lambda path: (path / LOG).write_bytes((path / LOG).read_bytes()[:-1]),
    "room in the index": lambda path: grow(path / INDEX, bytes(80)),
    "room in the time index": lambda path: grow(path / TIMES, bytes(120)),
    "no index": lambda path: (path / INDEX).unlink(),
    "no time index": lambda path: (path / TIMES).unlink(),
    "no snapshot": lambda path: next(path.glob("*40.snapshot")).unlink(),
    "an index without a log": lambda path: (path / f"{90:020d}.index").touch(),
    "a segment behind": lambda path: (path / f"{40:020d}.log").touch(),
    "a compaction": lambda path: (path / f"{0:020d}.log.cleaned").write_bytes(b"x"),
    "a deletion": lambda path: (path / f"{7:020d}.log.deleted").write_bytes(b"x"),
    "no log": lambda path: [file.unlink() for file in path.glob("0*")],
}


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_not_as_closing_leaves_it_is_recovered(tmp_path: Path, name: str) -> None:
    """As kstore.open recovers it in a directory where nobody knows of a flush."""
    make(tmp_path / "data", 3)
    die(tmp_path / "data", 1)
    CHANGES[name](tmp_path / "data" / "t-0")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    with kstore.open(tmp_path / "copy" / "t-0", "a", retention_ms=-1) as log:
        expected = [record.value for record in log], log.log_end_offset
    with LogStore(tmp_path / "data", mode="a", background=False) as store:
        assert store.health().ok
        log = store.log("t", 0)  # type: ignore[assignment]
        assert ([record.value for record in log], log.log_end_offset) == expected
        offset = log.append(b"new")
        assert offset == expected[1]
    after = kstore.open(tmp_path / "data" / "t-0")
    assert after.recovery.clean
    assert not after.recovery.findings
    assert [record.value for record in after] == [*expected[0], b"new"]


def test_many_are_recovered_at_once(tmp_path: Path) -> None:
    make(tmp_path, 100)
    die(tmp_path, 200, "not stored")
    broken = tmp_path / "t-7" / LOG
    broken.unlink()
    broken.mkdir()
    with LogStore(tmp_path, mode="a", background=False, max_open_partitions=20) as store:
        assert recovered(store) == 99
        assert list(store.health().partitions) == [TopicPartition("t", 7)]
        assert all(values(store, number) == ALL for number in range(100) if number != 7)
    assert not LogStore(tmp_path).closed_cleanly
    shutil.rmtree(tmp_path / "t-7")
    (tmp_path / "t-7").mkdir()
    with LogStore(tmp_path, mode="a", background=False, max_open_partitions=20) as store:
        assert recovered(store) == 0  # the store has closed them


def test_what_a_thread_raises_ends_the_opening(tmp_path: Path) -> None:
    make(tmp_path, 100)
    die(tmp_path, 200, "not stored")
    calls: list[int] = []

    def clock() -> int:
        calls.append(1)
        if len(calls) > 50:
            raise KeyError("the clock")
        return 1

    options: Any = {"mode": "a", "background": False}
    with pytest.raises(KeyError, match="the clock"):
        LogStore(tmp_path, clock=clock, **options)
    with LogStore(tmp_path, **options) as store:  # the lock was given up
        assert store.health().ok
        assert all(values(store, number) == ALL for number in range(100))
