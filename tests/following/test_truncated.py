"""A log is truncated below what a reader has read, and has grown beyond it when the reader looks again: it is told."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.injector import Injector, raiser


def append_each(log: Any, count: int, mark: bytes) -> None:
    for _ in range(count):
        log.append(mark * 10)


def append_together(log: Any, count: int, mark: bytes) -> None:
    log.extend([mark * 10] * count)


def follower(log: Any, path: Path) -> Any:
    return kstore.open(path).follow(0, timeout=0)


def follower_of_writer(log: Any, path: Path) -> Any:
    return log.follow(0, timeout=0)


def cursor(log: Any, path: Path) -> Any:
    return kstore.open(path).cursor("g")


def following_cursor(log: Any, path: Path) -> Any:
    return kstore.open(path).cursor("g", follow=True, timeout=0)


def cursor_of_writer(log: Any, path: Path) -> Any:
    return log.cursor("g", follow=True, timeout=0)


def store_follower(log: Any, path: Path) -> Any:
    return kstore.LogStore(path.parent).follow(["t"], start="earliest", timeout=0)


def store_cursor(log: Any, path: Path) -> Any:
    return kstore.LogStore(path.parent).cursor("g", ["t"])


READERS = (
    follower,
    follower_of_writer,
    cursor,
    following_cursor,
    cursor_of_writer,
    store_follower,
    store_cursor,
)


def take(source: Any, count: int = -1) -> list[bytes]:
    found: list[bytes] = []
    for record in source:
        found.append(record.value[:1])
        if len(found) == count:
            break
    return found


def assert_told(source: Any, cut: int) -> None:
    for _ in range(2):  # it stays so
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            take(source)
        assert caught.value.end <= cut


@pytest.mark.parametrize("epoch", [None, 3])
@pytest.mark.parametrize("cut", [0, 5, 11])
@pytest.mark.parametrize("taken_in", [0, 1, 5])
@pytest.mark.parametrize("size", [200, 1 << 30])
@pytest.mark.parametrize("reader", READERS)
def test_batches_of_the_same_size(
    tmp_path: Path, reader: Callable[[Any, Path], Any], size: int, taken_in: int, cut: int, epoch: int | None
) -> None:
    """So that one begins where one had ended before."""
    path = tmp_path / "t-0"
    with kstore.open(
        path, "a", leader_epoch=epoch, internal_segment_bytes=size, file_delete_delay_ms=0
    ) as log:
        append_each(log, 12, b"a")
        with reader(log, path) as source:
            assert take(source) == [b"a"] * 12
            append_each(log, taken_in, b"a")
            assert take(source) == [b"a"] * taken_in
            log.truncate_to(cut)
            append_each(log, 30, b"b")
            assert_told(source, cut)


@pytest.mark.parametrize("cut", [2, 15])
@pytest.mark.parametrize("reader", READERS)
def test_inside_a_batch(tmp_path: Path, reader: Callable[[Any, Path], Any], cut: int) -> None:
    """What is appended goes into a segment of its own then."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append_together(log, 9, b"a")
        append_together(log, 9, b"a")
        with reader(log, path) as source:
            assert take(source) == [b"a"] * 18
            log.truncate_to(cut)
            log.flush()
            append_together(log, 20, b"b")
            assert_told(source, cut)


@pytest.mark.parametrize("reader", [follower, follower_of_writer])
def test_what_was_read_in_part(tmp_path: Path, reader: Callable[[Any, Path], Any]) -> None:
    """The batches are larger than what is read ahead, and of another size when others are there."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        for _ in range(10):
            log.append(b"a" * 200_000)
        with reader(log, path) as source:
            assert take(source, 5) == [b"a"] * 5
            log.truncate_to(2)
            for _ in range(10):
                log.append(b"b" * 300_001)
            assert_told(source, 2)


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("reader", READERS)
def test_what_was_not_read_yet(tmp_path: Path, reader: Callable[[Any, Path], Any], looks: bool) -> None:
    """It was truncated away behind the reader: that is no loss."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append_each(log, 3, b"a")
        with reader(log, path) as source:
            assert take(source) == [b"a"] * 3
            append_each(log, 7, b"a")
            log.truncate_to(7 if looks else 3)
            if looks:
                assert take(source) == [b"a"] * 4
            append_each(log, 15, b"b")
            assert take(source) == [b"b"] * 15
            append_each(log, 2, b"c")
            assert take(source) == [b"c"] * 2


@pytest.mark.parametrize("reader", READERS)
def test_no_more_than_there_was(tmp_path: Path, reader: Callable[[Any, Path], Any]) -> None:
    """The file has the size that it had, and the log its end."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append_each(log, 12, b"a")
        with reader(log, path) as source:
            assert take(source) == [b"a"] * 12
            log.truncate_to(5)
            append_each(log, 7, b"b")
            assert_told(source, 5)


def test_a_segment_that_is_gone(tmp_path: Path) -> None:
    """The next one of an older segment says up to where that is what it was: not where a later one was cut, too."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", internal_segment_bytes=300) as log:
        append_together(log, 3, b"a")
        log.roll()
        append_together(log, 2, b"a")
        append_each(log, 1, b"a")
        log.roll()
        append_each(log, 1, b"a")
        with follower(log, path) as source:
            assert take(source) == [b"a"] * 7
            log.truncate_to(1)
            append_together(log, 3, b"b")
            log.roll()
            append_each(log, 6, b"b")
            assert_told(source, 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in __del__
@pytest.mark.parametrize(
    "make", [follower, cursor, following_cursor, store_follower], ids=lambda make: make.__name__
)
def test_a_look_that_is_interrupted(ram: Path, make: Callable[[Any, Path], Any]) -> None:
    """The next look tells what that one would have told."""
    nth, stopped = 0, True
    while stopped:
        nth += 5  # a part of the points, which are many: also under AddressSanitizer
        path = ram / str(nth) / "t-0"
        with kstore.open(path, "a") as log:
            append_each(log, 10, b"a")
            source = make(log, path)
            assert take(source) == [b"a"] * 10
            log.truncate_to(4)
            append_each(log, 10, b"b")
            told = contextlib.suppress(KeyboardInterrupt, kstore.OffsetOutOfRangeError)
            with told, Injector("check", nth, raiser(KeyboardInterrupt)) as injector:
                take(source, 1)
            stopped = injector.done
            assert_told(source, 4)
            source.close()
        shutil.rmtree(path.parent)
    assert nth > 30


@pytest.mark.parametrize("count", [1, 2, 9])
@pytest.mark.parametrize("rolls", [1, 2])
@pytest.mark.parametrize("reader", READERS)
def test_ahead_of_the_reader(
    tmp_path: Path, reader: Callable[[Any, Path], Any], rolls: int, count: int
) -> None:
    """It lags behind, and has not opened the file yet that is cut off and written anew: it meets no cut."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a", file_delete_delay_ms=0) as log:
        append_each(log, 8, b"a")
        for _ in range(rolls):
            log.roll()
            append_each(log, 4, b"a")
        with reader(log, path) as source:
            assert take(source, 1) == [b"a"]
            log.truncate_to(8)
            append_each(log, count, b"b")
            assert take(source) == [b"a"] * 7 + [b"b"] * count


@pytest.mark.parametrize("cut", [11, 15])
@pytest.mark.parametrize("reader", READERS)
def test_ahead_of_a_log_start(tmp_path: Path, reader: Callable[[Any, Path], Any], cut: int) -> None:
    """That lies inside a segment, and nothing was read yet."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        append_each(log, 10, b"a")
        log.roll()
        append_each(log, 1, b"a")
        append_together(log, 8, b"a")
        log.roll()
        append_each(log, 1, b"a")
        log.delete_records(4)
        with begun(reader, log, path) as source:
            log.truncate_to(cut)
            assert take(source) == [b"a"] * 7


def begun(reader: Callable[[Any, Path], Any], log: Any, path: Path) -> Any:
    """From where the log begins."""
    if reader in (follower, follower_of_writer):
        source = log if reader is follower_of_writer else kstore.open(path)
        return source.follow(source.log_start_offset, timeout=0)
    return reader(log, path)
