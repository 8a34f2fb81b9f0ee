"""The packing side of Kafka's codecs (spec 2.6): records of a batch in, the stream that Kafka would write out.

zlib and cramjam pack; the framings around their blocks are written here, because Kafka's readers insist on them.
"""

import zlib

import cramjam

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from libkstore.format cimport ks_store_u32

cdef enum:
    SNAPPY_BLOCK = 32 << 10
    LZ4_BLOCK = 64 << 10

cdef bytes GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
cdef bytes SNAPPY_HEADER = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
cdef bytes LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
LEVELS = {1: (-1, (1, 9)), 3: (9, (1, 17)), 4: (3, (-131072, 22))}  # by codec: the default, the range


cdef void store_le32(uint8_t *p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>value
    p[1] = <uint8_t>(value >> 8)
    p[2] = <uint8_t>(value >> 16)
    p[3] = <uint8_t>(value >> 24)


cdef int64_t pack_bound(int codec, int64_t size) noexcept nogil:
    """The most bytes that packing so many can give."""
    return size + size // 6 + 64 * (size // SNAPPY_BLOCK) + 512


cdef object view_of(const uint8_t *data, int64_t size):
    return <const uint8_t[:size]>data if size else b""


cdef int64_t pack_gzip(int level, const uint8_t *data, int64_t size, uint8_t *out) except -1:
    source = view_of(data, size)
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15, 8)
    cdef bytes body = deflate.compress(source) + deflate.flush()
    cdef int64_t n = PyBytes_GET_SIZE(body)
    memcpy(out, PyBytes_AS_STRING(GZIP_HEADER), 10)
    memcpy(out + 10, PyBytes_AS_STRING(body), <size_t>n)
    store_le32(out + 10 + n, zlib.crc32(source))
    store_le32(out + 14 + n, <uint32_t>size)
    return 18 + n


cdef int64_t pack_snappy(const uint8_t *data, int64_t size, uint8_t *out, int64_t room) except -1:
    cdef int64_t at = 0, n, done = 16, packed
    target = <uint8_t[:room]>out
    memcpy(out, PyBytes_AS_STRING(SNAPPY_HEADER), 16)
    while at < size:
        n = min(<int64_t>SNAPPY_BLOCK, size - at)
        packed = cramjam.snappy.compress_raw_into(view_of(data + at, n), target[done + 4 :])
        ks_store_u32(out + done, <uint32_t>packed)
        done += 4 + packed
        at += n
    return done


cdef int64_t pack_lz4(int level, const uint8_t *data, int64_t size, uint8_t *out, int64_t room) except -1:
    """Blocks that do not depend on each other; level 9, Kafka's default, is the fast compressor, others are thorough."""
    cdef int64_t at = 0, n, done = 7, packed
    target = <uint8_t[:room]>out
    memcpy(out, PyBytes_AS_STRING(LZ4_HEADER), 7)
    while at < size:
        n = min(<int64_t>LZ4_BLOCK, size - at)
        block = view_of(data + at, n)
        if level == 9:
            packed = cramjam.lz4.compress_block_into(block, target[done + 4 :], store_size=False)
        else:
            packed = cramjam.lz4.compress_block_into(
                block, target[done + 4 :], mode="high_compression", compression=min(level, 12), store_size=False
            )
        if packed < n:
            store_le32(out + done, <uint32_t>packed)
        else:
            packed = n
            memcpy(out + done + 4, data + at, <size_t>n)
            store_le32(out + done, <uint32_t>n | 0x80000000u)
        done += 4 + packed
        at += n
    store_le32(out + done, 0)
    return done + 4


cdef int64_t pack_into(int codec, int level, const uint8_t *data, int64_t size, uint8_t *out, int64_t room) except -1:
    """Packs `size` bytes into `out`, which has `room` (at least pack_bound); returns how many bytes it made."""
    if codec == 1:
        return pack_gzip(level, data, size, out)
    if codec == 2:
        return pack_snappy(data, size, out, room)
    if codec == 3:
        return pack_lz4(level, data, size, out, room)
    return cramjam.zstd.compress_into(view_of(data, size), <uint8_t[:room]>out, level)


def pack(int codec, bytes data not None, level=None):
    """`data` packed with codec 1 to 4 (gzip, snappy, lz4, zstd) at a level of Kafka's. ValueError."""
    cdef int64_t bound = pack_bound(codec, PyBytes_GET_SIZE(data))
    if not 1 <= codec <= 4:
        raise ValueError(f"codec {codec} is not 1 to 4")
    if codec in LEVELS:
        default, (least, most) = LEVELS[codec]
        level = default if level is None else level
        if not least <= level <= most and level != default:
            raise ValueError(f"level {level} is not {least} to {most}")
    cdef bytes out = PyBytes_FromStringAndSize(NULL, bound)
    cdef int64_t size = pack_into(
        codec, -1 if level is None else level, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data),
        <uint8_t *>PyBytes_AS_STRING(out), bound,
    )
    return out[:size]
