"""Which leader epoch an offset was written in (spec 7.8)."""

from collections.abc import Iterable


class LeaderEpochs:
    """Rising (epoch, start offset) entries. Pure state: nothing here reads or writes a file."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[tuple[int, int]] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        return self._entries[-1][0] if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Notes that `epoch` began at `start_offset`; entries that contradict it go. True if anything
        changed."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} and start offset {start_offset} must not be negative")
        if self._entries and epoch == self._entries[-1][0] and start_offset >= self._entries[-1][1]:
            return False
        while self._entries and (self._entries[-1][0] >= epoch or self._entries[-1][1] >= start_offset):
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Removes entries that begin at `end_offset` or above."""
        while end_offset >= 0 and self._entries and self._entries[-1][1] >= end_offset:
            self._entries.pop()

    def truncate_from_start(self, start_offset: int) -> None:
        """Removes entries that begin at or below `start_offset`; the last of them then begins there."""
        removed = None
        while self._entries and self._entries[0][1] <= start_offset:
            removed = self._entries.pop(0)
        if removed is not None:
            self._entries.insert(0, (removed[0], start_offset))

    def clear(self) -> None:
        """Removes every entry."""
        self._entries.clear()

    def end_offset_for(self, requested: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above `requested`; (-1, -1) where it cannot be
        told."""
        if requested < 0 or not self._entries:
            return -1, -1
        if requested == self._entries[-1][0]:
            return requested, log_end_offset
        higher = next((start for epoch, start in self._entries if epoch > requested), None)
        if higher is None:
            return -1, -1
        floor = [epoch for epoch, _ in self._entries if epoch <= requested]
        return (floor[-1] if floor else requested), higher

    def epoch_for(self, offset: int) -> int | None:
        """The epoch in which `offset` was written, or None."""
        found = None
        for epoch, start_offset in self._entries:
            if start_offset > offset:
                break
            found = epoch
        return found
