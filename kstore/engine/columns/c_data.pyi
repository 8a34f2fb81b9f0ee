from typing import final

@final
class Chunk:
    """Owns one array."""

@final
class Stream:
    """Owns a stream, whose arrays outlive it."""

@final
class ChunkedArray:
    """Owns a schema and the arrays that came with it, none of them empty."""

__pyx_capi__: dict[str, object]  # what other extension modules cimport
