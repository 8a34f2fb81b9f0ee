"""Run as `python -m tests.fuzz.codecs SEED SECONDS`: payloads of every codec with damage under a checksum
that agrees.

A batch is decompressed, or an error of kstore says what is wrong with it: the same, whichever way it is read.
What other libraries unpack, too, is the same for them, and what they packed is unpacked. What goes wrong
otherwise is written to a file.
"""

import gzip
import random
import struct
import sys
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import zstandard

import kstore
from kstore.engine.record.codec import CodecError, DecompressLimitError, decompress
from tests.fuzz.driver import Case, drive
from tests.fuzz.mutations import changed
from tests.hostile.material import resealed, smallest_batches

LIMIT = 1 << 20  # bytes that a batch may unpack to


def outcome(data: bytes, directory: Case, way: str) -> object:
    """The records of a log with this batch alone, or the class of the error."""
    try:
        with kstore.open(directory.log_of(data), max_decompressed_bytes=LIMIT, recover=False) as log:
            if way == "records":
                return [(r.offset, r.timestamp, r.key, r.value) for r in log.records(control=True)]
            return sum(len(rows) for rows in log.scan())
    except kstore.KstoreError as e:
        return type(e)


def cases() -> Iterator[bytes]:
    for batch in smallest_batches():
        if batch.magic == 2 and not batch.is_control:
            yield batch.data


def snappy_of(payload: bytes) -> bytes:
    """A xerial stream, or a raw block."""
    if payload[:8] != b"\x82SNAPPY\0":
        return bytes(cramjam.snappy.decompress_raw(payload))
    made, at = [], 16
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        if not 0 <= size <= len(payload) - at - 4:
            raise cramjam.DecompressionError(f"a chunk of {size}")
        made.append(bytes(cramjam.snappy.decompress_raw(payload[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(made)


def zstd_of(payload: bytes) -> bytes:
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
        payload, read_across_frames=True
    )
    return reader.read(2 * LIMIT)


# by the number of the codec: how other libraries unpack a payload, and how they pack one
OTHERS: dict[int, tuple[Callable[[bytes], bytes], Callable[[bytes, int], bytes]]] = {
    1: (gzip.decompress, lambda plain, level: gzip.compress(plain, 1 + level % 9)),
    2: (snappy_of, lambda plain, _: bytes(cramjam.snappy.compress_raw(plain))),
    3: (
        lz4.frame.decompress,
        lambda plain, level: lz4.frame.compress(
            plain,
            compression_level=level % 13,
            block_linked=False,
            block_checksum=level % 2 == 0,
            store_size=level % 3 == 0,
            block_size=4 + level % 4,
        ),
    ),
    4: (
        zstd_of,
        lambda plain, level: zstandard.ZstdCompressor(
            level % 20, write_checksum=level % 2 == 0, write_content_size=level % 3 == 0
        ).compress(plain),
    ),
}
THEIR_ERRORS = (
    OSError,
    EOFError,
    zlib.error,
    RuntimeError,
    ValueError,
    struct.error,
    cramjam.DecompressionError,
    zstandard.ZstdError,
)


def unpacked(codec: int, payload: bytes) -> bytes | None:
    """What kstore unpacks; None for what it refuses."""
    try:
        return bytes(decompress(codec, 2, payload, LIMIT))
    except (CodecError, DecompressLimitError):
        return None


def agree(codec: int, payload: bytes) -> None:
    """What both unpack is the same. Either may refuse more than the other."""
    ours = unpacked(codec, payload)
    if ours is not None and codec in OTHERS:
        try:
            theirs = OTHERS[codec][0](payload)
        except THEIR_ERRORS:
            return
        assert ours == theirs


def records_of(chance: random.Random) -> bytes:
    """Bytes as in a batch: small numbers, and words that come again."""
    words = [chance.randbytes(chance.randrange(1, 12)) for _ in range(chance.choice((1, 3, 30)))]
    made = []
    for at in range(chance.choice((1, 3, 30, 300))):
        made += [
            bytes([chance.randrange(256), 0, 0, (at + chance.randrange(256)) & 255, 1, chance.randrange(30)])
        ]
        made += [chance.choice(words) * chance.choice((1, 1, 2, chance.randrange(40)))]
    return b"".join(made)


def try_one(case: Case) -> None:
    seeds = case.seeds
    if case.chance.random() < 0.3:
        codec, plain = case.chance.randint(1, 4), records_of(case.chance)
        packed = OTHERS[codec][1](plain, case.chance.randrange(60))
        case.keep(packed)
        assert unpacked(codec, packed) == plain
        agree(codec, changed(packed, case.chance))
        return
    data = case.chance.choice(seeds)
    head, payload = data[:61], data[61:]
    if case.chance.random() < 0.2:
        head = head[:57] + struct.pack(">i", case.chance.choice((-1, 0, 1, 7, 2**31 - 1)))
    if case.chance.random() < 0.2:  # another codec than it has
        head = head[:22] + bytes([head[22] & 0xF8 | case.chance.randrange(8)]) + head[23:]
    body = head + changed(payload, case.chance, case.chance.choice(seeds)[61:])
    made = resealed(body[:8] + struct.pack(">i", len(body) - 12) + body[12:])
    case.keep(made)
    agree(made[22] & 7, made[61:])
    records, rows = outcome(made, case, "records"), outcome(made, case, "scan")
    if isinstance(records, list):
        assert len(records) == rows, (records, rows)
    else:
        assert records == rows


if __name__ == "__main__":
    sys.exit(drive("codecs", list(cases()), try_one, sys.argv[1:]))
