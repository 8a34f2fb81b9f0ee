"""What scans do to the page cache, and what residency() says of it."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore

SIZE = 24 << 20


@pytest.fixture
def log(tmp_path: Path) -> kstore.PartitionLog:
    """Two sealed segments and a small active one, none of it cached."""
    with kstore.open(tmp_path / "t-0", "a", segment_bytes=SIZE // 2) as writer:
        for _ in range(SIZE // (1 << 20)):
            writer.extend([b"." * 1000] * 1048)
        writer.flush()
    for path in Path(tmp_path, "t-0").glob("*.log"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    log = kstore.open(tmp_path / "t-0")
    if cached(log) > SIZE // 2:
        pytest.skip("this file system does not drop pages when it is asked to, as that of memory")
    return log


def cached(log: kstore.PartitionLog) -> int:
    return sum(part.cached_bytes for part in log.residency())


def settled(log: kstore.PartitionLog) -> int:
    """What is cached when the disk has fetched all that was asked; pages on their way stay cached."""
    now, before = cached(log), -1
    while now != before:
        time.sleep(0.5)
        now, before = cached(log), now
    return now


def is_whole(log: kstore.PartitionLog, read: Callable[[], object]) -> bool:
    """Whether every byte is cached after a read. The kernel may take pages back, so it may read again."""
    for _ in range(20):
        read()
        if [part.cached_bytes for part in log.residency()] == [segment.size for segment in log.segments]:
            return True
    return False


def test_residency(log: kstore.PartitionLog) -> None:
    assert [(part.base_offset, part.size) for part in log.residency()] == [
        (segment.base_offset, segment.size) for segment in log.segments
    ]
    assert cached(log) < SIZE // 4  # opening read the tail
    assert is_whole(log, lambda: [Path(segment.path).read_bytes() for segment in log.segments])


def test_residency_of_a_file_that_was_shortened(log: kstore.PartitionLog) -> None:
    path = Path(log.segments[0].path)
    assert log.segments[0].size > 10_000
    os.truncate(path, 5000)
    assert log.residency()[0].cached_bytes <= 8192
    os.truncate(path, 0)
    assert log.residency()[0].cached_bytes == 0


@pytest.mark.parametrize("kind", ["batches", "records"])
def test_a_scan_that_drops_leaves_the_cache_as_it_was(log: kstore.PartitionLog, kind: str) -> None:
    before = cached(log)
    count = sum(1 for _ in getattr(log, kind)(cache="drop"))
    assert count > 1000
    assert cached(log) <= before + (512 << 10)
    assert is_whole(log, lambda: sum(1 for _ in getattr(log, kind)(cache="keep")))
    assert sum(1 for _ in getattr(log, kind)(cache="keep")) == count


def test_what_was_cached_before_stays(log: kstore.PartitionLog) -> None:
    segment = log.segments[0]
    with Path(segment.path).open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # nothing beyond what is asked for
        file.seek(5 << 20)
        file.read(2 << 20)
    before = log.residency()[0].cached_bytes
    assert before > 1 << 20
    for _ in log.batches(cache="drop"):
        pass
    assert before - (512 << 10) <= log.residency()[0].cached_bytes <= before + (512 << 10)


def test_a_scan_that_is_left_half_way(log: kstore.PartitionLog) -> None:
    before = cached(log)
    batches = log.batches(cache="drop")
    for _ in range(300):
        next(batches)
    assert settled(log) < before + (14 << 20)
    del batches
    assert cached(log) <= before + (512 << 10)


def test_a_short_scan(log: kstore.PartitionLog) -> None:
    offset = log.segments[1].base_offset
    assert sum(1 for _ in log.records(offset + 500, offset + 600, cache="drop")) == 100
    with pytest.raises(ValueError, match="'keep', 'drop'"):
        log.records(cache="nonsense")
