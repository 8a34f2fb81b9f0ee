"""Committing the position of a group in one partition."""

from __future__ import annotations

import time
from contextlib import suppress

from kstore.errors import CursorLockedError, LogClosedError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.cursors.group_file import GroupFile
from kstore.log.cursors.home import Home
from kstore.log.cursors.member_lock import MemberLock
from kstore.log.cursors.offset_commits import Commit, OffsetAndMetadata
from kstore.log.files.lock import once_free

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kstore.log.cursors.group_file import Changes, Entries, Entry
    from kstore.log.follow.position import Position


class OffsetCommitter:
    """Commits of one cursor for a group in a partition, under a lock that one cursor has at a time.

    LogNotFoundError if there is no such partition.
    """

    file: GroupFile  # from `open` on

    def __init__(self, path: str, group: str) -> None:
        self.group = group
        self.home = Home.of(path)
        self._lock = MemberLock.of_partition(self.home.directory, group, self.home.tp)
        self._id = b""
        self._seen: Entry | None = None  # the entry at the opening
        self.last: Commit | None = None
        self.floor = -1  # the lowest offset that may be committed
        self.is_closed = False
        self.has_left = False  # close() has released the lock

    def open(self, wait: float = 0) -> None:
        """Take the lock, and read the last commit. After any exception the caller calls `close`.

        CursorLockedError if another cursor still has the lock after `wait` seconds; LogNotFoundError,
        CorruptRecordError, OSError.
        """
        once_free(self._lock.take, wait)
        self.file = GroupFile.of(self.home.directory, self.group, self._lock.file)
        self._id = self.home.make_id()
        found = self._seen = self.file.read().get(self.home.tp)
        if found is not None and found.commit.partition_id == self._id:
            self.last, self.floor = found.commit, found.commit.position.offset
        self.file.join(self._lock)

    @property
    def committed(self) -> OffsetAndMetadata | None:
        """The last committed position, or None."""
        return None if self.last is None else self.last.position

    def check_open(self) -> None:
        """Raise LogClosedError if the cursor is closed."""
        if self.is_closed:
            raise LogClosedError(f"the cursor of group {self.group!r} in {self.home.partition} is closed")

    def check_lock(self) -> None:
        """Raise CursorLockedError if the lock was lost."""
        self._lock.check()

    def check(self, entries: Entries) -> None:
        """Raise CursorLockedError if another cursor has taken the lock or has committed since this one has
        the partition; LogNotFoundError if the partition was deleted, or created again."""
        self.check_open()
        self._lock.check()
        self.check_place()
        now = entries.get(self.home.tp)
        if now is not None and now.member != self.file.member and now != self._seen:
            raise CursorLockedError(f"{self.home.partition} of group {self.group!r}", None)

    def check_place(self) -> None:
        """Raise LogNotFoundError if the partition was deleted, or created again, since this was made."""
        if self.home.known_id() != self._id:
            raise LogNotFoundError(
                f"{self.home.partition} was deleted, or made anew, since this cursor of group "
                f"{self.group!r} was opened"
            )

    def check_floor(self, offset: int) -> None:
        """Raise ValueError for an offset below the last commit or the last seek."""
        if offset < self.floor:
            came = (
                "" if self.committed is None or self.floor == self.committed.offset else ", where seek() led"
            )
            raise ValueError(
                f"offset {offset} would move the position of group {self.group!r} backwards from "
                f"{self.floor}{came}: seek() first"
            )

    def commit_of(self, position: Position, metadata: str) -> Commit:
        """A commit of a position with the present time."""
        now = time.time_ns() // 1_000_000
        saved = OffsetAndMetadata(position.offset, position.leader_epoch, metadata, now)
        return Commit(saved, self._id, position.generation)

    def done(self, commit: Commit | None) -> None:
        """Note a commit that was written; None if it was removed."""
        self.last, self.floor = commit, -1 if commit is None else commit.position.offset

    def forget(self) -> None:
        """Remove the committed position, durably, with a tombstone. OSError."""
        self.check_open()

        def decide(entries: Entries) -> Changes:
            self.check(entries)
            return {self.home.tp: None}

        self.file.write(decide, lambda: self.done(None), True)

    def close(self) -> None:
        """Release the lock, after a sync of commits that were not durable. OSError."""
        self.is_closed = True
        lock = self._lock
        try:
            if lock.is_held and lock.is_of_this_process and "file" in self.__dict__:
                try:
                    self.file.leave(lock)
                finally:
                    self.file.sync()
        finally:
            lock.release()
            self.has_left = True


def commit_all(commits: Sequence[tuple[OffsetCommitter, Commit]], durable: bool) -> None:
    """Commit positions, those in one file in one step and with one sync. Raises what Cursor.commit raises."""
    by_file: dict[GroupFile, list[tuple[OffsetCommitter, Commit]]] = {}
    for committer, commit in commits:
        committer.check_open()
        committer.check_floor(commit.position.offset)
        by_file.setdefault(committer.file, []).append((committer, commit))
    for file, group in by_file.items():
        _commit(file, group, durable)


def _commit(file: GroupFile, commits: Sequence[tuple[OffsetCommitter, Commit]], durable: bool) -> None:
    def decide(entries: Entries) -> Changes:
        changes = {}
        for committer, commit in commits:
            committer.check(entries)
            committer.check_floor(commit.position.offset)  # again: another thread may have committed
            known = entries.get(committer.home.tp)
            if known is None or not _is_same(known.commit, commit):
                changes[committer.home.tp] = commit
        return changes

    def done() -> None:
        for committer, commit in commits:
            committer.done(commit)

    try:
        file.write(decide, done, durable)
    except BaseException:
        # The commit may have been written. Note it then, or the next commit might move backwards.
        with suppress(Exception):
            entries = file.read()
            for committer, commit in commits:
                known = entries.get(committer.home.tp)
                if known is not None and known.member == file.member and known.commit == commit:
                    committer.done(commit)
        raise


def _is_same(a: Commit, b: Commit) -> bool:
    """Whether two commits differ in their times only."""
    return (a.partition_id, a.generation, a.position[:3]) == (b.partition_id, b.generation, b.position[:3])
