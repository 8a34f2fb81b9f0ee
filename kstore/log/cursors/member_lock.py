"""The readers of a group: kernel locks on bytes of one file. The system releases them when the process ends.

A reader locks two bytes. The first has an fcntl lock, so the system names the holder, and a forked child does
not have it. The system drops fcntl locks when the process opens and closes the file again, for example to
copy it. The second byte, _KEPT behind the first, has a lock of the open file, which is not dropped. A hash
selects the byte of a partition, so thousands of partitions need one descriptor.

The file has no content. It is never removed, because two processes could then lock different files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
import weakref
from functools import partial

from kstore.engine.io.file import File
from kstore.engine.io.synchronization import Mutex
from kstore.errors import CursorLockedError, LogClosedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files.lock import User, conflict_in, holder_of, keep_byte, keep_no_more

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from kstore.log.files.layout import TopicPartition

NAME = "kstore-cursors.lock"
_TAKEN = (errno.EACCES, errno.EAGAIN)
_KEPT = 1 << 62
_guard = Mutex()
_files: dict[str, LockFile] = {}
_all: weakref.WeakSet[LockFile] = weakref.WeakSet()  # also files that another program removed


def byte_of(*names: object) -> int:
    """The byte to lock for these names."""
    from hashlib import blake2b  # imported here, because it loads OpenSSL

    digest = blake2b("\0".join(map(str, names)).encode(), digest_size=8).digest()
    return 1 + (int.from_bytes(digest, "big") >> 3)


def explain_refusal(error: OSError) -> None:
    """Add a note that a cursor writes, because the user may expect that it only reads."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        error.add_note(
            "a cursor keeps the position of its group beside the partition, and an id in it: it needs the "
            "right to write there"
        )


class LockFile:
    """The lock file of one directory. A process opens it once, because the system drops the locks of a
    process when any descriptor of the file is closed. The last user that leaves closes it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.mutex = Mutex()
        self.pid = os.getpid()
        self.held: dict[int, tuple[User, weakref.ref[MemberLock]]] = {}  # each with the token of the holder
        self.shared: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # by group
        try:
            self.file: File | None = File(path, "a")  # None when it is closed
        except OSError as e:
            explain_refusal(e)
            raise
        self._users: weakref.WeakSet[User] = weakref.WeakSet()
        _all.add(self)

    @classmethod
    def of(cls, directory: str) -> LockFile:
        """The lock file of a directory, created if it is missing. The caller holds the guard. OSError."""
        path = f"{directory}/{NAME}"
        known = _files.get(path)
        if known is None or not known.is_there():
            known = _files[path] = cls(path)
        return known

    def enter(self, user: User) -> None:
        """Add a user, which must leave the file. The caller holds the guard."""
        self._users.add(user)

    def leave(self, user: User) -> None:
        """Remove a user, and close the file after the last one."""
        _guard.later(partial(self._leave, user))

    def _leave(self, user: User) -> None:
        if self.pid == os.getpid() and all(other is user for other in self._users):
            if _files.get(self.path) is self:
                del _files[self.path]
            self.file = None
        self._users.discard(user)

    def forget(self) -> None:
        """Close the file in a forked child, before the child has a lock that closing would drop."""
        self.file, self.mutex = None, Mutex()
        for group in list(self.shared.values()):
            group.forget()

    @property
    def fd(self) -> int:
        """The descriptor. LogClosedError in a forked child, because the locks are its parent's, and if the
        file is closed."""
        if self.file is None:
            if os.getpid() != self.pid:
                raise LogClosedError(
                    f"{self.path} is used by a cursor of process {self.pid}, the parent of this one"
                )
            raise LogClosedError(f"{self.path} is closed")
        return self.file.fd

    def is_there(self) -> bool:
        """Whether the path still leads to this file. OSError."""
        return self.file is not None and self.file.is_at(self.path)

    def lock(self, byte: int, *, wait: bool = False) -> bool:
        """Lock a byte. False if another process has it and `wait` is False. OSError."""
        while True:
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
            except OSError as e:
                # two processes wait for each other; both release their locks soon
                if wait and e.errno == errno.EDEADLK:
                    time.sleep(0.001)
                    continue
                if e.errno in _TAKEN:
                    return False
                raise
            return True

    def unlocker(self, byte: int) -> Callable[[], None]:
        """A callable that unlocks a byte. It is C code, which no signal handler interrupts."""
        return partial(fcntl.lockf, self.fd, fcntl.LOCK_UN, 1, byte)

    def taken(self, start: int, count: int) -> list[int]:
        """The locked bytes of a range, in order, by this process or another. OSError."""
        found = {byte for byte in list(self.held) if start <= byte < start + count and self.is_mine(byte)}
        for behind in (0, _KEPT):
            ranges = [(start + behind, start + behind + count)]
            while ranges:
                first, end = ranges.pop()
                other = conflict_in(self.fd, first, end - first) if first < end else None
                if other is not None:  # the system names any one lock in the range
                    low, high = max(other[1], first), min(other[1] + other[2], end)
                    found.update(range(low - behind, high - behind))
                    ranges += [(first, low), (high, end)]
        return sorted(found)

    def share(self, byte: int) -> None:
        """Take a shared lock on a byte. OSError."""
        keep_byte(self.fd, byte + _KEPT, shared=True)

    def share_no_more(self, byte: int) -> None:
        """Release a shared lock on a byte."""
        keep_no_more(self.fd, byte + _KEPT)

    def is_shared(self, byte: int) -> bool:
        """Whether any process, this one included, has a shared lock on a byte. OSError."""
        return conflict_in(self.fd, byte + _KEPT, 1) is not None

    def is_mine(self, byte: int) -> bool:
        """Whether this process has locked the byte."""
        known = self.held.get(byte)
        return known is not None and known[1]() is not None


class MemberLock:
    """The lock with which one cursor reads and commits for a group in a partition. It ends with this
    object."""

    file: LockFile  # from `take` on

    def __init__(self, directory: str, group: str, what: str, byte: int) -> None:
        self._directory = directory
        self._byte = byte
        self._token = User()
        self._name = f"{directory}: {what} of group {group!r}"

    @classmethod
    def of_partition(cls, directory: str, group: str, tp: TopicPartition) -> MemberLock:
        """The lock of a partition for a group."""
        return cls(directory, group, f"partition {tp}", byte_of(group, tp.topic, tp.partition))

    def take(self) -> None:
        """Lock it. After any exception, and at the end, the caller calls `release`. CursorLockedError,
        OSError."""
        byte = self._byte
        with _guard:
            file = self.file = LockFile.of(self._directory)
            file.enter(self._token)
        with file.mutex:
            if file.is_mine(byte):
                raise CursorLockedError(self._name, os.getpid())
            file.held[byte] = (self._token, weakref.ref(self))
            if not keep_byte(file.fd, byte + _KEPT) or not file.lock(byte):
                holder = holder_of(file.fd, byte, 1)
                self.release()  # so that it may be called again
                raise CursorLockedError(self._name, holder)

    def check(self) -> None:
        """Take the lock again if the system has dropped it. CursorLockedError if another process has taken
        it; LogClosedError if it was released, or belongs to the parent of this process."""
        file = self.file
        if not self.is_held:
            raise LogClosedError(f"{self._name} is closed")
        if not file.lock(self._byte):
            raise CursorLockedError(self._name, holder_of(file.fd, self._byte, 1))

    @property
    def is_held(self) -> bool:
        """Whether the lock is held: it was not released."""
        held = self.file.held.get(self._byte) if "file" in self.__dict__ else None
        return held is not None and held[0] is self._token

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process took the lock, rather than its parent before a fork."""
        return self.file.pid == os.getpid()

    def release(self) -> None:
        """Release the lock, at once or when this thread releases the mutex of the file. May be called before
        `take`, and again."""
        if "file" in self.__dict__:
            self.file.mutex.later(partial(_drop, self.file, self._byte, self._token))

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():  # at the end the system releases the lock
            self.release()


def _drop(file: LockFile, byte: int, token: User) -> None:
    known = file.held.get(byte)
    if known is not None and known[0] is token:
        # The garbage collector may call this after the file was closed: its users are weak references.
        if file.pid == os.getpid() and file.file is not None:
            file.unlocker(byte)()
            keep_no_more(file.fd, byte + _KEPT)
        del file.held[byte]  # last, so that an interrupted call is repeated
    file.leave(token)


def _forget() -> None:
    """Drop all lock files in a forked child: the locks belong to its parent."""
    global _guard
    _guard = Mutex()
    for file in list(_all):
        file.forget()
    _files.clear()


os.register_at_fork(after_in_child=_forget)
