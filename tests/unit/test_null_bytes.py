"""Paths with a NUL byte, where C would end them: no call takes the file that the part before it names."""

from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from kstore.engine.io.directory import digest, read_directory
from kstore.engine.io.file import (
    Directory,
    File,
    read_whole,
    rename,
    sync_directory,
    sync_file,
    unlink,
    write_whole,
)
from kstore.engine.io.notification import Inotify

CALLS: list[Callable[[str], object]] = [
    File,
    lambda path: File(path, "w"),
    Directory,
    lambda path: rename(path, path + "2"),
    lambda path: rename(path.partition("\0")[0], path),
    unlink,
    lambda path: unlink(path, missing_ok=True),
    sync_directory,
    sync_file,
    read_whole,
    lambda path: write_whole(path, b""),
    digest,
    lambda path: read_directory(path, (".log",)),
    lambda path: Inotify().add(path),
]


@pytest.mark.parametrize("call", CALLS)
def test_no_call_takes_another_file(tmp_path: Path, call: Callable[[str], object]) -> None:
    (tmp_path / "file").write_bytes(b"kept")
    for path in (f"{tmp_path}/file\0.log", f"{tmp_path}\0", f"{tmp_path}\0/new"):
        with pytest.raises(ValueError, match="embedded null byte"):
            call(path)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"kept")]


def test_logs(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "a-0", "a") as log:
        log.append(b"v")
    before = sorted(tmp_path.rglob("*"))
    for mode in ("a", "r+", "r"):
        for path in (f"{tmp_path}/a-0\0b", f"{tmp_path}/a-0\0/b-0", f"{tmp_path}/b-0\0"):
            with pytest.raises(ValueError, match="embedded null byte"):
                kstore.open(path, mode)
    for mode in ("a", "r"):
        with pytest.raises(ValueError, match="embedded null byte"):
            kstore.LogStore(f"{tmp_path}\0b", mode=mode)
    assert sorted(tmp_path.rglob("*")) == before
    with kstore.open(tmp_path / "c-0", "a") as log:
        with pytest.raises(ValueError, match="embedded null byte"):
            log.adopt(f"{tmp_path}/a-0/{0:020d}.log\0.log")
        assert log.log_end_offset == 0
