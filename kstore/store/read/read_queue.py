"""Which partition a reader of many partitions reads next."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.log.files.layout import TopicPartition

_SWEEP = 20  # partitions


class ReadQueue:
    """The partitions that may have more, in the order in which they are read.

    `moved` are those that were read, `last` is the last of them.
    """

    def __init__(self) -> None:
        self.moved: dict[TopicPartition, None] = {}
        self.last: TopicPartition | None = None
        self._pending: dict[TopicPartition, None] = {}
        self._unfinished: set[TopicPartition] = set()  # those with more records in the view that was read
        self._swept = 0
        self._few: list[TopicPartition] = []  # those that were asked last though no change was reported

    def __bool__(self) -> bool:
        return bool(self._pending)

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Asks all of them anew: an iteration before this one may have ended anywhere."""
        self.ask_all(partitions)
        self._unfinished.clear()

    def ask(self, tp: TopicPartition) -> None:
        """It may have more."""
        self._pending[tp] = None

    def ask_all(self, partitions: Iterable[TopicPartition]) -> None:
        """All of them may have more."""
        self._pending |= dict.fromkeys(partitions)

    def sweep(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Asks a few of all partitions, others each time, though no change was reported: a share of another
        machine reports none."""
        mine = list(partitions)
        at = self._swept % max(len(mine), 1)
        self._swept = at + _SWEEP
        few = mine[at : at + _SWEEP]
        if self._pending.keys().isdisjoint(self._few):  # else those were not read yet
            self._few = few
            self.ask_all(few)
        return few

    def take(self) -> TopicPartition | None:
        """The next partition; None if none may have more."""
        tp = next(iter(self._pending), None)
        if tp is not None:
            del self._pending[tp]
        return tp

    def move(self, tp: TopicPartition) -> bool:
        """A partition is read now. Whether it goes on in the view that was read last."""
        self.last = tp
        self.moved[tp] = None
        goes_on = tp in self._unfinished
        self._unfinished.discard(tp)
        return goes_on

    def leave_unfinished(self, tp: TopicPartition) -> None:
        """A partition has more records in the view that was read: it is read again."""
        self._unfinished.add(tp)
        self.ask(tp)

    def settle(self) -> None:
        """What was read is committed. The last partition is still being read."""
        self.moved = {tp: None for tp in self.moved if tp == self.last}

    def drop(self, tp: TopicPartition) -> None:
        """A partition is read no more."""
        self._pending.pop(tp, None)
        self.moved.pop(tp, None)
