"""The manifest of a copy: kstore-copy.jsonl, a line for each file with its size and checksum.

The first line names the version of the format and the source, each other line a file. While a copy is being
made, lines are appended as segments are complete, so that an interrupted copy can be continued. The finished
manifest has a line for every file of the copy, sorted by path.
"""

from __future__ import annotations

import hashlib
import json
import os

from kstore.engine.io.directory import write_whole
from kstore.engine.io.file import File, read_whole
from kstore.errors import CorruptCheckpointError
from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

Identity = tuple[int, int, int, int]  # inode, size, time of change and time of status change, in ns
NAME = "kstore-copy.jsonl"
_VERSION = 0
_PIECE = 1 << 20


class CopiedFile(NamedTuple):
    """A file of a copy: its path in the copy, size, SHA-256 and time of change in ns. `source` is the inode,
    size, time of change and time of status change of the sealed segment that was copied as a whole."""

    path: str
    size: int
    sha256: str
    mtime_ns: int
    source: Identity | None = None

    @classmethod
    def at(cls, directory: str, path: str, source: Identity | None = None) -> CopiedFile:
        """The entry of a file that is there. OSError."""
        file = File(f"{directory}/{path}")
        digest = hashlib.sha256()
        size = file.size()
        for position in range(0, size, _PIECE):
            digest.update(file.read(position, min(_PIECE, size - position)))
        return cls(path, size, digest.hexdigest(), os.fstat(file.fd).st_mtime_ns, source)

    def is_unchanged(self, directory: str) -> bool:
        """Whether the file has the size and the time of change that it had when it was copied."""
        try:
            found = os.stat(f"{directory}/{self.path}")
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (self.size, self.mtime_ns)


class Difference(NamedTuple):
    """A difference between a directory and the manifest of its copy. `kind` is "missing", "size", "content"
    or "unlisted"."""

    path: str
    kind: str
    expected: str
    found: str


def identity_of(file: File) -> Identity:
    """What identifies a file with its content: inode, size, time of change and time of status change."""
    found = os.fstat(file.fd)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def read_manifest_of_copy(path: str) -> dict[str, CopiedFile]:
    """The files of a manifest by path; of one that is being written, those of its whole lines.
    CorruptCheckpointError, FileNotFoundError, OSError."""
    lines = read_whole(path).split(b"\n")
    files = {}
    for number, line in enumerate(lines[:-1], 1):  # a last one without its end was being written
        try:
            fields = json.loads(line)
            if number == 1:
                if fields["version"] != _VERSION:
                    raise ValueError(f"version {fields['version']!r:.80}")
                continue
            source = fields.get("source")
            entry = CopiedFile(
                str(fields["path"]),
                int(fields["size"]),
                str(fields["sha256"]),
                int(fields["mtime_ns"]),
                None if source is None else tuple(map(int, source)),  # type: ignore[arg-type]
            )
            if entry.path.startswith("/") or ".." in entry.path.split("/"):
                raise ValueError(f"path {entry.path!r:.80}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            raise CorruptCheckpointError(
                "manifest of a copy", file=path, position=number, expected="a file as JSON", found=str(e)
            ) from None
        files[entry.path] = entry
    return files


class Journal:
    """The manifest of a copy that is being made. `segments`: the files of it that are whole segments of the
    source. It does not know other files before the end, because each run writes them anew."""

    def __init__(self, path: str, source: str, segments: Iterable[CopiedFile]) -> None:
        """Replaces what an interrupted run has left by the segments of it that are still there."""
        self._path = path
        self._head = json.dumps({"version": _VERSION, "source": source})
        self.segments = {entry.path: entry for entry in segments}
        write_whole(path, self._content(self.segments.values()))
        self._file = File(path, "a")
        self._end = self._file.size()

    def add(self, entry: CopiedFile) -> None:
        """Notes a complete segment. OSError."""
        self.segments[entry.path] = entry
        line = f"{_line(entry)}\n".encode()
        self._file.write(self._end, line)
        self._end += len(line)

    def forget(self, path: str) -> None:
        """Forgets a segment, which is to be removed or written anew."""
        self.segments.pop(path, None)

    def finish(self, directory: str, lock: str) -> None:
        """Writes the manifest of all files below a directory but its own and a lock, durably. OSError."""
        paths = set(files_below(directory)).difference((os.path.basename(self._path), lock))
        found = (self.segments.get(path) or CopiedFile.at(directory, path) for path in sorted(paths))
        write_whole(self._path, self._content(found))

    def _content(self, files: Iterable[CopiedFile]) -> bytes:
        return "".join(f"{line}\n" for line in (self._head, *map(_line, files))).encode()


def _line(entry: CopiedFile) -> str:
    fields: dict[str, Any] = entry._asdict()
    if entry.source is None:
        del fields["source"]
    return json.dumps(fields)


def files_below(directory: str) -> Iterator[str]:
    """The paths of all files below a directory, relative to it. OSError."""
    for place, _, names in os.walk(directory):
        for name in names:
            yield os.path.relpath(f"{place}/{name}", directory)


def compare(directory: str, manifest: str) -> Iterator[Difference]:
    """The differences between the files of a directory and a manifest, by reading every file. A file that the
    manifest does not list is a difference only if it is part of a log: its name ends in .log.

    CorruptCheckpointError if the manifest is damaged, OSError if a file cannot be read."""
    files = read_manifest_of_copy(manifest)
    for path, entry in files.items():
        try:
            found = CopiedFile.at(directory, path)
        except (FileNotFoundError, NotADirectoryError):
            yield Difference(path, "missing", f"{entry.size} bytes", "no file")
            continue
        if found.size != entry.size:
            yield Difference(path, "size", f"{entry.size} bytes", f"{found.size} bytes")
        elif found.sha256 != entry.sha256:
            yield Difference(path, "content", entry.sha256, found.sha256)
    for path in sorted(files_below(directory)):
        if path.endswith(".log") and path not in files:
            yield Difference(path, "unlisted", "no file", f"{os.stat(f'{directory}/{path}').st_size} bytes")
