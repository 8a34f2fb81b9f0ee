from types import TracebackType
from typing import Final, final

from kstore.engine.io.file import File

UNCHANGED: Final[int]
GROWN: Final[int]
REPLACED: Final[int]

@final
class FileLock:
    """`with lock:` is for one thread of one process at a time. The system releases the lock of a process that
    dies. Entering and leaving are C code, which no signal interrupts; a signal handler that raises ends the
    waiting. OSError. ReentrantCallError, as for a Mutex."""

    def __new__(cls, path: str) -> FileLock: ...
    @property
    def file(self) -> File: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def look_behind(file: File, position: int) -> int:
    """Whether a file has other bytes than zeros from a position on, GROWN; or REPLACED if it has no name any
    more, because another file was renamed over it. Else UNCHANGED. OSError."""

def write_batch(
    file: File,
    position: int,
    key: bytes,
    value: bytes,
    timestamp: int,
    base_offset: int,
    producer_id: int,
    base_sequence: int,
) -> int:
    """Writes a batch of one record at a position, and returns its size. OSError."""
