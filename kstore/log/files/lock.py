"""One writer for each directory: an fcntl lock on `.lock`, as a Kafka broker takes it (spec 1.8)."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
import weakref

from kstore.engine.io.directory import Directory
from kstore.engine.io.file import File
from kstore.engine.io.synchronization import Mutex
from kstore.errors import LogLockedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Literal, TypeVar

    from kstore.errors import KstoreError
    from kstore.typed import StrPath

    _Made = TypeVar("_Made")

_FLOCK = struct.Struct("@hhqqi")  # struct flock: type, whence, start, length, pid
_OWN_LENGTH = 1 << 62  # bytes that kstore locks; a broker locks all, so the length identifies the holder
_SHARED_LENGTH = 1 << 61  # bytes that writers with `shared` lock
# Bytes of .lock that one of them locks: while it changes the checkpoint files, or the topics, and while it
# does the maintenance of a store.
CHECKPOINTS, TOPICS, UPKEEP = ((1 << 62) + i for i in range(3))
# Bytes that all of them share, as locks of the open file: one that has entered, and one that is entering.
# A process that dies loses these locks later than the others.
_MEMBER, _ENTERING = ((1 << 62) + i for i in (8, 9))
_LOADED = 0  # the byte of a partition's directory that its writer locks once it has loaded the log
_MOST_PAUSE = 0.05  # s, between two attempts to lock
_MOST_DYING = 2.0  # s between the moments at which a process that ends loses its locks
_MOST_ENTERING = 10.0  # s that another writer may take to enter a directory


def holder_of(fd: int, start: int = 0, length: int = 0) -> int | None:
    """The process that holds the lock on a file, or on bytes of it; None if the system does not report it."""
    try:
        found = conflict_in(fd, start, length)
    except (OSError, struct.error):
        return None
    return found[0] if found is not None and found[0] > 0 else None


def conflict_in(fd: int, start: int, length: int) -> tuple[int, int, int] | None:
    """(process, first byte, length) of a conflicting lock of another process, or None. OSError."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, asked)
    kind, _, first, size, pid = _FLOCK.unpack(answer[: _FLOCK.size])
    return None if kind == fcntl.F_UNLCK else (pid, first, size)


def keep_byte(fd: int, byte: int, *, shared: bool = False) -> bool:
    """Lock a byte for the open file. Unlike a lock of the process, this lock stays if the process opens and
    closes the file again; but the system does not name its holder.

    False if another open file has locked it. True also on a file system without such locks. OSError.
    `shared`: other open files may share the lock.
    """
    kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
    except OSError as e:
        if e.errno in (errno.EACCES, errno.EAGAIN):
            return False
        if e.errno != errno.EINVAL:  # a file system without such locks
            raise
    return True


def keep_no_more(fd: int, byte: int) -> None:
    """Unlock the byte, even if a forked child has the descriptor."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, byte, 1, 0))


class User:
    """A user of a lock file, which holds weak references to its users."""


def once_free(make: Callable[[], _Made], wait: float, error: type[KstoreError] = LogLockedError) -> _Made:
    """The result of `make`, which is called again for `wait` seconds while it raises `error`."""
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
    """The seconds to wait between attempts, without end."""
    pause = 0.001
    while True:
        yield pause
        pause = min(2 * pause, _MOST_PAUSE)


def is_locked(directory: StrPath) -> bool:
    """Whether a log in this directory, or one whose checkpoints are in it, is open for writing in any
    process."""
    return holder_in(directory) is not None


def holder_in(directory: StrPath) -> Literal["kstore", "broker"] | None:
    """The program that has a directory locked, in this process or another, or None."""
    key = os.path.realpath(directory)
    with _guard:  # closing the file would drop the lock that another thread is taking
        if key in _locked:
            return "kstore"
        try:
            file = File(f"{key}/{layout.LOCK}")
            found = conflict_in(file.fd, 0, 0)
        except (OSError, struct.error):
            return None
        if found is None:
            return None
        return "kstore" if found[2] in (_OWN_LENGTH, _SHARED_LENGTH) else "broker"


class PartitionLock:
    """The lock of the writer of a partition. It holds whatever path is opened and wherever the checkpoints
    are, and it also shows readers that the writer has loaded the log.

    Both locks are on the directory itself and need no file. Kafka does not use them. They end with this
    object.
    """

    def __init__(self, directory: StrPath) -> None:
        self._path = str(directory)
        self._directory: Directory | None = Directory(self._path)
        _partition_locks.add(self)

    def take(self, *, shared: bool) -> None:
        """Lock it. After any exception the caller calls `release`. LogLockedError."""
        assert self._directory is not None
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._directory.fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            self.drop()
            raise LogLockedError(self._path, None) from None
        except OSError:  # a file system without such locks
            pass

    def check_alone(self) -> None:
        """LogLockedError if another process has the directory too, although the file in which those that
        share it find each other says that there is none. One that dies may have it for a moment."""
        directory = self._directory
        assert directory is not None
        until = time.monotonic() + _MOST_DYING
        for pause in pauses():
            try:
                fcntl.flock(directory.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise LogLockedError(self._path, None) from None
            except OSError:  # a file system without such locks
                return
            else:
                fcntl.flock(directory.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            time.sleep(pause)

    def show_loaded(self) -> None:
        """Show readers that this process has loaded the log, so that they trust the indexes. If the file
        system has no such locks, readers check every batch."""
        if self._directory is not None:
            with contextlib.suppress(OSError):
                keep_byte(self._directory.fd, _LOADED, shared=True)

    def is_at(self, directory: StrPath) -> bool:
        """Whether a path still leads to the locked directory."""
        try:
            mine = self._directory
            return mine is not None and os.path.samestat(os.fstat(mine.fd), os.stat(directory))
        except OSError:
            return False

    @property
    def is_removed(self) -> bool:
        """Whether the locked directory was removed."""
        return self._directory is not None and os.fstat(self._directory.fd).st_nlink == 0

    def release(self) -> None:
        """Unlock, even if a forked child has the descriptor. May be called again."""
        if self._directory is not None:
            keep_no_more(self._directory.fd, _LOADED)
            with contextlib.suppress(OSError):
                fcntl.flock(self._directory.fd, fcntl.LOCK_UN)

    def drop(self) -> None:
        """Close the descriptor, which unlocks unless a forked child has it."""
        self._directory = None


_partition_locks: weakref.WeakSet[PartitionLock] = weakref.WeakSet()


def is_loaded(partition: StrPath) -> bool:
    """Whether a process has a partition open for writing, and has loaded it."""
    try:
        directory = Directory(str(partition))
        return conflict_in(directory.fd, _LOADED, 1) is not None
    except (OSError, struct.error):  # a file system without such locks
        return False


_guard = Mutex(inner=True)
_locked: set[str] = set()  # the directories that this process has locked, by real path


def guard() -> Mutex:
    """The mutex to hold while `.lock` files are opened and closed. A process opens such a file once, because
    the system drops its lock when any descriptor of the file is closed."""
    return _guard


class DirectoryLock:
    """The lock of a log directory, by its real path. The caller holds the guard. `held`: the file, once it is
    locked."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._file: File | None = None
        self.held: File | None = None

    def take(self, *, shared: bool) -> bool:
        """Lock it. After any exception the caller calls `release`. LogLockedError if another process has it.
        OSError.

        shared: only processes that do not share it are kept out. The result is whether no process has it but
        this one: then others wait until `enter`.
        """
        path = f"{self._directory}/{layout.LOCK}"
        while True:  # another process may remove the file before it is locked
            file = self._file = File(path, "a")
            is_alone = True
            try:
                if shared:
                    is_alone = _enter_shared(file)
                else:
                    fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _OWN_LENGTH)
                _hold(file.fd, shared=shared)
                if shared:
                    keep_byte(file.fd, _ENTERING if is_alone else _MEMBER, shared=True)
                is_there = file.is_at(path)
            except OSError as e:
                if e.errno in (errno.EACCES, errno.EAGAIN):
                    raise LogLockedError(path, holder_of(file.fd)) from None
                raise
            if is_there:
                _locked.add(self._directory)
                self.held = file
                return is_alone

    def enter(self) -> None:
        """This process was alone, and what it shares is ready: lets others enter, too."""
        assert self._file is not None
        keep_byte(self._file.fd, _MEMBER, shared=True)
        _let_others_in(self._file)

    def is_last(self) -> bool:
        """Whether no other process has it locked: then none can enter before this one has released it, and
        what they share may be removed."""
        if self.held is None or not lock_alone(self.held):
            return False
        keep_byte(self.held.fd, _ENTERING, shared=True)
        keep_no_more(self.held.fd, _MEMBER)
        return True

    def release(self) -> None:
        """Release all locks of the file; a forked child may have its descriptor. May be called again."""
        if self._file is not None:
            for byte in (_MEMBER, _ENTERING):
                keep_no_more(self._file.fd, byte)
            for unlock in (fcntl.flock, fcntl.lockf):
                with contextlib.suppress(OSError):
                    unlock(self._file.fd, fcntl.LOCK_UN)
            _locked.discard(self._directory)
            self._file = self.held = None

    def close_in_child(self) -> None:
        """Close the descriptor in a forked child, so that the lock ends with its parent."""
        self._file = self.held = None


def _enter_shared(file: File) -> bool:
    """Lock the file for a shared writer: whether no other process has it locked. BlockingIOError if one has
    that does not share it.

    A process is not alone only if another one has entered, and so made ready what they share: the one that
    kept it out may have ended before.
    """
    until = time.monotonic() + _MOST_ENTERING
    for pause in pauses():
        if lock_alone(file):
            return True
        try:
            fcntl.lockf(file.fd, fcntl.LOCK_SH | fcntl.LOCK_NB, _SHARED_LENGTH)
        except OSError as e:
            if e.errno not in (errno.EACCES, errno.EAGAIN) or time.monotonic() > until:
                raise
            found = conflict_in(file.fd, 0, 0)
            if found is not None and found[2] != _SHARED_LENGTH:
                raise
        else:
            if others_from(file.fd, _MEMBER, 1):
                return False
            fcntl.lockf(file.fd, fcntl.LOCK_UN, _SHARED_LENGTH)
            if time.monotonic() > until:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        time.sleep(pause)
    raise AssertionError


def lock_alone(file: File) -> bool:
    """Whether no other process has this file locked: then none can lock it before `enter`."""
    try:
        fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_LENGTH)
    except OSError as e:
        if e.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        return False
    if others_from(file.fd, _MEMBER):  # a process that has closed the file once more lost the other lock
        _let_others_in(file)
        return False
    return True


def _let_others_in(file: File) -> None:
    fcntl.lockf(file.fd, fcntl.LOCK_SH | fcntl.LOCK_NB, _SHARED_LENGTH)


@contextlib.contextmanager
def holding(file: File, byte: int) -> Iterator[None]:
    """Of the processes that have the file open, only one is inside."""
    wait_for_byte(file.fd, byte)
    try:
        yield
    finally:
        keep_no_more(file.fd, byte)


def wait_for_byte(fd: int, byte: int) -> None:
    """Lock a byte for the open file, once no other open file has it locked. OSError."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))


def detach(file: File) -> None:
    """In a child of fork: lets the descriptor of a file lead nowhere, so that locks of the parent end with
    the parent. Threads that the child does not have may refer to the file, so it is replaced, not closed.
    OSError."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, file.fd, inheritable=False)
    os.close(nothing)


def others_from(fd: int, byte: int, length: int = 0) -> bool:
    """Whether another open file has one of so many bytes from this one on locked, 0: of all. OSError."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, length, 0)
    kind, *_ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)[: _FLOCK.size])
    return bool(kind != fcntl.F_UNLCK)


def _hold(fd: int, *, shared: bool) -> None:
    """Lock the open file, too. If this process opens and closes the file again, for example to copy it, the
    system drops the fcntl lock but not this one. BlockingIOError."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as e:
        if e.errno == errno.EAGAIN:
            raise
        # else a file system without such locks


def _forget() -> None:
    """Drop all locks in a forked child: they belong to its parent."""
    global _guard
    _guard = Mutex(inner=True)
    _locked.clear()
    for lock in list(_partition_locks):
        lock.drop()


os.register_at_fork(after_in_child=_forget)
