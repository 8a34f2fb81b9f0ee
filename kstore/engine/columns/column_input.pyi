from collections.abc import Callable
from typing import Any, final

__pyx_capi__: dict[str, object]  # what other extension modules cimport

__pyx_capi__: dict[str, object]  # what other extension modules cimport

@final
class TimestampInput: ...

def timestamp_input_list(timestamps: Any, count: int, default: int) -> list[int]: ...
def timestamp_input_outliving(make: Callable[[], Any], count: int, default: int) -> list[int]: ...

@final
class HeaderInput: ...

def header_input_list(headers: Any, count: int) -> list[bytes]: ...
