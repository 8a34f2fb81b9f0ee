from collections.abc import Callable
from typing import Any, Final

__pyx_capi__: dict[str, object]  # what other extension modules cimport

TRACED: Final[tuple[str, ...]]

def fail_call(nth: int, error: int = 5, how: str = "error", *, own: bool = False) -> None: ...
def calls_made() -> int: ...
def trace_calls(callback: Callable[[str, str, int, int, Any], object] | None) -> None: ...
