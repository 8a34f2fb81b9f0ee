"""Directories that were not closed cleanly: what was flushed and closed is not recovered again, all else is.
And partitions that were written by themselves before they were put into the directory of a store."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore, TopicPartition
from tests.helpers.files import flip
from tests.helpers.processes import run_python
from tests.store.stores import opened, values, writer

MARKER = ".kafka_cleanshutdown"
POINTS = "recovery-point-offset-checkpoint"

DIES = """
import os, sys, kstore
from tests.helpers.store_clock import StoreClock
clock = StoreClock()
most = int(sys.argv[2])
store = kstore.LogStore(sys.argv[1], mode="a", background=False, max_open_partitions=most, clock=clock)
for topic in store.topics:
    for number in store.topics[topic]:
        store.log(topic, number).extend([b"%d" % i for i in range(40)])
if sys.argv[3] == "stored":
    clock.pass_on(store, 60_000, runs=2)  # the checkpoints, as every minute
os._exit(0)
"""
ALL = [b"%d" % i for i in range(40)]


def make(data: Path, count: int) -> None:
    with opened(data) as store:
        store.create_topic("t", count)


def die(data: Path, most: int, stored: str = "stored") -> None:
    assert run_python(DIES, data, most, stored).returncode == 0


def recovered(store: LogStore) -> int:
    return sum(topic.recovered_segments for topic in store.metrics().topics.values())


def test_what_was_closed_is_not_recovered(tmp_path: Path) -> None:
    make(tmp_path, 30)
    die(tmp_path, 4)
    with opened(tmp_path) as store:
        assert store.health().ok
        assert recovered(store) <= 5
        assert all(values(store, "t", number) == ALL for number in range(30))
    reader = LogStore(tmp_path)
    assert reader.closed_cleanly
    for tp in reader:
        log = reader.open(*tp)
        assert log.recovery.clean
        assert not log.recovery.findings
        assert log.log_end_offset == 40
    die(tmp_path, 4, "not stored")
    with opened(tmp_path) as store:
        assert recovered(store) == 30  # no checkpoint says that they were closed
        assert all(values(store, "t", number) == ALL * 2 for number in range(30))


def grow(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


LOG, INDEX, TIMES = (f"{0:020d}.{kind}" for kind in ("log", "index", "timeindex"))
CHANGES: dict[str, Callable[[Path], object]] = {
    "a torn batch": lambda path: grow(path / LOG, (path / LOG).read_bytes()[:30]),
    "zeros at the end": lambda path: grow(path / LOG, bytes(100)),
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
    "a new segment": lambda path: (path / f"{40:020d}.log").touch(),
    "a compaction": lambda path: (path / f"{0:020d}.log.cleaned").write_bytes(b"x"),
    "a deletion": lambda path: (path / f"{7:020d}.log.deleted").write_bytes(b"x"),
    "no log": lambda path: [file.unlink() for file in path.glob("0*")],
}


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
def test_what_is_not_as_closing_leaves_it_is_recovered(tmp_path: Path) -> None:
    """As kstore.open recovers it in a directory where no checkpoint speaks of a flush."""
    data = tmp_path / "data"
    make(data, len(CHANGES) + 1)
    die(data, 1)
    for number, change in enumerate(CHANGES.values()):
        change(data / f"t-{number}")
    shutil.copytree(data, tmp_path / "copy")
    expected = []
    for number in range(len(CHANGES)):
        with kstore.open(tmp_path / "copy" / f"t-{number}", "a", retention_ms=-1) as log:
            expected.append(([record.value for record in log], log.log_end_offset))
    with opened(data) as store:
        assert store.health().ok
        for number, name in enumerate(CHANGES):
            log = writer(store, "t", number)
            assert ([record.value for record in log], log.log_end_offset) == expected[number], name
            assert log.append(b"new") == expected[number][1], name
    reader = LogStore(data)
    for number, name in enumerate(CHANGES):
        after = reader.open("t", number)
        assert after.recovery.clean, name
        assert not after.recovery.findings, name
        assert [record.value for record in after] == [*expected[number][0], b"new"], name


def test_many_are_recovered_by_threads(tmp_path: Path) -> None:
    make(tmp_path, 100)
    die(tmp_path, 200, "not stored")
    broken = tmp_path / "t-7" / LOG
    broken.unlink()
    broken.mkdir()
    with opened(tmp_path, max_open_partitions=20) as store:
        assert recovered(store) == 99
        assert list(store.health().partitions) == [TopicPartition("t", 7)]
        assert all(values(store, "t", number) == ALL for number in range(100) if number != 7)
    assert not LogStore(tmp_path).closed_cleanly
    shutil.rmtree(tmp_path / "t-7")
    (tmp_path / "t-7").mkdir()
    with opened(tmp_path, max_open_partitions=20) as store:
        assert recovered(store) == 0  # the store has closed them


# ---- partitions that were written by themselves ------------------------------------------------------------


def written_by_itself(directory: Path, *, flushed: int = 10) -> list[Path]:
    """The files of a log of ten segments of ten records, closed, or abandoned after some were flushed."""
    log = kstore.open(directory, "a", internal_segment_bytes=200)
    for number in range(10):
        log.extend([b"%d" % i for i in range(number * 10, number * 10 + 10)])
        if number == flushed:
            log.flush()
    if flushed == 10:
        log.close()
    else:
        log.abandon()
    files = sorted(directory.glob("*.log"))
    assert len(files) == 10
    return files


def rot(file: Path) -> None:
    """Changes a byte of the last record in it."""
    flip(file, -3)


def test_a_clean_log_is_as_clean_in_a_store(tmp_path: Path) -> None:
    data = tmp_path / "d"
    rot(written_by_itself(data / "t-0")[0])
    with opened(data) as store:
        log = store.log("t")
        assert log.recovery.clean
        assert (log.recovery.findings, log.log_start_offset, log.log_end_offset) == ([], 0, 100)
        assert not (data / "t-0" / MARKER).exists()
        assert not (data / "t-0" / POINTS).exists()
        shutil.copytree(data, tmp_path / "killed")
        store.append("t", b"more")
    for path in (tmp_path / "killed", data):
        with opened(path) as store:
            log = store.log("t")
            assert not log.recovery.losses
            assert log.log_end_offset == (101 if path == data else 100)
    assert not list(tmp_path.glob("*/t-0/*.cut"))


@pytest.mark.parametrize("how", ["r", "a", "store"])
def test_a_clean_log_is_as_clean_beside_others(tmp_path: Path, how: Any) -> None:
    with opened(tmp_path) as store:
        store.create_topic("other")
        store.append("other", b"v")
    written_by_itself(tmp_path / "away" / "t-0")
    (tmp_path / "away" / "t-0").rename(tmp_path / "t-0")
    (tmp_path / MARKER).unlink()
    rot(tmp_path / "t-0" / LOG)
    holder: Any = opened(tmp_path) if how == "store" else kstore.open(tmp_path / "t-0", how)
    with holder:
        log = holder.log("t") if how == "store" else holder
        assert log.recovery.clean
        assert log.log_end_offset == 100


def test_what_was_flushed_before_a_crash_is_not_checked(tmp_path: Path) -> None:
    files = written_by_itself(tmp_path / "t-0", flushed=5)
    point = int((tmp_path / "t-0" / POINTS).read_text().split()[-1])
    assert point >= 50
    rot(files[0])
    with opened(tmp_path) as store:
        log = store.log("t")
        assert not log.recovery.clean
        assert (log.recovery.recovery_point, log.log_end_offset) == (point, 100)


def test_what_a_broker_added_is_checked(tmp_path: Path) -> None:
    """A broker leaves what the partition says of itself, and may die before it writes a recovery point."""
    files = written_by_itself(tmp_path / "d" / "t-0")
    more = written_by_itself(tmp_path / "longer" / "t-0")[9]
    (tmp_path / "d" / ".lock").touch()
    size = files[9].stat().st_size
    with kstore.open(tmp_path / "longer" / "t-0", "a", internal_segment_bytes=1000) as log:
        log.append(b"x")
        log.append(b"y")
    shutil.copyfile(more, files[9])
    assert files[9].stat().st_size > size
    flip(files[9], size + 30)  # of x, before y
    assert kstore.open(tmp_path / "d" / "t-0").log_end_offset == 100
    with pytest.warns(kstore.DataLossWarning, match="offsets 101 to 101"):
        store = opened(tmp_path / "d")
    with store:
        assert not store.log("t").recovery.clean
        assert store.log("t").log_end_offset == 100


@pytest.mark.parametrize("text", ["0\n1\nt 0 20\n", "0\n2\nother 0 7\n"], ids=["its line", "a lost line"])
def test_the_checkpoint_of_the_directory_counts_more(tmp_path: Path, text: str) -> None:
    files = written_by_itself(tmp_path / "t-0")
    rot(files[4])
    (tmp_path / POINTS).write_text(text)
    with pytest.warns(kstore.DataLossWarning):
        store = opened(tmp_path)
    with store:
        assert store.log("t").log_end_offset == 40
