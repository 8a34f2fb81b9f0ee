"""The partitions that a worker of a share group reads, those that have changed, and the next one to read."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Protocol

from kstore.engine.io.synchronization import EventFd, Mutex
from kstore.errors import KstoreError, LogNotFoundError
from kstore.light_typing import TYPE_CHECKING
from kstore.log.follow.partition_watch import PartitionWatch
from kstore.log.share.shared_partition import SharedPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from kstore.log.files.layout import TopicPartition
    from kstore.log.share.acquired_record import AcquiredRecord

_UPDATE = 0.4  # s: how often to list the partitions
_POLL = 0.05  # s: how often to look at all where the system reports no changes
_SWEEP = 20  # partitions
_LOOK = 0.001  # s: how often to ask the system for changes while there are records
_TAKE = SharedPartition.take


class Wanted(Protocol):
    """The partitions that a group reads: WantedPartitions of a store, or one."""

    paths: dict[TopicPartition, str]

    def list(self) -> None:
        """Lists the partitions that there are now. OSError, KstoreError."""

    def was_there(self, tp: TopicPartition) -> bool:
        """Whether a partition was there when the reader began. All records of others are new."""

    def gone(self, tp: TopicPartition) -> None:
        """A partition was deleted, and maybe made anew: then all of it is new. OSError, KstoreError."""


class OnePartition:
    """The one partition of a log."""

    def __init__(self, tp: TopicPartition, path: str) -> None:
        self.paths = {tp: path}

    def list(self) -> None:
        """There is no other."""

    def was_there(self, tp: TopicPartition) -> bool:
        """Whether the partition was there when the group began: always."""
        return True

    def gone(self, tp: TopicPartition) -> None:
        """The log was deleted."""
        raise LogNotFoundError(f"{self.paths[tp]} was deleted, or made anew, since it was opened")


class GroupPartitions:
    """The partitions that one worker of a share group has open, in the order of its topics.

    `open` has them by name; only this object changes it. `waiting_count`: how many threads and tasks wait for
    `signals`. Threads may share the object.
    """

    def __init__(
        self,
        wanted: Wanted,
        topics: list[str],
        who: str,
        open_one: Callable[[TopicPartition, str], SharedPartition],
    ) -> None:
        """who: the group, for notes of errors. open_one: opens a partition, by its name and path; what it
        raises besides LogNotFoundError, `update` raises."""
        self.open: dict[TopicPartition, SharedPartition] = {}
        self.is_closed = False
        self.waiting_count = 0
        self._event = EventFd()
        self._wanted = wanted
        self._topics = topics
        self._who = who
        self._open_one = open_one
        self._by_topic: list[list[SharedPartition]] = []
        self._turn = self._swept = 0
        self._watch = PartitionWatch()
        self._guard = Mutex()
        self._next_update = self._next_look = 0.0

    def __iter__(self) -> Iterator[SharedPartition]:
        return iter(list(self.open.values()))

    # ---- partitions ----------------------------------------------------------------------------------------

    def update(self) -> None:
        """Open new partitions, and leave those that were deleted. OSError, KstoreError."""
        with self._guard:
            self._next_update = monotonic() + _UPDATE
            self._wanted.list()
            for tp in [tp for tp in self.open if tp not in self._wanted.paths]:
                self._leave(tp)
            for tp, path in self._wanted.paths.items():
                if tp not in self.open:
                    with suppress(LogNotFoundError):  # it is being deleted
                        self.open[tp] = self._open_one(tp, path)
            self._by_topic = [
                [shared for tp, shared in self.open.items() if tp.topic == topic] for topic in self._topics
            ]
            paths = {tp: self._wanted.paths[tp] for tp in self.open}
            with suppress(FileNotFoundError):  # it was deleted: the next update leaves it
                for tp in self._watch.add(paths):
                    self.open[tp].mark_stale()
            self._sweep()

    def _leave(self, tp: TopicPartition) -> None:
        self.open.pop(tp).close()
        self._watch.drop()

    def _deleted(self, tp: TopicPartition) -> None:
        with self._guard:
            if tp in self.open:
                self._leave(tp)
                self._next_update = 0
                self._wanted.gone(tp)

    def _sweep(self) -> None:
        """Mark some partitions as stale: some changes are not reported, such as a new start of a log."""
        shared = list(self)
        if shared:
            self._swept += _SWEEP
            for at in range(min(_SWEEP, len(shared))):
                shared[(self._swept + at) % len(shared)].mark_stale()

    def _mark_all_stale(self) -> None:
        for shared in self.open.values():
            shared.mark_stale()

    def take_changes(self) -> None:
        """Mark the partitions as stale whose changes the system reports."""
        with self._guard:
            self._next_look = monotonic() + _LOOK
            self._event.clear()
            is_whole = False
            try:
                for tp, _ in self._watch.changes():
                    if tp is None:
                        self._mark_all_stale()
                    elif tp in self.open:
                        self.open[tp].mark_stale()
                is_whole = self._watch.source is not None
            finally:
                if not is_whole:  # the system reports nothing, or not once more after an interrupt
                    self._mark_all_stale()

    # ---- which is next -------------------------------------------------------------------------------------

    def first(self, look: Callable[[SharedPartition], Any]) -> Any:
        """The first true result of `look` for the partitions that may have a record, in the order of the
        topics; None if there is none."""
        if self.is_closed:
            return None
        now = monotonic()
        if now >= self._next_update:
            self.update()
        if now >= self._next_look:
            self.take_changes()
        turn = self._turn
        for shared_ones in self._by_topic:
            count = len(shared_ones)
            for at in range(count):
                shared = shared_ones[(at + turn) % count]
                if not shared.may_have_record():
                    continue
                try:
                    found = look(shared)
                except LogNotFoundError:
                    self._deleted(shared.tp)
                    continue
                except KstoreError as e:
                    e.add_note(f"in partition {shared.tp}, which {self._who} reads")
                    raise
                if found:
                    return found
        return None

    def take(self) -> AcquiredRecord | None:
        """Acquire the next record that there is now. Of the partitions of its topic, another one is asked
        first for the next."""
        record: AcquiredRecord | None = self.first(_TAKE)
        if record is None:
            self.take_changes()
            record = self.first(_TAKE)
            if record is None:
                return None
        self._turn += 1
        if self.waiting_count:
            self._event.set()  # another thread may have missed what this one has heard
        return record

    def wake(self) -> None:
        """Wake the threads and tasks that wait: a record is available again."""
        if self.waiting_count:
            self._event.set()

    def pause(self) -> float:
        """For how many seconds there is nothing to do, if no change is reported."""
        longest = max(min(self._next_update - monotonic(), _UPDATE if self._watch.source else _POLL), 0.0)
        return min((shared.pause(longest) for shared in self.open.values()), default=longest)

    def signals(self) -> tuple[Any, ...]:
        """What becomes readable when the next look is worth it."""
        if self.is_closed:
            self._event.set()
        return self._event, self._watch.source

    # ---- the end -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave all partitions."""
        self.is_closed = True
        self._event.set()
        for shared in self:
            shared.close()
