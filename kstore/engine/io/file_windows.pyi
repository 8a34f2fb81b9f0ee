from typing import final

from kstore.engine.io.file import File

@final
class ReadWindow: ...

@final
class MappedFile:
    def __new__(cls, file: File, size: int) -> MappedFile: ...
    @property
    def size(self) -> int: ...
