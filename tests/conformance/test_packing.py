"""What kstore packs (spec 2.6): the framings of Kafka's writers, levels, and that all of it unpacks again."""

import gzip
import random
import struct
import threading
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore import RecordBatch
from kstore.engine.record.compress import compress
from kstore.engine.record.decompress import decompress
from tests.conformance import forge

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
ALL = (GZIP, SNAPPY, LZ4, ZSTD)
LEVELS = [
    *((GZIP, level) for level in (None, -1, *range(1, 10))),
    (SNAPPY, None),
    *((LZ4, level) for level in (None, *range(1, 18))),
    *((ZSTD, level) for level in (None, -131072, -50, -1, 0, 1, 3, 9, 19, 22)),
]
BORDERS = [n + by for n in (32 << 10, 64 << 10, 96 << 10, 128 << 10) for by in (-1, 0, 1)]
RANDOM = random.Random(4).randbytes(200_000)
TEXT = b"".join(
    b'{"id":"%08x","user":%d,"page":%d}\n' % (n * 2654435761 % 2**32, n % 977, n % 20) for n in range(6000)
)


def round_trip(codec: int, data: bytes, level: int | None = None) -> bytes:
    packed = compress(codec, data, level)
    assert decompress(codec, 2, packed, len(data)) == data
    return packed


def lz4_blocks(frame: bytes) -> list[tuple[bool, bytes]]:
    """(stored as it was, the bytes) of every block; the frame ends with its end mark."""
    blocks, at = [], 7
    while word := struct.unpack_from("<I", frame, at)[0]:
        size = word & 0x7FFFFFFF
        blocks.append((bool(word >> 31), frame[at + 4 : at + 4 + size]))
        at += 4 + size
    assert at + 4 == len(frame)
    return blocks


def lz4_unpacked(block: bytes) -> bytes:
    out = bytearray(64 << 10)
    return bytes(out[: cramjam.lz4.decompress_block_into(block, out)])


def xerial_blocks(stream: bytes) -> list[bytes]:
    blocks, at = [], 16
    while at < len(stream):
        size = struct.unpack_from(">i", stream, at)[0]
        blocks.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(stream)
    return blocks


# ---- round trips ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "level"), LEVELS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT[:16384], TEXT[:70000], RANDOM[:70000]], ids=len)
def test_every_level(codec: int, level: int | None, data: bytes) -> None:
    """Every level that Kafka has, on nothing, a byte, a batch, several blocks, and what cannot be made smaller."""
    round_trip(codec, data, level)


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("size", BORDERS)
def test_around_the_borders_of_blocks(codec: int, size: int) -> None:
    """One byte less and more than whole blocks of 32 and 64 KiB, compressible or not."""
    for data in (TEXT, RANDOM):
        round_trip(codec, data[:size])
    round_trip(codec, bytes(size))


@pytest.mark.parametrize("codec", ALL)
def test_megabytes(codec: int) -> None:
    """A batch of several MB."""
    packed = round_trip(codec, TEXT * 20)
    assert len(packed) < len(TEXT) * 20 / 1.7


@given(
    st.sampled_from(LEVELS),
    st.lists(st.binary(max_size=60) | st.tuples(st.binary(min_size=1, max_size=9), st.integers(1, 9000))),
)
@settings(deadline=None, max_examples=200)
def test_anything(codec_and_level: tuple[int, int | None], parts: list[bytes | tuple[bytes, int]]) -> None:
    """Any mix of random bytes and repetitions."""
    codec, level = codec_and_level
    round_trip(
        codec, b"".join(part if isinstance(part, bytes) else part[0] * part[1] for part in parts), level
    )


@pytest.mark.parametrize("codec", ALL)
def test_any_buffer(codec: int) -> None:
    """Any contiguous buffer is packed, and as bytes are."""
    packed = compress(codec, TEXT)
    assert compress(codec, bytearray(TEXT)) == compress(codec, memoryview(b"--" + TEXT)[2:]) == packed
    with pytest.raises(BufferError):
        compress(codec, memoryview(TEXT)[::2])
    with pytest.raises(TypeError):
        compress(codec, "text")  # type: ignore[arg-type]


# ---- framings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [-1, *range(1, 10)])
def test_gzip_is_one_member(level: int) -> None:
    """The header that Java 16 and later write, whatever the level, and the trailer of RFC 1952."""
    packed = compress(GZIP, TEXT, level)
    assert packed[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert gzip.decompress(packed) == TEXT
    assert struct.unpack("<I", packed[-4:])[0] == len(TEXT)


def test_snappy_is_a_stream_of_xerial() -> None:
    """Its header, then raw blocks of 32 KiB of input, each behind its length."""
    packed = compress(SNAPPY, TEXT)
    assert packed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    parts = [bytes(cramjam.snappy.decompress_raw(block)) for block in xerial_blocks(packed)]
    assert b"".join(parts) == TEXT
    assert {len(part) for part in parts[:-1]} == {32 << 10}
    assert compress(SNAPPY, b"") == packed[:16]


@pytest.mark.parametrize("level", [1, 9, 12])
def test_lz4_frame_of_independent_blocks(level: int) -> None:
    """The frame header of magic 1 and 2; blocks of 64 KiB of input that each unpack without the others."""
    packed = compress(LZ4, TEXT, level)
    assert packed[:7] == bytes.fromhex("04224d18604082")
    blocks = lz4_blocks(packed)
    assert not any(stored for stored, _ in blocks)
    parts = [lz4_unpacked(block) for _, block in blocks]
    assert b"".join(parts) == TEXT
    assert {len(part) for part in parts[:-1]} == {64 << 10}
    assert compress(LZ4, b"", level) == packed[:7] + bytes(4)


def test_lz4_stores_what_does_not_get_smaller() -> None:
    """A block is stored as it is when packing does not save a byte."""
    data = RANDOM[: 64 << 10] + bytes(64 << 10) + RANDOM[:5]
    first, second, third = lz4_blocks(compress(LZ4, data))
    assert first == (True, RANDOM[: 64 << 10])
    assert not second[0]
    assert third == (True, RANDOM[:5])


def test_zstd_is_one_standard_frame() -> None:
    """One frame without dictionary and checksum."""
    packed = compress(ZSTD, TEXT)
    assert packed[:4] == bytes.fromhex("28b52ffd")
    assert packed[4] & 0b111 == 0
    assert bytes(cramjam.zstd.decompress(packed)) == TEXT


# ---- levels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("codec", "default"), [(GZIP, -1), (LZ4, 9), (ZSTD, 3)])
def test_defaults(codec: int, default: int) -> None:
    """Without a level it is Kafka's default."""
    assert compress(codec, TEXT) == compress(codec, TEXT, None) == compress(codec, TEXT, default)


def test_gzip_default_is_six() -> None:
    """-1 is zlib's default."""
    assert compress(GZIP, TEXT, -1) == compress(GZIP, TEXT, 6)


def test_lz4_nine_is_the_fast_compressor() -> None:
    """Level 9 alone is the fast compressor; the thorough one ends at 12."""
    sizes = {level: len(compress(LZ4, TEXT[:60000], level)) for level in range(1, 18)}
    assert all(sizes[9] > size for level, size in sizes.items() if level != 9)
    assert {sizes[level] for level in range(12, 18)} == {sizes[12]}
    assert sizes[12] < sizes[1]


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *((GZIP, level) for level in (-2, 0, 10, 2**40)),
        *((SNAPPY, level) for level in (-1, 0, 1)),
        *((LZ4, level) for level in (-1, 0, 18, -(2**31))),
        *((ZSTD, level) for level in (-131073, 23, -(2**70))),
    ],
)
def test_levels_that_there_are_not(codec: int, level: int) -> None:
    """Levels outside Kafka's ranges are the caller's mistake."""
    with pytest.raises(ValueError, match=f"level {level} of"):
        compress(codec, b"x", level)


@pytest.mark.parametrize("codec", [-1, 0, 5, 7])
def test_codecs_that_there_are_not(codec: int) -> None:
    for level in (None, 1):
        with pytest.raises(ValueError, match=f"codec {codec}"):
            compress(codec, b"x", level)


# ---- as good as Kafka's, and from many threads ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "level", "peer"),
    [
        *((GZIP, level, lambda data, level=level: gzip.compress(data, level)) for level in range(1, 10)),
        (SNAPPY, None, forge.xerial),
        (LZ4, None, forge.lz4),
        *(
            (ZSTD, level, lambda data, level=level: bytes(cramjam.zstd.compress(data, level=level)))
            for level in (1, 3, 9)
        ),
    ],
)
def test_as_small_as_the_reference(codec: int, level: int | None, peer: Callable[[bytes], bytes]) -> None:
    """A level packs about as well as the library whose level it is: within 3 %."""
    data = [TEXT[at : at + 16384] for at in range(0, 160_000, 16384)]
    assert sum(len(compress(codec, part, level)) for part in data) < 1.03 * sum(
        len(peer(part)) for part in data
    )


@pytest.mark.parametrize("codec", ALL)
def test_threads_share_no_context(codec: int) -> None:
    """Threads that compress at the same time, with several levels, do not meet."""
    wrong = []

    def work(seed: int) -> None:
        rnd = random.Random(seed)
        for _ in range(40):
            at, size = rnd.randrange(len(TEXT) // 2), rnd.randrange(70_000)
            data = TEXT[at : at + size]
            level = None if codec == SNAPPY else rnd.randrange(1, 7)
            if decompress(codec, 2, compress(codec, data, level), size) != data:
                wrong.append((seed, at, size, level))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("codec", ALL)
def test_in_a_batch(codec: int) -> None:
    """A payload in a batch that the reader takes."""
    recs = [forge.Rec(TEXT[n * 100 : n * 100 + 100], b"%d" % n, forge.T0 + n) for n in range(138)]
    body = b"".join(forge.record(rec, delta, forge.T0) for delta, rec in enumerate(recs))
    raw = forge.batch(*recs, codec=forge.CODECS[codec], packed=compress(codec, body))
    assert [(record.key, record.value) for record in RecordBatch(raw)] == [
        (rec.key, rec.value) for rec in recs
    ]
