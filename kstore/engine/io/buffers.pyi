from typing import final

from typing_extensions import Buffer as Exporter

from kstore.engine.io.file import File

@final
class BufferPool:
    @property
    def kept(self) -> int: ...
    @property
    def most_kept(self) -> int: ...

POOL: BufferPool

@final
class Buffer(Exporter):
    @property
    def size(self) -> int: ...
    @property
    def room(self) -> int: ...

__pyx_capi__: dict[str, object]  # what other extension modules cimport

@final
class ReadWindow: ...

@final
class MappedFile:
    def __new__(cls, file: File, size: int) -> MappedFile: ...
    @property
    def size(self) -> int: ...
