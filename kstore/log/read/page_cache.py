"""The page cache: what of a log it holds, and how a scan leaves it."""

from __future__ import annotations

import os
from collections import deque

from kstore.light_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kstore.engine.io.file import File
    from kstore.engine.segment.segment import Segment

CACHE = ("keep", "drop")
_PAGE = os.sysconf("SC_PAGESIZE")
_WINDOW = 4 << 20  # so much is looked at, and asked for, at a time
_PIECE = 1 << 30  # of a file that is asked about as a whole: the answer takes a byte for each page
_NEVER = 2**63 - 1


class Residency(NamedTuple):
    """How much of a segment is in the page cache: `cached_bytes` of the `size` bytes of its .log file."""

    base_offset: int
    size: int
    cached_bytes: int


def residency_of(segment: Segment) -> Residency:
    """What the page cache holds of a segment now. OSError."""
    size, cached = segment.size, 0
    for at in range(0, size, _PIECE):
        cached += _cached_of(segment.file(), segment.origin + at, min(_PIECE, size - at))
    return Residency(segment.base_offset, size, min(cached, size))


def _cached_of(file: File, position: int, size: int) -> int:
    pages = file.resident(position, size)
    cached = pages.count(1) * _PAGE
    if pages and pages[-1]:  # of the last page not all counts
        cached -= max(len(pages) * _PAGE - position % _PAGE - size, 0)
    return max(cached, 0)


class PageCache:
    """Goes with one reader through segments: asks the system for what comes next where it is not cached, and,
    with `drop`, gives back behind the reader what was not cached before.

    A window is looked at while the reader is one window before it: later the system's own read-ahead would
    have fetched part of it, and it would seem to have been there.
    """

    def __init__(self, *, drop: bool) -> None:
        self._absent: deque[tuple[int, int]] = deque()  # (begin, end) of what was not cached, in the file
        self._file: File | None = None
        self._drop = drop
        self._origin = 0
        self._end = 0
        self._looked = 0

    def enter(self, segment: Segment, position: int, end: int) -> int:
        """The reader begins at a position of a segment; returns the position from which on it is to
        `advance`."""
        self.leave()
        self._file = segment.file()
        self._origin = segment.origin
        self._end = segment.origin + end
        self._looked = (segment.origin + position) // _PAGE * _PAGE
        if self._drop:
            return self.advance(position)
        return position + _WINDOW // 4  # a short scan is not worth a look

    def advance(self, position: int) -> int:
        """The reader has come to a position; returns the one from which on it is to tell again."""
        at = self._origin + position
        self._give_back(at)
        until = (at // _WINDOW + 2) * _WINDOW
        self._looked = max(self._looked, at // _PAGE * _PAGE)
        if self._file is not None and self._looked < min(until, self._end):
            self._look(self._file, min(until, self._end))
        return until - _WINDOW - self._origin if until < self._end or self._absent else _NEVER

    def _look(self, file: File, until: int) -> None:
        begin, self._looked = self._looked, until
        try:
            pages = file.resident(begin, until - begin)
        except OSError:  # it does not tell: then nothing is known to have been absent
            return
        at = pages.find(0)
        if at < 0:
            return
        file.advise(begin, until - begin, "willneed")
        while self._drop and at >= 0:
            to = pages.find(1, at)
            to = len(pages) if to < 0 else to
            self._absent.append((begin + at * _PAGE, begin + to * _PAGE))
            at = pages.find(0, to)

    def _give_back(self, before: int) -> None:
        """Drops what was fetched for the reader and ends before a position of the file."""
        before = before // _PAGE * _PAGE
        while self._absent and self._absent[0][0] < before:
            begin, end = self._absent.popleft()
            if end > before:
                self._absent.appendleft((before, end))
            if self._file is not None:
                self._file.advise(begin, min(end, before) - begin, "dontneed")

    def leave(self) -> None:
        """The reader is done with the segment: what was asked for and not read goes too."""
        if self._absent:
            self._give_back(_NEVER)
        self._file = None

    def __del__(self) -> None:
        try:  # noqa: SIM105 - at the end of the interpreter, contextlib may be gone
            self.leave()
        except AttributeError:  # it was interrupted while it was made
            pass
