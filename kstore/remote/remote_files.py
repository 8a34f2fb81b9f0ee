"""The files of a remote directory as sparse local files, which are filled by ranges before they are read."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
import threading
import weakref

from kstore.engine.io.sources import read_through
from kstore.errors import LogNotFoundError
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from typing import Any

_BLOCK = 64 << 10  # bytes that are there or not
_AHEAD = 8 << 20  # bytes of a request, while reading goes on where it ended
_ATTEMPTS = 4


class RemoteFile:
    """One remote file and the part of it that is in its local file. Thread-safe."""

    def __init__(self, read: Callable[[int, int], bytes], path: str, size: int) -> None:
        """`read(start, end)` returns these bytes of the remote file."""
        self._read = read
        self._path = path
        self._size = size
        self._there = bytearray(-(-size // _BLOCK))
        self._lock = threading.Lock()
        self._behind = -1  # the block after the newest request

    def fill(self, position: int, size: int) -> None:
        """Has these bytes in the local file. OSError."""
        first = max(position, 0) // _BLOCK
        end = -(-min(position + size, self._size) // _BLOCK)
        if first >= end or self._there.find(0, first, end) < 0:
            return
        with self._lock:
            while (at := self._there.find(0, first, end)) >= 0:
                there = self._there.find(1, at, end)
                until = end if there < 0 else there
                if at == self._behind:  # it is read in order
                    until = max(until, min(at + _AHEAD // _BLOCK, len(self._there)))
                self._request(at, min(until, at + _AHEAD // _BLOCK))

    def _request(self, first: int, end: int) -> None:
        start, stop = first * _BLOCK, min(end * _BLOCK, self._size)
        data = self._read(start, stop)
        if len(data) != stop - start:
            raise OSError(f"{self._path}: bytes {start} to {stop} were asked for, and {len(data)} came")
        with open(self._path, "r+b") as file:
            file.seek(start)
            file.write(data)
        self._there[first:end] = b"\1" * (end - first)
        self._behind = end


class RemoteDirectory:
    """A partition or a log directory under a URL: one listing, and a local directory with a sparse file for
    each file."""

    def __init__(self, url: str, **storage_options: Any) -> None:
        """storage_options: those of fsspec for the URL's protocol. LibraryError, OSError."""
        fsspec = library("fsspec")
        self.url = url.rstrip("/")
        self._files, self._root = fsspec.core.url_to_fs(self.url, **storage_options)
        self.names: dict[str, int] = {}
        self._changed: dict[str, Any] = {}
        listed = _attempted(lambda: self._files.find(self._root, maxdepth=2, detail=True))
        for path, entry in listed.items():
            name = path.rstrip("/")[len(self._root) :].lstrip("/")
            size = entry["size"]
            if size is None:  # a listing of HTTP has no sizes
                size = _attempted(functools.partial(self._files.info, path))["size"]
            if size is None:
                raise OSError(f"{self.url}/{name}: its size is not known")
            self.names[name] = int(size)
            self._changed[name] = entry.get("LastModified") or entry.get("mtime") or entry.get("created")

    def materialize(self, directory: str) -> None:
        """Makes the local files, without their bytes."""
        for name, size in self.names.items():
            os.makedirs(os.path.dirname(f"{directory}/{name}"), exist_ok=True)
            with open(f"{directory}/{name}", "wb") as file:
                file.truncate(size)
            if (time := _seconds(self._changed[name])) is not None:
                os.utime(f"{directory}/{name}", (time, time))
        self._fillers = {
            f"{directory}/{name}": RemoteFile(self._reader(name), f"{directory}/{name}", size).fill
            for name, size in self.names.items()
        }

    def source(self, path: str) -> Callable[[int, int], None] | None:
        """What fills a local file."""
        return self._fillers.get(path)

    def _reader(self, name: str) -> Callable[[int, int], bytes]:
        remote = f"{self._root}/{name}"

        def read(start: int, end: int) -> bytes:
            try:
                data = bytes(_attempted(lambda: self._files.cat_file(remote, start=start, end=end)))
            except FileNotFoundError as e:
                raise OSError(f"{self.url}/{name} was removed: {e}") from e
            if start == 0 and name.endswith(".log") and data[:64].lstrip().startswith(b"<"):
                raise OSError(f"{self.url}/{name} is no log: the server has sent a page")
            return data

        return read


def mirrored(url: str, **storage_options: Any) -> str:
    """The path of a local directory that shows a remote one as it is now: its files are filled by ranges
    before kstore reads them, and it exists until the process ends. LogNotFoundError, LibraryError,
    OSError."""
    try:
        remote = RemoteDirectory(url, **storage_options)
    except FileNotFoundError as e:
        raise LogNotFoundError(f"nothing is at {url}: {e}") from e
    if not remote.names:
        raise LogNotFoundError(f"nothing is at {url}")
    directory = tempfile.mkdtemp(prefix="kstore-")
    weakref.finalize(RemoteDirectory, shutil.rmtree, directory, True)  # at the end of the process
    path = f"{directory}/{remote.url.rpartition('/')[2]}"
    os.mkdir(path)
    remote.materialize(path)
    read_through(path, remote.source)
    return path


def _attempted(request: Callable[[], Any]) -> Any:
    """The result of a request, which is made again if it fails. OSError, whatever a library raises."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return request()
        except FileNotFoundError:
            raise
        except Exception as e:
            if attempt == _ATTEMPTS:
                if isinstance(e, OSError):
                    raise
                raise OSError(str(e) or type(e).__name__) from e
    raise AssertionError


def _seconds(time: datetime | float | None) -> float | None:
    return time if time is None or isinstance(time, float) else time.timestamp()
