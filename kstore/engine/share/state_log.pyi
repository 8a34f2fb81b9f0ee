from types import TracebackType
from typing import Final, final

from kstore.engine.io.file import File

UNCHANGED: Final[int]
GROWN: Final[int]
REPLACED: Final[int]

@final
class FileLock:
    def __new__(cls, path: str) -> FileLock: ...
    @property
    def file(self) -> File: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def look_behind(file: File, position: int) -> int: ...
def write_batch(
    file: File,
    position: int,
    key: bytes,
    value: bytes,
    timestamp: int,
    base_offset: int,
    producer_id: int,
    base_sequence: int,
) -> int: ...
