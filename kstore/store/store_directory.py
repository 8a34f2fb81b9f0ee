"""One log directory of a store: what lies in it, and how partitions come and go there (spec 1.1)."""

from __future__ import annotations

import errno
import os
import time
from contextlib import nullcontext, suppress

from kstore.engine.io.directory import (
    make_directory,
    make_empty_directory,
    remove_directory,
    rename,
    sync_directory,
    unlink,
)
from kstore.engine.io.file import File, read_whole
from kstore.errors import KstoreError, LogLockedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout
from kstore.log.files.lock import PartitionLock
from kstore.log.files.log_directory import WholeLease
from kstore.log.partition import PartitionLog
from kstore.properties import parse_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Unpack

    from kstore.log.files.layout import TopicPartition
    from kstore.log.files.log_directory import LogDirectory
    from kstore.remote.tiered_log import RemoteDirectories
    from kstore.typed import ReaderOptions

TICK = 100_000_000  # ns: within it a directory may change twice and keep its time


class StoreDirectory:
    """A log directory of a store: `partitions` are those in use, `others` names of directories that are none,
    `deleted` those of them that wait to be removed.

    For writing it is made if it is missing, and locked. What fails with an OSError is out of use from then
    on: `failure` says why, and it holds no partitions.
    """

    def __init__(self, path: Path, remote: RemoteDirectories | None = None) -> None:
        """remote: where segments of its partitions were shipped to, for reading."""
        self.path = path
        self.remote = remote
        self.failure = ""
        self._lease: WholeLease | None = None
        self.partitions: list[TopicPartition] = []
        self.others: list[str] = []
        self.deleted: list[str] = []
        # its time of change then; -1 if it had just changed, so that more may have come at that time
        self.listed_at = -1

    def open(self, *, writing: bool, shared: bool = False) -> None:
        """Locks it, for writing, and lists what is there. After any exception the caller calls `release`.
        LogLockedError, LogNotFoundError."""
        path = self.path
        if not (writing or path.is_dir()):
            raise LogNotFoundError(f"no log directory at {path}")
        try:
            if writing:
                refuse_partition(path)
                make_directory(str(path))
                self._lease = WholeLease(path, shared=shared)
                self._lease.take()
            self.read_names()
        except KstoreError:
            raise
        except OSError as e:
            self.release()
            self.fail(str(e))

    def fail(self, reason: str) -> None:
        """Takes the directory out of use."""
        self.failure = self.failure or reason
        self.partitions, self.others, self.deleted = [], [], []

    def open_to_read(self, tp: TopicPartition, **options: Unpack[ReaderOptions]) -> PartitionLog:
        """A partition, for reading. LogNotFoundError, CorruptFileError, OSError."""
        path = self.path_of(tp)
        return PartitionLog(path, **options) if self.remote is None else self.remote.log(tp, path, **options)

    def read_names(self) -> None:
        """Lists what is in the directory now. OSError, LogNotFoundError."""
        self.partitions, self.others, self.deleted = [], [], []
        changed = self.path.stat().st_mtime_ns
        if time.time_ns() - changed > TICK:
            self.listed_at = changed
        with os.scandir(self.path) as entries:
            names = sorted(entry.name for entry in entries if _is_directory(entry))
        for name in names:
            if layout.is_partition_name(name):
                tp = layout.parse_directory(name)
                assert tp is not None
                self.partitions.append(tp)
            else:
                self.others.append(name)
                if name.endswith("-delete") and layout.parse_directory(name) is not None:
                    self.deleted.append(name)
        if not self.partitions:
            refuse_partition(self.path)

    @property
    def closed_cleanly(self) -> bool:
        """Whether it has the marker of a clean shutdown."""
        return (self.path / layout.CLEAN_SHUTDOWN).exists()

    def meta(self) -> dict[str, str]:
        """What meta.properties says; empty if there is no such file."""
        try:
            return parse_properties(read_whole(str(self.path / layout.META_PROPERTIES)))
        except FileNotFoundError:
            return {}

    def path_of(self, tp: TopicPartition) -> str:
        """The path of a partition."""
        return os.path.join(self.path, str(tp))

    def gone(self) -> list[TopicPartition]:
        """Partitions in use whose directories were removed or renamed. OSError."""
        known = list(self.partitions)
        names = set(os.listdir(self.path))
        return [tp for tp in known if str(tp) not in names]

    def release(self) -> None:
        """Unlocks it as it was found. If that fails, the next opening recovers it."""
        with suppress(OSError):
            self.leave(clean=self.was_clean)

    def leave(self, *, clean: bool) -> None:
        """Unlocks it, if it was locked; marked as clean if all partitions are. OSError, LogFailedError."""
        if self._lease is not None:
            self._lease.leave(clean=clean and not self.failure)

    @property
    def was_clean(self) -> bool:
        """Whether all partitions were left clean before it was locked."""
        return self._lease is not None and self._lease.was_clean

    @property
    def losses(self) -> Sequence[str]:
        """What damaged checkpoints have lost, as sentences, if it was locked."""
        return self._lease.losses if self._lease is not None else ()

    @property
    def held(self) -> LogDirectory:
        """Its lock, session and checkpoints."""
        assert self._lease is not None
        assert self._lease.directory is not None
        return self._lease.directory

    # ---- changing ------------------------------------------------------------------------------------------

    def make(self, partitions: Iterable[TopicPartition]) -> None:
        """Makes the directories of these partitions, as far as they are missing, durably. OSError,
        LogFailedError."""
        wanted = list(partitions)
        missing = [tp for tp in wanted if not os.path.isdir(self.path_of(tp))]
        self.held.forget(set(missing))  # a partition of that name may have been here once
        for tp in missing:
            try:
                make_empty_directory(self.path_of(tp))
            except FileExistsError:
                text = "is in the way of a new partition: move it away, then open the store for writing again"
                raise FileExistsError(errno.EEXIST, text, self.path_of(tp)) from None
        for tp in wanted:  # the file by which a partition without records is known
            path = self.path_of(tp)
            if not os.listdir(path):
                File(f"{path}/{layout.LEADER_EPOCHS}", "a").sync()
                sync_directory(path)
        sync_directory(str(self.path))
        self.partitions += [tp for tp in wanted if tp not in set(self.partitions)]

    def refuse_writers(self, partitions: Iterable[TopicPartition]) -> None:
        """LogLockedError if one of these partitions is open for writing: in this process, or in another that
        had opened it before the directory was a store's. Who comes later asks for the lock of the
        directory."""
        for path in map(self.path_of, partitions):
            if self.held.has_writer(path):
                raise LogLockedError(path, os.getpid())
            if os.path.isdir(path) and not self.held.is_shared:
                lock = PartitionLock(path)
                try:
                    lock.take(shared=False)
                    lock.release()
                finally:
                    lock.release()  # if an interrupt has broken that off

    def set_aside(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes partitions out of use: their directories get names that end in -delete, durably. OSError,
        LogFailedError."""
        self.held.check_place()
        gone = set(partitions)
        for tp in sorted(gone):
            if os.path.isdir(self.path_of(tp)):
                name = layout.deleted_name(tp)
                with self._alone_in(tp):
                    rename(self.path_of(tp), f"{self.path}/{name}")
                self.deleted.append(name)
                self.others.append(name)
        sync_directory(str(self.path))
        self.partitions = [tp for tp in self.partitions if tp not in gone]
        self.held.forget(gone)

    def _alone_in(self, tp: TopicPartition) -> AbstractContextManager[None]:
        """Keeps other processes out of a partition that is being deleted."""
        if not self.held.is_shared:
            return nullcontext()
        from kstore.log.files.shared_session import deleting

        return deleting(self.path_of(tp))

    def remove(self, name: str) -> None:
        """Removes a directory that was set aside, and what is in it; of a link, only the link. OSError,
        LogFailedError."""
        self.held.check_place()
        directory = self.path / name
        try:
            if directory.is_symlink():
                unlink(str(directory))
            else:
                _remove(directory)
        except FileNotFoundError:
            pass
        for names in (self.deleted, self.others):
            if name in names:  # it is not, if this was interrupted before
                names.remove(name)


def refuse_partition(path: Path) -> None:
    """LogNotFoundError for the directory of a partition."""
    marks = (layout.LEADER_EPOCHS, "partition.metadata")
    if any(layout.segment_offset(file.name) is not None for file in path.glob("*.log")) or (
        layout.is_partition_name(path.name) and any((path / name).exists() for name in marks)
    ):
        raise LogNotFoundError(
            f"{path} is a partition, not a log directory: give the directory around it, or open it with "
            "kstore.open"
        )


def _remove(directory: Path) -> None:
    with os.scandir(directory) as entries:
        found = list(entries)
    for entry in found:
        if entry.name == layout.SHARES and entry.is_dir(follow_symlinks=False):
            _remove(directory / entry.name)
            continue
        if entry.is_dir(follow_symlinks=False):
            raise NotADirectoryError(f"{entry.path} is a directory in a partition that is to be removed")
        unlink(entry.path, missing_ok=True)
    remove_directory(str(directory))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as e:
        if e.errno == errno.ELOOP:  # a link that leads to itself is nothing
            return False
        raise
