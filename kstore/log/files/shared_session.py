"""The processes that have one partition open for writing together (`shared=True`)."""

import os
import weakref

from kstore.engine.append.shared_end import SharedEnd, file_system_of
from kstore.engine.io.file import File, unlink
from kstore.errors import KstoreError
from kstore.log.files import layout, lock
from kstore.log.files.listing import is_there

_ENTERING = 0  # the byte of the file that a process locks while it enters or leaves
_REWRITING = 1 << 62  # the byte that a process locks while it compacts, erases, or makes key files
_LOCAL_ONLY = "shared=True needs a local file system, because its writers share memory and locks"
# by the number that statfs gives
_REMOTE = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "SMB",
    0x01021997: "9p",
    0x65735546: "FUSE",
    0x5346414F: "AFS",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x786F4256: "VirtualBox",
    0x47504653: "GPFS",
}

_sessions: "weakref.WeakSet[SharedSession]" = weakref.WeakSet()


class SharedSession:
    """The part of this process in a shared log: its number, and its locks on the file kstore-shared.

    A process that has entered locks the byte of its number, which the system unlocks when the process ends.
    From the constructor until `enter`, and from `leave` until `end_with`, no other process enters or leaves.
    """

    def __init__(self, directory: str) -> None:
        """Begins to enter. KstoreError on a file system of the network. OSError."""
        kind = _REMOTE.get(file_system_of(directory))
        if kind is not None:
            raise KstoreError(f"{directory} is on {kind}: {_LOCAL_ONLY}")
        self._path = f"{directory}/{layout.SHARED}"
        self._file = file = _entering(self._path)
        self.is_first = not lock.others_from(file.fd, 1)
        self.was_left = self.is_first and file.size() > 0  # the last process did not close the log cleanly
        self.end: SharedEnd | None = SharedEnd(file, is_first=self.is_first)
        lock.keep_byte(file.fd, self.end.number)
        _sessions.add(self)

    def enter(self) -> None:
        """The log is open here: other processes may enter."""
        lock.keep_no_more(self._file.fd, _ENTERING)

    def leave(self) -> bool:
        """Begins to leave: whether this is the last process."""
        lock.wait_for_byte(self._file.fd, _ENTERING)
        return not lock.others_from(self._file.fd, 1)

    def end_with(self, *, removes: bool) -> None:
        """This process has left. removes: it was the last one, and has closed the log cleanly."""
        if self.end is None:
            return
        if removes:
            unlink(self._path, missing_ok=True)
        lock.keep_no_more(self._file.fd, self.end.number)
        lock.keep_no_more(self._file.fd, _REWRITING)
        lock.keep_no_more(self._file.fd, _ENTERING)
        self.end = None
        _sessions.discard(self)

    def begin_rewriting(self) -> None:
        """Waits until no other process rewrites segments, and keeps others from it."""
        lock.wait_for_byte(self._file.fd, _REWRITING)

    def end_rewriting(self) -> None:
        """Lets other processes rewrite segments."""
        lock.keep_no_more(self._file.fd, _REWRITING)

    def after_fork(self) -> None:
        """In a child of fork: its descriptor must not keep the locks when the parent has ended. Threads that
        the child does not have may refer to the file, so it is replaced, not closed."""
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(nothing, self._file.fd, inheritable=False)
        os.close(nothing)


def remove_left(directory: str) -> None:
    """Removes the file that the processes of a shared log have left when they died. OSError."""
    path = f"{directory}/{layout.SHARED}"
    if is_there(path):
        file = _entering(path)
        if not lock.others_from(file.fd, 1):
            unlink(path)
        lock.keep_no_more(file.fd, _ENTERING)


def _entering(path: str) -> File:
    """The file, made if it is not there, with its byte for entering locked. Who removes the file, has this
    byte locked."""
    while True:
        file = File(path, "a")
        lock.wait_for_byte(file.fd, _ENTERING)
        try:
            if os.path.samestat(os.fstat(file.fd), os.stat(path)):  # noqa: PTH116
                return file
        except FileNotFoundError:
            pass
        lock.keep_no_more(file.fd, _ENTERING)


def _forked() -> None:
    for session in list(_sessions):
        session.after_fork()
    _sessions.clear()


os.register_at_fork(after_in_child=_forked)
