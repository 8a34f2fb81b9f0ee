from typing_extensions import Buffer

__pyx_capi__: dict[str, object]  # what other extension modules cimport

def compress(codec: int, data: Buffer, level: int | None = None) -> bytes: ...
