from typing import final

from typing_extensions import Buffer as Exporter

@final
class Pool: ...

@final
class Buffer(Exporter):
    @property
    def size(self) -> int: ...

__pyx_capi__: dict[str, object]  # what other extension modules cimport
