"""Other files take the place of those that were read: an older copy, or what compaction and erasure leave."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.readers import READERS


def fill(path: Path, count: int, mark: bytes, **options: Any) -> None:
    with kstore.open(path, "a", retention_ms=-1, **options) as log:
        for _ in range(count):
            log.append(mark + b"." * 30, b"key%d" % (log.log_end_offset % 7))


def files_of(path: Path) -> list[Path]:
    return [file for file in path.iterdir() if not file.name.startswith("kstore-cursors")]


def replace(path: Path, copy: Path) -> None:
    """Other files of the same names, as rsync makes them."""
    for file in files_of(path):
        file.unlink()
    for file in files_of(copy):
        shutil.copy2(file, path)


def values(source: Any) -> Iterator[bytes]:
    return (record.value[:1] for record in source)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_position_beyond_the_end_of_an_older_copy(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    path, copy = tmp_path / "t-0", tmp_path / "copy"
    fill(path, 50, b"a")
    shutil.copytree(path, copy)
    fill(path, 50, b"a")
    with reader(path) as source:
        assert list(values(source)) == [b"a"] * 100
        replace(path, copy)
        fill(path, 10, b"b")
        for _ in range(2):
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(source)
            assert caught.value.end == 60


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_other_files_of_the_same_records(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    """They were compacted, erased, truncated behind the reader, or put back from a copy: it goes on."""
    path = tmp_path / "t-0"
    fill(
        path, 60, b"a", internal_segment_bytes=1000, cleanup_policy="compact,delete", compression_type="gzip"
    )
    with reader(path) as source:
        seen = list(values(source))
        with kstore.open(path, "a") as log:
            log.roll()
            log.compact()
            log.erase(keys=[b"key3"], reason="asked for", what="values")
        fill(path, 10, b"b")
        seen += values(source)
        with kstore.open(path, "a") as log:
            log.append(b"c", b"key")
            log.truncate_to(log.log_end_offset - 1)
        fill(path, 5, b"d")
        seen += values(source)
        shutil.copytree(path, tmp_path / "copy")
        replace(path, tmp_path / "copy")
        fill(path, 5, b"e")
        seen += values(source)
        assert seen == [b"a"] * 60 + [b"b"] * 10 + [b"d"] * 5 + [b"e"] * 5
