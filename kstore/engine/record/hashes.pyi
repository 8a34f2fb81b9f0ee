from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

def crc32c(data: Buffer, value: int = 0, /) -> int: ...
def murmur2(data: Buffer, /) -> int: ...
def partitions_into(
    out: Buffer | NDArray[Any], offsets: Buffer | NDArray[Any], data: Buffer | NDArray[Any], count: int, /
) -> None: ...
