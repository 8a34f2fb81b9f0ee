"""Files of segments are open while they are needed, and no more of them than a process may have."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore

SEGMENTS = 60


@pytest.fixture
def log(ram: Path) -> Iterator[kstore.PartitionLog]:
    with kstore.open(ram / "t-0", "a", internal_segment_bytes=150, segment_index_bytes=64) as writer:
        for offset in range(SEGMENTS):
            writer.append(b"%060d" % offset, timestamp=1_700_000_000_000 + offset)
    kstore.limit_open_files(5)
    yield kstore.open(ram / "t-0")
    kstore.limit_open_files(None)


def test_what_is_read_stays_open(log: kstore.PartitionLog) -> None:
    slices = [log.read(offset) for offset in range(20)]
    wanted = [bytes(part) for part in slices]
    assert kstore.open_files().open == 5
    for part in slices[:10]:
        assert part.segment is not None
        Path(part.segment.path).unlink()
    for part in slices[10:]:
        assert part.segment is not None
        Path(part.segment.path).rename(part.segment.path + ".elsewhere")
        Path(part.segment.path).write_bytes(b"." * 1000)
    list(log.records(30))
    assert [bytes(part) for part in slices] == wanted
    assert [[r.offset for r in part] for part in slices] == [[offset] for offset in range(20)]
    del slices
    list(log.records(30))
    with pytest.raises((kstore.LogChangedError, kstore.OffsetOutOfRangeError)):
        log.get(15)  # another file has the name


def test_the_limit(log: kstore.PartitionLog) -> None:
    list(log)
    kstore.limit_open_files(2)
    assert kstore.open_files() == (2, 2)
    kstore.limit_open_files(0)
    assert kstore.open_files() == (0, 0)
    assert log.get(7).offset == 7
    assert log.get(8).offset == 8
    assert kstore.open_files().open == 1
    kstore.limit_open_files(None)
    assert kstore.open_files().limit > 5
