"""The directory that a copy is made in: beside its destination, whose place it takes at the end.

DST.copying is being made, DST is complete. A destination that is already there is a copy of an earlier run:
the new one shares its unchanged segments by hard links, then the two are exchanged in one step. Where the
file system cannot do that, two renames do it. Between them, the older copy is called DST.previous, and the
next run puts it back.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil

from kstore.copying.exchange import exchange
from kstore.copying.manifest import NAME, CopiedFile, Journal, files_below, read_manifest_of_copy
from kstore.engine.io.directory import make_directory, rename, sync_directory, unlink
from kstore.engine.io.file import File
from kstore.errors import KstoreError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.log_dir_state import locate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kstore.copying.manifest import Identity
    from kstore.log.read.progress import ProgressCallback

COPYING, PREVIOUS = ".copying", ".previous"
_LOCK = ".kstore-copying"
_MARGIN = 1 << 20  # bytes that stay free


class Destination:
    """A copy that is being made. `path` is its directory until `finish`, `final` its place then."""

    def __init__(
        self,
        final: str,
        source: str,
        progress: ProgressCallback | None = None,
        *,
        copying: str = "",
        previous: str = "",
    ) -> None:
        self.final = final
        self.path = copying or final + COPYING
        self._previous = previous or final + PREVIOUS
        self.manifest = f"{final}/{NAME}"
        self._source = source
        self._progress = progress
        self._done = self._total = 0
        self._before: Mapping[str, CopiedFile] = {}
        self._partitions: set[str] = set()  # folders of the earlier copy
        self._lock: File | None = None

    def begin(self, folders: Collection[str]) -> None:
        """Checks what is at the destination and takes over what an interrupted run has left. `folders`: those
        of the partitions to copy, "" for the destination itself. FileExistsError, KstoreError, OSError."""
        make_directory(self.path)
        lock = File(f"{self.path}/{_LOCK}", "a")
        try:
            fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_there = os.stat(lock.path).st_ino == os.fstat(lock.fd).st_ino
        except (BlockingIOError, FileNotFoundError):
            is_there = False
        if not is_there:
            raise KstoreError(f"{self.path}: another process is making this copy now")
        self._lock = lock
        previous = self._previous
        if not os.path.lexists(self.final) and os.path.lexists(previous):
            rename(previous, self.final)
        self._before = self._earlier_copy()
        self._partitions = _partitions_in(self._before)
        self._require_all(folders)
        if os.path.lexists(previous):
            shutil.rmtree(previous)
        try:
            known = read_manifest_of_copy(f"{self.path}/{NAME}")
        except (FileNotFoundError, KstoreError):
            known = {}
        segments = [each for each in known.values() if each.source and each.is_unchanged(self.path)]
        self._journal = Journal(f"{self.path}/{NAME}", self._source, segments)

    def release(self) -> None:
        """Unlocks it, for the next run, or removes it if nothing was copied."""
        if self._lock is not None:
            with contextlib.suppress(OSError):  # it may be complete, at its place
                if {NAME, _LOCK}.issuperset(os.listdir(self.path)):
                    shutil.rmtree(self.path)
            fcntl.flock(self._lock.fd, fcntl.LOCK_UN)

    def _earlier_copy(self) -> Mapping[str, CopiedFile]:
        try:
            names = os.listdir(self.final)
        except FileNotFoundError:
            return {}
        if not names:
            return {}
        if NAME not in names:
            raise FileExistsError(
                errno.EEXIST, "is there and is no copy that kstore made: choose another place", self.final
            )
        files = read_manifest_of_copy(self.manifest)
        gone = {name for name in _partitions_in(files) if name and name not in names}  # it may be removed
        files = {path: entry for path, entry in files.items() if path.partition("/")[0] not in gone}
        changed = [path for path, entry in files.items() if not entry.is_unchanged(self.final)]
        changed += [path for path in files_below(self.final) if path.endswith(".log") and path not in files]
        if changed:
            raise FileExistsError(
                errno.EEXIST,
                f"was changed since it was copied ({changed[0]}), and would be replaced: choose another "
                "place",
                self.final,
            )
        return files

    def _require_all(self, folders: Collection[str]) -> None:
        """FileExistsError if the earlier copy has a partition that is not in one of the folders."""
        lost = sorted(self._partitions.difference(folders))
        if lost:
            names = ", ".join(name or os.path.basename(self.final) for name in lost)
            raise FileExistsError(
                errno.EEXIST,
                f"has partitions that this run does not copy, and would lose them ({names}): choose another "
                "destination, or remove their directories from the copy if they are to go",
                self.final,
            )

    # ---- files ---------------------------------------------------------------------------------------------

    def path_of(self, name: str) -> str:
        """The path of a folder of the copy; "" for the copy itself."""
        return f"{self.path}/{name}" if name else self.path

    def has(self, path: str) -> bool:
        """Whether a path leads into the copy, or into an earlier one that is at its place."""
        return f"{os.path.abspath(path)}/".startswith((f"{self.path}/", f"{self.final}/"))

    def number_of(self, name: str) -> int:
        """The number of the partition that a folder of the copy is."""
        return locate(f"{self.final}/{name}" if name else self.final).name.partition

    def clear(self, name: str, sealed: Mapping[str, Identity]) -> None:
        """Removes what an earlier attempt, or an interrupted run, has left in a folder; not the folders of
        partitions in it. Segments that were copied from what is in the source now stay: `sealed` has its
        sealed segments by stem. OSError."""
        folder, kept = self.path_of(name), {NAME, _LOCK}
        for path in [path for path in self._journal.segments if os.path.dirname(path) == name]:
            stem = os.path.basename(path).removesuffix(".log")
            if self._journal.segments[path].source == sealed.get(stem):
                kept.update(stem + kind for kind in layout.SEGMENT_KINDS)
            else:
                self._journal.forget(path)
        # without its .log, no run takes over a segment
        for each in sorted(os.listdir(folder), key=lambda each: not each.endswith(".log")):
            path = f"{folder}/{each}"
            if os.path.isdir(path):
                if not layout.is_partition_name(each):
                    shutil.rmtree(path)
            elif each not in kept:
                unlink(path)

    def reuse(self, name: str, stem: str, source: Identity) -> bool:
        """Whether an earlier run, or an attempt of this one, has copied this sealed segment: then the copy
        has its files. OSError."""
        path = f"{name}/{stem}.log" if name else f"{stem}.log"
        if path in self._journal.segments:
            return True
        entry = self._before.get(path)
        if entry is None or entry.source != source or not entry.is_unchanged(self.final):
            return False
        for kind in layout.SEGMENT_KINDS:
            old = f"{self.final}/{path[:-4]}{kind}"
            if os.path.exists(old):
                _link(old, f"{self.path}/{path[:-4]}{kind}")
        self._journal.add(entry._replace(mtime_ns=os.stat(f"{self.path}/{path}").st_mtime_ns))
        return True

    def note(self, name: str, file: str, source: Identity) -> None:
        """Notes that a sealed segment is complete. OSError."""
        path = f"{name}/{file}" if name else file
        self._journal.add(CopiedFile.at(self.path, path, source))

    def earlier(self, name: str) -> str:
        """The path of a folder in the earlier copy at the place; "" if that has no such partition."""
        if name not in self._partitions:
            return ""
        return f"{self.final}/{name}" if name else self.final

    def keep_file(self, name: str) -> bool:
        """Takes over a file of the earlier copy as it is there, if there is one. OSError."""
        if name not in self._before:
            return False
        unlink(f"{self.path}/{name}", missing_ok=True)
        _link(f"{self.final}/{name}", f"{self.path}/{name}")
        return True

    def keep(self, name: str) -> None:
        """Takes over the folder of a partition from the earlier copy, as it is there. OSError."""
        shutil.rmtree(self.path_of(name), ignore_errors=True)
        for path in [path for path in self._journal.segments if os.path.dirname(path) == name]:
            self._journal.forget(path)
        for path, entry in self._before.items():
            if path.startswith(f"{name}/"):
                make_directory(os.path.dirname(f"{self.path}/{path}"))
                _link(f"{self.final}/{path}", f"{self.path}/{path}")
                if entry.source is not None:
                    self._journal.add(entry)

    # ---- progress and space --------------------------------------------------------------------------------

    def plan(self, total: int) -> None:
        """Notes how many bytes there are to copy, or to reuse."""
        self._total = total

    def expect(self, size: int, name: str = "") -> None:
        """OSError (ENOSPC) unless there is space for so many bytes of a folder, some of which may be
        reused."""
        entries = {**self._before, **self._journal.segments}
        under = f"{name}/" if name else ""
        known = sum(entry.size for path, entry in entries.items() if entry.source and path.startswith(under))
        free = shutil.disk_usage(self.path).free
        if size - known + _MARGIN > free:
            text = (
                f"{size - known} bytes are to be copied, and only {free} are free, "
                f"of which {_MARGIN} stay free"
            )
            raise OSError(errno.ENOSPC, text, self.path)

    def advance(self, size: int) -> None:
        """Notes that so many bytes were copied, or reused."""
        self._done += size
        if self._progress is not None:
            self._progress(self._done, max(self._total, self._done))

    # ---- the end -------------------------------------------------------------------------------------------

    def finish(self, folders: Collection[str]) -> None:
        """Writes the manifest, and moves the copy to its place. `folders`: those of the partitions that were
        copied, "" for the destination itself. FileExistsError, OSError."""
        self._require_all(folders)
        for name in os.listdir(self.path):
            path = f"{self.path}/{name}"
            if os.path.isdir(path) and name not in folders and not ("" in folders and name == layout.SHARES):
                shutil.rmtree(path)  # of a partition that an interrupted run has copied
        self._journal.finish(self.path, _LOCK)
        sync_directory(self.path)
        if os.path.lexists(self.final):
            self._replace()
        else:
            rename(self.path, self.final)
        unlink(f"{self.final}/{_LOCK}", missing_ok=True)  # no earlier: it keeps others out
        sync_directory(os.path.dirname(self.final))

    def _replace(self) -> None:
        """Puts the copy in the place of an older one, which is removed."""
        old = File(f"{self.final}/{_LOCK}", "a")
        fcntl.flock(old.fd, fcntl.LOCK_EX)  # else another run could go on with the older one
        try:
            exchange(self.path, self.final)
            shutil.rmtree(self.path)
        except OSError as e:
            if e.errno not in (errno.ENOSYS, errno.EINVAL):
                raise
            rename(self.final, self._previous)
            rename(self.path, self.final)
            shutil.rmtree(self._previous)
        finally:
            fcntl.flock(old.fd, fcntl.LOCK_UN)


def _partitions_in(files: Iterable[str]) -> set[str]:
    """The folders of the partitions to which files of a copy belong, "" for the copy itself."""
    split = (path.rpartition("/") for path in files)
    folders = {folder for folder, _, name in split if layout.segment_offset(name) is not None}
    return {name for name in folders if not name or layout.is_partition_name(name)}


def _link(old: str, new: str) -> None:
    try:
        os.link(old, new)
    except OSError as e:
        if e.errno not in (errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        source, copy = File(old), File(new, "x")
        copy.begin_as(source, source.size())
        copy.sync()
        os.utime(new, ns=(os.stat(old).st_atime_ns, os.stat(old).st_mtime_ns))
