"""Partitions that were written by themselves, and lie in the directory of a store then."""

import shutil
from pathlib import Path

import pytest

import kstore
from kstore import LogStore

MARKER = ".kafka_cleanshutdown"
POINTS = "recovery-point-offset-checkpoint"


def written_by_itself(directory: Path, *, flushed: int = 10) -> list[Path]:
    """A log of ten segments with ten records each, closed cleanly or left after so many of them were flushed; the .log files."""
    log = kstore.open(directory, "a", internal_segment_bytes=200)
    for n in range(10):
        log.extend([b"%d" % i for i in range(n * 10, n * 10 + 10)])
        if n == flushed:
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
    content = bytearray(file.read_bytes())
    content[-3] ^= 255
    file.write_bytes(content)


def test_a_clean_log_is_as_clean_in_a_store(tmp_path: Path) -> None:
    data = tmp_path / "d"
    rot(written_by_itself(data / "t-0")[0])
    with LogStore(data, mode="a", background=False) as store:
        log = store.log("t")
        assert log.recovery.clean
        assert (log.recovery.findings, log.log_start_offset, log.log_end_offset) == ([], 0, 100)
        assert not (data / "t-0" / MARKER).exists()
        assert not (data / "t-0" / POINTS).exists()
        shutil.copytree(data, tmp_path / "killed")
        store.append("t", b"more")
    for path in (tmp_path / "killed", data):
        with LogStore(path, mode="a", background=False) as store:
            log = store.log("t")
            assert not log.recovery.losses
            assert log.log_end_offset == (101 if path == data else 100)
    assert not list(tmp_path.glob("*/t-0/*.cut"))


@pytest.mark.parametrize("how", ["reader", "writer", "store"])
def test_a_clean_log_is_as_clean_in_a_directory_that_knows_others(tmp_path: Path, how: str) -> None:
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("other")
        store.append("other", b"v")
    written_by_itself(tmp_path / "away" / "t-0")
    (tmp_path / "away" / "t-0").rename(tmp_path / "t-0")
    (tmp_path / MARKER).unlink()
    rot(tmp_path / "t-0" / f"{0:020}.log")
    if how == "store":
        with LogStore(tmp_path, mode="a", background=False) as store:
            assert store.log("t").recovery.clean
            assert store.log("t").log_end_offset == 100
    else:
        with kstore.open(tmp_path / "t-0", "r" if how == "reader" else "a") as log:
            assert log.recovery.clean
            assert log.log_end_offset == 100


def test_what_was_flushed_before_a_crash_is_not_looked_at(tmp_path: Path) -> None:
    files = written_by_itself(tmp_path / "t-0", flushed=5)
    point = int((tmp_path / "t-0" / POINTS).read_text().split()[-1])
    assert point >= 50
    rot(files[0])
    with LogStore(tmp_path, mode="a", background=False) as store:
        log = store.log("t")
        assert not log.recovery.clean
        assert (log.recovery.recovery_point, log.log_end_offset) == (point, 100)


def test_a_log_that_was_left_is_recovered_in_a_clean_directory(tmp_path: Path) -> None:
    with LogStore(tmp_path / "d", mode="a", background=False) as store:
        store.create_topic("other")
    files = written_by_itself(tmp_path / "away" / "t-0", flushed=5)
    rot(files[9])
    (tmp_path / "away" / "t-0").rename(tmp_path / "d" / "t-0")
    with LogStore(tmp_path / "d", mode="a", background=False) as store:
        assert not store.log("t").recovery.clean
        assert store.log("t").log_end_offset == 90


def test_what_a_broker_added_is_looked_at(tmp_path: Path) -> None:
    """It takes nothing away of what the partition says of itself, and may die before it notes a recovery point."""
    files = written_by_itself(tmp_path / "d" / "t-0")
    more = written_by_itself(tmp_path / "longer" / "t-0")[9]
    (tmp_path / "d" / ".lock").touch()
    second = files[9].read_bytes()
    with kstore.open(tmp_path / "longer" / "t-0", "a", internal_segment_bytes=1000) as log:
        log.append(b"x")
        log.append(b"y")
    files[9].write_bytes(more.read_bytes())
    assert len(files[9].read_bytes()) > len(second)
    content = bytearray(files[9].read_bytes())
    content[len(second) + 30] ^= 255  # of x, with y behind it
    files[9].write_bytes(content)
    assert kstore.open(tmp_path / "d" / "t-0").log_end_offset == 100
    with pytest.warns(kstore.DataLossWarning, match="offsets 101 to 101"):
        store = LogStore(tmp_path / "d", mode="a", background=False)
    with store:
        assert not store.log("t").recovery.clean
        assert store.log("t").log_end_offset == 100


@pytest.mark.parametrize("text", ["0\n1\nt 0 20\n", "0\n2\nother 0 7\n"])
def test_what_the_directory_tells_counts_more(tmp_path: Path, text: str) -> None:
    """A line of the partition, or one that is lost."""
    files = written_by_itself(tmp_path / "t-0")
    rot(files[4])
    (tmp_path / POINTS).write_text(text)
    with pytest.warns(kstore.DataLossWarning):
        store = LogStore(tmp_path, mode="a", background=False)
    with store:
        assert store.log("t").log_end_offset == 40
