"""Threads that decode the splits of a log side by side."""

from __future__ import annotations

import os
from _queue import Empty, SimpleQueue  # not from queue, where gevent replaces it
from collections import deque
from contextlib import suppress
from functools import partial
from itertools import islice

from kstore.engine.columns.array import ColumnBatch
from kstore.light_typing import TYPE_CHECKING
from kstore.log.read.scan_splits import ScanSplit
from kstore.log.worker import allocate_lock, begin_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kstore.engine.scan.column_scanner import ColumnScanner

MOST_BATCHES = 64  # of a split, before they are asked for
IDLE = 0.1  # s: a helper without work for so long ends; those of an abandoned scan would stay otherwise


class Share:
    """A split that one of a team decodes."""

    def __init__(self, split: ScanSplit) -> None:
        self.split = split
        self.begun: tuple[ColumnScanner, deque[ColumnBatch]] | None = (
            None  # the rest of it, and what comes before
        )
        self._free = allocate_lock()
        self._pending = allocate_lock()
        self._pending.acquire()

    def claim(self) -> bool:
        """Whether it is the caller's to decode, and not another thread's."""
        return self._free.acquire(blocking=False)

    @property
    def pending(self) -> bool:
        return self._pending.locked()

    def end(self) -> None:
        """It is no longer pending: for the thread that claimed it."""
        self._pending.release()

    def wait(self, seconds: float) -> bool:
        """Whether it is no longer pending, within that time; true but once."""
        return self._pending.acquire(timeout=seconds)


class ParallelScan:
    """The batches of all splits, in order: iterate it once. The thread that asks for batches decodes too.

    Of every `threads` splits the first is left to it. It hands out as it decodes, in memory that stays in its
    cache; what its helpers decode must wait for its turn. They take that split as well where they have
    nothing else to do, because more is done with the batches than is done here.
    """

    def __init__(
        self,
        splits: Iterator[ScanSplit],
        begin: Callable[[ScanSplit, int], ColumnScanner],
        threads: int,
        room: int,
    ) -> None:
        """`begin` makes the scanner of a split, given the last offset before it, or -1. `room`: bytes of
        columns that may wait for each split, but for one batch."""
        self._splits = splits
        self._begin = begin
        self._threads = threads
        self._room = room
        self._todo: SimpleQueue[Share | None] = SimpleQueue()
        self._process = os.getpid()
        self._helpers: set[object] = set()  # one for each thread; in a forked process they are not there

    def _decode(self, share: Share, other: Share | None = None) -> None:
        """What a split begins with, as far as there is room, or until the `other` is no longer pending."""
        with suppress(Exception):  # then it is begun once more when its turn has come, and raises it again
            scanner, found = self._begin(share.split, -1), deque[ColumnBatch]()
            room = self._room
            while room > 0 and len(found) < MOST_BATCHES and (other is None or other.pending):
                batch = next(scanner, None)
                if batch is None:
                    break
                found.append(batch)
                room -= batch.nbytes
            share.begun = scanner, found

    def _help(self, helper: object, busy: int) -> None:
        """What a helper does, elsewhere than on this processor."""
        try:
            _keep_off(busy)
            with suppress(Empty):
                while (share := self._todo.get(timeout=IDLE)) is not None:
                    if share.claim():
                        try:
                            self._decode(share)
                        finally:
                            share.end()
        finally:
            self._helpers.discard(helper)

    def _muster(self) -> None:
        """Sees to it that all helpers are there."""
        while len(self._helpers) < self._threads - 1:
            helper = object()
            self._helpers.add(helper)
            try:
                begin_thread("kstore-scan", partial(self._help, helper, _processor()))
            except (RuntimeError, MemoryError):  # this thread decodes what they do not
                self._helpers.discard(helper)
                break

    def _await(self, share: Share, later: Iterable[Share]) -> None:
        """Decodes shares that no thread has begun, as long as the next one is not ready."""
        for other in later:
            if share.pending and other.claim():
                self._decode(other, share)
                other.end()  # what failed in it is tried once more when its turn has come
        while not share.wait(1) and os.getpid() == self._process:
            pass

    def __iter__(self) -> Iterator[ColumnBatch]:
        shares: deque[Share] = deque()
        last = -1
        try:
            while True:
                while len(shares) <= self._threads and (
                    group := [Share(split) for split in islice(self._splits, self._threads)]
                ):
                    shares += group
                    for share in (*group[1:], group[0]):
                        self._todo.put(share)
                    self._muster()
                if not shares:
                    return
                share = shares.popleft()
                if share.begun is None and not share.claim():
                    self._await(share, shares)
                split = share.split
                scanner, found = share.begun or (None, deque[ColumnBatch]())
                del share
                if scanner is None or scanner.reached[2] < 0:
                    scanner = self._begin(split, last)
                elif scanner.reached[2] <= last:  # out of order: one reader for the rest tells
                    yield from self._begin(ScanSplit(split.segment_at, split.position, -1), last)
                    return
                while found:
                    yield found.popleft()
                yield from scanner
                position, reached, first = scanner.reached
                if scanner.ended:
                    return
                if first >= 0:
                    last = reached
                if position != split.end:  # the index was wrong: the splits behind begin at no batch
                    yield from self._begin(ScanSplit(split.segment_at, position, -1), last)
                    return
        finally:
            for share in shares:
                share.claim()  # it is not needed any more
            for _ in range(len(self._helpers)):
                self._todo.put(None)


def _processor() -> int:
    """The processor where this thread is just now; -1 if that cannot be told."""
    with suppress(OSError), open("/proc/thread-self/stat") as file:
        return int(file.read().rpartition(")")[2].split()[36])
    return -1


def _keep_off(busy: int) -> None:
    """Keeps this thread off a processor, if it may run elsewhere.

    When it has waited for the GIL, Linux may wake it up where another is busy, and leave both there for many
    ms."""
    with suppress(OSError, AttributeError):  # no other processor, no right to choose, or no such call
        os.sched_setaffinity(0, os.sched_getaffinity(0) - {busy})
