"""Kafka's murmur2 in plain Python, by which its default partitioner chooses a partition for a key."""

from functools import cache

_MASK = 2**32 - 1


@cache
def murmur2(key: bytes) -> int:
    """The hash of `org.apache.kafka.common.utils.Utils.murmur2`, as an unsigned number of 32 bits."""
    multiplier, length = 0x5BD1E995, len(key)
    hashed = 0x9747B28C ^ length
    whole = length - length % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & _MASK
        word = (word ^ word >> 24) * multiplier & _MASK
        hashed = hashed * multiplier & _MASK ^ word
    if key[whole:]:
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * multiplier & _MASK
    hashed = (hashed ^ hashed >> 13) * multiplier & _MASK
    return hashed ^ hashed >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key among so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
