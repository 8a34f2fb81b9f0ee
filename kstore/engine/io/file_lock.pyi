from types import TracebackType
from typing import final

from kstore.engine.io.file import File

@final
class FileLock:
    def __new__(cls, path: str) -> FileLock: ...
    @property
    def file(self) -> File: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
