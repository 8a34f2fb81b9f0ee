"""The short ways of unpacking take what they should, and leave the rest to the libraries, which say what is wrong."""

import gzip
import random
import struct

import cramjam
import pytest
import zstandard

from kstore.engine.record.codec_errors import CodecError, DecompressLimitError
from kstore.engine.record.decompress import decompress

GZIP, SNAPPY, ZSTD = 1, 2, 4
TEXT = b"".join(b'{"id":%d,"name":"%d"}' % (i, i % 7) for i in range(1000))
LIMIT = 1 << 20


def test_gzip_of_several_members() -> None:
    one, two = gzip.compress(TEXT), gzip.compress(b"more")
    assert decompress(GZIP, 2, one + two, LIMIT) == TEXT + b"more"
    assert decompress(GZIP, 2, one + one, LIMIT) == TEXT + TEXT
    assert decompress(GZIP, 2, gzip.compress(b""), LIMIT) == b""


@pytest.mark.parametrize("more", [b"junk", b"\x1f\x8b", struct.pack("<II", 1, 5), b"\xff" * 8])
def test_gzip_ignores_what_follows(more: bytes) -> None:
    packed = gzip.compress(TEXT)
    assert decompress(GZIP, 2, packed + more, LIMIT) == TEXT
    assert decompress(GZIP, 2, packed + packed[-8:], LIMIT) == TEXT


def test_gzip_with_the_magic_inside() -> None:
    data = gzip.compress(b"\x1f\x8b\x08" * 3)
    stored = gzip.compress(data, 0)
    assert b"\x1f\x8b\x08" in stored[3:]
    assert decompress(GZIP, 2, stored, LIMIT) == data


@pytest.mark.parametrize("size", [0, len(TEXT) - 1, len(TEXT) + 1, 0xFFFFFFFF])
def test_gzip_with_another_size(size: int) -> None:
    with pytest.raises(CodecError, match="incorrect length check"):
        decompress(GZIP, 2, gzip.compress(TEXT)[:-4] + struct.pack("<I", size), LIMIT)


@pytest.mark.parametrize("limit", [0, 1, len(TEXT) - 1])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_no_more_than_the_limit(codec: int, limit: int) -> None:
    packed = {
        GZIP: gzip.compress(TEXT),
        SNAPPY: bytes(cramjam.snappy.compress_raw(TEXT)),
        ZSTD: zstandard.compress(TEXT),
    }[codec]
    assert decompress(codec, 2, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressLimitError):
        decompress(codec, 2, packed, limit)


def test_zstd_frames() -> None:
    frame = zstandard.compress(TEXT)
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    skipped = struct.pack("<II", 0x184D2A53, 4) + b"skip"
    assert decompress(ZSTD, 2, unsaid, LIMIT) == TEXT
    for parts in ([frame, frame], [unsaid, frame], [skipped, frame], [frame, skipped]):
        right = TEXT * sum(part is not skipped for part in parts)
        assert decompress(ZSTD, 2, b"".join(parts), LIMIT) == right
    for size in (0, 1, 7, 40, 255, 256, 65_791, 65_792, 300_000):
        assert decompress(ZSTD, 2, zstandard.compress(bytes(size)), LIMIT) == bytes(size)


@pytest.mark.parametrize("claimed", [1, 1 << 20, (1 << 63) - 1])
def test_zstd_that_claims_another_size(claimed: int) -> None:
    block = struct.pack("<I", 5 << 3 | 1)[:3] + b"bytes"  # the last one, raw
    frame = struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0, claimed) + block
    with pytest.raises(CodecError):
        decompress(ZSTD, 2, frame, LIMIT)
    assert decompress(ZSTD, 2, struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0, 5) + block, LIMIT) == b"bytes"
    unsaid = struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0, (1 << 64) - 1)  # the library takes this for no claim
    assert decompress(ZSTD, 2, unsaid + block, LIMIT) == b"bytes"


def snappy_by_hand(elements: list[tuple[int, bytes | int]]) -> tuple[bytes, bytes]:
    """(packed, what it unpacks to): literals, and copies of (size, distance) in all of their encodings."""
    packed, out = bytearray(), bytearray()
    for size, what in elements:
        if isinstance(what, bytes):
            n = len(what) - 1
            more = 0 if n < 60 else (n.bit_length() + 7) // 8
            packed += (
                bytes([(59 + more if more else n) << 2])
                + (n.to_bytes(more, "little") if more else b"")
                + what
            )
            out += what
            continue
        if size < 12 and size >= 4 and what < 2048:
            packed += bytes([1 | size - 4 << 2 | what >> 8 << 5, what & 255])
        elif what < 65_536:
            packed += bytes([2 | size - 1 << 2]) + struct.pack("<H", what)
        else:
            packed += bytes([3 | size - 1 << 2]) + struct.pack("<I", what)
        for _ in range(size):
            out.append(out[-what])
    length, head = len(out), bytearray()
    while length >= 128:
        head.append(length & 127 | 128)
        length >>= 7
    return bytes(head + bytes([length]) + packed), bytes(out)


def test_snappy_against_the_library() -> None:
    rnd = random.Random(5)
    for _ in range(2000):
        elements: list[tuple[int, bytes | int]] = [
            (0, rnd.randbytes(rnd.choice([1, 5, 16, 17, 60, 61, 300])))
        ]
        size = len(elements[0][1]) if isinstance(elements[0][1], bytes) else 0
        for _ in range(rnd.randrange(40)):
            if rnd.random() < 0.4:
                what: bytes | int = rnd.randbytes(
                    rnd.choice([1, 2, 15, 16, 17, 59, 60, 61, 64, 65, 256, 257, 70_000])
                )
                assert isinstance(what, bytes)
                elements.append((0, what))
                size += len(what)
            else:
                n = rnd.randint(1, 64)
                elements.append((n, rnd.randint(1, min(size, rnd.choice([4, 17, 100, 3000, 80_000])))))
                size += n
        packed, right = snappy_by_hand(elements)
        assert bytes(cramjam.snappy.decompress_raw(packed)) == right
        assert decompress(SNAPPY, 2, packed, LIMIT << 3) == right
        if len(packed) > 3000:
            continue
        for _ in range(20):  # damaged: both take it for the same, or both refuse it
            broken = bytearray(packed)
            broken[rnd.randrange(len(broken))] = rnd.randrange(256)
            if rnd.random() < 0.3:
                del broken[rnd.randrange(len(broken)) :]
            try:
                theirs = bytes(cramjam.snappy.decompress_raw(bytes(broken)))
            except cramjam.DecompressionError:
                theirs = None
            try:
                ours = bytes(decompress(SNAPPY, 2, bytes(broken), LIMIT))
            except (CodecError, DecompressLimitError):
                ours = None
            assert ours == theirs
