"""Somebody puts an older copy of a partition in its place, which grows beyond where a reader was: it is told,
whatever it reads with.

Compaction and erasure put other files in the place of those that were read, too: that is none of it.
"""

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


def write_over(path: Path, copy: Path) -> None:
    """The same files, as cp writes them."""
    for file in files_of(path):
        if not (copy / file.name).exists():
            file.unlink()
    for file in files_of(copy):
        shutil.copyfile(file, path / file.name)


def values(source: Any) -> Iterator[bytes]:
    return (record.value[:1] for record in source)


@pytest.mark.parametrize("size", [1 << 30, 1000])
@pytest.mark.parametrize("put", [replace, write_over])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_is_told(
    tmp_path: Path, reader: Callable[[Path], Any], put: Callable[[Path, Path], None], size: int
) -> None:
    path, copy = tmp_path / "t-0", tmp_path / "copy"
    fill(path, 50, b"a", internal_segment_bytes=size)
    shutil.copytree(path, copy)
    fill(path, 50, b"a")
    with reader(path) as source:
        assert list(values(source)) == [b"a"] * 100
        put(path, copy)
        fill(path, 150, b"b")
        for _ in range(2):  # it stays so
            with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
                list(source)
            assert 0 <= caught.value.end < 100
            assert put is write_over or 40 <= caught.value.end <= 50  # 50 if files have other times
        if hasattr(source, "seek") and (
            put is replace or size > 1000
        ):  # else more was written over than is known
            source.seek(caught.value.end)
            assert list(values(source))[-150:] == [b"b"] * 150


@pytest.mark.parametrize("reader", READERS)
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
