"""A log in parts, which several threads decode side by side."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, TypeAlias

from kstore.engine.columns import ColumnBatch
from kstore.engine.scanner import Scanner
from kstore.engine.segment import Segment
from kstore.errors import CorruptRecordError

PART_BYTES = 4 << 20
MOST_BATCHES = 64  # of a part, before they are asked for


class Part(NamedTuple):
    """Bytes of one segment, from a batch to a batch as far as the index is right; end -1 is the end of the log."""

    segment_at: int
    position: int
    end: int


Begun: TypeAlias = tuple[Scanner, deque[ColumnBatch]]  # the rest of a part, and what comes before it
Begin: TypeAlias = Callable[[Part, int], Scanner]  # a part, and the last offset before it, or -1


def divide(
    segments: tuple[Segment, ...], start: int, stop: int, since: int | None, rows: int
) -> Iterator[Part]:
    """A log in parts that begin where an index says that batches begin. Whether they do shows when the part before has
    been read: it must end there. A part has a multiple of `rows` records, or a few less, so that no small batch of
    columns is left over."""
    for at, segment in enumerate(segments):
        if segment.base_offset >= stop:
            return
        position, end = 0, segment.size
        first = start
        try:
            if since is not None and 0 <= since < 1 << 63:
                found = segment.find_timestamp(since, first)
                if found is None:
                    continue
                first = found.offset
            if first > segment.base_offset:
                located = segment.translate(first)
                if located is None:
                    continue
                position = located.position
            if stop < segment.end_offset:
                located = segment.translate(stop)
                if located is not None:
                    end = max(position, located.position + located.size)
        except CorruptRecordError:
            position, end = 0, segment.size  # the walk says it better
        index, last = segment.offset_index, max(first, segment.base_offset) - 1
        while position < end:
            border = index.fetch_upper_bound(position, PART_BYTES)
            if border is None or not position < border.position < end:  # its sums wrap near 2 GiB
                break
            offset, until = border
            if whole := (offset - last) // rows * rows:
                nearer = index.lookup(last + whole)
                if nearer[1] > position:
                    offset, until = nearer
            yield Part(at, position, until)
            position, last = until, index.lookup(offset - 1)[0]
        if position < end:
            yield Part(at, position, end)


class Team:
    """The batches of all parts, in order: iterate it once. The thread that asks for batches decodes too.

    Of every `threads` parts the first is left to it. It hands out as it decodes, in memory that stays in its cache; what
    the others decode must wait for its turn. They take that part as well where they have nothing else to do, because
    more is done with the batches than is done here.
    """

    def __init__(self, parts: Iterator[Part], begin: Begin, threads: int, room: int) -> None:
        """`room`: bytes of columns that may wait for each part, but for one batch."""
        self._parts = parts
        self._begin = begin
        self._threads = threads
        self._room = room

    def _decode(self, part: Part, until: Future[Begun] | None = None) -> Begun:
        """What a part begins with, as far as there is room, and the scanner to get the rest from. It leaves off where
        `until` is done."""
        scanner = self._begin(part, -1)
        found: deque[ColumnBatch] = deque()
        room = self._room
        with suppress(Exception):  # asked again, the scanner raises it again, when its turn has come
            while room > 0 and len(found) < MOST_BATCHES and (until is None or not until.done()):
                batch = next(scanner, None)
                if batch is None:
                    break
                found.append(batch)
                room -= batch.nbytes
        return scanner, found

    def _help(self, running: deque[tuple[Part, Future[Begun]]], until: Future[Begun]) -> None:
        """Decodes what nobody has begun, as long as the part that is wanted next is not there."""
        for at, (part, future) in enumerate(running):
            if until.done():
                return
            if future.cancel():
                done: Future[Begun] = Future()
                done.set_result(self._decode(part, until))
                running[at] = part, done

    def __iter__(self) -> Iterator[ColumnBatch]:
        running: deque[tuple[Part, Future[Begun]]] = deque()
        executor = ThreadPoolExecutor(self._threads - 1, "kstore-scan")
        last = -1
        try:
            while True:
                while len(running) <= self._threads and (group := list(islice(self._parts, self._threads))):
                    others = [(part, executor.submit(self._decode, part)) for part in group[1:]]
                    running += [(group[0], executor.submit(self._decode, group[0])), *others]
                if not running:
                    return
                part, future = running.popleft()
                scanner, found = None, deque[ColumnBatch]()
                if not future.cancel():
                    self._help(running, future)
                    scanner, found = future.result()
                del future
                if scanner is None or scanner.reached[2] < 0:
                    scanner = self._begin(part, last)
                elif scanner.reached[2] <= last:  # out of order: one reader for the rest tells
                    yield from self._begin(part._replace(end=-1), last)
                    return
                while found:
                    yield found.popleft()
                yield from scanner
                position, reached, first = scanner.reached
                if scanner.ended:
                    return
                if first >= 0:
                    last = reached
                if position != part.end:  # the index was wrong: the parts behind begin at no batch
                    yield from self._begin(Part(part.segment_at, position, -1), last)
                    return
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
