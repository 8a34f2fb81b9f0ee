from collections.abc import Sequence
from typing import NamedTuple, final

from kstore.engine.compact.offset_map import OffsetMap
from kstore.engine.record.batch import Record
from kstore.engine.segment.segment import Segment

class Marks(NamedTuple):
    base_offset: int
    size: int
    inode: int
    ctime_ns: int

def packed(map: OffsetMap, marks: Marks) -> bytes: ...

@final
class KeyFile:
    def __new__(cls, path: str) -> KeyFile: ...
    @property
    def path(self) -> str: ...
    @property
    def marks(self) -> Marks: ...
    @property
    def size(self) -> int: ...
    def find(self, segment: Segment, key: bytes) -> Record | int: ...
    def count(self) -> int: ...

class KeyLookup:
    file: KeyFile | None
    map: OffsetMap | None
    covered: int
    is_growing: bool

def last_in(segments: Sequence[Segment], key: bytes, start: int, end: int) -> Record | int | None: ...
