from typing import final

from typing_extensions import Buffer as Exporter

@final
class Pool:
    @property
    def kept(self) -> int: ...
    @property
    def most_kept(self) -> int: ...

POOL: Pool

@final
class Buffer(Exporter):
    @property
    def size(self) -> int: ...
    @property
    def room(self) -> int: ...

__pyx_capi__: dict[str, object]  # what other extension modules cimport
