"""Expiry of the positions of groups without readers: Kafka's offsets.retention.minutes."""

from __future__ import annotations

import contextlib
import os

from kstore.errors import CursorLockedError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.cursors.group_file import GroupFile, has_left, note_reader, path_of, read_positions
from kstore.log.cursors.member_lock import MemberLock

if TYPE_CHECKING:
    from kstore.log.cursors.group_file import Changes, Entries
    from kstore.log.files.layout import TopicPartition


def expire(
    directory: str, group: str, retention_ms: int, now: int, *, dry_run: bool = False
) -> list[TopicPartition]:
    """Remove the positions of a group in a directory, durably, if the group has had no reader there for
    `retention_ms`. Returns their partitions; an empty list if the group has a reader. CorruptRecordError,
    OSError.

    The time counts from the departure of the last member, as in Kafka. A member that closes its cursor sets
    the time of the file. A member that was killed cannot: it counts as gone at the first call after its end.
    """
    path = path_of(directory, group)
    entries = read_positions(directory, group)
    if not _is_due(directory, group, entries, retention_ms, now):
        return []
    with contextlib.ExitStack() as stack:
        locks = [MemberLock.of_partition(directory, group, tp) for tp in entries]
        try:
            for lock in locks:
                stack.callback(lock.release)
                lock.take()
            file = GroupFile.of(directory, group, locks[0].file)
            if file.is_read():  # of other partitions
                raise CursorLockedError(f"{directory}: group {group!r}", None)
        except CursorLockedError:
            if not dry_run:
                with contextlib.suppress(FileNotFoundError):
                    note_reader(path, now, reads=True)
            return []
        with contextlib.suppress(FileNotFoundError):
            if retention_ms and not has_left(path):
                if not dry_run:
                    note_reader(path, now, reads=False)
                return []
        if dry_run:
            return sorted(entries)
        removed: list[TopicPartition] = []

        def decide(there: Entries) -> Changes:
            removed.clear()
            if _is_due(directory, group, there, retention_ms, now):
                removed.extend(sorted(tp for tp in there if tp in entries))
            return dict.fromkeys(removed)

        try:
            file.write(decide, lambda: None, True)
            file.remove_if_empty()
        except OSError:
            with contextlib.suppress(OSError):
                note_reader(path, now - retention_ms, reads=False)  # the failed write is no sign of a reader
            raise
        return removed


def _is_due(directory: str, group: str, entries: Entries, retention_ms: int, now: int) -> bool:
    """Whether the last commit and the last departure of a group are that long ago."""
    if not entries:
        return False
    try:
        left = os.stat(path_of(directory, group)).st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return False
    return max(left, *(entry.commit.position.timestamp for entry in entries.values())) + retention_ms <= now
