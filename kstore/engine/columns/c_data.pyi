from typing import final

@final
class Chunk: ...

@final
class Stream: ...

@final
class ChunkedArray: ...

__pyx_capi__: dict[str, object]  # what other extension modules cimport
