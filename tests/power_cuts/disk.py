"""A disk in memory whose power can be cut: a file system in a file, of which copies are made at any moment.

The file lies on an XFS of its own, which copies files in one step, as of one moment, by sharing their blocks.
So a copy holds the blocks that the kernel had written at that moment, and nothing that came later. What was
only in the page cache is not in it. All this takes the right to mount.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class FileSystem:
    """A kind of file system, and how it is mounted."""

    name: str
    kind: str
    make: tuple[str, ...]
    mib: int
    options: str = ""
    again: str = ""  # more options for a copy
    package: str = ""

    def missing(self) -> str:
        """Why it cannot be had here; "" if it can."""
        for tool, package in (("mkfs.xfs", "xfsprogs"), (self.make[0], self.package)):
            if shutil.which(tool) is None:
                return f"no {tool}: install {package}"
        if self.kind not in Path("/proc/filesystems").read_text().split():
            return f"the kernel knows no {self.kind}"
        return ""


_EXT4 = ("mkfs.ext4", "-q", "-F")
FILE_SYSTEMS = (
    FileSystem("ext4 ordered", "ext4", _EXT4, 64, "data=ordered", "", "e2fsprogs"),
    FileSystem("ext4 writeback", "ext4", _EXT4, 64, "data=writeback", "", "e2fsprogs"),
    FileSystem("XFS", "xfs", ("mkfs.xfs", "-q", "-f"), 320, "", "nouuid", "xfsprogs"),
    FileSystem("btrfs", "btrfs", ("mkfs.btrfs", "-q", "-f"), 160, "", "", "btrfs-progs"),
)


def no_mounting(ram: Path) -> str:
    """Why this process cannot mount a file as a disk; "" if it can."""
    if os.geteuid() != 0:
        return "not root: cannot mount"
    if shutil.which("mkfs.xfs") is None:
        return "no mkfs.xfs: install xfsprogs"
    try:
        with _shelf(ram) as shelf:
            (shelf / "file").touch()
            _run("cp", "--reflink=always", shelf / "file", shelf / "copy")
            return ""
    except subprocess.CalledProcessError as e:
        return f"cannot mount a file here: {e.stderr.strip()}"


class Disk:
    """A mounted disk. `root`: a directory on it. `cut` takes what a power cut would leave."""

    def __init__(self, system: FileSystem, shelf: Path) -> None:
        self.root = shelf / "mounted" / "life"
        self._system = system
        self._shelf = shelf
        self._copies = 0

    def cut(self) -> Path:
        """A copy of the disk as of now. It can be looked at when the disk is no longer mounted."""
        self._copies += 1
        copy = self._shelf / f"copy-{self._copies}"
        _run("cp", "--reflink=always", self._shelf / "disk", copy)
        return copy

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        """`root`, while the disk is mounted."""
        with _mounted(self._system.kind, self._system.options, self._shelf / "disk", self._shelf / "mounted"):
            self.root.mkdir(exist_ok=True)
            os.sync()
            yield self.root

    @contextmanager
    def look(self, copy: Path) -> Iterator[Path]:
        """Mounts a copy, which replays its journal, and gives `root` on it. The copy is gone afterwards."""
        options = ",".join(filter(None, (self._system.options, self._system.again)))
        try:
            with _mounted(self._system.kind, options, copy, self._shelf / "looked-at") as at:
                yield at / "life"
        finally:
            copy.unlink()


@contextmanager
def made(system: FileSystem, ram: Path) -> Iterator[Disk]:
    """A new disk, not mounted yet."""
    with _shelf(ram) as shelf:
        with (shelf / "disk").open("wb") as file:
            file.truncate(system.mib * MIB)
        _run(*system.make, shelf / "disk")
        yield Disk(system, shelf)


@contextmanager
def _shelf(ram: Path) -> Iterator[Path]:
    """An XFS in a file, where files are copied in one step."""
    image = ram / "shelf"
    with image.open("wb") as file:
        file.truncate(4096 * MIB)
    _run("mkfs.xfs", "-q", "-f", "-m", "reflink=1", image)
    try:
        with _mounted("xfs", "", image, ram / "shelf-mounted") as at:
            yield at
    finally:
        image.unlink()


@contextmanager
def _mounted(kind: str, options: str, image: Path, at: Path) -> Iterator[Path]:
    at.mkdir(exist_ok=True)
    _run("mount", "-t", kind, "-o", ",".join(filter(None, ("loop", options))), image, at)
    try:
        yield at
    finally:
        for wait in range(50):  # the kernel may still hold it for a moment
            try:
                _run("umount", at)
                break
            except subprocess.CalledProcessError:
                if wait == 49:
                    raise
                time.sleep(0.1)


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
