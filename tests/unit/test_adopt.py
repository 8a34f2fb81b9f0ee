"""log.adopt(): a .log file of another log becomes a segment. It is renamed, and nothing is copied."""

import contextlib
import errno
import threading
from pathlib import Path

import pytest

import kstore
from kstore.testing import failing
from tests.helpers.files import flip
from tests.helpers.waiting import threads_doing
from tests.unit.logs import filled, offsets


def left_by(path: Path, *values: bytes, per_batch: int = 3) -> Path:
    """The .log file of another log."""
    log = kstore.open(path, "a", leader_epoch=5, segment_index_bytes=4096)
    for start in range(0, len(values), per_batch):
        log.extend(values[start : start + per_batch])
    log.flush()
    log.abandon()
    [file] = path.glob("*.log")
    return file


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{i}".encode() for i in range(count)]


def test_files_become_segments(tmp_path: Path) -> None:
    file = left_by(tmp_path / "other", *numbered("a", 10))
    more = left_by(tmp_path / "more", *numbered("b", 4))
    inodes = [file.stat().st_ino, more.stat().st_ino]
    with kstore.open(tmp_path / "log", "a", leader_epoch=7, index_interval_bytes=4096) as log:
        log.append(b"first")
        reader = kstore.open(tmp_path / "log")
        assert log.adopt(file) == range(1, 11)
        assert log.adopt(str(more)) == range(11, 15)
        assert log.append(b"last") == 15
        assert [segment.base_offset for segment in log.segments] == [0, 1, 11]
        assert log.flush() == 16
        expected = [b"first", *numbered("a", 10), *numbered("b", 4), b"last"]
        assert [r.value for r in log] == expected
        reader.refresh()
        assert [r.value for r in reader] == expected
        assert not file.exists()
        assert log.get(6).value == b"a5"
    assert [Path(segment.path).stat().st_ino for segment in reader.segments[1:]] == inodes
    with kstore.open(tmp_path / "log") as log:
        assert log.recovery.clean
        assert not log.recovery.findings
        assert {batch.leader_epoch for batch in log.batches()} == {7}
        for segment in log.segments:
            found = segment.recovery_walk()
            assert found.error is None
            assert segment.offset_index.to_bytes() == found.offset_index.to_bytes()
            kept, made = segment.time_index.to_bytes(), found.time_index.to_bytes()
            # it was appended to behind the entry that it ended with
            assert kept == made or segment.base_offset == 11


def test_after_a_crash(tmp_path: Path) -> None:
    file = left_by(tmp_path / "other", *numbered("a", 10))
    log = kstore.open(tmp_path / "log", "a")
    log.append(b"first")
    log.adopt(file)
    log.append(b"last")
    log.abandon()
    with kstore.open(tmp_path / "log", "a") as log:
        assert not log.recovery.clean
        assert [r.value for r in log] == [b"first", *numbered("a", 10), b"last"]
        assert log.truncate_to(5)
        assert offsets(log) == [0, 1, 2, 3, 4]


def test_files_that_cannot_be_taken(tmp_path: Path) -> None:
    damaged = left_by(tmp_path / "damaged", *numbered("a", 10))
    flip(damaged, -1)
    producers, empty, text, linked = (tmp_path / name for name in ("p.log", "empty.log", "text", "link"))
    record = [(1, None, b"v", None)]
    producers.write_bytes(kstore.encode_batch(record, producer_id=7, producer_epoch=0, base_sequence=0))
    empty.touch()
    text.write_bytes(b"text")
    linked.hardlink_to(left_by(tmp_path / "linked", b"a"))  # a backup of hard links would be changed too
    with filled(tmp_path / "log") as log, filled(tmp_path / "other") as other:
        before = [path.read_bytes() for path in (damaged, producers, empty, text, linked)]
        for path, error, words in (
            (damaged, kstore.CorruptRecordError, "checksum"),
            (producers, kstore.InvalidRecordError, "of a producer"),
            (empty, kstore.InvalidRecordError, "has no records"),
            (tmp_path / "nowhere.log", FileNotFoundError, "nowhere"),
            (text, ValueError, r"is no \.log file"),
            (damaged.parent, ValueError, r"is no \.log file"),
            (damaged.with_suffix(".index"), ValueError, r"is no \.log file"),
            (next((tmp_path / "linked").glob("*.log")), ValueError, "hard links"),
            (other.segments[0].path, kstore.LogLockedError, "other"),
            *((log.segments[n].path, ValueError, "a file of this log itself") for n in (0, -1)),
        ):
            with pytest.raises(error, match=words):
                log.adopt(path)
        assert [path.read_bytes() for path in (damaged, producers, empty, text, linked)] == before
        assert offsets(log) == offsets(other) == list(range(10))
        linked.unlink()
        assert log.adopt(tmp_path / "linked" / f"{0:020d}.log") == range(10, 11)
    with pytest.raises(kstore.LogClosedError):
        log.adopt(damaged)


def test_while_others_append(tmp_path: Path) -> None:
    files = [left_by(tmp_path / f"other{i}", *numbered(f"{i}-", 10)) for i in range(4)]
    with kstore.open(tmp_path / "log", "a") as log:
        ended = threading.Event()
        appended = []

        def append() -> None:
            while not ended.is_set():
                appended.append(log.append(b"mine"))

        with threads_doing(append, ended=ended):
            ranges = [log.adopt(file) for file in files]
        values = [r.value for r in log]
    for i, span in enumerate(ranges):
        assert values[span.start : span.stop] == numbered(f"{i}-", 10)
    assert all(values[offset] == b"mine" for offset in appended)
    assert len(values) == 40 + len(appended)


@pytest.mark.parametrize("error", [errno.EIO, errno.EXDEV], ids=errno.errorcode.get)
def test_a_system_call_fails(ram: Path, error: int) -> None:
    """The file is as it was; or it is gone, and part of the log once that was opened for writing."""
    failed = 0
    for nth in range(1, 60):  # more than it makes
        path, file = ram / str(nth) / "log", left_by(ram / str(nth) / "other", *numbered("a", 10))
        before = file.read_bytes()
        log = kstore.open(path, "a", leader_epoch=3)
        log.append(b"first")
        log.flush()
        try:
            with failing(nth, error, this_thread=True):
                log.adopt(file)
        except OSError:
            failed += 1
            if file.exists():
                with contextlib.suppress(kstore.LogFailedError):
                    assert log.append(b"second") == 1
        log.abandon()
        with kstore.open(path, "a") as log:
            values = [r.value for r in log if r.value != b"second"]
            assert not list(path.glob("*.moved"))
        assert values == [b"first", *([] if file.exists() else numbered("a", 10))]
        assert not file.exists() or file.read_bytes() == before
    assert failed > 10


@pytest.mark.parametrize("why", ["given to other records since", "has other names"])
def test_a_file_that_cannot_be_taken_any_more(tmp_path: Path, why: str) -> None:
    """It was appended to since, or its old name came back: it stays, and recovery reports it."""
    file = left_by(tmp_path / "other", *numbered("a", 10))
    with kstore.open(tmp_path / "log", "a") as log:
        log.append(b"first")
    moved = tmp_path / "log" / f"kstore-adopting-{why == 'has other names':d}-0.log.moved"
    moved.hardlink_to(file)
    if why != "has other names":
        file.unlink()
    before = moved.read_bytes()
    (tmp_path / "log" / ".kafka_cleanshutdown").unlink()
    with (
        pytest.warns(kstore.DataLossWarning, match=f"not part of the log: .*{why}"),
        kstore.open(tmp_path / "log", "a") as log,
    ):
        assert [r.value for r in log] == [b"first"]
    assert moved.read_bytes() == before


@pytest.mark.parametrize(("who", "first"), [("the writer", 0), ("a reader", 0), ("a reader", 1)])
def test_followers_go_on(tmp_path: Path, who: str, first: int) -> None:
    """Also from a log that had nothing: the file takes the place of one that a reader has open."""
    files = [left_by(tmp_path / f"other{i}", *numbered(f"{i}-", 10)) for i in range(3)]
    with kstore.open(tmp_path / "log", "a") as log:
        log.extend([b"first"] * first)
        followed = log if who == "the writer" else kstore.open(tmp_path / "log")
        follower = followed.follow(0, timeout=5)
        for _ in range(first):
            assert next(follower).value == b"first"
        for i, file in enumerate(files):
            log.adopt(file)
            assert [next(follower).value for _ in range(10)] == numbered(f"{i}-", 10)
            log.append(b"between")
            assert next(follower).value == b"between"
