"""Commits of a group for one partition."""

import time
from collections.abc import Sequence
from contextlib import suppress

from kstore.errors import CursorLockedError, LogClosedError, LogNotFoundError
from kstore.log.cursors.group_file import Changes, Entries, GroupFile
from kstore.log.cursors.home import Home
from kstore.log.cursors.member_lock import MemberLock, byte_of
from kstore.log.cursors.offset_commits import Commit, OffsetAndMetadata
from kstore.log.files.lock import once_free
from kstore.log.follow.position import Position


def lock_for(home: Home, group: str) -> MemberLock:
    """The right of a group to a partition. CursorLockedError, OSError."""
    tp = home.tp
    return MemberLock(home.directory, group, f"partition {tp}", byte_of(group, tp.topic, tp.partition))


class OffsetCommitter:
    """The right of a group to commit for a partition, which one cursor has at a time, and what was committed
    last. CursorLockedError if another cursor has it after `wait` seconds; LogNotFoundError,
    CorruptRecordError, OSError."""

    def __init__(self, path: str, group: str, wait: float = 0) -> None:
        self.group = group
        self.home = Home.of(path)
        self._lock = once_free(lambda: lock_for(self.home, group), wait)
        try:
            self.file = GroupFile.of(self.home.directory, group, self._lock.file)
            self._id = self.home.make_id(self._lock.file)
            self._id_file = self.home.id_file()
            found = self.file.read().get(self.home.tp)
            self._seen = found  # what was there before
            is_own = found is not None and found.commit.partition_id == self._id
            self.last: Commit | None = found.commit if found is not None and is_own else None
            self.floor = -1 if self.last is None else self.last.position.offset  # no commit goes below it
            self.file.join(self._lock)
        except BaseException:
            self._lock.release()
            raise
        self.is_closed = False
        self.has_left = False  # close() has given the right up

    @property
    def committed(self) -> OffsetAndMetadata | None:
        """What was committed last; None if nothing was."""
        return None if self.last is None else self.last.position

    def check_open(self) -> None:
        """LogClosedError if it was closed."""
        if self.is_closed:
            raise LogClosedError(f"the cursor of group {self.group!r} in {self.home.partition} is closed")

    def check_lock(self) -> None:
        """CursorLockedError if the right was lost."""
        self._lock.check()

    def check(self, entries: Entries) -> None:
        """CursorLockedError if another cursor has committed, or may, since this one has the partition;
        LogNotFoundError if the partition was deleted, or is another one of that name."""
        self.check_open()
        self._lock.check()
        id_file = self.home.id_file()
        if id_file != self._id_file:
            if self.home.known_id() != self._id:
                raise LogNotFoundError(
                    f"{self.home.partition} was deleted, or made anew, since this cursor of group "
                    f"{self.group!r} was opened"
                )
            self._id_file = id_file
        now = entries.get(self.home.tp)
        if now is not None and now.member != self.file.member and now != self._seen:
            raise CursorLockedError(f"{self.home.partition} of group {self.group!r}", None)

    def check_floor(self, offset: int) -> None:
        """ValueError for an offset below the last commit, or the last seek."""
        if offset < self.floor:
            came = (
                "" if self.committed is None or self.floor == self.committed.offset else ", where seek() led"
            )
            raise ValueError(
                f"offset {offset} would move the position of group {self.group!r} backwards from "
                f"{self.floor}{came}: seek() first"
            )

    def commit_of(self, position: Position, metadata: str) -> Commit:
        """A commit of a position, made now."""
        offset, epoch, generation = position
        now = time.time_ns() // 1_000_000
        return Commit(OffsetAndMetadata(offset, epoch, metadata, now), self._id, generation)

    def done(self, commit: Commit | None) -> None:
        """This is what is committed now."""
        self.last, self.floor = commit, -1 if commit is None else commit.position.offset

    def forget(self) -> None:
        """Removes what was committed, durably, with a tombstone. OSError."""
        self.check_open()

        def decide(entries: Entries) -> Changes:
            self.check(entries)
            return {self.home.tp: None}

        self.file.write(decide, lambda: self.done(None), True)

    def close(self) -> None:
        """Gives the right up. What was committed without `durable` is brought to the disk. OSError."""
        self.is_closed = True
        lock = self._lock
        try:
            if lock.is_held and lock.is_of_this_process:
                try:
                    self.file.leave(lock)
                finally:
                    self.file.sync()
        finally:
            lock.release()
            self.has_left = True


def commit_all(commits: Sequence[tuple[OffsetCommitter, Commit]], durable: bool) -> None:
    """Commits positions; those that share a file in one step, with one sync. What Cursor.commit raises."""
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
            committer.check_floor(commit.position.offset)  # once more: another thread may have been here
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
        # What was written nevertheless is committed, or the next commit might go back behind it.
        with suppress(Exception):
            entries = file.read()
            for committer, commit in commits:
                known = entries.get(committer.home.tp)
                if known is not None and known.member == file.member and known.commit == commit:
                    committer.done(commit)
        raise


def _is_same(a: Commit, b: Commit) -> bool:
    """Whether they differ by their times at the most."""
    return (a.partition_id, a.generation, a.position[:3]) == (b.partition_id, b.generation, b.position[:3])
