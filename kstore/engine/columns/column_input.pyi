from collections.abc import Callable
from typing import Any, final

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

def timestamp_input_list(timestamps: Any, count: int, default: int) -> list[int]: ...
def timestamp_input_outliving(make: Callable[[], Any], count: int, default: int) -> list[int]: ...

@final
class HeaderInput: ...

def header_input_list(headers: Any, count: int) -> list[bytes]: ...
