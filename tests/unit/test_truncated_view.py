"""A view of a log that another writer truncates, before the view has opened the files that would tell."""

from collections.abc import Callable
from pathlib import Path

import pytest

import kstore

READS: dict[str, Callable[[kstore.PartitionLog], object]] = {
    "records": lambda view: list(view.records()),
    "batches": lambda view: list(view.batches()),
    "scan": lambda view: list(view.scan(["offset"])),
    "threads": lambda view: list(view.scan(["offset"], threads=2)),
    "history": lambda view: list(view.history(b"k")),
    "last": lambda view: view.last(b"k"),
}


def truncate(path: Path, to: int, then: int = 0) -> None:
    with kstore.open(path, "a") as log:
        log.truncate_to(to)
        log.extend([b"new"] * then, keys=[b"k"] * then)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("then", [0, 6])
def test_below_an_empty_segment(tmp_path: Path, read: str, then: int) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for _ in range(5):
            log.append(b"old", b"k")
        log.roll()
        view = kstore.open(path)
    truncate(path, 4, then)
    with pytest.raises(kstore.LogChangedError):
        READS[read](view)


@pytest.mark.parametrize("read", [*[name for name in READS if name != "last"], "get"])
@pytest.mark.parametrize("to", [0, 1, 4])
def test_in_an_earlier_segment(tmp_path: Path, read: str, to: int) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append(b"old", b"k")
        for _ in range(2):
            log.roll()
            for _ in range(10):
                log.append(b"old", b"k")
    view = kstore.open(path)
    truncate(path, to)
    with pytest.raises(kstore.LogChangedError):
        READS[read](view) if read != "get" else view.get(6)


@pytest.mark.parametrize("is_asked_before", [False, True])
def test_an_empty_segment_that_was_compacted(tmp_path: Path, is_asked_before: bool) -> None:
    """It was the last one, was filled and sealed, and a compaction put its records into the file of one before it."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0) as log:
        for key in (b"k", b"j"):
            log.append(b"old", key)
        log.roll()
        view = kstore.open(path)
        if is_asked_before:
            assert view.last(b"k").value == b"old"  # type: ignore[union-attr]
        log.append(b"new", b"k")
        log.roll()
        log.append(b"newer", b"k")
        log.compact()
        assert view.last(b"k").value == b"old"  # type: ignore[union-attr]
        assert [record.value for record in view.history(b"j")] == [b"old"]
        assert view.last(b"none") is None


def test_what_is_gone_at_the_front_or_was_compacted_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    with kstore.open(path, "a", cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.0) as log:
        for number in range(3):
            for i in range(10):
                log.append(b"%d" % number, b"k%d" % i if number < 2 else b"k")
            log.roll()
        view = kstore.open(path)
        log.compact()
        assert [record.offset for record in view.records(10)][-1] == 29
        assert [record.offset for record in kstore.open(path).records(10)] == [*range(10, 20), 29]
        with kstore.open(path) as other:
            log.delete_records(12)
            log.retain()
            assert [record.offset for record in other][-9:] == [*range(12, 20), 29]


@pytest.mark.parametrize("read", ["records", "batches", "scan", "threads"])
@pytest.mark.parametrize("then", [4, 10, 15, 30])
@pytest.mark.parametrize("delay", [0, 60_000])
def test_what_was_removed_does_not_follow_what_is_new(
    tmp_path: Path, read: str, then: int, delay: int
) -> None:
    """The segment that was cut ends again where one begins that is gone, and is open still."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", internal_segment_bytes=500, file_delete_delay_ms=delay) as log:
        for _ in range(40):
            log.append(b"old....", b"k")
        view = kstore.open(path)
        assert len(READS[read](view)) > 0  # type: ignore[arg-type] # all files are open now
        log.truncate_to(20)
        for _ in range(then):
            log.append(b"new....", b"k")
        with pytest.raises(kstore.LogChangedError):
            READS[read](view)
