"""The processes that have one partition open for writing together (`shared=True`)."""

from __future__ import annotations

import contextlib
import os
import weakref

from kstore.engine.append.shared_end import SharedEnd, file_system_of
from kstore.engine.io.directory import unlink
from kstore.engine.io.file import File
from kstore.errors import KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.files import layout, lock
from kstore.log.files.listing import is_there

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kstore.typed import StrPath

_ENTERING = 0  # the byte of the file that a process locks while it enters or leaves
_REWRITING = 1 << 62  # the byte that a process locks while it compacts, erases, or makes key files
_LOCAL_ONLY = "needs a local file system, because processes share memory and locks"
# By the number that statfs returns: those of linux/magic.h and of GNU coreutils' list of remote ones.
_REMOTE = {
    0x6969: "NFS",
    0x517B: "SMB",
    0xFE534D42: "SMB",
    0xFF534D42: "SMB",
    0x01021997: "9p",
    0x65735546: "FUSE",
    0x5346414F: "AFS",
    0x6B414653: "AFS",
    0x00C36400: "Ceph",
    0x0BD00BD0: "Lustre",
    0x01161970: "GFS2",
    0x7461636F: "OCFS2",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
    0xAAD7AAEA: "PanFS",
    0x20030528: "OrangeFS",
    0x73757245: "Coda",
    0x564C: "NCP",
    0x61636673: "ACFS",
    0xBEEFDEAD: "SNFS",
    0x13661366: "IBRIX",
    0xA501FCF5: "VxFS",
    0x786F4256: "VirtualBox",
    0xBACBACBC: "VMware",
    0x7C7C6673: "Parallels",
}

_sessions: weakref.WeakSet[SharedSession] = weakref.WeakSet()


class SharedSession:
    """The part of this process in a shared log: its number, and its locks on the file kstore-shared.

    A process that has entered locks the byte of its number, which the system unlocks when the process ends.
    From `begin` until `enter`, and from `leave` until `end_here`, no other process enters or leaves,
    and none renames the directory to delete its topic.
    """

    is_first = False
    was_left = False  # whether the last process did not close the log cleanly
    has_entered = False
    end: SharedEnd | None = None
    _file: File

    def __init__(self, directory: str) -> None:
        self._path = f"{directory}/{layout.SHARED}"

    def begin(self) -> None:
        """Begins to enter. After any exception the caller calls `end_here`. OSError."""
        while True:  # the last process that leaves removes the file
            self._file = file = _opened(self._path)
            _sessions.add(self)  # before it has a lock, which a child of fork must not keep
            lock.wait_for_byte(file.fd, _ENTERING)
            if self.is_at_path():
                break
            lock.keep_no_more(file.fd, _ENTERING)
        self.is_first = not lock.others_from(file.fd, 1)
        self.was_left = self.is_first and file.size() > 0
        self.end = SharedEnd(file, is_first=self.is_first)
        lock.keep_byte(file.fd, self.end.number)

    def is_at_path(self) -> bool:
        """Whether the path leads to the file that is open here."""
        return self._file.is_at(self._path)

    def enter(self) -> None:
        """The log is open here, or closing it was interrupted: other processes may enter and leave."""
        if self.end is not None:
            self.has_entered = True
            lock.keep_no_more(self._file.fd, _ENTERING)

    def leave(self) -> bool:
        """Begins to leave: whether this is the last process."""
        lock.wait_for_byte(self._file.fd, _ENTERING)
        return not lock.others_from(self._file.fd, 1)

    def remove_file(self) -> None:
        """This is the last process, and it has closed the log cleanly. OSError."""
        if self.end is not None:
            unlink(self._path, missing_ok=True)

    def end_here(self) -> None:
        """This process has left, or has not been able to enter. May be called again, and before `begin`."""
        if "_file" not in self.__dict__:
            return
        if self.end is not None:
            if self.is_first and not self.has_entered and not self.was_left:
                with contextlib.suppress(OSError):
                    self.remove_file()
            lock.keep_no_more(self._file.fd, self.end.number)
        lock.keep_no_more(self._file.fd, _REWRITING)
        lock.keep_no_more(self._file.fd, _ENTERING)
        self.end = None
        _sessions.discard(self)

    def begin_rewriting(self) -> bool:
        """Whether no other process rewrites segments. Then this keeps others from it."""
        return lock.keep_byte(self._file.fd, _REWRITING)

    def end_rewriting(self) -> None:
        """Lets other processes rewrite segments."""
        lock.keep_no_more(self._file.fd, _REWRITING)

    def after_fork(self) -> None:
        """In a child of fork: its descriptor must not keep the locks when the parent has ended."""
        lock.detach(self._file)


def require_local(*places: StrPath, what: str = "shared=True") -> None:
    """KstoreError if one of these directories, which need not exist yet, is on a file system of the
    network."""
    for place in places:
        path = os.path.realpath(place)
        while not os.path.exists(path):
            path = os.path.dirname(path)
        kind = _REMOTE.get(file_system_of(path))
        if kind is not None:
            raise KstoreError(f"{os.fspath(place)} is on {kind}: {what} {_LOCAL_ONLY}")


@contextlib.contextmanager
def deleting(directory: str) -> Iterator[None]:
    """The topic of a partition was deleted: here its directory is renamed. No process enters or leaves
    meanwhile, and those that have the log open do nothing more with it. OSError."""
    session = SharedSession(directory)
    try:
        session.begin()
        if session.end is not None:
            session.end.mark_deleted()
        yield
    finally:
        session.end_here()


def _opened(path: str) -> File:
    try:
        return File(path, "a")
    except FileNotFoundError:  # the topic was deleted meanwhile
        raise LogNotFoundError(f"no partition directory at {os.path.dirname(path)}") from None


def remove_left(directory: str) -> None:
    """Removes the file of processes that have died, for a writer that does not share the log. OSError."""
    path = f"{directory}/{layout.SHARED}"
    if is_there(path):
        file = File(path, "a")
        # A process that enters and finds the log locked removes it itself.
        if lock.keep_byte(file.fd, _ENTERING) and not lock.others_from(file.fd, 1):
            unlink(path, missing_ok=True)


def _forked() -> None:
    for session in list(_sessions):
        session.after_fork()
    _sessions.clear()


os.register_at_fork(after_in_child=_forked)
