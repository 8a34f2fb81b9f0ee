from collections.abc import Iterable
from typing import NamedTuple, Protocol, Self, final

from kstore.engine.record.batch import Record, RecordBatch
from kstore.engine.segment.segment import Segment
from kstore.errors import LogChangedError

class Skipped(NamedTuple):
    file: str
    position: int
    size: int
    error: Exception

class _Pages(Protocol):
    def enter(self, segment: Segment, position: int, end: int, /) -> int: ...
    def advance(self, position: int, /) -> int: ...
    def leave(self) -> None: ...

class Reader:
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
        aborted: Iterable[tuple[int, int]] | None = None,
        pages: _Pages | None = None,
    ) -> Self: ...
    @property
    def skipped(self) -> list[Skipped]: ...
    def __iter__(self) -> Self: ...

@final
class BatchReader(Reader):
    def __next__(self) -> RecordBatch: ...

@final
class RecordReader(Reader):
    def __next__(self) -> Record: ...

def change_of(segment: Segment, offset: int, end_offset: int = ...) -> LogChangedError | None: ...
