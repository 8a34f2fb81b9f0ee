"""The names of a directory of segments, sorted out as they are read."""

import os
from pathlib import Path

import pytest

from kstore.engine.io.directory import digest, read_directory

KINDS = (".log", ".index", ".txnindex")
NAMES = {
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000007.txnindex",
    "09223372036854775807.log",
    "09223372036854775808.log",  # no int64
    "18446744073709551616.log",
    "0000000000000000001.log",  # 19 digits
    "000000000000000000010.log",
    "0000000000000000000x.log",
    "00000000000000000001log",
    "00000000000000000001.",
    "00000000000000000001",
    "00000000000000000001.log.swap",
    "00000000000000000001.lo",
    ".lock",
    "größe",
    os.fsdecode(b"\xff\xfe"),
}


def test_every_name_is_told_once(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).touch()
    (tmp_path / "00000000000000000005.log").mkdir()
    (tmp_path / "00000000000000000006.log").symlink_to(tmp_path / ".lock")
    files, others, inodes, device, _ = read_directory(str(tmp_path), KINDS)
    assert list(files.items()) == [(0, 0b011), (5, 1), (6, 1), (7, 0b100), (2**63 - 1, 1)]
    named = {
        f"{number:020d}{kind}"
        for number, bits in files.items()
        for i, kind in enumerate(KINDS)
        if bits >> i & 1
    }
    assert named | set(others) == {path.name for path in tmp_path.iterdir()}
    assert len(named) + len(others) == len(NAMES) + 2
    # a directory and a link are not what stat() of the name tells about, or not on every file system
    assert set(inodes) <= {0, 2**63 - 1}
    for number, inode in inodes.items():
        found = (tmp_path / f"{number:020d}.log").stat()
        assert (device, inode) == (found.st_dev, found.st_ino)


def test_many_files(tmp_path: Path) -> None:
    for i in reversed(range(3000)):
        (tmp_path / f"{i:020d}.log").touch()
        (tmp_path / f"other {i}").touch()
    files, others, *_ = read_directory(str(tmp_path), KINDS)
    assert files == dict.fromkeys(range(3000), 1)
    assert list(files) == list(range(3000))
    assert sorted(others) == sorted(f"other {i}" for i in range(3000))


def test_a_digest_tells_names_and_files(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").touch()
    (tmp_path / "b").touch()
    first = digest(str(tmp_path))
    assert first == digest(str(tmp_path)) == read_directory(str(tmp_path), KINDS)[4]
    (tmp_path / "c").touch()
    second = digest(str(tmp_path))
    (tmp_path / "c").rename(tmp_path / "d")
    third = digest(str(tmp_path))
    assert len({first, second, third}) == 3
    (tmp_path / "d").unlink()
    assert digest(str(tmp_path)) == first


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    for call in (lambda path: read_directory(path, KINDS), digest):
        with pytest.raises(FileNotFoundError) as told:
            call(str(tmp_path / "no"))
        assert told.value.filename == str(tmp_path / "no")
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError):
            call(str(tmp_path / "file"))
    for kinds in ((".log" * 20,), (".log",) * 20):
        with pytest.raises(ValueError, match="kinds"):
            read_directory(str(tmp_path), kinds)
    with pytest.raises(ValueError, match="null"):
        read_directory(f"{tmp_path}\0x", KINDS)
