from typing import final

from typing_extensions import Buffer as Exporter

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
