"""The files of a remote directory as sparse local files, which are filled by ranges before they are read."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref

from kstore.engine.io.sources import read_through
from kstore.errors import LogNotFoundError
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from typing import Any

_BLOCK = 64 << 10  # bytes that are there or not
_RANGE = (8 << 20) // _BLOCK  # blocks of a request, or up to twice as many, if its reader goes on
_ATTEMPTS = 4
# Protocols that list a tree in one request for 1,000 names. Others list each directory.
_FLAT = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}


class RemoteFile:
    """One remote file and the part of it that is in its local file. Thread-safe."""

    def __init__(self, read: Callable[[int, int], bytes], path: str, size: int) -> None:
        """`read(start, end)` returns these bytes of the remote file."""
        self._read = read
        self._path = path
        self._size = size
        self._there = bytearray(-(-size // _BLOCK))
        self._lock = threading.Lock()

    def fill(self, position: int, size: int, reach: int) -> None:
        """Has these bytes in the local file; `reach` is where the reader will end, and a request may go on up
        to there. OSError."""
        first = max(position, 0) // _BLOCK
        end = -(-min(position + size, self._size) // _BLOCK)
        if first >= end or self._there.find(0, first, end) < 0:
            return
        reach = max(end, -(-min(reach, self._size) // _BLOCK))
        with self._lock:
            while (at := self._there.find(0, first, end)) >= 0:
                there = self._there.find(1, at, reach)
                missing = (reach if there < 0 else there) - at
                self._request(at, at - (-missing // max(1, missing // _RANGE)))

    def _request(self, first: int, end: int) -> None:
        start, stop = first * _BLOCK, min(end * _BLOCK, self._size)
        data = self._read(start, stop)
        with open(self._path, "r+b") as file:
            file.seek(start)
            file.write(data)
        self._there[first:end] = b"\1" * (end - first)


class RemoteDirectory:
    """A partition or a log directory under a URL: one listing, and a local directory with a sparse file for
    each file."""

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        """storage_options: those of fsspec for the URL's protocol. LibraryError, OSError."""
        fsspec = library("fsspec")
        self.url = url.rstrip("/")
        protocol = self.url.partition("://")[0]
        self._files, self._root = fsspec.core.url_to_fs(self.url, **storage_options)
        self._files.invalidate_cache()  # of listings: what is there now counts
        self._changed: dict[str, Any] = {}
        depth = {} if protocol in _FLAT else {"maxdepth": 2}
        listed = self._attempted("", lambda: self._files.find(self._root, detail=True, **depth))
        entries = {path.rstrip("/")[len(self._root) :].lstrip("/"): (path, e) for path, e in listed.items()}
        entries = {name: entry for name, entry in entries.items() if name.count("/") <= 1}
        # a listing of HTTP has no sizes
        asked = [path for path, entry in entries.values() if entry["size"] is None]
        sizes = dict(zip(asked, self._attempted("", lambda: self._files.sizes(asked)), strict=True))
        self.names: dict[str, int] = {}
        for name, (path, entry) in entries.items():
            size = sizes.get(path, entry["size"])
            if size is None:
                raise OSError(f"{self.url}/{name}: its size is not known")
            self.names[name] = int(size)
            self._changed[name] = entry.get("LastModified") or entry.get("mtime") or entry.get("created")

    def materialize(self, directory: str) -> None:
        """Makes the local files, without their bytes, and marks the logs as closed cleanly: what recovery looks
        for, bytes that a crash has left half written, is not in an object."""
        closed = {""}
        self._fillers = {}
        for name, size in self.names.items():
            path, base = f"{directory}/{name}", os.path.basename(name)
            if base in (layout.CLEAN_SHUTDOWN, layout.RECOVERY_POINTS):
                closed.add(os.path.dirname(name))
                continue
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.truncate(size)
            if (time := _seconds(self._changed[name])) is not None:
                os.utime(path, (time, time))
            self._fillers[path] = RemoteFile(self._reader(name, size), path, size).fill
        starts = self.log_starts()
        if starts is not None:
            _write(f"{directory}/../{layout.LOG_STARTS}", starts)
            closed.add("..")
        for part in closed:
            _write(f"{directory}/{part}/{layout.CLEAN_SHUTDOWN}", layout.OWN_CLEAN_SHUTDOWN)

    def log_starts(self) -> bytes | None:
        """The checkpoint of log start offsets in the directory around a partition that has no checkpoints of its
        own; None if there is none."""
        root, _, name = self._root.rstrip("/").rpartition("/")
        if not layout.is_partition_name(name) or self.names.keys() & {*layout.CHECKPOINTS}:
            return None
        file = f"{root}/{layout.LOG_STARTS}"
        try:
            return bytes(self._attempted(f"/../{layout.LOG_STARTS}", lambda: self._files.cat_file(file)))
        except FileNotFoundError:
            return None

    def source(self, path: str) -> Callable[[int, int, int], None] | None:
        """What fills a local file."""
        return self._fillers.get(path)

    def _reader(self, name: str, size: int) -> Callable[[int, int], bytes]:
        remote = f"{self._root}/{name}"

        def read(start: int, end: int) -> bytes:
            def request() -> bytes:
                data = bytes(self._files.cat_file(remote, start=start, end=end))
                if len(data) != end - start:
                    raise OSError(f"bytes {start} to {end} were asked for, and {len(data)} came")
                return data

            try:
                data: bytes = self._attempted(f"/{name}", request)
            except FileNotFoundError as e:
                raise OSError(f"{self.url}/{name} was removed: {e}") from e
            if start == 0 and name.endswith(".log") and data[:64].lstrip().startswith(b"<"):
                raise OSError(f"{self.url}/{name} is no log: the server has sent a page")
            return data

        return read

    def _attempted(self, name: str, request: Callable[[], Any]) -> Any:
        """The result of a request, which is made again if it fails. OSError with the URL, whatever a library
        raises; FileNotFoundError."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return request()
            except (FileNotFoundError, PermissionError):
                raise
            except Exception as e:
                if attempt == _ATTEMPTS:
                    raise OSError(f"{self.url}{name}: {str(e) or type(e).__name__}") from e
        raise AssertionError


def mirrored(url: str, storage_options: Mapping[str, Any]) -> str:
    """The path of a local directory that shows a remote one as it is now: its files are filled by ranges
    before kstore reads them, and it exists until the process ends. LogNotFoundError, LibraryError,
    OSError."""
    try:
        remote = RemoteDirectory(url, storage_options)
    except FileNotFoundError as e:
        raise LogNotFoundError(f"nothing is at {url}: {e}") from e
    if not remote.names:
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


def _seconds(time: datetime | float | None) -> float | None:
    return time if time is None or isinstance(time, float) else time.timestamp()
