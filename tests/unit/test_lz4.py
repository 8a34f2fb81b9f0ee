"""Blocks of LZ4: what LZ4's own library makes of a block is what they unpack to."""

import random
import struct
from pathlib import Path
from typing import Any

import lz4.block

import kstore
from kstore.engine.record.codec_errors import CodecError
from kstore.engine.record.compress import compress
from kstore.engine.record.decompress import decompress
from tests.helpers.effort import SEED, times

LZ4 = 3
BLOCK = 64 << 10
START = bytes.fromhex("04224d18 60 40 82")  # independent blocks of up to 64 KiB


def frame(*blocks: bytes) -> bytes:
    return START + b"".join(struct.pack("<I", len(block)) + block for block in blocks) + bytes(4)


def unpacked(block: bytes) -> bytes | None:
    try:
        return bytes(decompress(LZ4, 2, frame(block), 1 << 20))
    except CodecError:
        return None


def right(block: bytes) -> bytes | None:
    try:
        return lz4.block.decompress(block, uncompressed_size=BLOCK)
    except (lz4.block.LZ4BlockError, ValueError):
        return None


def has_no_distance(block: bytes) -> bool:
    """Whether a match has the distance 0: LZ4's library makes zeros of it, the format forbids it."""
    at = 0
    while at < len(block):
        halves = [block[at] >> 4, block[at] & 15]
        at += 1
        for half in (0, 1):
            more = 255
            while halves[half] >= 15 and more == 255 and at < len(block):
                more = block[at]
                halves[half] += more
                at += 1
            if half == 0:
                at += halves[0]
                if block[at : at + 2] == b"\0\0":
                    return True
                at += 2
    return False


def random_block(chance: random.Random) -> bytes:
    words = [chance.randbytes(chance.randrange(1, 12)) for _ in range(chance.choice((1, 3, 30)))]
    plain = b"".join(
        word * chance.choice((1, 1, 2, chance.randrange(60)))
        for word in chance.choices(words, k=chance.choice((1, 5, 100, 800)))
    )[:BLOCK]
    return lz4.block.compress(plain, chance.choice(("default", "high_compression")), store_size=False)


def test_as_the_library() -> None:
    """Sound ones, ones with another in front that looks like a size, cut ones, and damaged ones."""
    chance = random.Random(SEED)
    sound = 0
    for _ in range(times(800)):
        block = random_block(chance)
        kind = chance.randrange(6)
        if kind == 0:
            block = struct.pack("<I", chance.randrange(BLOCK)) + block
        elif kind == 1:
            block = block[: chance.randrange(1, len(block) + 1)]
        elif kind == 2:
            at = chance.randrange(len(block))
            block = (
                block[:at]
                + bytes([chance.choice((0, 1, 15, 240, 255, chance.randrange(256)))])
                + block[at + 1 :]
            )
        found, expected = unpacked(block), right(block)
        sound += expected is not None
        assert found == expected or (found is None and has_no_distance(block)), f"SEED={SEED}: {block.hex()}"
    assert sound > times(400)


def test_a_block_that_begins_like_a_size() -> None:
    """From the fifth byte on it is a sound block too, of the length that the first four say."""
    block = bytes.fromhex("c30e000080010000002200feff01007001820101027600")
    assert right(block[4:]) is not None
    assert unpacked(block) == bytes.fromhex("0e000080010000002200feffffffffffffffff01820101027600")


def test_runs() -> None:
    sizes = (0, 1, 4, 5, 11, 12, 13, 31, 32, 33, 64, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7)
    for run in (1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 200):
        for size in sizes:
            plain = (random.Random(run).randbytes(run) * (size // run + 1))[:size]
            assert decompress(LZ4, 2, compress(LZ4, plain), 1 << 20) == plain, (run, size)


def test_a_value_that_holds_a_block(tmp_path: Path) -> None:
    """The second block of the batch is its end: four bytes, and what is a sound block."""
    value = b"x" * (BLOCK - 10) + b"\x01\0\0\x48abcd" + b"d" * 8 + b"0123456789abcdefghijkl"
    with kstore.open(tmp_path / "t-0", "a", compression_type="lz4") as log:
        log.append(value)
        assert [record.value for record in log] == [value]
        assert log.get(0).value == value  # type: ignore[union-attr]
        assert [row[0] for rows in log.scan(["value"]) for row in rows.rows()] == [value]


def test_a_compacted_log(tmp_path: Path) -> None:
    """Its batch begins with a record whose offset delta looks like a token."""
    options: Any = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0.0, "compression_type": "lz4"}
    keys = [b"user-%d" % n for n in range(20)]
    for first in (86, 87, 150, 151, 214, 215):
        with kstore.open(tmp_path / f"t-{first}", "a", **options) as log:
            log.extend([b"x"] * first + [b"0" * 16] * 20, [b"other"] * first + keys, timestamps=1700000000000)
            log.append(b"end", b"other")
            log.roll()
            log.compact()
            assert [(r.offset, r.key, r.value) for r in log] == [
                *((first + n, key, b"0" * 16) for n, key in enumerate(keys)),
                (first + 20, b"other", b"end"),
            ]
