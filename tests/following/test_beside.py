"""Readers beside retention and truncation: another look, or an error that says what happened; no loose system
error."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.errors import LogChangedError
from kstore.log.recovery import refresh
from kstore.log.recovery.loader import Loaded
from tests.helpers.processes import environment


def size(found: Any) -> int:
    """The number of records of a record, a batch or columns."""
    if isinstance(found, kstore.RecordBatch):
        return len(list(found.records()))
    return 1 if isinstance(found, kstore.Record) else len(found)


READS: dict[str, Callable[[kstore.PartitionLog], Any]] = {
    "records": lambda log: list(log),
    "batches": lambda log: list(log.batches()),
    "scan": lambda log: list(log.scan()),
    "scan on threads": lambda log: list(log.scan(threads=2)),
    "get": lambda log: log.get(log.log_start_offset),
    "read": lambda log: log.read(log.log_start_offset),
    "span": lambda log: log.span(log.log_start_offset),
    "find": lambda log: log.find(timestamp=0),
}


def written(directory: Path, count: int = 100) -> Path:
    with kstore.open(directory, "a", internal_segment_bytes=2000, retention_ms=-1) as log:
        for i in range(count):
            log.append(b"%03d" % i + b"." * 100, timestamp=1000 + i)
        assert len(log.segments) > 3
    return directory


def test_opening_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is gone between listing and opening was deleted by retention: the next look does not see
    its name."""
    directory = written(tmp_path / "t-0")
    looks = []

    def load(path: Path, **options: object) -> Loaded:
        looks.append(path)
        if len(looks) < 4:
            raise FileNotFoundError(2, "No such file or directory", str(path / "0.log"))
        return real(path, **options)  # type: ignore[arg-type]

    real = refresh.load
    monkeypatch.setattr(refresh, "load", load)
    assert len(list(kstore.open(directory))) == 100
    assert len(looks) == 4


def test_a_look_between_two_steps_of_a_truncation(tmp_path: Path) -> None:
    """Truncation takes one file after the other: what is missing between two of them must not pass for a
    loss, nor warn."""
    directory = written(tmp_path / "t-0")
    _, middle, *following = sorted(directory.glob("*.log"))
    middle.unlink()
    log = kstore.open(directory)
    for file in following:
        file.unlink()
    assert {finding.kind for finding in log.recovery.findings} <= {"orphan"}
    with pytest.raises(kstore.LogChangedError):
        list(log)


def test_opening_gives_up_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = written(tmp_path / "t-0")

    def load(path: Path, **options: object) -> Loaded:
        raise FileNotFoundError(2, "No such file or directory", str(path / "0.log"))

    monkeypatch.setattr(refresh, "load", load)
    with pytest.raises(kstore.KstoreError, match="deleted since the log was opened"):
        kstore.open(directory)


@pytest.mark.parametrize("how", READS)
def test_a_segment_that_was_deleted(tmp_path: Path, how: str) -> None:
    directory = written(tmp_path / "t-0")
    log = kstore.open(directory)
    for path in directory.glob("0" * 20 + ".*"):
        path.unlink()
    with pytest.raises(kstore.OffsetOutOfRangeError, match="deleted since the log was opened") as caught:
        READS[how](log)
    assert isinstance(caught.value, LogChangedError)
    log.refresh()
    assert log.log_start_offset > 0
    assert READS[how](log)


@pytest.mark.parametrize("how", ["records", "batches", "scan", "scan on threads"])
@pytest.mark.parametrize("grown", [False, True])
def test_a_log_that_was_truncated(tmp_path: Path, how: str, grown: bool) -> None:
    """A view that has the files open reads on what it showed; refresh() shows what is there."""
    directory = written(tmp_path / "t-0")
    log, other = kstore.open(directory), kstore.open(directory)
    assert sum(map(size, READS[how](log))) == 100
    last = log.segments[-2]
    with kstore.open(directory, "a", internal_segment_bytes=2000, retention_ms=-1) as writer:
        writer.truncate_to(last.base_offset + 5)
        if grown:
            writer.extend([b"other" * 30] * 100, batch_bytes=500)
    with pytest.raises(LogChangedError, match=r"since the log was opened or refreshed.*; log\.refresh\(\)"):
        READS[how](other)
    other.refresh()
    for view, count in ((log, 100), (other, last.base_offset + 5 + 100 * grown)):
        assert sum(map(size, READS[how](view))) == count


@pytest.mark.parametrize("sizes", [(50, 0, 50), (0, 50, 0), (50, 50, 50), (300, 10, 20), (10, 300, 20)])
def test_a_truncated_log_that_has_grown_past_its_old_end_is_loaded_again(
    tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    """Whether its old end is now inside a batch, behind one, or where one of the same size ends."""
    old, *new = sizes
    with kstore.open(tmp_path / "t-0", "a", retention_ms=-1) as writer:
        writer.append(b"o" * old, key=b"k", timestamp=2000)
        view = kstore.open(tmp_path / "t-0")
        follower = view.follow(0, timeout=10)
        cursor = kstore.open(tmp_path / "t-0").cursor("g", follow=True, timeout=10)
        jobs = iter(cursor)
        assert next(follower).offset == next(jobs).offset == 0
        assert [view.last(b"k").offset for _ in range(3)] == [0] * 3  # type: ignore[union-attr]
        writer.truncate_to(0)
        for size in new:
            writer.append(b"n" * size, timestamp=1000)
        assert view.last(b"k").offset == 0  # type: ignore[union-attr]
        assert [record.offset for record in view.history(b"k")] == [0]
        assert view.refresh()
        assert [record.value for record in view] == [b"n" * size for size in new]
        assert view.find(timestamp="max") == kstore.open(tmp_path / "t-0").find(timestamp="max")
        assert (view.last(b"k"), list(view.history(b"k"))) == (None, [])
        assert not view.refresh()
        for _ in range(30):
            writer.append(b"more")
        assert view.refresh()
        assert len(list(view)) == 32
        for reader in (follower, jobs):  # the record that they have read is another one now
            with pytest.raises(kstore.OffsetOutOfRangeError):
                next(reader)
        cursor.seek(0)
        assert next(jobs).offset == 0


def test_damage_is_still_damage(tmp_path: Path) -> None:
    """An error that nothing but the bytes explains names the file; a follower does not wait for the bytes to
    change."""
    directory = written(tmp_path / "t-0")
    batch = list(kstore.open(directory).batches())[30]
    with Path(batch.file).open("r+b") as f:
        f.seek(batch.position + 80)
        f.write(b"damage")
    for read in ("records", "scan", "scan on threads"):
        with pytest.raises(kstore.CorruptRecordError, match="checksum"):
            READS[read](kstore.open(directory))
    with (
        kstore.open(directory).follow(0) as follower,
        pytest.raises(kstore.CorruptRecordError, match="checksum"),
    ):
        list(follower)


WRITER = """
import os, random, sys, time
import kstore
rng = random.Random(3)
log = kstore.open(sys.argv[1], "a", internal_segment_bytes=20000, retention_bytes=100000, retention_ms=-1,
                  file_delete_delay_ms=0)
until = time.monotonic() + float(sys.argv[2])
print("begun", flush=True)
while time.monotonic() < until:
    log.extend([b"." * rng.randrange(200) for _ in range(rng.randrange(1, 60))], batch_bytes=1500)
    if rng.random() < 0.05:
        log.retain()
    if rng.random() < 0.04:
        log.truncate_to(max(log.log_start_offset, log.log_end_offset - rng.randrange(1, 400)))
    if rng.random() < 0.3:
        time.sleep(0.0005)
"""


def test_beside_a_process_that_retains_and_truncates(tmp_path: Path) -> None:
    """The log is sound at every moment."""
    directory = tmp_path / "t-0"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), "4"], stdout=subprocess.PIPE, env=environment()
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"begun\n"
    looks = 0
    while writer.poll() is None:
        log = kstore.open(directory)
        for read in READS.values():
            try:
                read(log)
                log.refresh()
            except kstore.OffsetOutOfRangeError:
                log = kstore.open(directory)
        try:
            with kstore.open(directory).follow(None, timeout=0.02) as follower:
                for number, _ in enumerate(follower):
                    if number == 200:
                        break
        except kstore.OffsetOutOfRangeError:
            pass
        looks += 1
    writer.stdout.close()
    assert writer.wait() == 0
    assert looks
