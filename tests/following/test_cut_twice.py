"""A log is cut twice between two looks of who follows it, and grows: no new record is passed over in silence."""

import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import kstore

pytestmark = pytest.mark.usefixtures("untold")

Cut = tuple[str, int]
CUTS: list[Cut] = [
    *(("truncate_to", offset) for offset in (0, 3, 5, 7)),
    ("truncate_fully_and_start_at", 3),
]


def followed(log: kstore.LogWriter) -> Any:
    return kstore.open(log.path).follow(0, timeout=0)


def of_a_store(log: kstore.LogWriter) -> Any:
    return kstore.LogStore(Path(log.path).parent).follow(["t"], "earliest", timeout=0)


def with_a_cursor(log: kstore.LogWriter) -> Any:
    return kstore.open(log.path).cursor("g")


def read_to_the_end(log: kstore.LogWriter, begun: Callable[[kstore.LogWriter], Any]) -> Any:
    """A reader that has been given 30 old records with keys of their own."""
    for i in range(30):
        log.append(b"old", b"%d" % i)
    reader = begun(log)
    assert len(list(reader)) == 30
    return reader


@pytest.mark.parametrize("between", ["", "append", "roll", "close"])
@pytest.mark.parametrize("segment_bytes", [400, 100_000])
@pytest.mark.parametrize("begun", [followed, of_a_store, with_a_cursor])
def test_nothing_is_passed_over(
    tmp_path: Path, begun: Callable[[kstore.LogWriter], Any], segment_bytes: int, between: str
) -> None:
    """What the error says leads to all that is new."""
    for number, cuts in enumerate(product(CUTS, CUTS)):
        path = tmp_path / str(number) / "t-0"
        log = kstore.open(path, "a", internal_segment_bytes=segment_bytes)
        for _ in range(10):
            log.append(b"old")
        reader = begun(log)
        assert len(list(reader)) == 10
        end = 10
        for name, offset in cuts:
            if name == "truncate_to" and offset > end:
                continue
            getattr(log, name)(offset)
            end = min(end, offset)
            if between == "append":
                log.append(b"new")
            elif between == "roll":
                log.roll()
            elif between == "close":
                log.close()
                log = kstore.open(path, "a", internal_segment_bytes=segment_bytes)
        while log.log_end_offset < 20:
            log.append(b"new")
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(reader)
        assert caught.value.end <= max(end, log.log_start_offset), cuts
        again = list(kstore.open(path).follow(caught.value.end, timeout=0))
        assert sum(record.value == b"new" for record in again) == sum(r.value == b"new" for r in log), cuts
        log.close()


@pytest.mark.parametrize("begun", [followed, of_a_store])
def test_a_log_that_is_shorter_now(tmp_path: Path, begun: Callable[[kstore.LogWriter], Any]) -> None:
    """`end` is where it ends; a note says from where on there may be others."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for _ in range(10):
            log.append(b"old")
        reader = begun(log)
        assert len(list(reader)) == 10
        log.truncate_to(4)
        log.extend([b"new"] * 3)
        for _ in range(2):
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(reader)
            assert caught.value.end == 7
            assert "Up to offset 0 it is what it was" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("segment_bytes", [400, 1500, 100_000])
@pytest.mark.parametrize("removes", ["compaction", "erasure"])
@pytest.mark.parametrize(
    "cut", [("truncate_to", 10), ("truncate_to", 18), ("truncate_fully_and_start_at", 10)]
)
@pytest.mark.parametrize("begun", [followed, of_a_store])
def test_a_record_before_the_position_is_gone(
    tmp_path: Path, begun: Callable[[kstore.LogWriter], Any], cut: Cut, removes: str, segment_bytes: int
) -> None:
    """What was appended since the cut is told, though a compaction or an erasure leaves nothing of it to compare."""
    name, offset = cut
    for gone in (offset, 20, 28, 29):
        path = tmp_path / str(gone) / "t-0"
        with kstore.open(
            path,
            "a",
            internal_segment_bytes=segment_bytes,
            cleanup_policy="compact",
            min_cleanable_dirty_ratio=0.0,
        ) as log:
            reader = read_to_the_end(log, begun)
            getattr(log, name)(offset)
            for i in range(offset, 70):
                log.append(b"new", b"%d" % (gone if i == 60 else i))
            log.roll()
            if removes == "compaction":
                log.compact()
            else:
                log.erase(keys=[b"%d" % gone], reason="asked for")
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(reader)
            assert caught.value.end <= offset


@pytest.mark.parametrize("begun", [followed, of_a_store])
def test_erasures_are_no_cut(tmp_path: Path, begun: Callable[[kstore.LogWriter], Any]) -> None:
    """Twice, with a look between; the first takes the record before the position."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for i in range(20):
            log.append(b"v", b"%d" % i)
        time.sleep(0.02)  # or the times of its files would not tell that none was written over
        log.roll()
        log.append(b"v", b"20")
        reader = begun(log)
        assert len(list(reader)) == 21
        log.erase(keys=[b"20"], reason="asked for")
        assert list(reader) == []
        time.sleep(0.02)
        log.erase(keys=[b"18", b"19"], reason="asked for")
        log.append(b"v")
        assert [record.offset for record in reader] == [21]


@pytest.mark.parametrize("begun", [followed, of_a_store, with_a_cursor])
def test_one_batch_around_the_position(tmp_path: Path, begun: Callable[[kstore.LogWriter], Any]) -> None:
    """Of the records before the position, it lacks the last."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        reader = read_to_the_end(log, begun)
        log.truncate_fully_and_start_at(10)
        log.extend([b"new"] * 60, [b"%d" % i for i in range(60)])
        log.erase(keys=[b"19"], reason="asked for")  # the one at 29
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(reader)
        assert caught.value.end == 10


@pytest.mark.parametrize("segment_bytes", [400, 1500])
@pytest.mark.parametrize("begun", [followed, of_a_store, with_a_cursor])
def test_one_new_record_is_left(
    tmp_path: Path, begun: Callable[[kstore.LogWriter], Any], segment_bytes: int
) -> None:
    """Of all that was appended below the position since the cut, in another segment than the one that was read last."""
    with kstore.open(
        tmp_path / "t-0",
        "a",
        internal_segment_bytes=segment_bytes,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio=0.0,
    ) as log:
        reader = read_to_the_end(log, begun)
        log.truncate_to(4)
        log.append(b"new", b"its own")
        for i in range(60):
            log.append(b"new", b"%d" % (i % 3))
        log.compact()
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(reader)
        assert caught.value.end <= 4


@pytest.mark.parametrize("begun", [followed, of_a_store, with_a_cursor])
def test_a_compaction_is_no_cut(tmp_path: Path, begun: Callable[[kstore.LogWriter], Any]) -> None:
    """It takes the record before the position, and the empty segment that the reader had seen."""
    with kstore.open(tmp_path / "t-0", "a", cleanup_policy="compact", min_cleanable_dirty_ratio=0.0) as log:
        for _ in range(10):
            log.append(b"v", b"key")
        reader = begun(log)
        assert len(list(reader)) == 10
        log.roll()
        assert list(reader) == []
        log.append(b"v", b"key")
        log.roll()
        log.compact()
        assert [record.offset for record in reader] == [10]


def test_unused_offsets_are_cut_off(tmp_path: Path) -> None:
    """A truncation inside a batch leaves offsets that nobody uses. A cursor that was told of it is not told of them too."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"old")
        log.extend([b"old"] * 10)
        log.extend([b"old"] * 10)
        with kstore.open(log.path).cursor("g", follow=True, timeout=0) as cursor:
            assert len(list(cursor)) == 21
            log.truncate_to(20)
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(cursor)
            assert caught.value.end == 11
            cursor.seek(11)
            assert list(cursor) == []
            log.roll()
            assert list(cursor) == []
            log.truncate_to(19)
            log.append(b"new")
            assert [record.offset for record in cursor] == [19]
