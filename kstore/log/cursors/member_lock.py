"""Who reads for a group: kernel locks on bytes of one file, which go with the process that holds them.

They are fcntl locks, so the system names the holder, and a forked child has none. The system drops them all
when the process opens and closes the file once more, to copy it for instance: so who has a byte also has a
lock of the kind that stays, on the byte that lies _KEPT behind it. Which byte stands for what is a hash, so
thousands of partitions take one descriptor. The file holds nothing and stays: to remove it would make two of
it. It grows by one byte, which takes no room, whenever somebody takes a lock in it, or puts a new file of
positions in the place of one: who finds it as long as before has lost none, and knows the file.
"""

import errno
import fcntl
import os
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from kstore.engine.io.file import File
from kstore.engine.io.mutex import Mutex
from kstore.errors import CursorLockedError, LogClosedError
from kstore.log.files.lock import User, conflict_in, holder_of, keep_byte, keep_no_more

NAME = "kstore-cursors.lock"
_TAKEN = (errno.EACCES, errno.EAGAIN)
_CLAIMS = 0  # the byte that is locked while the file grows
_KEPT = 1 << 62
_guard = Mutex()
_files: "dict[str, LockFile]" = {}
_all: "weakref.WeakSet[LockFile]" = weakref.WeakSet()  # those that were removed by others, too


def byte_of(*names: object) -> int:
    """The byte that stands for something that has these names."""
    from hashlib import blake2b  # which loads OpenSSL

    digest = blake2b("\0".join(map(str, names)).encode(), digest_size=8).digest()
    return 1 + (int.from_bytes(digest, "big") >> 3)


def explain_refusal(error: OSError) -> None:
    """Says in a note who needed the file that may not be written, as the user may have meant only to read."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        error.add_note(
            "a cursor keeps the position of its group beside the partition, and an id in it: it needs the "
            "right to write there"
        )


class LockFile:
    """The lock file of one directory. A process opens it once, because the system drops the locks of a
    process when any descriptor of the file is closed. It is closed when its last user has left."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.mutex = Mutex()
        self.pid = os.getpid()
        self.held: dict[int, tuple[User, weakref.ref[MemberLock]]] = {}  # with what the holder is known by
        self.shared: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()  # by group
        try:
            self.file: File | None = File(path, "a")  # None when it is closed
        except OSError as e:
            explain_refusal(e)
            raise
        self._users: weakref.WeakSet[User] = weakref.WeakSet()
        _all.add(self)

    @classmethod
    def of(cls, directory: str, user: User) -> "LockFile":
        """The one of a directory, made if it is missing, for a user, who has to leave it. OSError."""
        path = f"{directory}/{NAME}"
        with _guard:
            known = _files.get(path)
            if known is None or not known.is_there():
                known = cls(path)
            try:
                known._users.add(user)
                _files[path] = known
                return known
            except BaseException:  # an interrupt: nobody knows that it is to be left
                known._leave(user)
                raise

    def leave(self, user: User) -> None:
        """Closes the file after its last user."""
        _guard.later(partial(self._leave, user))

    def _leave(self, user: User) -> None:
        if self.pid == os.getpid() and all(other is user for other in self._users):
            if _files.get(self.path) is self:
                del _files[self.path]
            self.file = None
        self._users.discard(user)

    def forget(self) -> None:
        """In a forked child, before it has any lock that closing the descriptor would drop."""
        self.file, self.mutex = None, Mutex()
        for group in list(self.shared.values()):
            group.forget()

    @property
    def fd(self) -> int:
        """The descriptor. LogClosedError in a forked child, because the locks are its parent's, and if the
        file is closed."""
        if os.getpid() != self.pid:
            raise LogClosedError(
                f"{self.path} is used by a cursor of process {self.pid}, the parent of this one"
            )
        if self.file is None:
            raise LogClosedError(f"{self.path} is closed")
        return self.file.fd

    def is_there(self) -> bool:
        """Whether the path still leads to this file."""
        return self.claims() >= 0

    def claims(self) -> int:
        """How often somebody has taken a lock in it: the same number as before means that nobody has since;
        -1 if the path does not lead to this file any more."""
        try:
            mine, there = os.fstat(self.fd), os.stat(self.path)  # noqa: PTH116 - commits ask
            return mine.st_size if os.path.samestat(there, mine) else -1
        except OSError:
            return -1

    def claim(self) -> int:
        """Lets all who use the file look at what they know: a lock is taken, or a file of positions gives way
        to another. The mutex is held. How many claims there were before. OSError."""
        self.mutex.later(self.unlocker(_CLAIMS))
        self.lock(_CLAIMS, wait=True)
        assert self.file is not None
        before: int = self.file.size()
        self.file.truncate(before + 1)
        return before

    def lock(self, byte: int, *, wait: bool = False) -> bool:
        """Locks a byte. False if another process has it; who waits waits for it. OSError."""
        while True:
            try:
                fcntl.lockf(self.fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
            except OSError as e:
                # between threads of two processes: neither holds on for long
                if wait and e.errno == errno.EDEADLK:
                    time.sleep(0.001)
                    continue
                if e.errno in _TAKEN:
                    return False
                raise
            return True

    def unlocker(self, byte: int) -> Callable[[], None]:
        """What gives a byte up. It is C code, which no signal interrupts."""
        return partial(fcntl.lockf, self.fd, fcntl.LOCK_UN, 1, byte)

    def taken(self, start: int, count: int) -> list[int]:
        """Which of these bytes somebody has, here or in another process, in order. OSError."""
        found = {byte for byte in list(self.held) if start <= byte < start + count and self.is_mine(byte)}
        for behind in (0, _KEPT):
            ranges = [(start + behind, start + behind + count)]
            while ranges:
                first, end = ranges.pop()
                other = conflict_in(self.fd, first, end - first) if first < end else None
                if other is not None:  # any of those in this range
                    low, high = max(other[1], first), min(other[1] + other[2], end)
                    found.update(range(low - behind, high - behind))
                    ranges += [(first, low), (high, end)]
        return sorted(found)

    def share(self, byte: int) -> None:
        """Locks a byte that others may lock as well: this process is one of those that do what it stands for.
        OSError."""
        keep_byte(self.fd, byte + _KEPT, shared=True)

    def share_no_more(self, byte: int) -> None:
        """Gives such a byte up."""
        keep_no_more(self.fd, byte + _KEPT)

    def is_shared(self, byte: int) -> bool:
        """Whether any process shares a byte, this one too. OSError."""
        return conflict_in(self.fd, byte + _KEPT, 1) is not None

    def is_mine(self, byte: int) -> bool:
        """Whether somebody in this process has the byte."""
        known = self.held.get(byte)
        return known is not None and known[1]() is not None


class MemberLock:
    """The right to read and commit for a group in a partition. It goes with this object."""

    def __init__(self, directory: str, group: str, what: str, byte: int) -> None:
        self._byte = byte
        self._token = User()
        self._name = f"{directory}: {what} of group {group!r}"
        try:
            file = self.file = LockFile.of(directory, self._token)
        except BaseException:  # an interrupt: it may be one of the users already
            known = _files.get(f"{directory}/{NAME}")
            if known is not None:
                known.leave(self._token)
            raise
        try:
            with file.mutex:
                if file.is_mine(byte):
                    raise CursorLockedError(self._name, os.getpid())
                file.held[byte] = (self._token, weakref.ref(self))
                if not keep_byte(file.fd, byte + _KEPT) or not file.lock(byte):
                    raise CursorLockedError(self._name, holder_of(file.fd, byte, 1))
                file.claim()
        except BaseException:  # who keeps an interrupt keeps this object, too
            self.release()
            raise

    def check(self) -> None:
        """Takes the lock again if the system has dropped it. CursorLockedError if another process has it now;
        LogClosedError if it was released, or belongs to the parent of this process."""
        file = self.file
        fd = file.fd
        if not self.is_held:
            raise LogClosedError(f"{self._name} is closed")
        if not file.lock(self._byte):
            raise CursorLockedError(self._name, holder_of(fd, self._byte, 1))

    @property
    def is_held(self) -> bool:
        """Whether it was not released."""
        held = self.file.held.get(self._byte)
        return held is not None and held[0] is self._token

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was not inherited by fork."""
        return self.file.pid == os.getpid()

    def release(self) -> None:
        """Gives it up, at once or when this thread is through with what it does in the file. May be called
        again."""
        self.file.mutex.later(partial(_drop, self.file, self._byte, self._token))

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if hasattr(self, "file") and not ends():  # then modules are empty, and the system gives the lock up
            self.release()


def _drop(file: LockFile, byte: int, token: User) -> None:
    known = file.held.get(byte)
    if known is not None and known[0] is token:
        # Garbage may be collected after the file was closed: its users are known by weak references.
        if file.pid == os.getpid() and file.file is not None:
            file.unlocker(byte)()
            keep_no_more(file.fd, byte + _KEPT)
        del file.held[byte]  # last: who is interrupted does it again
    file.leave(token)


def _forget() -> None:
    """A forked child has no lock: what it inherited belongs to its parent."""
    global _guard
    _guard = Mutex()
    for file in list(_all):
        file.forget()
    _files.clear()


os.register_at_fork(after_in_child=_forget)
