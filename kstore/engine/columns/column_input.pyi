from typing import final

from kstore.arguments import FIRST_SECOND as FIRST_SECOND
from kstore.arguments import LAST_SECOND as LAST_SECOND

__pyx_capi__: dict[str, object]  # what other extension modules cimport

@final
class Chunk: ...

@final
class Stream: ...

@final
class ChunkedArray: ...

@final
class TimestampInput: ...

@final
class HeaderInput: ...
