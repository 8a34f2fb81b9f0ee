from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar, final

from kstore.engine.io.traffic import Traffic
from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.segment.segment import Segment
from kstore.errors import LogChangedError

_T = TypeVar("_T", bound=tuple[str, int, Record])

class Skipped(NamedTuple):
    """What on_error="skip" left out: `size` bytes at byte `position` of `file`, because of `error`."""

    file: str
    position: int
    size: int
    error: Exception

class _Pages(Protocol):
    def enter(self, segment: Segment, position: int, end: int, /) -> int: ...
    def advance(self, position: int, /) -> int: ...
    def leave(self) -> None: ...

class Reader:
    """Walks the batches of segments, from the first with last offset >= start_offset, while base offset <
    stop_offset.

    `first_position` and `byte_limit` narrow it to a part of the first segment (a slice). `end_offset` is
    where the log ends: a batch that reaches it is damaged. `after`: the last offset of the batch before, if
    it is known to end there. `ends_at_change`: where a file is no longer what the segment shows, it ends, and
    `change` says why; else it raises that. One thread at a time.

    `next_offset` is the offset behind what it gave last, -1 before the first. After stop() it gives nothing."""

    def __new__(
        cls,
        segments: tuple[Segment, ...],
        start_offset: int = 0,
        stop_offset: int = ...,
        *,
        first_position: int = -1,
        byte_limit: int = -1,
        end_offset: int = ...,
        on_error: str = "raise",
        control: bool = False,
        aborted: Iterable[tuple[int, int, int]] | None = None,
        pages: _Pages | None = None,
        traffic: Traffic | None = None,
        after: int = -1,
        ends_at_change: bool = False,
    ) -> Self: ...
    @property
    def skipped(self) -> list[Skipped]: ...
    @property
    def change(self) -> LogChangedError | None: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def is_stopped(self) -> bool: ...
    def stop(self) -> None:
        """Nothing more is given; from any thread."""
    def __iter__(self) -> Self: ...

@final
class BatchReader(Reader):
    """An iterator of RecordBatch objects. log.batches() and slice.batches() make one.

    Control batches are included. `skipped` lists what on_error="skip" left out. One thread at a time."""

    def __next__(self) -> RecordBatch: ...

@final
class RecordReader(Reader):
    """An iterator of Record objects. log.records() and slice.records() make one.

    `skipped` lists what on_error="skip" left out: of a batch that is damaged in its middle, the records
    before are given. One thread at a time."""

    def __next__(self) -> Record: ...

@final
class TopicRecords(Generic[_T]):
    """An iterator of tuples (topic, partition, record) of a subclass of tuple, for `count` records of what an
    iterator of iterators gives; for so many more, and more, until `least_ns` have passed. An exception goes
    to `failed`, which raises it; if it does not, this is the end.

    As zip() does, it uses a tuple again to which there is no other reference: one of the last two, because a
    loop holds one.
    The record in it goes before the next is made, which gets its memory."""

    def __init__(
        self,
        kind: type[_T],
        topic: str,
        partition: int,
        readers: Iterable[Iterable[object]],
        count: int,
        failed: Callable[[Exception], object],
        *,
        least_ns: int = 0,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _T: ...

def change_of(segment: Segment, offset: int) -> LogChangedError | None:
    """A LogChangedError if the .log of a segment was replaced, shortened or deleted since it was opened; None
    if it is as it was."""
