"""The files below a URL, as fsspec gives access to them: listing, reading, writing."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from functools import partial

from kstore.engine.io.directory import sync_directory
from kstore.engine.io.file import sync_file
from kstore.libraries import library
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from typing import Any

_ATTEMPTS = 4
_PIECE = 8 << 20
_LOCAL = {"file", "local"}
# Protocols that list a tree in one request for 1,000 names, and replace an object as a whole. Others list
# each directory, and there a file is written under another name and renamed.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}


class Listed(NamedTuple):
    """A remote file: its size, and when it was changed, in seconds since 1970 or None."""

    size: int
    changed: float | None


class Storage:
    """The files below a URL. Each request that fails is made four times, and errors of any library end as
    OSError with the URL; FileNotFoundError for a file that is not there."""

    def __init__(self, url: str, storage_options: Mapping[str, Any]) -> None:
        """storage_options: those of fsspec for the URL's protocol. LibraryError, OSError."""
        fsspec = library("fsspec")
        self.url = url.rstrip("/")
        self._protocol = self.url.partition("://")[0]
        self._files, self._root = fsspec.core.url_to_fs(self.url, **storage_options)
        self._root = self._root.rstrip("/")

    def list(self, depth: int = 1) -> dict[str, Listed]:
        """The files by their paths below the URL, in so many levels of directories."""
        self._files.invalidate_cache()  # of listings: what is there now counts
        if self._protocol in _OBJECT_STORES:
            listed = self._attempted("", lambda: self._files.find(self._root, detail=True))
        else:
            listed = self._walked(depth)
        entries = {self._name(path): (path, entry) for path, entry in listed.items()}
        entries = {name: entry for name, entry in entries.items() if name.count("/") < depth}
        _, root = entries.pop("", ("", {}))
        if root.get("type") == "file":
            raise NotADirectoryError(f"{self.url} is a file, not a directory")
        # a listing of HTTP has no sizes
        asked = [path for path, entry in entries.values() if entry.get("size") is None]
        sizes = dict(zip(asked, self._attempted("", lambda: self._files.sizes(asked)), strict=True))
        found = {}
        for name, (path, entry) in entries.items():
            size = sizes.get(path, entry.get("size"))
            if size is None:
                raise OSError(f"{self.url}/{name}: its size is not known")
            changed = entry.get("LastModified") or entry.get("mtime") or entry.get("created")
            found[name] = Listed(int(size), _seconds(changed))
        return found

    def _walked(self, depth: int) -> dict[str, Any]:
        """The files by their paths. `find` of fsspec leaves out a directory that it could not list."""
        files, directories = {}, [self._root]
        for _ in range(depth):
            found: list[dict[str, Any]] = []
            for path in directories:
                with suppress(FileNotFoundError):
                    found += self._attempted(
                        f"/{self._name(path)}", partial(self._files.ls, path, detail=True)
                    )
            files.update({entry["name"]: entry for entry in found if entry["type"] != "directory"})
            directories = [entry["name"] for entry in found if entry["type"] == "directory"]
        return files

    def _name(self, path: str) -> str:
        return path.rstrip("/")[len(self._root) :].lstrip("/")

    def _path(self, name: str) -> str:
        return f"{self._root.rpartition('/')[0]}/{name[3:]}" if name[:3] == "../" else f"{self._root}/{name}"

    def read(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        """These bytes of a file; all of it by default. "../name" is beside the URL."""

        def request() -> bytes:
            data = bytes(self._files.cat_file(self._path(name), start=start, end=end))
            if start is not None and end is not None and len(data) != end - start:
                whole = ": perhaps the server gives only whole files" if len(data) > end - start else ""
                raise OSError(f"bytes {start} to {end} were asked for, and {len(data)} came{whole}")
            return data

        data: bytes = self._attempted(f"/{name}", request)
        return data

    def read_all(self, names: Sequence[str]) -> dict[str, bytes]:
        """The content of several small files, asked for at once."""
        if not names:
            return {}
        found = self._attempted("", lambda: self._files.cat([self._path(name) for name in names]))
        return {self._name(path): bytes(data) for path, data in found.items()}

    def sha256(self, name: str, size: int) -> str:
        """The SHA-256 of the first bytes of a file, by reading them; "" if it is not there. OSError if it is
        shorter."""
        digest = hashlib.sha256()
        for start in range(0, size, _PIECE):
            try:
                digest.update(self.read(name, start, min(start + _PIECE, size)))
            except FileNotFoundError:
                return ""
        return digest.hexdigest()

    def upload(self, path: str, name: str) -> None:
        """Writes a local file as a whole: until then the remote one is what it was before."""
        self._put(name, lambda target: self._files.put_file(path, target))

    def write(self, name: str, data: bytes) -> None:
        """Writes a small file as a whole: until then it is what it was before."""
        self._put(name, lambda target: self._files.pipe_file(target, data))

    def create(self, name: str, data: bytes) -> None:
        """Writes a small file that is not there yet. FileExistsError, if the file system can tell in one
        step; else the last one to write it wins."""
        if self._protocol not in ("s3", "s3a"):
            self.write(name, data)
            return
        self._put(name, lambda target: self._files.pipe_file(target, data, mode="create"))

    def _put(self, name: str, put: Callable[[str], object]) -> None:
        target = f"{self._root}/{name}"
        if self._protocol in _OBJECT_STORES:
            self._attempted(f"/{name}", lambda: put(target))
            return
        self._files.makedirs(os.path.dirname(target), exist_ok=True)
        draft = f"{target}.{secrets.token_hex(8)}.tmp"
        try:
            self._attempted(f"/{name}", lambda: put(draft))
            if self._protocol in _LOCAL:
                sync_file(draft)
            try:
                self._files.mv(draft, target)
            except OSError:  # HDFS, if the file is there
                self._files.rm_file(target)
                self._files.mv(draft, target)
        except OSError:
            with suppress(OSError):
                self._files.rm_file(draft)
            raise
        if self._protocol in _LOCAL:
            sync_directory(os.path.dirname(target))

    def _attempted(self, name: str, request: Callable[[], Any]) -> Any:
        """The result of a request, which is made again if it fails. OSError with the URL, whatever a library
        raises; FileNotFoundError, FileExistsError."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return request()
            except (FileExistsError, PermissionError):
                raise
            except Exception as e:
                reason = self._reason(e)
                if reason is None:
                    raise
                if attempt == _ATTEMPTS:
                    raise OSError(f"{self.url}{name}: {str(reason) or type(reason).__name__}") from e
        raise AssertionError

    def _reason(self, error: Exception) -> BaseException | None:
        """Why a request failed; None if the file is not there. fsspec has FileNotFoundError for every failure
        of a request by HTTP for the size of a file."""
        if not isinstance(error, FileNotFoundError):
            return error
        reason = error.__cause__
        if self._protocol not in ("http", "https") or reason is None:
            return None
        return None if getattr(reason, "status", None) in (404, 410) else reason


def _seconds(time: datetime | float | None) -> float | None:
    return time if time is None or isinstance(time, float) else time.timestamp()
