"""One writer a directory: an fcntl lock on `.lock`, as a Kafka broker takes it (spec 1.8)."""

import errno
import fcntl
import os
import struct
from functools import partial
from pathlib import Path

from kstore.errors import LogLockedError
from kstore.log import layout
from kstore.log.guard import Guard

_FLOCK = struct.Struct("@hhqqi")  # struct flock: type, whence, start, length, pid
_guard = Guard()
_held: dict[str, "DirectoryLock"] = {}


def _holder(fd: int) -> int | None:
    """The process that holds the lock on this file, where the system tells."""
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked)[: _FLOCK.size])
    except (OSError, struct.error):
        return None
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


class DirectoryLock:
    """The lock of one directory, shared by all logs that this process writes in it; the last one to leave unlocks.

    The system lets a process lock a file again that it has locked, and drops the lock when any descriptor of the file
    is closed, so the file is opened once a process and this object is handed round.
    """

    def __init__(self, directory: str, fd: int) -> None:
        self.directory = directory
        self.users: set[str] = set()  # the partition directories
        self.writing = Guard()  # for the files that its users share
        self._fd = fd
        self._pid = os.getpid()

    @classmethod
    def acquire(cls, directory: Path, user: Path) -> "DirectoryLock":
        """Locks `directory` for a log in `user`. LogLockedError where another process, or that same log, has it."""
        key, partition = os.path.realpath(directory), os.path.realpath(user)
        path = f"{key}/{layout.LOCK}"
        with _guard:
            lock = _held.get(key)
            if lock is None:
                lock = _held[key] = cls(key, _locked(path))
            elif partition in lock.users:
                raise LogLockedError(path, os.getpid())
            lock.users.add(partition)
            return lock

    def release(self, user: Path) -> None:
        """Gives the lock up for one log; the file goes with the last."""
        _guard.later(partial(self._drop, os.path.realpath(user)))

    def _drop(self, partition: str) -> None:
        self.users.discard(partition)
        if self.users or _held.get(self.directory) is not self:
            return
        del _held[self.directory]
        if os.getpid() == self._pid:  # a forked child does not own it
            Path(self.directory, layout.LOCK).unlink(missing_ok=True)
        os.close(self._fd)


def _locked(path: str) -> int:
    """A descriptor of the locked file; tried again where the file was removed before it was locked."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_ino == Path(path).stat().st_ino:
                return fd
        except FileNotFoundError:
            pass
        except OSError as e:
            pid = _holder(fd)
            os.close(fd)
            if e.errno in (errno.EACCES, errno.EAGAIN):
                raise LogLockedError(path, pid) from None
            raise
        os.close(fd)


def _forget() -> None:
    """A forked child has no lock: what it inherited belongs to its parent."""
    global _guard
    _guard = Guard()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
