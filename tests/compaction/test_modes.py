"""Files that replace others keep mode and owner, and temporary files never follow a link."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstore
from tests.helpers.reading import cursor_at_end

OWNER = 1234, 1235
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A log of several segments, side files and a cursor, closed cleanly."""
    before = os.umask(0o022)
    path = tmp_path / "data" / "t-0"
    with kstore.open(
        path, "a", internal_segment_bytes=3000, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0
    ) as log:
        log.extend([b"v"] * 500, keys=[b"%d" % (i % 5) for i in range(500)], batch_bytes=500)
        log.roll()
        log.append(b"v", key=b"1")
        log.make_key_files()
        log.truncate_to(log.log_end_offset)
    with cursor_at_end(path) as cursor:
        cursor.commit(4)
    yield path
    os.umask(before)


def erase(log: kstore.LogWriter) -> None:
    log.erase(keys=[b"2"], reason="test")


def change_all(log: kstore.LogWriter) -> None:
    log.configure(retention_ms=7)
    log.truncate_to(log.log_end_offset - 1)
    log.assign_leader_epoch(3)
    log.delete_records(2)


CHANGES: dict[str, Callable[[kstore.LogWriter], object]] = {
    "compact": lambda log: log.compact(),
    "erase": erase,
    "key files": lambda log: log.make_key_files(),
    "side files": change_all,
}


def modes_of(path: Path) -> dict[str, tuple[int, int, int]]:
    """Mode and owner of each file, by its name."""
    stats = {file.name: file.stat() for file in path.iterdir()}
    return {name: (stat.st_mode & 0o777, stat.st_uid, stat.st_gid) for name, stat in stats.items()}


@needs_root
@pytest.mark.parametrize("change", CHANGES)
def test_mode_and_owner_stay(path: Path, change: str) -> None:
    if change == "key files":
        for file in path.glob("*.keys"):
            file.unlink()
    for file in [*path.parent.rglob("*"), path.parent]:
        os.chown(file, *OWNER)
        if file.is_file():
            file.chmod(0o600)
    before = {file.name: file.stat().st_ino for file in path.iterdir()}
    segments = {name.partition(".")[0] for name in before if name.endswith(".log")}
    with kstore.open(path, "a") as log:
        CHANGES[change](log)
    there = modes_of(path)
    # what is no new name; of a segment that was there, also a new kind of file
    kept = [
        name
        for name in there
        if name != ".kafka_cleanshutdown" and (name in before or name.partition(".")[0] in segments)
    ]
    assert {name: there[name] for name in kept} == dict.fromkeys(kept, (0o600, *OWNER))
    assert any(before.get(name) != (path / name).stat().st_ino for name in kept)  # some were replaced


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_with_the_name_of_a_temporary_file(
    path: Path, tmp_path: Path, link: Callable[..., None]
) -> None:
    """Whoever may write into the directory gets nothing written elsewhere."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    for file in path.glob("*.keys"):
        file.unlink()
    names = {file.name for file in path.iterdir()}
    for suffix in (".tmp", ".cleaned", ".swap", ".keys.tmp", ".new"):
        for name in names:
            link(victim, path / f"{name}{suffix}")
    for file in path.glob("*.log"):
        for kind in (".keys.tmp", ".keys.new", ".keys.draft"):
            link(victim, file.with_suffix(kind))
    with kstore.open(path, "a") as log:
        for change in CHANGES.values():
            change(log)
        expected = [(record.offset, record.key) for record in log]
    assert victim.read_bytes() == b"untouched"
    assert [(record.offset, record.key) for record in kstore.open(path)] == expected
