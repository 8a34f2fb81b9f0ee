"""One writer a directory: an fcntl lock on `.lock`, as a Kafka broker takes it (spec 1.8)."""

import errno
import fcntl
import os
import struct
import weakref
from functools import partial
from pathlib import Path

from kstore.engine.file import File
from kstore.engine.guard import Guard
from kstore.errors import LogLockedError
from kstore.log import layout

_FLOCK = struct.Struct("@hhqqi")  # struct flock: type, whence, start, length, pid
_guard = Guard()
_held: dict[str, "DirectoryLock"] = {}


def _holder(fd: int) -> int | None:
    """The process that holds the lock on this file, if the system tells."""
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked)[: _FLOCK.size])
    except (OSError, struct.error):
        return None
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


class User:
    """One log that uses a lock. A log that is garbage uses it no longer, whether it said so or not."""


class DirectoryLock:
    """The lock of one directory, shared by all logs that this process writes in it; the last one to leave unlocks.

    The system lets a process lock a file again that it has locked, and drops the lock when any descriptor of the file
    is closed, so the file is opened once a process and this object is handed round. Every method may be interrupted,
    and called again.
    """

    def __init__(self, directory: str, file: File) -> None:
        self.directory = directory
        self.writing = Guard()  # for the files that its users share
        self._users: dict[str, weakref.ref[User]] = {}  # by partition directory
        self._file: File | None = file
        self._pid = os.getpid()

    @classmethod
    def acquire(cls, directory: Path, partition: Path, user: User) -> "DirectoryLock":
        """Locks `directory` for a log in `partition`. LogLockedError if another process, or that same log, has it."""
        key, name = os.path.realpath(directory), os.path.realpath(partition)
        path = f"{key}/{layout.LOCK}"
        with _guard:
            lock = _held.get(key)
            if lock is None:
                lock = _held[key] = cls(key, _locked(path))
            else:
                known = lock._users.get(name)
                if known is not None and known() is not None:
                    raise LogLockedError(path, os.getpid())
            lock._users[name] = weakref.ref(user)
            return lock

    def release(self, partition: Path, user: User) -> None:
        """Gives the lock up for one log; the file goes with the last."""
        _guard.later(partial(self._drop, os.path.realpath(partition), user))

    def _drop(self, name: str, user: User) -> None:
        known = self._users.get(name)
        if known is None or known() not in (None, user):
            return
        others = any(ref() is not None for ref in self._users.values() if ref is not known)
        if not others and _held.get(self.directory) is self:
            if os.getpid() == self._pid:  # a forked child does not own it
                Path(self.directory, layout.LOCK).unlink(missing_ok=True)
            _held.pop(self.directory, None)
            self._file = None  # closes it
        self._users.pop(name, None)


def _locked(path: str) -> File:
    """The locked file; tried again if it was removed before it was locked."""
    while True:
        file = File(path, "a")
        try:
            fcntl.lockf(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fd).st_ino == Path(path).stat().st_ino:
                return file
        except FileNotFoundError:
            pass
        except OSError as e:
            if e.errno in (errno.EACCES, errno.EAGAIN):
                raise LogLockedError(path, _holder(file.fd)) from None
            raise


def _forget() -> None:
    """A forked child has no lock: what it inherited belongs to its parent."""
    global _guard
    _guard = Guard()
    _held.clear()


os.register_at_fork(after_in_child=_forget)
