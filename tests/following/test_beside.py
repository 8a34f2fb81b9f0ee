"""Readers beside retention and truncation look again, or raise an error that says what happened."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.errors import LogChangedError
from kstore.log.recovery import refresh
from kstore.log.recovery.loader import Loaded


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
    """Retention deleted a file between listing and opening: the next look does not see its name."""
    directory = written(tmp_path / "t-0")
    looks = []

    def load(path: Path, **options: object) -> Loaded:
        looks.append(path)
        if len(looks) < 4:
            raise FileNotFoundError(2, "No such file or directory", f"{path}/0.log")
        return real(path, **options)  # type: ignore[arg-type]

    real = refresh.load
    monkeypatch.setattr(refresh, "load", load)
    assert len(list(kstore.open(directory))) == 100
    assert len(looks) == 4


def test_a_look_between_two_steps_of_a_truncation(tmp_path: Path) -> None:
    """Truncation takes one file after the other: a missing one between two must not pass for a loss."""
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
        raise FileNotFoundError(2, "No such file or directory", f"{path}/0.log")

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
