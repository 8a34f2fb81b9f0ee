# cython: binding=False
"""The four codecs of Kafka (spec 2.6): what a batch's payload unpacks to, never more than a cap, and what its
records pack to.

zlib-ng does gzip, zstandard zstd. The framings of snappy and lz4 are read here, because Kafka's readers
and writers have their own rules for them: xerial's snappy stream, lz4 frames of independent blocks whose
header checksum is wrong in messages of magic 0. So are their blocks, without the GIL. snap.h packs snappy,
the library lz4 packs lz4. Each library is imported when its codec is first used, and each gives up the GIL
while it packs. Each raises an error if there is no memory, which not every library does: deflate and
lz4.block write to NULL, and cramjam aborts the process.

The output buffer is sized from what the framing itself says before anything is unpacked, and cut at the cap,
so a bomb costs no more memory than that.

What costs at the size of a batch is not only packing but setting up for it. So zstd's contexts are kept
between batches, and zstd is given the parameters that a level stands for when the size is not known: those
that Kafka's stream has, which are quicker than the ones zstd takes for small inputs, and as good.
"""


from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from libkstore.format cimport ks_load_i32, ks_store_u32
from libkstore.lz4 cimport ks_unlz4
from libkstore.snappy cimport ks_unsnap

from kstore.libraries import library

cdef extern from "snap.h" nogil:
    size_t ks_snap(const uint8_t *p, size_t size, uint8_t *out)

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

cdef enum:
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

cdef enum:
    SNAPPY_HEADER = 16
    SNAPPY_MAGIC_WORD = -2108469695  # the first four bytes of xerial's magic as a big-endian i32
    ZSTD_BLOCK_MAX = 128 * 1024
    GZIP_PIECE = 512  # how much of a member is looked at first
    MOST_PIECES = 1 << 16  # gzip members, lz4 blocks: a writer has a few; each costs time, though it unpacks to nothing

cdef bytes GZIP_MAGIC = b"\x1f\x8b\x08"
cdef object ZstdDecompressor, ZstdError
cdef list ZSTD_UNPACKERS = []  # not in use right now
cdef int[4] ZSTD_DICTIONARY, ZSTD_SIZE  # bytes of these fields, by the flags
ZSTD_DICTIONARY[:] = [0, 1, 2, 4]
ZSTD_SIZE[:] = [0, 2, 4, 8]

cdef const uint8_t *SNAPPY_MAGIC = <const uint8_t *>b"\x82SNAPPY\x00"


class CodecError(Exception):
    """A payload that its codec does not accept: what is wrong, and the byte of the payload where."""

    def __init__(self, reason, at=0, expected=None, found=None):
        self.reason = reason
        self.at = at
        self.expected = expected
        self.found = found
        super().__init__(reason)


class DecompressLimitError(Exception):
    """The payload unpacks to more than the cap."""


cdef object error_of(str codec, object error):
    """What kstore raises for an error of the library that unpacks a codec: MemoryError, or CodecError."""
    text = str(error)
    if "Allocation error" in text or "Error -4" in text:  # ZSTD_error_memory_allocation, Z_MEM_ERROR
        return MemoryError(f"{codec}: {text}")
    return CodecError(f"{codec}: {text}")


# ---- unpacking ---------------------------------------------------------------------------------------------

cdef uint32_t load_le32(const uint8_t *p) noexcept nogil:
    return p[0] | (<uint32_t>p[1] << 8) | (<uint32_t>p[2] << 16) | (<uint32_t>p[3] << 24)


cdef uint32_t rotated(uint32_t value, int by) noexcept nogil:
    return (value << by) | (value >> (32 - by))


cdef uint32_t xxh32(const uint8_t *p, int64_t size) noexcept nogil:
    """xxHash32 with seed 0: the checksum of lz4 headers and blocks."""
    cdef uint32_t[4] lane
    cdef uint32_t h = 374761393u
    cdef int64_t left = size
    cdef int i
    if left >= 16:
        lane[0] = 0x24234428u  # the sum of the first two primes, in 32 bits
        lane[1] = 2246822519u
        lane[2] = 0
        lane[3] = 0x61C8864Fu
        while left >= 16:
            for i in range(4):
                lane[i] = rotated(lane[i] + load_le32(p + 4 * i) * 2246822519u, 13) * 2654435761u
            p += 16
            left -= 16
        h = rotated(lane[0], 1) + rotated(lane[1], 7) + rotated(lane[2], 12) + rotated(lane[3], 18)
    h += <uint32_t>size
    while left >= 4:
        h = rotated(h + load_le32(p) * 3266489917u, 17) * 668265263u
        p += 4
        left -= 4
    while left:
        h = rotated(h + p[0] * 374761393u, 11) * 2654435761u
        p += 1
        left -= 1
    h = (h ^ (h >> 15)) * 2246822519u
    h = (h ^ (h >> 13)) * 3266489917u
    return h ^ (h >> 16)


cdef bytearray new_buffer(int64_t size, int64_t limit):
    if size > limit:
        raise DecompressLimitError(size)
    return PyByteArray_FromStringAndSize(NULL, size)


cdef object zlib_ng  # None until it is first used


cdef object gzip_library():
    global zlib_ng
    if zlib_ng is None:
        zlib_ng = library("zlib_ng.zlib_ng")
    return zlib_ng


cdef object decompress_gzip(bytes data, int64_t limit):
    """One or more gzip members; what follows the last and is no member is ignored, as Java does."""
    out = bytearray()
    rest = memoryview(data)
    zlib = gzip_library()
    cdef int64_t at = 0, end, piece = max(len(data), <int64_t>1), members = 0  # the first one is the only one, mostly
    while True:
        members += 1
        if members > MOST_PIECES:
            raise CodecError("gzip: members", at, f"at most {<int64_t>MOST_PIECES}", "more")
        inflater = zlib.decompressobj(31)
        while not inflater.eof:
            if at >= len(data):
                raise CodecError("gzip: the stream ends early", len(data), "an end of stream", "none")
            end = min(at + piece, <int64_t>len(data))
            try:
                unpacked = inflater.decompress(rest[at:end], limit - len(out) + 1)
            except zlib.error as e:
                raise error_of("gzip", e) from None
            if at == 0 and inflater.eof and end == len(data) and not inflater.unused_data and len(unpacked) <= limit:
                return unpacked
            out += unpacked
            if len(out) > limit:
                raise DecompressLimitError(len(out))
            at = end - len(inflater.unused_data)
            piece *= 2
        if data[at : at + 3] != GZIP_MAGIC:
            return out
        piece = GZIP_PIECE  # grows: what is not used is copied, so a small member gets not all the rest


cdef int64_t snappy_length(const uint8_t *p, int64_t size) except -1:
    """What a raw snappy block says it unpacks to: a varint, low group first."""
    cdef int64_t value = 0
    cdef int i
    for i in range(min(size, <int64_t>5)):
        value |= <int64_t>(p[i] & 0x7F) << (7 * i)
        if p[i] < 0x80:
            return value
    raise CodecError("snappy: length of a block", 0, "a varint of at most 5 bytes", bytes(p[: min(size, <int64_t>5)]))


cdef int64_t snappy_block(const uint8_t *p, int64_t size, int64_t length, uint8_t *out) except -1:
    """Unpacks a raw block of `size` bytes, which says that it unpacks to `length`, to `out`; returns that."""
    cdef const uint8_t *end = p + size
    cdef int64_t done
    while p[0] >= 0x80:  # the length, which snappy_length has read
        p += 1
    with nogil:
        done = ks_unsnap(p + 1, end, out, length)
    if done != length:
        raise CodecError("snappy: elements of a block", 0, f"{length} bytes", "more" if done < 0 else done)
    return done


cdef int64_t next_chunk(const uint8_t *p, int64_t size, int64_t *at) except -2:
    """The size of the next chunk of a xerial stream, and `at` where its block begins; -1 behind the last."""
    cdef int64_t chunk
    while size - at[0] >= 4:  # a cut-off last length ends the stream
        chunk = ks_load_i32(p + at[0])
        if chunk == SNAPPY_MAGIC_WORD:  # a concatenated stream begins
            if size - at[0] < SNAPPY_HEADER:
                return -1
            at[0] += SNAPPY_HEADER
            continue
        at[0] += 4
        if chunk < 0 or chunk > size - at[0]:
            raise CodecError("snappy: length of a chunk", at[0] - 4, f"0 to {size - at[0]}", chunk)
        return chunk
    return -1


cdef bytearray decompress_snappy(const uint8_t *p, int64_t size, int64_t limit):
    cdef int64_t at = SNAPPY_HEADER, chunk, length, total = 0, done = 0
    cdef bytearray out
    cdef uint8_t *target
    if size < 8 or memcmp(p, SNAPPY_MAGIC, 8) != 0:  # no xerial stream: one raw block
        total = snappy_length(p, size)
        out = new_buffer(total, limit)
        snappy_block(p, size, total, <uint8_t *>PyByteArray_AS_STRING(out))
        return out
    if size < SNAPPY_HEADER:
        raise CodecError("snappy: stream header", 0, SNAPPY_HEADER, size)
    while (chunk := next_chunk(p, size, &at)) >= 0:
        length = snappy_length(p + at, chunk)
        if length > 64 * chunk + 64:  # a snappy element of 3 bytes copies at most 64
            raise CodecError("snappy: unpacked length of a chunk", at, f"at most {64 * chunk + 64}", length)
        total += length
        if total > limit:
            raise DecompressLimitError(total)
        at += chunk
    out = new_buffer(total, limit)
    target = <uint8_t *>PyByteArray_AS_STRING(out)
    at = SNAPPY_HEADER
    while (chunk := next_chunk(p, size, &at)) >= 0:
        done += snappy_block(p + at, chunk, snappy_length(p + at, chunk), target + done)
        at += chunk
    return out


cdef bytearray decompress_lz4(const uint8_t *p, int64_t size, int magic, int64_t limit):
    """One lz4 frame. Blocks must be independent, as Kafka wants them; content checksums are not verified, as
    there."""
    cdef int64_t at, begin, block_max, total = 0, done = 0, n, blocks = 0
    cdef uint32_t word
    cdef int64_t room, unpacked
    cdef uint8_t flags
    cdef uint8_t *target
    cdef bytearray out
    if size < 7:
        raise CodecError("lz4: frame header", 0, 7, size)
    if load_le32(p) != 0x184D2204u:
        raise CodecError("lz4: magic", 0, hex(0x184D2204), hex(load_le32(p)))
    flags = p[4]
    if flags >> 6 != 1:
        raise CodecError("lz4: version", 4, 1, flags >> 6)
    if not flags & 0x20:
        raise CodecError("lz4: blocks", 4, "independent ones", "dependent ones")
    if flags & 0x03:
        raise CodecError("lz4: reserved flag or dictionary", 4, 0, flags & 0x03)
    if p[5] & 0x8F or p[5] >> 4 < 4:
        raise CodecError("lz4: block size code", 5, "4 to 7", p[5] >> 4)
    block_max = <int64_t>1 << (8 + 2 * (p[5] >> 4))
    at = 6 + (8 if flags & 0x08 else 0)
    if at >= size:
        raise CodecError("lz4: frame header", 0, at + 1, size)
    if magic > 0:  # in magic 0 the checksum is known to be wrong
        word = (xxh32(p + 4, at - 4) >> 8) & 0xFF
        if word != p[at]:
            raise CodecError("lz4: header checksum", at, word, p[at])
    at += 1
    begin = at
    while True:
        if size - at < 4:
            raise CodecError("lz4: block size", at, "4 bytes", size - at)
        word = load_le32(p + at)
        at += 4
        if word == 0:
            break
        n = word & 0x7FFFFFFF
        if n > block_max or n > size - at:
            raise CodecError("lz4: block size", at - 4, f"at most {min(block_max, size - at)}", n)
        blocks += 1
        if blocks > MOST_PIECES:
            raise CodecError("lz4: blocks", at - 4, f"at most {<int64_t>MOST_PIECES}", "more")
        # the smallest block that unpacks to b bytes has about b / 255 of them
        total += n if word >> 31 else min(block_max, 255 * n)
        at += n
        if flags & 0x10:
            if size - at < 4:
                raise CodecError("lz4: block checksum", at, "4 bytes", size - at)
            if load_le32(p + at) != xxh32(p + at - n, n):
                raise CodecError("lz4: block checksum", at, load_le32(p + at), xxh32(p + at - n, n))
            at += 4
    out = new_buffer(min(total, limit + 1), limit + 1)
    target = <uint8_t *>PyByteArray_AS_STRING(out)
    room = len(out)
    at = begin
    while (word := load_le32(p + at)) != 0:  # the sizes were looked at above
        at += 4
        n = word & 0x7FFFFFFF
        if word >> 31:  # stored
            if n > limit - done:
                raise DecompressLimitError(done + n)
            memcpy(target + done, p + at, <size_t>n)
            done += n
        else:
            with nogil:
                unpacked = ks_unlz4(p + at, p + at + n, target + done, min(block_max, room - done))
            if unpacked < 0:
                if room - done < block_max and room > limit:
                    raise DecompressLimitError(room)
                raise CodecError("lz4: block", at, f"a block of at most {block_max} bytes", "a broken one")
            done += unpacked
        at += n + (4 if flags & 0x10 else 0)
    if done > limit:
        raise DecompressLimitError(done)
    PyByteArray_Resize(out, done)
    return out


cdef int64_t zstd_bound(const uint8_t *p, int64_t size, int64_t limit, int *frames) except -1:
    """The most that the frames can decompress to, read from their headers and those of their blocks.
    `frames`: 1 for one that claims no more than that, and nothing else."""
    cdef int64_t at = 0, total = 0, window, n, frame, claimed
    cdef int count = 0, i
    cdef uint32_t word
    cdef uint8_t flags
    cdef int width
    while at < size:
        if size - at < 5:
            raise CodecError("zstd: frame header", at, "5 bytes", size - at)
        word = load_le32(p + at)
        count += 1
        if word & 0xFFFFFFF0u == 0x184D2A50u:  # a skippable frame
            count += 1
            if size - at < 8 or load_le32(p + at + 4) > size - at - 8:
                raise CodecError("zstd: skippable frame", at, "its whole length", size - at)
            at += 8 + load_le32(p + at + 4)
            continue
        if word != 0xFD2FB528u:
            raise CodecError("zstd: magic", at, hex(0xFD2FB528), hex(word))
        flags = p[at + 4]
        at += 5
        window = ZSTD_BLOCK_MAX
        if not flags & 0x20:
            if at >= size:
                raise CodecError("zstd: window", at, "1 byte", 0)
            window = <int64_t>1 << (10 + (p[at] >> 3))
            window += (window >> 3) * (p[at] & 7)
            at += 1
        at += ZSTD_DICTIONARY[flags & 3]
        width = 1 if flags & 0x20 and not flags >> 6 else ZSTD_SIZE[flags >> 6]
        claimed = 256 if width == 2 else 0
        for i in range(width if size - at >= width else 0):
            claimed += <int64_t>(<uint64_t>p[at + i] << (8 * i))
        at += width
        frame = 0
        while True:
            if size - at < 3:
                raise CodecError("zstd: block header", at, "3 bytes", size - at)
            word = p[at] | (<uint32_t>p[at + 1] << 8) | (<uint32_t>p[at + 2] << 16)
            at += 3
            n = word >> 3
            if (word >> 1) & 3 == 2:
                frame += min(window, <int64_t>ZSTD_BLOCK_MAX)
            else:
                frame += n
            if (word >> 1) & 3 == 1:
                n = 1
            if n > size - at:
                raise CodecError("zstd: block", at, f"{n} bytes", size - at)
            at += n
            if word & 1:
                break
        total += frame
        if claimed < 0 or claimed > frame:
            count += 1
        if flags & 4:
            at += 4
        if at > size:
            raise CodecError("zstd: frame", size, f"{at - size} more bytes", 0)
    frames[0] = count
    return total


cdef object decompress_zstd(bytes data, int64_t limit):
    cdef int frames = 0
    global ZstdDecompressor, ZstdError
    if ZstdDecompressor is None:
        zstandard = library("zstandard")
        ZstdError = zstandard.ZstdError
        ZstdDecompressor = zstandard.ZstdDecompressor
    cdef int64_t bound = zstd_bound(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), limit, &frames)
    cdef bytearray out
    cdef int64_t done = 0, n
    if frames == 1 and 0 < bound <= limit:
        # a context that is kept, for one call at a time; what it refuses is judged below
        unpacker = ZSTD_UNPACKERS.pop() if ZSTD_UNPACKERS else ZstdDecompressor()
        try:
            return unpacker.decompress(data, max_output_size=bound)
        except ZstdError:
            pass
        finally:
            ZSTD_UNPACKERS.append(unpacker)
    out = new_buffer(min(bound, limit), limit)
    if bound == 0:
        return out
    try:
        reader = ZstdDecompressor().stream_reader(data, read_across_frames=True)
        rest = memoryview(out)
        while done < len(out) and (n := reader.readinto(rest[done:])):
            done += n
        is_more = bool(reader.read(1))
        rest.release()
    except ZstdError as e:
        raise error_of("zstd", e) from None
    if is_more:
        raise DecompressLimitError(bound) if bound > limit else CodecError("zstd: size of the frames", 0, bound, "more")
    PyByteArray_Resize(out, done)
    return out


def decompress(int codec, int magic, bytes data not None, int64_t limit):
    """What the payload of a batch with this codec and magic unpacks to, bytes or bytearray: at most `limit`
    bytes.

    DecompressLimitError past the limit, CodecError for a payload that is no such stream or for an unknown
    codec id.
    """
    return decompress_at(codec, magic, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), limit)


cdef object decompress_at(int codec, int magic, const uint8_t *p, int64_t size, int64_t limit):
    """What `decompress` returns for bytes at an address, which stay there meanwhile."""
    if codec == 1:
        return decompress_gzip(PyBytes_FromStringAndSize(<const char *>p, size), limit)
    if codec == 2:
        return decompress_snappy(p, size, limit)
    if codec == 3:
        return decompress_lz4(p, size, magic, limit)
    if codec == 4 and magic == 2:
        return decompress_zstd(PyBytes_FromStringAndSize(<const char *>p, size), limit)
    raise CodecError("codec", 0, "gzip, snappy, lz4" + (" or zstd" if magic == 2 else ""), codec)


# ---- packing -----------------------------------------------------------------------------------------------

cdef enum:
    SNAPPY_BLOCK = 32 * 1024  # of input, as Kafka's writer has it
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
    raise ValueError(f"level {level} of {NAMES[codec]}: {wanted}")


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
        raise MemoryError(f"{NAMES[codec]} cannot compress {size} bytes: {e}") from e


cdef int64_t compress_gzip(int level, const uint8_t *data, int64_t size, uint8_t *out, int64_t room) except -1:
    """One member. Its header names no level and no system, as Java's does not."""
    packed = _called(GZIP, size, gzip_library().compress, viewed(data, size), level, 31)
    cdef int64_t done = placed(packed, out, room)
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
