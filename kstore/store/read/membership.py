"""The members of a group that read a store, and how they share the partitions."""

from __future__ import annotations

import contextlib
import os

from kstore.errors import CursorLockedError, LogNotFoundError
from kstore.log.cursors.member_lock import MemberLock, byte_of

_MOST = 256


class Membership:
    """A place among the members of a group: a lock on one byte of a range. The system releases it if the
    process dies.

    Members are those that read equal topics in equal directories for the group. The locks of the partitions
    alone keep others apart.
    """

    def __init__(self, group: str, topics: list[str], directories: list[str]) -> None:
        directories = sorted(map(os.path.realpath, directories))
        if not directories:
            raise LogNotFoundError(f"no log directory is left in which group {group!r} could read")
        self._first = byte_of("members", group, *sorted(topics), *directories)
        self._directory = directories[0]
        self._group = group
        self._set_place(0)

    def _set_place(self, place: int) -> None:
        byte = self._byte = self._first + place
        self._lock = MemberLock(self._directory, self._group, f"place {place} among the members", byte)

    def join(self) -> None:
        """Takes a free place. After any exception the caller calls `leave`. CursorLockedError, OSError."""
        for place in range(_MOST):
            self._set_place(place)
            with contextlib.suppress(CursorLockedError):
                self._lock.take()
                return
        raise CursorLockedError(
            f"{self._directory}: each of the {_MOST} places of group {self._group!r}", None
        )

    def share_of(self, count: int) -> int:
        """How many of so many partitions this member may have. The shares of all members are `count`
        together. OSError."""
        members = self._lock.file.taken(self._first, _MOST)
        rank = members.index(self._byte) if self._byte in members else len(members)
        each, rest = divmod(count, max(len(members), 1))
        return each + (rank < rest)

    def check(self) -> None:
        """LogClosedError in a forked child; CursorLockedError if another has the place."""
        self._lock.check()

    def leave(self) -> None:
        """Releases the place. May be called again."""
        self._lock.release()
