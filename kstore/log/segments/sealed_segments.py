"""The segments of a log that is written, before the active one."""

from __future__ import annotations

from kstore.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kstore.engine.segment.segment import Segment


class SealedSegments:
    """Segments in order; nothing changes it. One more costs the same however many there are, as a roll needs
    it: what comes of that shares a list with this, and knows of one place more."""

    __slots__ = ("_all", "_count", "_shown", "origin")

    def __init__(self, segments: Iterable[Segment] = (), origin: object = None) -> None:
        self.origin = object() if origin is None else origin  # another one if segments were replaced
        self._all = list(segments)
        self._count = len(self._all)
        self._shown: tuple[Segment, ...] | None = None

    def with_one_more(self, segment: Segment) -> SealedSegments:
        """These segments, and this one behind them."""
        grown = SealedSegments(origin=self.origin)
        grown._all = self._all if len(self._all) == self._count else self._all[: self._count]
        grown._all.append(segment)
        grown._count = self._count + 1
        return grown

    def without_first(self, count: int) -> SealedSegments:
        """These segments but the first ones."""
        return SealedSegments(self._all[count : self._count], self.origin)

    def replacing(self, at: int, count: int, segments: Iterable[Segment]) -> SealedSegments:
        """These segments, with others in place of so many from `at` on."""
        return SealedSegments([*self._all[:at], *segments, *self._all[at + count : self._count]])

    def first(self, count: int) -> list[Segment]:
        """So many from the beginning."""
        return self._all[: min(count, self._count)]

    def and_then(self, active: Segment) -> tuple[Segment, ...]:
        """All segments of the log, as readers are shown them."""
        if self._shown is None:
            self._shown = tuple(self._all[: self._count])
        return (*self._shown, active)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> Segment:
        if not 0 <= at < self._count:
            raise IndexError(at)
        return self._all[at]
