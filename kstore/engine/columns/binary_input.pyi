from collections.abc import Callable
from typing import Any, final

@final
class BinaryInput:
    """A column of bytes cells; `cells` may be read without the GIL as long as the object lives. Thread-safe."""

def binary_input_list(values: Any, count: int = -1) -> list[bytes | None]:
    """For tests and debugging: the cells of a column as a list of bytes and None."""

def binary_input_outliving(make: Callable[[], Any], count: int = -1) -> list[bytes | None]:
    """For tests and debugging: the same of make(), once nothing but the cells holds what that returned."""

def binary_input_summary(values: Any, count: int = -1) -> tuple[str, int, int, int]:
    """For tests and debugging: (kind, cells, nulls, bytes) of a column, read without the GIL."""
