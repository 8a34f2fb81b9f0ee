"""Recording every call of kstore that changes a file or a name below a directory, in order.

A file has a number, whatever its names are; the first one has 1. Files that are mapped into memory change
without a call. The recorder compares them at every call, and records a change as a write.
"""

import errno
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from kstore.engine.io.faults import trace_calls
from kstore.testing.image import Image

_one = threading.Lock()  # held by the active recorder


class Call(NamedTuple):
    """A call that has succeeded. `name` is one of

    create, write, truncate, allocate (of `file`); syncs, sync (the begin and the end of a sync of `file`);
    rename (of `path` to `target`), unlink, make_directory; syncs_directory, sync_directory (of `path`); mark:
    no call, but a `value` of the test at this moment.
    """

    name: str
    path: str = ""
    file: int = 0
    position: int = 0
    data: bytes = b""
    size: int = 0
    target: str = ""
    value: Any = None

    def __str__(self) -> str:
        if self.name == "mark":
            return f"mark {self.value}"
        what = {
            "write": f" {len(self.data)} bytes at {self.position}",
            "truncate": f" to {self.position}",
            "allocate": f" {self.size} bytes at {self.position}",
            "rename": f" to {self.target}",
        }
        return f"{self.name} {self.path}{what.get(self.name, '')}"


@dataclass
class Trace:
    """The initial content of a directory, which is durable, and the calls that followed. `setting` is for the
    test."""

    base: Image
    numbers: dict[str, int]  # of the initial files
    calls: list[Call] = field(default_factory=list)
    setting: Any = None


class _Mapped:
    """A mapped file, with its content according to recorded calls."""

    def __init__(self, path: str, descriptor: int, content: bytes) -> None:
        self.path = path
        self.descriptor = os.dup(descriptor)
        self.content = bytearray(content)


class Recorder:
    """A recorder of the changes that kstore makes below a directory, in a `with` block. `trace` has the
    calls.

    with Recorder(root) as recorder: ...

    The initial content counts as durable. A process has one active recorder at a time. Threads may make calls
    meanwhile.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if not Path(root).is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "a Recorder needs a directory that exists", os.fspath(root)
            )
        self._root = os.path.realpath(root)
        base = Image.of(Path(root))
        self.trace = Trace(base, {path: i for i, path in enumerate(sorted(base.files), 1)})
        self._numbers = dict(self.trace.numbers)  # by present path
        self._directories = {"", *base.directories}
        self._by_inode = {
            Path(self._root, path).stat().st_ino: number for path, number in self._numbers.items()
        }
        self._mapped: dict[int, _Mapped] = {}
        self._lock = threading.RLock()
        self._ended = self._at_work = False

    def __enter__(self) -> Self:
        if not _one.acquire(blocking=False):
            raise RuntimeError("another Recorder is at work in this process")
        self._at_work = True
        trace_calls(self._take)
        return self

    def __exit__(self, *error: object) -> None:
        trace_calls(None)
        if self._at_work:
            self._at_work = False
            _one.release()
        with self._lock:  # a background thread may be recording a call
            self._ended = True
            for mapped in self._mapped.values():
                os.close(mapped.descriptor)
            self._mapped.clear()

    def mark(self, value: object) -> None:
        """Record a value, such as the number of durable records. States of later moments have it."""
        with self._lock:
            self._compare()
            self._add(Call("mark", value=value))

    def _add(self, call: Call) -> None:
        self.trace.calls.append(call)

    def _take(self, name: str, path: str, inode: int, position: int, detail: Any) -> None:
        if os.path.realpath(path) == self._root:
            path = ""
        else:  # the last part of the path may be a link
            path = os.path.relpath(os.path.realpath(Path(path).parent) + "/" + Path(path).name, self._root)
            if path.startswith(".."):
                return
        with self._lock:
            if self._ended:
                return
            self._compare()
            if name == "open":
                self._open(path, inode, detail)
            elif name in ("syncs_directory", "sync_directory"):
                self._add(Call(name, path))
            elif name in ("rename", "unlink", "make_directory"):
                self._name(name, path, detail)
            elif inode in self._by_inode:  # otherwise a removed file that is still open
                self._change_file(name, path, self._by_inode[inode], position, detail)

    def _change_file(self, name: str, path: str, number: int, position: int, detail: Any) -> None:
        """Record a call on a numbered file."""
        if name == "map":
            self._mapped[number] = _Mapped(path, detail, os.pread(detail, os.fstat(detail).st_size, 0))
        elif name == "unmap":
            mapped = self._mapped.pop(number, None)
            if mapped is not None:
                os.close(mapped.descriptor)
        else:
            self._change(name, path, number, position, detail)

    def _name(self, name: str, path: str, detail: Any) -> None:
        """Record a call that changes names."""
        if name == "make_directory":
            self._directories.add(path)
            self._add(Call(name, path))
        elif name == "unlink":
            number = 0 if path in self._directories else self._numbers.pop(path)
            self._directories.discard(path)
            self._add(Call(name, path, number))
        else:
            target = os.path.relpath(os.path.realpath(detail), self._root)
            if path in self._directories:
                self._move_directory(path, target)
                self._add(Call(name, path, target=target))
            else:
                self._numbers[target] = number = self._numbers.pop(path)
                self._add(Call(name, path, number, target=target))

    def _move_directory(self, path: str, target: str) -> None:
        """Change the paths of the content of a renamed directory."""

        def moved(inside: str) -> str:
            return target + inside[len(path) :] if f"{inside}/".startswith(f"{path}/") else inside

        self._directories = {moved(each) for each in self._directories}
        self._numbers = {moved(each): number for each, number in self._numbers.items()}
        for mapped in self._mapped.values():
            mapped.path = moved(mapped.path)

    def _open(self, path: str, inode: int, mode: str) -> None:
        number = self._by_inode.get(inode)
        if number is not None and self._numbers.get(path) == number:
            if mode == "w":
                self._change("truncate", path, number, 0, None)
            return
        if mode == "r+":
            raise LookupError(f"{path} was created without a recorded call")
        if path in self._numbers:  # it was removed without a recorded call
            self._add(Call("unlink", path, self._numbers.pop(path)))
        self._by_inode[inode] = number = len(self.trace.numbers) + len(self.trace.calls) + 1
        self._numbers[path] = number
        self._add(Call("create", path, number))

    def _change(self, name: str, path: str, number: int, position: int, detail: Any) -> None:
        data = detail if name == "write" else b""
        size = detail if name == "allocate" else 0
        mapped = self._mapped.get(number)
        if mapped is not None:
            apply(mapped.content, name, position, data, size)
        self._add(Call(name, path, number, position, data, size))

    def _compare(self) -> None:
        """Record changes of mapped files."""
        for number, mapped in self._mapped.items():
            now = os.pread(mapped.descriptor, len(mapped.content), 0)
            if now != mapped.content[: len(now)]:
                changed = [i for i, (a, b) in enumerate(zip(now, mapped.content, strict=False)) if a != b]
                first, end = changed[0], changed[-1] + 1
                mapped.content[first:end] = now[first:end]
                self._add(Call("write", mapped.path, number, first, now[first:end]))


def apply(content: bytearray, name: str, position: int, data: bytes, size: int) -> None:
    """Apply a call of this name to the content of a file."""
    if name == "write":
        content.extend(bytes(max(position - len(content), 0)))
        content[position : position + len(data)] = data
    elif name == "truncate":
        del content[position:]
        content.extend(bytes(position - len(content)))
    elif name == "allocate":
        content.extend(bytes(max(position + size - len(content), 0)))
