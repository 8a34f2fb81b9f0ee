"""A view of a log that another writer truncates, before the view has opened the files that would tell."""

import socket
import time
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


def same_size(log: kstore.LogWriter) -> None:
    """One batch in the place of another of the same size, with fewer offsets."""
    size = list(log.batches())[-1].size
    log.truncate_to(2)
    log.append(b"n" * (size - 70))
    assert list(log.batches())[-1].size == size


def two_truncations(log: kstore.LogWriter) -> None:
    """A file is cut, grows, and is removed."""
    log.roll()
    log.truncate_to(1)
    log.append(b"new", b"k")
    log.truncate_fully_and_start_at(1)
    log.extend([b"newest"] * 40)


def a_hole(log: kstore.LogWriter) -> None:
    """In the midst of a batch, of which nothing stays: offsets 2 to 6 are in none, and all up to the end are there again."""
    log.truncate_to(7)
    for _ in range(3):
        log.append(b"new", b"k")


@pytest.mark.parametrize("read", ["records", "batches", "scan", "threads"])
@pytest.mark.parametrize("change", [same_size, two_truncations, a_hole])
def test_fewer_than_the_view_holds(
    tmp_path: Path, read: str, change: Callable[[kstore.LogWriter], None]
) -> None:
    """Each file is at least as long as it was: that offsets are missing is told at the end."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for _ in range(2):
            log.append(b"old", b"k")
        log.extend([b"old"] * 8)
        view = kstore.open(path)
        change(log)
        with pytest.raises(kstore.LogChangedError):
            READS[read](view)
        skipping = view.records(on_error="skip")
        assert len(list(skipping)) < 10
        assert isinstance(skipping.skipped[-1].error, kstore.LogChangedError | kstore.CorruptRecordError)


@pytest.mark.parametrize("stop", [8, 9])
def test_a_hole_before_the_stop(tmp_path: Path, stop: int) -> None:
    """Whether the stop is in a batch or at its end."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append(b"old")
        log.extend([b"old"] * 9)
        view = kstore.open(path)
        log.truncate_to(7)
        log.append(b"new")
        log.extend([b"new"] * (11 - stop))
        for read in (view.records, view.batches):
            with pytest.raises(kstore.LogChangedError):
                list(read(0, stop))  # type: ignore[operator]
        with pytest.raises(kstore.LogChangedError):
            list(view.scan(["offset"], start=0, stop=stop))


def test_holes_of_a_compaction_are_no_change(tmp_path: Path) -> None:
    """Nor is a truncation before the view was made."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0) as log:
        log.extend([b"old"] * 10, keys=[b"k"] * 10)
        log.truncate_to(5)
        for _ in range(5):
            log.append(b"new", b"k")
        log.roll()
        log.append(b"new", b"k")
        log.compact()
        view = kstore.open(path)
        for read in ("records", "batches", "scan", "threads"):
            assert len(READS[read](view)) > 0  # type: ignore[arg-type]


def two_segments(log: kstore.LogWriter) -> kstore.PartitionLog:
    """A view of them, the earlier of which is cut then."""
    for i in range(15):
        if i == 10:
            log.roll()
        log.append(b"old", b"k%d" % i)
    return kstore.open(log.path)


@pytest.mark.parametrize("then", [0, 3, 6, 30])
@pytest.mark.parametrize("is_asked_before", [False, True])
def test_keys_of_a_later_file_that_is_open_still(tmp_path: Path, then: int, is_asked_before: bool) -> None:
    with kstore.open(tmp_path / "t-0", "a", file_delete_delay_ms=60_000) as log:
        view = two_segments(log)
        if is_asked_before:
            assert view.last(b"k4").value == b"old"  # type: ignore[union-attr]
        log.truncate_to(3)
        log.extend([b"new"] * then)
        for key in (b"k4", b"k12", b"k4"):
            with pytest.raises(kstore.LogChangedError):
                view.last(key)
            with pytest.raises(kstore.LogChangedError):
                list(view.history(key))


@pytest.mark.parametrize("then", [0, 3, 6])
def test_a_span_over_a_later_file_that_is_open_still(tmp_path: Path, then: int) -> None:
    """What was removed does not come behind what is new."""
    with kstore.open(tmp_path / "t-0", "a", file_delete_delay_ms=60_000) as log:
        view = two_segments(log)
        log.truncate_to(3)
        log.extend([b"new"] * then)
        with pytest.raises(kstore.LogChangedError):
            view.span(0)
        ours, theirs = socket.socketpair()
        with ours, theirs, pytest.raises(kstore.LogChangedError):
            view.send(ours, 0)


def test_nothing_was_asked_for(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"old"] * 5)
        view = kstore.open(log.path)
        log.truncate_to(3)
        log.append(b"new")
        assert list(view.records(5)) == []
        assert list(view.batches(5)) == []
        for threads in (1, 2):
            assert list(view.scan(["offset"], start=5, threads=threads)) == []


CHANGES: dict[str, Callable[[kstore.LogWriter], object]] = {
    "truncate below": lambda log: log.truncate_to(3),
    "truncate inside": lambda log: log.truncate_to(12),
    "and grow": lambda log: (log.truncate_to(12), log.extend([b"new"] * 9, keys=[b"k12"] * 9)),
    "nothing": lambda log: None,
    "append": lambda log: log.append(b"new", b"k12"),
    "roll": lambda log: (log.roll(), log.append(b"new", b"k12")),
}


def test_files_that_have_rested(tmp_path: Path) -> None:
    """They are not looked at if their ctime says that nobody has changed them."""
    logs = {name: kstore.open(tmp_path / f"{at}-0", "a") for at, name in enumerate(CHANGES)}
    views = {name: two_segments(log) for name, log in logs.items()}
    for log in logs.values():
        log.flush()
    time.sleep(4.1)
    for name, log in logs.items():
        view, last = views[name], views[name]._loaded.segments[-1]
        assert not last._is_untouched()  # nobody has asked yet
        for _ in range(2):
            assert view.last(b"k12").value == b"old"  # type: ignore[union-attr]
        assert last._is_untouched()
        CHANGES[name](log)
        assert last._is_untouched() == (name == "nothing"), name
        if name.startswith(("truncate", "and")):
            for _ in range(2):
                with pytest.raises(kstore.LogChangedError):
                    view.last(b"k12")
        else:
            assert view.last(b"k12").value == b"old"  # type: ignore[union-attr]
            assert len(view.span(0).slices) == 2
        if name == "truncate below":
            with pytest.raises(kstore.LogChangedError):
                view.span(0)
        log.close()
