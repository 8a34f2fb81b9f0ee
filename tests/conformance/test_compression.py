"""Lz4CompressionTest and the framings of spec 2.6: what is unpacked, what is refused, what kstore packs."""

import gzip
import random
import struct

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kstore import CorruptRecordError, Record, RecordBatch, RecordTooLargeError, encode_batch
from tests.helpers import forge
from tests.helpers.examples import examples
from tests.helpers.forge import CODECS, Rec

PACKED = CODECS[1:]
REC = Rec(b"value" * 100, b"key", 5)
BODY = forge.record(REC, 0, 5)
READ = [Record(0, 5, "CreateTime", b"key", b"value" * 100)]
RANDOM = random.Random(4).randbytes(200_000)
TEXT = b"".join(
    b'{"id":"%08x","user":%d,"page":%d}\n' % (n * 2654435761 % 2**32, n % 977, n % 20) for n in range(6000)
)


def read(codec: str, packed: bytes, limit: int = 1 << 20) -> list[Record]:
    raw = forge.batch(codec=codec, packed=packed, count=1, base_timestamp=5, crc=0)
    return RecordBatch(raw, max_decompressed_bytes=limit).records(verify=False)


def refused(codec: str, packed: bytes, match: str = ".") -> None:
    with pytest.raises(CorruptRecordError, match=match):
        read(codec, packed)


# ---- unpacking -----------------------------------------------------------------------------------


def zstd_claiming(size: int) -> bytes:
    """A frame of one raw block, with a content size of so many bytes."""
    block = struct.pack("<I", len(BODY) << 3 | 1)[:3] + BODY
    return struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0, size) + block


ZSTD = zstandard.compress(BODY)
ZSTD_UNSAID = zstandard.ZstdCompressor(write_content_size=False).compress(BODY)
ZSTD_SKIPPED = struct.pack("<II", 0x184D2A53, 4) + b"skip"
STORED = forge.record(Rec(b"\x1f\x8b\x08" * 3, b"key", 5), 0, 5)
GOOD = {
    "gzip": forge.gzip(BODY),
    "gzip by another program": gzip.compress(BODY, 1),
    "gzip, two members": forge.gzip(BODY[:50]) + forge.gzip(BODY[50:]),
    "gzip, an empty member": forge.gzip(b"") + forge.gzip(BODY),
    "gzip, garbage behind": forge.gzip(BODY) + b"garbage",
    "gzip, half of a magic behind": forge.gzip(BODY) + b"\x1f\x8b",
    "gzip, a second trailer behind": forge.gzip(BODY) + forge.gzip(BODY)[-8:],
    "gzip, sizes behind": forge.gzip(BODY) + struct.pack("<II", 1, 5),
    "gzip, ones behind": forge.gzip(BODY) + b"\xff" * 8,
    "snappy xerial": forge.xerial(BODY),
    "snappy xerial, small chunks": forge.xerial(BODY, 7),
    "snappy raw": forge.snappy_raw(BODY),
    "snappy, two streams": forge.xerial(BODY[:50]) + forge.xerial(BODY[50:]),
    "snappy, cut-off last length": forge.xerial(BODY) + b"\0\0\0",
    "lz4": forge.lz4(BODY),
    "lz4, small blocks": forge.lz4(BODY, block=11),
    "lz4, block checksums": forge.lz4(BODY, flags=0x70),
    "lz4, content size": forge.lz4(BODY, flags=0x68),
    "lz4, content checksum": forge.lz4(BODY, flags=0x64),
    "lz4, wrong content checksum": forge.lz4(BODY, flags=0x64)[:-4] + b"\0\0\0\0",
    "lz4, garbage behind": forge.lz4(BODY) + b"garbage",
    "zstd": ZSTD,
    "zstd, best level": bytes(cramjam.zstd.compress(BODY, level=19)),
    "zstd, no content size": ZSTD_UNSAID,
    "zstd, its content size": zstd_claiming(len(BODY)),
    "zstd, a content size of all ones": zstd_claiming((1 << 64) - 1),  # which the library takes for none
    "zstd, two frames": zstandard.compress(BODY[:50]) + zstandard.compress(BODY[50:]),
    "zstd, a skippable frame before": ZSTD_SKIPPED + ZSTD,
    "zstd, a skippable frame behind": ZSTD + ZSTD_SKIPPED,
}
BAD = {
    "gzip cut": forge.gzip(BODY)[:-1],
    "gzip checksum": forge.gzip(BODY)[:-8] + bytes(8),
    "gzip no stream": BODY,
    "snappy chunk too long": forge.XERIAL + struct.pack(">i", 1000) + b"\0",
    "snappy negative chunk": forge.XERIAL + struct.pack(">i", -5) + b"\0" * 8,
    "snappy garbage": b"\xff" * 20,
    "lz4 wrong magic": b"\5" + forge.lz4(BODY)[1:],
    "lz4 header checksum": forge.lz4(BODY, header_checksum=0x1A),
    "lz4 block above 64 KiB": forge.lz4(BODY)[:7] + struct.pack("<I", 65537) + forge.lz4(BODY)[11:],
    "lz4 stored block above 64 KiB": forge.lz4(BODY)[:7] + struct.pack("<I", 65537 | 1 << 31) + bytes(65541),
    "lz4 missing end mark": forge.lz4(BODY, end_mark=False),
    "lz4 dependent blocks": forge.lz4(BODY, flags=0x40),
    "lz4 version 2": forge.lz4(BODY, flags=0xA0),
    "lz4 block checksum": forge.lz4(BODY, flags=0x70)[:-5] + b"\x01" + forge.lz4(BODY, flags=0x70)[-4:],
    **{f"lz4 {size} bytes of the header": forge.lz4(BODY)[:size] for size in range(7)},
    "zstd cut": bytes(cramjam.zstd.compress(BODY))[:-1],
    "zstd no frame": BODY,
    **{f"zstd claim of {size} bytes": zstd_claiming(size) for size in (1, 1 << 20, (1 << 63) - 1)},
}


@pytest.mark.parametrize("name", GOOD)
def test_framings(name: str) -> None:
    """Spec 2.6: every framing that Kafka's readers accept."""
    assert read(name.split()[0].rstrip(","), GOOD[name]) == READ


@pytest.mark.parametrize("name", BAD)
def test_broken_streams(name: str) -> None:
    """Spec 2.6: what is no such stream is refused with an error of ours."""
    refused(name.split()[0], BAD[name])


def test_gzip_with_the_magic_inside() -> None:
    packed = gzip.compress(STORED, 0)
    assert b"\x1f\x8b\x08" in packed[3:]
    assert read("gzip", packed)[0].value == b"\x1f\x8b\x08" * 3
    for size in (0, len(BODY) - 1, len(BODY) + 1, 0xFFFFFFFF):
        refused("gzip", gzip.compress(BODY)[:-4] + struct.pack("<I", size), "incorrect length check")


def test_zstd_content_sizes() -> None:
    """In one, two and four bytes."""
    for size in (0, 1, 7, *range(240, 260), *range(65_770, 65_800), 300_000):
        packed = zstandard.compress(forge.record(Rec(bytes(size)), 0, 5))
        assert read("zstd", packed)[0].value == bytes(size)


def test_lz4_header_checksum_of_magic_0() -> None:
    """A wrong header checksum is refused, unless it is a message of magic 0 that is read."""
    inner = forge.message(0, b"v", magic=0)
    for checksum in (0x1A, 0x82, 0):
        packed = forge.lz4(inner, header_checksum=checksum)
        assert len(RecordBatch(forge.message(0, packed, magic=0, attributes=3)).records()) == 1
    packed = forge.lz4(forge.message(0, b"v"), header_checksum=0x1A)
    with pytest.raises(CorruptRecordError):
        RecordBatch(forge.message(0, packed, magic=1, attributes=3)).records()


@pytest.mark.parametrize("codec", [*PACKED, "snappy raw"])
def test_limit(codec: str) -> None:
    """A batch that unpacks to more than the caller allows is refused, at the limit it is not."""
    packed = forge.snappy_raw(BODY) if codec == "snappy raw" else forge.compress(codec, BODY)
    codec = codec.split()[0]
    assert read(codec, packed, len(BODY)) == READ
    for limit in (1, len(BODY) // 2, len(BODY) - 1):
        with pytest.raises(RecordTooLargeError):
            read(codec, packed, limit)


@examples(50)
@given(
    st.sampled_from(CODECS),
    st.lists(st.binary(max_size=50) | st.integers(0, 200000).map(bytes), min_size=1, max_size=4),
)
def test_any_payload(codec: str, values: list[bytes]) -> None:
    """Payloads of several blocks, compressible or not."""
    batch = RecordBatch(forge.batch(*map(Rec, values), codec=codec, crc=0))
    assert [record.value for record in batch.records(verify=False)] == values


# ---- packing -------------------------------------------------------------------------------------

LEVELS = {
    "gzip": [None, -1, *range(1, 10)],
    "snappy": [None],
    "lz4": [None, *range(1, 18)],
    "zstd": [None, -131072, -50, -1, 0, 1, 3, 9, 19, 22],
}


def body_of(value: bytes) -> bytes:
    return forge.record(Rec(value, timestamp=5), 0, 5)


def pack(codec: str, value: bytes, level: int | None = None) -> bytes:
    """The payload of a batch that kstore made of one record; it reads it again."""
    batch = encode_batch([(5, None, value, None)], codec=codec, level=level)
    assert RecordBatch(batch, max_decompressed_bytes=1 << 24).records()[0].value == value
    return batch[61:]


def lz4_blocks(frame: bytes) -> list[tuple[bool, bytes]]:
    """(stored as it was, the bytes) of every block; the frame ends with its end mark."""
    blocks, at = [], 7
    while word := struct.unpack_from("<I", frame, at)[0]:
        size = word & 0x7FFFFFFF
        blocks.append((bool(word >> 31), frame[at + 4 : at + 4 + size]))
        at += 4 + size
    assert at + 4 == len(frame)
    return blocks


def parts(codec: str, packed: bytes) -> list[bytes]:
    """What a payload unpacks to by other libraries, block by block."""
    if codec == "gzip":
        return [gzip.decompress(packed)]
    if codec == "zstd":
        return [bytes(cramjam.zstd.decompress(packed))]
    if codec == "lz4":
        room = bytearray(64 << 10)
        return [
            block if stored else bytes(room[: cramjam.lz4.decompress_block_into(block, room)])
            for stored, block in lz4_blocks(packed)
        ]
    found, at = [], 16
    while at < len(packed):
        size = struct.unpack_from(">i", packed, at)[0]
        found.append(bytes(cramjam.snappy.decompress_raw(packed[at + 4 : at + 4 + size])))
        at += 4 + size
    assert at == len(packed)
    return found


def round_trip(codec: str, value: bytes, level: int | None = None) -> None:
    assert b"".join(parts(codec, pack(codec, value, level))) == body_of(value), (codec, level, len(value))


@pytest.mark.parametrize("codec", PACKED)
def test_every_level(codec: str) -> None:
    """Every level that Kafka has, on nothing, a byte, a batch, several blocks, and incompressible bytes."""
    for level in LEVELS[codec]:
        for value in (b"", b"x", TEXT[:16384], TEXT[:70000], RANDOM[:70000]):
            round_trip(codec, value, level)


@pytest.mark.parametrize("codec", PACKED)
def test_around_the_borders_of_blocks(codec: str) -> None:
    """One byte less and more than whole blocks of 32 and 64 KiB, compressible or not; several MB."""
    for border in (32 << 10, 64 << 10, 96 << 10, 128 << 10):
        for size in (border - 1, border, border + 1):
            size -= len(body_of(bytes(border))) - border
            for value in (TEXT[:size], RANDOM[:size], bytes(size)):
                round_trip(codec, value)
    round_trip(codec, TEXT * 20)


@examples(100)
@given(
    st.sampled_from([(codec, level) for codec, levels in LEVELS.items() for level in levels]),
    st.lists(st.binary(max_size=60) | st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 9000))),
)
def test_anything(codec_and_level: tuple[str, int | None], pieces: list[bytes | tuple[bytes, int]]) -> None:
    """Any mix of random bytes and repetitions."""
    codec, level = codec_and_level
    value = b"".join(part if isinstance(part, bytes) else part[0] * part[1] for part in pieces)
    round_trip(codec, value, level)


def test_frames() -> None:
    """As Kafka's writers make them (spec 2.6), whatever the level."""
    for level in LEVELS["gzip"]:  # one member: the header of Java 16 and later, the trailer of RFC 1952
        packed = pack("gzip", TEXT, level)
        assert packed[:10] == bytes.fromhex("1f8b08000000000000ff")
        assert struct.unpack("<I", packed[-4:])[0] == len(body_of(TEXT))
    packed = pack("snappy", TEXT)  # a header of xerial, then raw blocks of 32 KiB, each behind its length
    assert packed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    assert {len(part) for part in parts("snappy", packed)[:-1]} == {32 << 10}
    for level in (
        1,
        9,
        12,
    ):  # the frame of magic 1 and 2, of blocks of 64 KiB that each unpack without the others
        packed = pack("lz4", TEXT, level)
        assert packed[:7] == bytes.fromhex("04224d18604082")
        assert not any(stored for stored, _ in lz4_blocks(packed))
        assert {len(part) for part in parts("lz4", packed)[:-1]} == {64 << 10}
    packed = pack("zstd", TEXT)  # one frame without dictionary and checksum
    assert packed[:4] == bytes.fromhex("28b52ffd")
    assert packed[4] & 0b111 == 0


def test_lz4_stores_what_does_not_get_smaller() -> None:
    """A block is stored as it is when packing does not save a byte."""
    head = len(body_of(TEXT)) - len(TEXT) - 1
    value = RANDOM[: (64 << 10) - head] + bytes(64 << 10) + RANDOM[:5]
    blocks = lz4_blocks(pack("lz4", value))
    assert [stored for stored, _ in blocks] == [True, False, True]
    assert blocks[0][1] == body_of(value)[: 64 << 10]


def test_levels() -> None:
    """Kafka's defaults; -1 of gzip is 6; only 9 of lz4 is the fast compressor, 12 to 17 are the same."""
    for codec, default in (("gzip", -1), ("lz4", 9), ("zstd", 3)):
        assert pack(codec, TEXT) == pack(codec, TEXT, default)
    assert pack("gzip", TEXT, -1) == pack("gzip", TEXT, 6)
    sizes = {level: len(pack("lz4", TEXT[:60000], level)) for level in range(1, 18)}
    assert all(sizes[9] > size for level, size in sizes.items() if level != 9)
    assert {sizes[level] for level in range(12, 18)} == {sizes[12]}
    assert sizes[12] < sizes[1]


def test_levels_and_codecs_that_there_are_not() -> None:
    """Levels outside Kafka's ranges are the caller's mistake."""
    wrong = {"gzip": (-2, 0, 10, 2**40), "snappy": (-1, 0, 1), "lz4": (-1, 0, 18, -(2**31))}
    for codec, levels in (wrong | {"zstd": (-131073, 23, -(2**70))}).items():
        for level in levels:
            with pytest.raises(ValueError, match=f"level .*{level}"):
                pack(codec, b"x", level)
    with pytest.raises(ValueError, match="codec"):
        pack("lzma", b"x")
