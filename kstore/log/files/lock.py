"""One writer a directory: an fcntl lock on `.lock`, as a Kafka broker takes it (spec 1.8)."""

import contextlib
import errno
import fcntl
import os
import struct
import time
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import TypeVar

from kstore.engine.io.directory import Directory
from kstore.engine.io.file import File
from kstore.engine.io.mutex import Mutex
from kstore.errors import KstoreError, LogLockedError
from kstore.log.files import layout

_FLOCK = struct.Struct("@hhqqi")  # struct flock: type, whence, start, length, pid
_OWN_LENGTH = 1 << 62  # bytes that kstore locks; a broker locks all, so the lock tells whose it is
_LOADED = 0  # the byte of a partition's directory that is locked while a process has loaded the log
_MOST_PAUSE = 0.05  # s, between two looks whether a lock is free
Made = TypeVar("Made")


def holder_of(fd: int, start: int = 0, length: int = 0) -> int | None:
    """The process that holds the lock on this file, or on bytes of it, if the system tells."""
    try:
        found = conflict_in(fd, start, length)
    except (OSError, struct.error):
        return None
    return found[0] if found is not None and found[0] > 0 else None


def conflict_in(fd: int, start: int, length: int) -> tuple[int, int, int] | None:
    """(process, first byte, length) of a lock that another process has there, if there is one. OSError."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, asked)
    kind, _, first, size, pid = _FLOCK.unpack(answer[: _FLOCK.size])
    return None if kind == fcntl.F_UNLCK else (pid, first, size)


def keep_byte(fd: int, byte: int, *, shared: bool = False) -> bool:
    """Locks a byte for the open file, besides the process's own lock on another one: this lock stays if the
    process opens and closes the file once more, and names no holder. False if another open file has it; True,
    too, where there are none. OSError.

    `shared`: other open files may have it as well."""
    kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
    except OSError as e:
        if e.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if e.errno != errno.EINVAL:  # a file system that knows no such locks
            raise
    return True


def keep_no_more(fd: int, byte: int) -> None:
    """Unlocks the byte, also where a child of fork still has the descriptor."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))


class User:
    """One object that uses a lock file. One that is garbage uses it no longer."""


def once_free(make: Callable[[], Made], wait: float, error: type[KstoreError] = LogLockedError) -> Made:
    """What `make` makes, tried again for so many seconds while it raises that error. That error."""
    until = time.monotonic() + wait
    for pause in pauses():
        try:
            return make()
        except error:
            left = until - time.monotonic()
            if left <= 0:
                raise
        time.sleep(min(pause, left))
    raise AssertionError


def pauses() -> Iterator[float]:
    """How many seconds to wait between two looks, without end."""
    pause = 0.001
    while True:
        yield pause
        pause = min(2 * pause, _MOST_PAUSE)


def is_locked(directory: Path) -> bool:
    """Whether a log in this directory, or whose state it keeps, is open for writing, here or in another
    process."""
    return holder_in(directory) is not Holder.NONE


class Holder(Enum):
    """Which program has a directory locked."""

    NONE = 0
    KSTORE = 1
    BROKER = 2


def holder_in(directory: Path) -> Holder:
    """Which program has this directory locked: this process or another."""
    key = os.path.realpath(directory)
    with _guard:  # closing the file would drop the lock that another thread is taking
        if key in _locked:
            return Holder.KSTORE
        try:
            file = File(f"{key}/{layout.LOCK}")
            found = conflict_in(file.fd, 0, 0)
        except (OSError, struct.error):
            return Holder.NONE
        if found is None:
            return Holder.NONE
        return Holder.KSTORE if found[2] == _OWN_LENGTH else Holder.BROKER


class PartitionLock:
    """Keeps a partition directory to one writer by whatever path it is opened, and wherever its state is
    kept; and shows readers that the writer has loaded the log.

    Both locks are on the directory itself, so they need no file: Kafka knows nothing of them. They go with
    this object.
    """

    def __init__(self, directory: Path) -> None:
        self._directory: Directory | None = Directory(str(directory))
        _partition_locks.add(self)
        try:
            fcntl.flock(self._directory.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.drop()
            raise LogLockedError(str(directory), None) from None
        except OSError:  # a file system that knows no such locks
            pass
        except BaseException:  # an interrupt, and who keeps it keeps this object
            self.release()
            raise

    def show_loaded(self) -> None:
        """Shows readers that this process has loaded the log: what is in it, the process has seen or written.
        Where that is not possible, readers check every batch."""
        if self._directory is not None:
            with contextlib.suppress(OSError):
                keep_byte(self._directory.fd, _LOADED, shared=True)

    def is_at(self, directory: Path) -> bool:
        """Whether that path still leads to the directory that was locked."""
        try:
            mine = self._directory
            return mine is not None and os.path.samestat(os.fstat(mine.fd), directory.stat())
        except OSError:
            return False

    @property
    def is_removed(self) -> bool:
        """Whether the directory that was locked is nowhere any more."""
        return self._directory is not None and os.fstat(self._directory.fd).st_nlink == 0

    def release(self) -> None:
        """Unlocks, also where a child of fork still has the descriptor."""
        if self._directory is not None:
            keep_no_more(self._directory.fd, _LOADED)
            with contextlib.suppress(OSError):
                fcntl.flock(self._directory.fd, fcntl.LOCK_UN)
            self.drop()

    def drop(self) -> None:
        """Closes the descriptor, and unlocks unless another process has it too."""
        self._directory = None


_partition_locks: "weakref.WeakSet[PartitionLock]" = weakref.WeakSet()


def is_loaded(partition: Path) -> bool:
    """Whether a process has a partition open for writing, and has loaded it."""
    try:
        directory = Directory(str(partition))
        return conflict_in(directory.fd, _LOADED, 1) is not None
    except (OSError, struct.error):  # a file system that knows no such locks
        return False


_guard = Mutex(inner=True)
_locked: set[str] = set()  # the directories that this process has locked, by real path


def guard() -> Mutex:
    """What is held while `.lock` files are opened and closed. The system lets a process lock a file again
    that it has locked, and drops the lock when any descriptor of the file is closed: so a file is opened once
    a process."""
    return _guard


def lock_directory(directory: str) -> File:
    """Locks a directory, by its real path, with the guard held. LogLockedError if another process has it.
    OSError."""
    path = f"{directory}/{layout.LOCK}"
    while True:  # the file may be removed before it is locked
        file = File(path, "a")
        try:
            fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _OWN_LENGTH)
            _hold(file.fd)
            if os.fstat(file.fd).st_ino == Path(path).stat().st_ino:
                _locked.add(directory)
                return file
        except FileNotFoundError:
            pass
        except BaseException as e:
            unlock_directory(directory, file)  # an exception that is kept keeps the file, too
            if isinstance(e, OSError) and e.errno in (errno.EACCES, errno.EAGAIN):
                raise LogLockedError(path, holder_of(file.fd)) from None
            raise


def unlock_directory(directory: str, file: File) -> None:
    """Gives up both locks of a file, with the guard held: a child may have the descriptor for a moment."""
    for unlock in (fcntl.flock, fcntl.lockf):
        with contextlib.suppress(OSError):
            unlock(file.fd, fcntl.LOCK_UN)
    _locked.discard(directory)


def _hold(fd: int) -> None:
    """Keeps other processes of kstore out, also if this process opens and closes the file once more, to copy
    it for instance: then the system drops an fcntl lock. BlockingIOError."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno == errno.EAGAIN:
            raise
        # else a file system that knows no such locks


def _forget() -> None:
    """A forked child has no lock: what it inherited belongs to its parent."""
    global _guard
    _guard = Mutex(inner=True)
    _locked.clear()
    for lock in list(_partition_locks):
        lock.drop()


os.register_at_fork(after_in_child=_forget)
