"""Which partition a key belongs to: Kafka's default partitioner, murmur2 of the key modulo the number of
partitions."""

import numpy
from numpy.typing import NDArray

from kstore.engine.record.partitions import murmur2, partitions_into

__all__ = ["murmur2", "partition_of_key", "partitions_of_keys"]


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition that Kafka's producer chooses for a key where none is given."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def partitions_of_keys(
    offsets: NDArray[numpy.int32], data: NDArray[numpy.uint8], partition_count: int
) -> NDArray[numpy.int32]:
    """The partitions of many keys: key i is data[offsets[i]:offsets[i + 1]]."""
    found = numpy.empty(len(offsets) - 1, numpy.int32)
    partitions_into(found, offsets, data, partition_count)
    return found
