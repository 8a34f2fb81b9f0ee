from typing import final

from kstore.engine.io.file import File

@final
class Mapping:
    def __new__(cls, file: File, size: int) -> Mapping: ...
    @property
    def size(self) -> int: ...
