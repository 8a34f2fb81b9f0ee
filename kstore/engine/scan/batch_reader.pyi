from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol, Self, TypeVar, final

from kstore.engine.io.file import Traffic
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
    it is known to end there. One thread at a time."""

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
    ) -> Self: ...
    @property
    def skipped(self) -> list[Skipped]: ...
    def _last_batch(self) -> tuple[int, int] | None: ...
    @property
    def _reads(self) -> int: ...
    _ends_at_change: bool
    _is_cut_before: Callable[[int], bool] | None
    _is_cut: Callable[[], bool] | None
    @property
    def _change(self) -> LogChangedError | None: ...
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
    before are given. One thread at a time.

    `next_offset` is the offset behind the last record that it gave, -1 before the first. After stop() it
    gives none."""

    @property
    def next_offset(self) -> int: ...
    @property
    def is_stopped(self) -> bool: ...
    def stop(self) -> None: ...
    def _take_turns(self) -> None: ...
    def __next__(self) -> Record: ...

@final
class TopicRecords(Generic[_T]):
    """An iterator of tuples (topic, partition, record) of a subclass of tuple, for `count` records of what an
    iterator of iterators gives; for so many more, and more, until `least_ns` have passed. An exception goes
    to `failed`, which raises it; if it does not, this is the end.

    As zip() does, it uses a tuple again that nobody else has: one of the last two, as a loop holds on to one.
    The record in it goes before the next is made, which gets its memory."""

    def __init__(
        self,
        kind: type[_T],
        topic: str,
        partition: int,
        readers: Iterable[Iterable[Record]],
        count: int,
        failed: Callable[[Exception], object],
        *,
        least_ns: int = 0,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _T: ...

def change_of(segment: Segment, offset: int, end_offset: int = ...) -> LogChangedError | None:
    """Why an error that was met in a segment is none of its file, as a LogChangedError; None if it is one.

    The log was truncated, or deleted, since the segment was looked at, and perhaps written anew: then its
    files are not what they were, or what they hold now is sound from `offset` on (-1: not known). end_offset
    is as in readers."""
