"""Who reads for a group: kernel locks on bytes of one file, which go with the process that holds them.

They are fcntl locks, so the system names the holder, and a forked child has none. Which byte stands for what is a hash, so
thousands of partitions take one descriptor. The file is empty and stays: to remove it would make two of it.
"""

import errno
import fcntl
import os
import time
import weakref
from functools import partial
from hashlib import blake2b
from pathlib import Path

from kstore.engine.io.file import File
from kstore.engine.io.mutex import Mutex
from kstore.errors import CursorLockedError, LogClosedError
from kstore.log.files.lock import holder_of

NAME = "kstore-cursors.lock"
_TAKEN = (errno.EACCES, errno.EAGAIN)
_guard = Mutex()
_files: "dict[str, LockFile]" = {}


def byte_of(*names: object) -> int:
    """The byte that stands for something that has these names."""
    digest = blake2b("\0".join(map(str, names)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2


class LockFile:
    """The lock file of one directory. A process opens it once, because the system drops the locks of a process when any
    descriptor of the file is closed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.mutex = Mutex()
        self.file = File(path, "a")
        self.pid = os.getpid()
        self.held: dict[int, tuple[object, weakref.ref[MemberLock]]] = {}  # with what the holder is known by

    @classmethod
    def of(cls, directory: str) -> "LockFile":
        """The one of a directory, made if it is missing. OSError."""
        path = f"{directory}/{NAME}"
        with _guard:
            known = _files.get(path)
            if known is None or not known.is_there():
                known = _files[path] = cls(path)
            return known

    def check_process(self) -> None:
        """LogClosedError in a forked child: the locks are its parent's."""
        if os.getpid() != self.pid:
            raise LogClosedError(f"{self.path} is used by a cursor of process {self.pid}, the parent of this one")

    def is_there(self) -> bool:
        """Whether the path still leads to this file."""
        try:
            return os.path.samestat(Path(self.path).stat(), os.fstat(self.file.fd))
        except OSError:
            return False

    def lock(self, byte: int, *, wait: bool = False) -> bool:
        """Locks a byte. False if another process has it; who waits waits for it. OSError."""
        while True:
            try:
                fcntl.lockf(self.file.fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
            except OSError as e:
                if wait and e.errno == errno.EDEADLK:  # between threads of two processes: neither holds on for long
                    time.sleep(0.001)
                    continue
                if e.errno in _TAKEN:
                    return False
                raise
            return True

    def unlock(self, byte: int) -> None:
        """Gives a byte up."""
        if self.pid == os.getpid():
            fcntl.lockf(self.file.fd, fcntl.LOCK_UN, 1, byte)

    def is_held(self, byte: int) -> bool:
        """Whether somebody has the byte, here or in another process."""
        return self.is_mine(byte) or holder_of(self.file.fd, byte, 1) is not None

    def is_mine(self, byte: int) -> bool:
        """Whether somebody in this process has the byte."""
        known = self.held.get(byte)
        return known is not None and known[1]() is not None


class MemberLock:
    """The right to read and commit for a group in a partition. It goes with this object."""

    def __init__(self, directory: str, group: str, what: str, byte: int) -> None:
        self._file = LockFile.of(directory)
        self._byte = byte
        self._token = object()
        self._name = f"{directory}: {what} of group {group!r}"
        file = self._file
        with file.mutex:
            if file.is_mine(byte):
                raise CursorLockedError(self._name, os.getpid())
            file.held[byte] = (self._token, weakref.ref(self))  # first: who is interrupted now unlocks it
            taken = False
            try:
                taken = file.lock(byte)
            finally:
                if not taken:
                    del file.held[byte]
            if not taken:
                raise CursorLockedError(self._name, holder_of(file.file.fd, byte, 1))

    def check(self) -> None:
        """CursorLockedError unless the lock is still this object's."""
        file = self._file
        mine = file.held.get(self._byte)
        file.check_process()
        if mine is None or mine[0] is not self._token:
            raise LogClosedError(f"{self._name} is closed")
        if not file.lock(self._byte):
            raise CursorLockedError(self._name, holder_of(file.file.fd, self._byte, 1))

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was not inherited by fork."""
        return self._file.pid == os.getpid()

    def release(self) -> None:
        """Gives it up, at once or when this thread is through with what it does in the file."""
        self._file.mutex.later(partial(_drop, self._file, self._byte, self._token))

    def __del__(self) -> None:
        if hasattr(self, "_token"):
            self.release()


def _drop(file: LockFile, byte: int, token: object) -> None:
    known = file.held.get(byte)
    if known is not None and known[0] is token:
        del file.held[byte]
        file.unlock(byte)


def _forget() -> None:
    """A forked child has no lock: what it inherited belongs to its parent."""
    global _guard
    _guard = Mutex()
    _files.clear()


os.register_at_fork(after_in_child=_forget)
