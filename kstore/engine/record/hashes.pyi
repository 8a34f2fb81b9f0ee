from typing import Any

from numpy.typing import NDArray
from typing_extensions import Buffer

__pyx_capi__: dict[str, object]  # what other extension modules cimport

def crc32c(data: Buffer, value: int = 0, /) -> int:
    """The CRC-32C (Castagnoli) of `data`, a contiguous buffer, going on from `value`, an earlier result."""

def murmur2(data: Buffer, /) -> int:
    """The hash of some bytes as Kafka's Utils.murmur2 gives it: a signed 32-bit integer."""

def partitions_into(
    out: Buffer | NDArray[Any], offsets: Buffer | NDArray[Any], data: Buffer | NDArray[Any], count: int, /
) -> None:
    """Writes to `out` the partition, of `count`, of every key: key i is data[offsets[i]:offsets[i + 1]]. `out` and
    `offsets` are buffers of int32; offsets that lie outside of `data` are a ValueError."""
