"""A log directory that one store keeps as a whole: its lock, its clean marker, its checkpoints."""

import os
from collections.abc import Collection
from pathlib import Path

from kstore.engine.io.file import sync_directory, unlink
from kstore.errors import LogFailedError
from kstore.log.files import layout
from kstore.log.files.layout import TopicPartition
from kstore.log.files.lock import DirectoryLock, User
from kstore.log.files.log_dir_state import (
    SESSIONS,
    HeldCheckpoints,
    Session,
    State,
    keep_damaged,
    remove_drafts,
)


class DirectoryKeeper:
    """Holds the lock of a log directory from its making to `leave`, whether or not a partition of it is open.

    Meanwhile the checkpoint files are in memory, and the clean marker is away. LogLockedError if another
    process has the directory, or another store of this one. OSError.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._user = User()
        self._pid = os.getpid()
        self._left = False
        try:
            self._lock = DirectoryLock.acquire(directory, directory, self._user)
        except BaseException:
            if self._user.lock is not None:
                self._user.lock.release(directory, self._user)
            raise
        try:
            with self._lock.writing:
                remove_drafts(directory)
                self.losses = keep_damaged(directory)  # before anything is replaced
                marker = directory / layout.CLEAN_SHUTDOWN
                held = HeldCheckpoints(directory)
                self._session = SESSIONS.setdefault(directory, Session(marker.exists()))
                self.was_clean = self._session.was_clean
                self._session.checkpoints = self._held = held
                unlink(str(marker), missing_ok=True)
                sync_directory(str(directory))
        except BaseException:
            self.leave(clean=False)
            raise

    @property
    def has_left(self) -> bool:
        """Whether the lock was given up, or is another process's."""
        return self._left or os.getpid() != self._pid

    def check_place(self) -> None:
        """LogFailedError if the directory is no longer where it was: another one may be there by now, which
        nobody has locked, or somebody else."""
        if not (self.has_left or self._lock.is_at(self.directory)):
            raise LogFailedError(
                f"{self.directory} was renamed or removed while it was open, or its {layout.LOCK} file was: nothing is "
                "written at this path any more. Close the store, and open it again"
            )

    def check_free(self) -> None:
        """ReentrantCallError if this thread is changing the directory just now."""
        with self._lock.writing:
            pass

    def all_recovered(self) -> None:
        """Every partition of the directory was loaded or is new: those not opened any more are clean."""
        self._session.clean = True

    def failed(self, name: TopicPartition) -> None:
        """A partition could not be recovered, so the directory is not clean."""
        self._session.unclean.add(name)

    def is_written(self, partition: Path) -> bool:
        """Whether this process has a partition of the directory open for writing."""
        return self._lock.has_user(partition)

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Nothing is known of these partitions any more, durably: they are gone, or new. OSError,
        LogFailedError."""
        with self._lock.writing:
            self.check_place()
            self._held.forget(names)
            for name in names:
                self._session.forget(name)

    def store(self) -> None:
        """Writes the checkpoint files, as far as they have changed. OSError, LogFailedError."""
        with self._lock.writing:
            if not self.has_left:
                self.check_place()
                self._held.store()

    def state_of(self, path: Path, name: TopicPartition) -> State:
        """What is known of a partition beside its own files. OSError."""
        with self._lock.writing:
            return self._held.state_of(path, name)

    def log_start_of(self, path: Path, name: TopicPartition) -> int:
        """The log start offset of a partition, as far as the checkpoints tell. OSError."""
        with self._lock.writing:
            return self._held.state_of(path, name).log_start_offset

    def leave(self, *, clean: bool) -> None:
        """Writes the checkpoint files, and the clean marker if all partitions are clean; unlocks.

        If a partition is still open, its closing writes the marker. OSError, LogFailedError: the lock is
        given up all the same, and the directory is not marked as clean. It may be interrupted, and called
        again.
        """
        if self.has_left:
            return
        with self._lock.writing:
            session = SESSIONS.get(self.directory)
            if session is not None and session.checkpoints is not None:
                try:
                    if clean:
                        self._store_clean(session)
                    else:
                        session.clean = False
                except (OSError, LogFailedError):
                    self._give_up(session)
                    raise
            self._give_up(session)

    def _store_clean(self, session: Session) -> None:
        self.check_place()
        self._held.store()
        if not session.is_used:
            session.mark_clean(self.directory)

    def _give_up(self, session: Session | None) -> None:
        """Gives the lock up, once nothing more is to be written."""
        if session is not None:
            session.checkpoints = None
            if not session.is_used:
                SESSIONS.pop(self.directory, None)
        self._lock.release(self.directory, self._user)
        self._left = True

    def __del__(self) -> None:
        try:
            if not self.has_left:
                self._lock.writing.later(self._forget)
        except AttributeError:  # it was not made to its end
            pass

    def _forget(self) -> None:
        """Nobody has closed it, and it is garbage."""
        session = SESSIONS.get(self.directory)
        if session is not None:
            session.clean = False
        self._give_up(session)
