# cython: binding=False
"""The compressing side of the four codecs (spec 2.6): the records of one batch in, the batch's payload out.

Python's zlib makes gzip, snap.h snappy, and the libraries lz4 and zstandard the other two. Each library is
imported when its codec is first used, and each gives up the GIL while it compresses. Each raises an error if
there is no memory, which not every library does: deflate and lz4.block write to NULL, and cramjam aborts the
process.

What costs at the size of a batch is not only compressing but setting up for it. So zstd's contexts are kept
between batches, and zstd is given the parameters that a level stands for when the size is not known: those
that Kafka's stream has, which are quicker than the ones zstd takes for small inputs, and as good.
"""

import zlib

from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from libkstore.format cimport ks_store_u32

cdef extern from "snap.h" nogil:
    size_t ks_snap(const uint8_t *p, size_t size, uint8_t *out)

from kstore.engine.record import decompress as _codecs
from kstore.libraries import library

cdef enum:
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

cdef enum:
    SNAPPY_BLOCK = 32 * 1024  # of input, as Kafka's writer has it
    SNAPPY_HEADER = 16
    LZ4_BLOCK = 64 * 1024
    LZ4_HEADER = 7
    LZ4_BLOCKS = 4            # the frame's code for blocks of that size
    LZ4_FAST = 9              # Kafka's default level stands for the fast compressor, all others for the thorough one
    LZ4_HC_MIN = 3            # below, the library takes the fast one
    LZ4_HC_MAX = 12           # where the levels of the thorough one end
    SPARE_MAX = 8             # contexts of zstd that wait for the next batch
    SPARE_BYTES = 16 << 20    # the largest of them that is kept

cdef const uint8_t *SNAPPY_START = <const uint8_t *>b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"

cdef object lz4_compress, ZstdCompressor, ZstdCompressionParameters
cdef list spare = []  # (level, compressor) of zstd that no batch is being packed with


cdef bint is_level(int codec, int level) noexcept nogil:
    """Whether this codec has this level; snappy has no levels and takes any number for none."""
    if codec == GZIP:
        return level == -1 or 1 <= level <= 9
    if codec == LZ4:
        return 1 <= level <= 17
    if codec == ZSTD:
        return -131072 <= level <= 22
    return codec == SNAPPY


cdef int raise_unknown(int codec, object level) except -1:
    if not GZIP <= codec <= ZSTD:
        raise ValueError(f"codec {codec}: 1 to 4 are gzip, snappy, lz4 and zstd")
    wanted = ("-1 or 1 to 9", "none", "1 to 17", "-131072 to 22")[codec - GZIP]
    raise ValueError(f"level {level} of {_codecs.NAMES[codec]}: {wanted}")


cdef int level_of(int codec, object level) except? -2147483648:
    """The level that Kafka's configuration means by `level`: None is the codec's default. ValueError."""
    if level is None:
        level = {GZIP: -1, LZ4: 9, ZSTD: 3}.get(codec, 0)
    elif codec == SNAPPY or not -(1 << 31) < level < 1 << 31:
        raise_unknown(codec, level)
    if not is_level(codec, level):
        raise_unknown(codec, level)
    return level


cdef int64_t compress_bound(int codec, int64_t size) noexcept nogil:
    """The most that `size` bytes can be packed to: the room that compress_into wants. 0 for an unknown
    codec."""
    if codec == GZIP:  # header, trailer, and literals of at most 9 bits: not every zlib stores what does not pack
        return size + (size >> 3) + 64
    if codec == SNAPPY:  # a block may grow by a sixth and 32
        return SNAPPY_HEADER + size + size // 6 + (4 + 32) * (size // SNAPPY_BLOCK + 1)
    if codec == LZ4:
        return LZ4_HEADER + size + 4 * (size // LZ4_BLOCK + 1) + 4
    if codec == ZSTD:  # as ZSTD_compressBound
        return size + (size >> 8) + ((131072 - size) >> 11 if size < 131072 else 0) + 64
    return 0


cdef object viewed(const uint8_t *data, int64_t size):
    return PyMemoryView_FromMemory(<char *>data, size, PyBUF_READ)


cdef int64_t placed(object packed, uint8_t *out, int64_t room) except -1:
    """Copies what a library made to `out`; its size."""
    cdef Py_buffer view
    PyObject_GetBuffer(packed, &view, PyBUF_SIMPLE)
    try:
        if view.len > room:
            raise ValueError(f"{view.len} packed bytes in {room} bytes of room")
        memcpy(out, view.buf, <size_t>view.len)
        return view.len
    finally:
        PyBuffer_Release(&view)


def _called(int codec, int64_t size, function, *arguments, **options):
    """What a function of a library returns. Arguments are checked before, so that what it raises of its own
    says that there was no memory: MemoryError."""
    try:
        return function(*arguments, **options)
    except (MemoryError, TypeError, ValueError):
        raise
    except Exception as e:
        raise MemoryError(f"{_codecs.NAMES[codec]} cannot compress {size} bytes: {e}") from e


cdef int64_t compress_gzip(int level, const uint8_t *data, int64_t size, uint8_t *out, int64_t room) except -1:
    """One member. Its header names no level and no system, as Java's does not."""
    cdef int64_t done = placed(_called(GZIP, size, zlib.compress, viewed(data, size), level, 31), out, room)
    out[8] = 0
    out[9] = 255
    return done


cdef int64_t compress_snappy(const uint8_t *data, int64_t size, uint8_t *out, int64_t room) except -1:
    """Xerial's stream: a header, then blocks of 32 KiB of input, each behind its length."""
    cdef int64_t at = 0, done = SNAPPY_HEADER, n, packed
    memcpy(out, SNAPPY_START, SNAPPY_HEADER)
    with nogil:
        while at < size:
            n = min(size - at, <int64_t>SNAPPY_BLOCK)
            packed = <int64_t>ks_snap(data + at, <size_t>n, out + done + 4)
            ks_store_u32(out + done, <uint32_t>packed)
            done += 4 + packed
            at += n
    return done


cdef int64_t compress_lz4(int level, const uint8_t *data, int64_t size, uint8_t *out, int64_t room) except -1:
    """A frame of independent blocks of 64 KiB, stored as they are where packing does not make them
    smaller."""
    global lz4_compress
    if lz4_compress is None:
        lz4_compress = library("lz4.frame").compress
    return placed(
        _called(
            LZ4, size, lz4_compress, viewed(data, size),
            compression_level=0 if level == LZ4_FAST else min(max(level, <int>LZ4_HC_MIN), <int>LZ4_HC_MAX),
            block_size=LZ4_BLOCKS, block_linked=False, content_checksum=False, store_size=False,
        ),
        out,
        room,
    )


cdef object borrow_compressor(int level):
    """A zstd compressor of this level for the caller alone: one of the spare ones, or a new one."""
    global ZstdCompressor, ZstdCompressionParameters
    cdef Py_ssize_t i
    for i in range(len(spare) - 1, -1, -1):
        if spare[i][0] == level:
            return spare.pop(i)[1]
    if ZstdCompressor is None:
        zstandard = library("zstandard")
        ZstdCompressionParameters = zstandard.ZstdCompressionParameters
        ZstdCompressor = zstandard.ZstdCompressor
    return _called(ZSTD, 0, ZstdCompressor, compression_params=ZstdCompressionParameters.from_level(level))


cdef int64_t compress_zstd(int level, const uint8_t *data, int64_t size, uint8_t *out, int64_t room) except -1:
    """One frame, with the content's size in its header. Threads never share a compressor: it is not made for
    that."""
    compressor = borrow_compressor(level)
    packed = _called(ZSTD, size, compressor.compress, viewed(data, size))
    if compressor.memory_size() <= SPARE_BYTES:
        spare.append((level, compressor))
        if len(spare) > SPARE_MAX:
            del spare[0]
    return placed(packed, out, room)


cdef int64_t compress_into(
    int codec, int level, const uint8_t *data, int64_t size, uint8_t *out, int64_t room
) except -1:
    """Packs `size` bytes into `out`, which has at least compress_bound(codec, size) bytes; how many it took.

    ValueError for a level or a codec that there is not, and for too little room.
    """
    if not is_level(codec, level):
        raise_unknown(codec, level)
    if size < 0 or room < compress_bound(codec, size):
        raise ValueError(f"{size} bytes to compress, {room} bytes of room, {compress_bound(codec, size)} wanted")
    if size == 0:
        data = <const uint8_t *>b""  # the libraries want no NULL
    if codec == GZIP:
        return compress_gzip(level, data, size, out, room)
    if codec == SNAPPY:
        return compress_snappy(data, size, out, room)
    if codec == LZ4:
        return compress_lz4(level, data, size, out, room)
    return compress_zstd(level, data, size, out, room)


def compress(int codec, data not None, level=None):
    """The payload of a batch of this codec (1 gzip, 2 snappy, 3 lz4, 4 zstd) whose records are `data`, any
    buffer.

    `level` is as in Kafka's configuration; without one it is Kafka's default. ValueError for a level or a
    codec that there is not.
    """
    cdef Py_buffer view
    cdef int checked = level_of(codec, level)
    cdef int64_t room
    cdef uint8_t *out = NULL
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        room = compress_bound(codec, view.len)
        out = <uint8_t *>PyMem_RawMalloc(<size_t>room)
        if out is NULL:
            raise MemoryError(f"{room} bytes to compress into")
        return PyBytes_FromStringAndSize(
            <char *>out, compress_into(codec, checked, <const uint8_t *>view.buf, view.len, out, room)
        )
    finally:
        PyMem_RawFree(out)
        PyBuffer_Release(&view)
