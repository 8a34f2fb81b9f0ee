"""The committed offsets of groups in one partition of __consumer_offsets (Kafka's OffsetMetadataManager)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kstore.log.cursors.offset_commits import OffsetAndMetadata
from kstore.log.files.layout import TopicPartition


class Committed(NamedTuple):
    """A committed position, and the offset of its record in __consumer_offsets."""

    position: OffsetAndMetadata
    record_offset: int


Offsets = dict[TopicPartition, Committed]
GroupPartition = tuple[str, TopicPartition]


class GroupOffsets:
    """The offsets of groups: those that count, and those of open transactions by producer id. Records change
    it in the order of the log, when they are loaded and when they are appended."""

    def __init__(self) -> None:
        self._committed: dict[str, Offsets] = {}
        self._pending: dict[int, dict[GroupPartition, Committed]] = {}

    def groups(self) -> set[str]:
        """The groups with committed offsets, or with such of an open transaction."""
        return set(self._committed) | {group for each in self._pending.values() for group, _ in each}

    def of(self, group: str) -> Mapping[TopicPartition, Committed]:
        """The committed offsets of a group."""
        return self._committed.get(group, {})

    def is_pending(self, group: str, tp: TopicPartition) -> bool:
        """Whether an open transaction has an offset of a partition."""
        return any((group, tp) in each for each in self._pending.values())

    def pending_of(self, group: str) -> set[TopicPartition]:
        """The partitions of which open transactions of a group have offsets."""
        return {tp for each in self._pending.values() for name, tp in each if name == group}

    def apply(self, group: str, tp: TopicPartition, committed: Committed | None, producer_id: int) -> None:
        """A record: an offset, or None for a tombstone. producer_id -1: it is in no transaction."""
        if committed is None:
            self._committed.get(group, {}).pop(tp, None)
            for each in self._pending.values():
                each.pop((group, tp), None)
        elif producer_id < 0:
            self._committed.setdefault(group, {})[tp] = committed
        else:
            self._pending.setdefault(producer_id, {})[group, tp] = committed
        if not self._committed.get(group, True):
            del self._committed[group]

    def end(self, producer_id: int, *, commits: bool) -> None:
        """A marker: the transaction of a producer ends. Its offsets count, except where a later record has
        another."""
        pending = self._pending.pop(producer_id, {})
        for (group, tp), committed in pending.items() if commits else ():
            known = self._committed.get(group, {}).get(tp)
            if known is None or known.record_offset < committed.record_offset:
                self._committed.setdefault(group, {})[tp] = committed

    def expired(
        self, group: str, before: int, *, since: int | None, kept_topics: Iterable[str]
    ) -> list[TopicPartition]:
        """The partitions whose offsets are older than `before`. `since` counts instead of the time of the
        commit, if there is one."""
        kept = set(kept_topics)
        return [
            tp
            for tp, (position, _) in self.of(group).items()
            if (position.timestamp if since is None else since) <= before
            and tp.topic not in kept
            and not self.is_pending(group, tp)
        ]
