"""Changes of many partitions, as the system reports them."""

from __future__ import annotations

from kstore.engine.io.synchronization import Inotify
from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kstore.log.files.layout import TopicPartition


class PartitionWatch:
    """One inotify instance for all partitions of a reader, if the system has one left."""

    def __init__(self) -> None:
        self.source: Inotify | None = None  # what can be read when a change was reported
        self._partitions: dict[int, TopicPartition] = {}  # by the number that inotify knows them by

    def add(self, paths: Mapping[TopicPartition, str]) -> Iterator[TopicPartition]:
        """Watches these partitions too. Gives those that were not watched before: something may have come.
        FileNotFoundError if one was deleted."""
        if self.source is None:
            try:
                self.source = Inotify()
            except OSError:  # none is left: they are asked again and again
                return
        known = set(self._partitions.values())
        for tp, path in paths.items():
            if tp not in known:
                try:
                    self._partitions[self.source.add(path)] = tp
                except FileNotFoundError:
                    raise
                except OSError:
                    self.drop()
                    return
                yield tp

    def drop(self) -> None:
        """Watches nothing any more: a partition that is no longer read would go on to be reported."""
        self.source, self._partitions = None, {}

    def changes(self) -> Iterator[tuple[TopicPartition | None, bool]]:
        """The partitions that have changed, and whether a partition is still there; None for all of them:
        changes were lost."""
        if self.source is None:
            return
        for number, _, name in self.source.read_events():
            if number < 0:
                yield None, True
            elif (tp := self._partitions.get(number)) is not None:
                yield tp, bool(name)
