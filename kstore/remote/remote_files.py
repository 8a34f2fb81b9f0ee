"""The files of a remote directory as sparse local files, which are filled by ranges before they are read."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
import weakref
from posixpath import dirname, join

from kstore.engine.io.sources import read_through
from kstore.errors import LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import checkpoints, layout
from kstore.log.files.log_dir_state import locate
from kstore.remote.shipped import shipped_logs
from kstore.remote.storage import Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_BLOCK = 64 << 10  # bytes that are read together
_RANGE = (8 << 20) // _BLOCK  # blocks of a request, or up to twice as many, if its reader goes on


class RemoteFile:
    """One remote file and the part of it that is in its local file. Thread-safe."""

    def __init__(self, read: Callable[[int, int], bytes], path: str, size: int) -> None:
        """`read(start, end)` returns these bytes of the remote file."""
        self._read = read
        self._path = path
        self._size = size
        self._present = bytearray(-(-size // _BLOCK))
        self._lock = threading.Lock()

    def fill(self, position: int, size: int, reach: int) -> None:
        """Reads these bytes into the local file, unless it has them. `reach`: where the reader will end; a
        request may go on up to that byte. OSError."""
        first = max(position, 0) // _BLOCK
        end = -(-min(position + size, self._size) // _BLOCK)
        if first >= end or self._present.find(0, first, end) < 0:
            return
        reach = max(end, -(-min(reach, self._size) // _BLOCK))
        with self._lock:
            while (at := self._present.find(0, first, end)) >= 0:
                present = self._present.find(1, at, reach)
                missing = (reach if present < 0 else present) - at
                self._request(at, at - (-missing // max(1, missing // _RANGE)))

    def _request(self, first: int, end: int) -> None:
        start, stop = first * _BLOCK, min(end * _BLOCK, self._size)
        data = self._read(start, stop)
        with open(self._path, "r+b") as file:
            file.seek(start)
            file.write(data)
        self._present[first:end] = b"\1" * (end - first)


class RemoteDirectory:
    """A partition or a log directory under a URL: one listing, and a local directory with a sparse file for
    each file. Of a partition that was shipped, it has the files of shipped segments only."""

    def __init__(self, url: str, storage_options: Mapping[str, Any], *, is_whole: bool) -> None:
        """storage_options: those of fsspec for the URL's protocol. is_whole: no log of a shipped segment may
        be missing. LibraryError, CorruptCheckpointError, OSError."""
        self._fillers: dict[str, Callable[[int, int, int], None]] = {}  # by the path of the local file
        self._storage = Storage(url, storage_options)
        self.url = self._storage.url
        listed = self._storage.list(2)
        self._shipped = shipped_logs(self._storage, listed)
        wanted = {join(directory, name) for directory, log in self._shipped.items() for name in log.names()}
        self.files = {
            name: entry
            for name, entry in listed.items()
            if dirname(name) not in self._shipped or name in wanted
        }
        for directory, log in self._shipped.items():
            for base in log.bases:
                name = join(directory, f"{layout.segment_stem(base)}.log")
                if is_whole and name not in listed:
                    text = "was removed: only its manifest is left"
                    raise OSError(errno.EIO, text, f"{self.url}/{name}")

    def materialize(self, directory: str) -> None:
        """Makes the local files, without their bytes, and marks the logs as closed cleanly: what recovery
        looks for, bytes that a crash has left half written, is not in an object."""
        closed = {""}
        for name, (size, changed) in self.files.items():
            path, base = f"{directory}/{name}", os.path.basename(name)
            if base in (layout.CLEAN_SHUTDOWN, layout.RECOVERY_POINTS):
                closed.add(os.path.dirname(name))
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.truncate(size)
            if changed is not None:
                os.utime(path, (changed, changed))
            self._fillers[path] = RemoteFile(self._reader(name), path, size).fill
        for name, log in self._shipped.items():
            checkpoints.write_epochs(
                join(directory, name, layout.LEADER_EPOCHS), log.newest.leader_epochs.entries
            )
        if self._shipped and layout.LOG_STARTS not in self.files:
            offsets = {
                locate(join(directory, each)).name: log.newest.start for each, log in self._shipped.items()
            }
            checkpoints.write_offsets(join(directory, layout.LOG_STARTS), offsets)
        starts = self.log_starts()
        if starts is not None:
            _write(f"{directory}/../{layout.LOG_STARTS}", starts)
            closed.add("..")
        for part in closed:
            _write(f"{directory}/{part}/{layout.CLEAN_SHUTDOWN}", layout.OWN_CLEAN_SHUTDOWN)

    def log_starts(self) -> bytes | None:
        """The checkpoint of log start offsets in the directory around a partition that has no checkpoints of
        its own; None if there is none."""
        name = self.url.rpartition("/")[2]
        if not layout.is_partition_name(name) or self._shipped or self.files.keys() & {*layout.CHECKPOINTS}:
            return None
        try:
            return self._storage.read(f"../{layout.LOG_STARTS}")
        except FileNotFoundError:
            return None

    def source(self, path: str) -> Callable[[int, int, int], None] | None:
        """What fills a local file; None if it has no remote one."""
        return self._fillers.get(path)

    def _reader(self, name: str) -> Callable[[int, int], bytes]:
        def read(start: int, end: int) -> bytes:
            try:
                data = self._storage.read(name, start, end)
            except FileNotFoundError as e:
                raise OSError(f"{self.url}/{name} was removed: {e}") from e
            if start == 0 and name.endswith(".log") and data[:64].lstrip().startswith(b"<"):
                raise OSError(f"{self.url}/{name} is no log: the server has sent a page")
            return data

        return read


def mirrored(url: str, storage_options: Mapping[str, Any], *, is_whole: bool = True) -> str:
    """The path of a local directory that shows a remote one as it is now: its files are filled by ranges
    before kstore reads them, and it exists until the process ends. is_whole: no log of a shipped segment may
    be missing. LogNotFoundError, LibraryError, OSError."""
    try:
        remote = RemoteDirectory(url, storage_options, is_whole=is_whole)
    except FileNotFoundError as e:
        raise LogNotFoundError(f"nothing is at {url}: {e}") from e
    if not remote.files:
        raise LogNotFoundError(f"nothing is at {url}")
    directory = os.path.realpath(tempfile.mkdtemp(prefix="kstore-"))
    weakref.finalize(RemoteDirectory, shutil.rmtree, directory, True)  # at the end of the process
    parent, _, name = remote.url.rpartition("/")
    path = f"{directory}/{name}"
    os.mkdir(path)
    remote.materialize(path)
    read_through(directory, remote.source, parent)
    return path


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
