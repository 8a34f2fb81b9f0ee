from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

def murmur2(data: Buffer, /) -> int: ...
def partitions_into(
    out: Buffer | NDArray[Any], offsets: Buffer | NDArray[Any], data: Buffer | NDArray[Any], count: int, /
) -> None: ...
def split_by_partition(
    values: Any, keys: Any, timestamps: Any, headers: Any, count: int, keyless: int
) -> tuple[tuple[Any, Any, Any, Any], list[tuple[int, Any, Any, Any, Any]]]: ...
