from collections.abc import Callable
from typing import Any, final

from kstore.arguments import FIRST_SECOND as FIRST_SECOND
from kstore.arguments import LAST_SECOND as LAST_SECOND

__pyx_capi__: dict[str, object]  # what other extension modules cimport

@final
class TimestampInput:
    """Timestamps of records: milliseconds since 1970, or -1 for none; readable without the GIL as BinaryInput are."""

def timestamp_input_list(timestamps: Any, count: int, default: int) -> list[int]:
    """For tests and debugging: the timestamps of `count` records as a list of ints."""

def timestamp_input_outliving(make: Callable[[], Any], count: int, default: int) -> list[int]:
    """For tests and debugging: the same of make(), once nothing but the times holds what that returned."""

@final
class HeaderInput:
    """The encoded headers of many records, readable without the GIL. They own their bytes. Thread-safe."""

def header_input_list(headers: Any, count: int) -> list[bytes]:
    """For tests and debugging: the encoded headers of each of `count` records."""
