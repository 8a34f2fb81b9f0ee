"""Which partition a key belongs to: Kafka's default partitioner, murmur2 of the key modulo the number of partitions."""

import numpy
from numpy.typing import NDArray

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash of some bytes as Kafka's Utils.murmur2 gives it: a signed 32-bit integer."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_of_key(key: bytes, partition_count: int) -> int:
    """The partition that Kafka's producer chooses for a key where none is given."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def partitions_of_keys(
    offsets: NDArray[numpy.int32], data: NDArray[numpy.uint8], partition_count: int
) -> NDArray[numpy.int32]:
    """The same for many keys: key i is data[offsets[i]:offsets[i + 1]]. One pass over words, not over keys."""
    starts = offsets[:-1].astype(numpy.int64)
    lengths = numpy.diff(offsets).astype(numpy.int64)
    alike = len(lengths) == 0 or bool((lengths == lengths[0]).all())
    order = slice(None) if alike else numpy.argsort(lengths, kind="stable")
    starts, lengths = starts[order], lengths[order]
    m = numpy.uint32(_M)
    h = numpy.uint32(_SEED) ^ lengths.astype(numpy.uint32)
    words = lengths >> 2
    for word in range(int(words[-1]) if len(words) else 0):
        first = int(numpy.searchsorted(words, word, side="right"))  # keys from here on have this word
        at = starts[first:] + 4 * word
        k = _load(data, at, 4) * m
        k ^= k >> numpy.uint32(24)
        k *= m
        h[first:] = h[first:] * m ^ k
    for rest in (1, 2, 3):
        which = numpy.flatnonzero(lengths & 3 == rest)
        if len(which):
            at = starts[which] + 4 * words[which]
            h[which] = (h[which] ^ _load(data, at, rest)) * m
    h ^= h >> numpy.uint32(13)
    h *= m
    h ^= h >> numpy.uint32(15)
    found = numpy.empty(len(h), numpy.int32)
    found[order] = (h & numpy.uint32(0x7FFFFFFF)) % numpy.uint32(partition_count)
    return found


def _load(data: NDArray[numpy.uint8], at: NDArray[numpy.int64], size: int) -> NDArray[numpy.uint32]:
    """Little-endian integers of `size` bytes."""
    if size == 4:  # a view of the word at every byte, whether aligned or not
        words = numpy.ndarray((max(len(data) - 3, 0),), "<u4", data, 0, (1,))
        return words[at].astype(numpy.uint32, copy=False)
    loaded = data[at].astype(numpy.uint32)
    for i in range(1, size):
        loaded |= data[at + i].astype(numpy.uint32) << numpy.uint32(8 * i)
    return loaded
