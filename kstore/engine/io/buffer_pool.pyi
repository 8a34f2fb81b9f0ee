from typing import final

from typing_extensions import Buffer as Exporter

@final
class BufferPool:
    """Buffers to be used again. Every method needs the GIL, which is its lock."""

    @property
    def kept(self) -> int: ...
    @property
    def most_kept(self) -> int: ...

POOL: BufferPool

@final
class Buffer(Exporter):
    """Bytes that no longer change, for as long as someone looks at them. Exports the buffer protocol, read-only."""

    @property
    def size(self) -> int: ...
    @property
    def room(self) -> int: ...

__pyx_capi__: dict[str, object]  # what other extension modules cimport
