from collections.abc import Callable
from typing import Any, final

__pyx_capi__: dict[str, object]  # what other extension modules cimport

@final
class Times: ...

def times_list(timestamps: Any, count: int, default: int) -> list[int]: ...
def times_outliving(make: Callable[[], Any], count: int, default: int) -> list[int]: ...
