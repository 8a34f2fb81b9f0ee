"""Small real bytes to damage: one batch of every kind in the golden data, put into one segment."""

import struct
from collections.abc import Iterator
from pathlib import Path

import kstore
from tests.helpers.effort import some
from tests.helpers.forge import crc32c

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
LOG = f"{0:020}.log"
SOURCES = ("codec_mixed", "headers", "transactions", "magic0", "magic1", "nulls", "compact_2_cleaned")


def smallest_batches() -> list[kstore.RecordBatch]:
    """The smallest batch, of several records if possible, of every magic, codec and set of attributes."""
    best: dict[tuple[int, int], kstore.RecordBatch] = {}
    for source in SOURCES:
        partition = next(p for p in (GOLDEN / source).iterdir() if p.is_dir() and p.name != "expected")
        for batch in kstore.open(partition).batches():
            kind = (batch.magic, batch.attributes)
            worth = batch.last_offset_delta > 0 or batch.magic < 2 or batch.is_control
            if worth and (kind not in best or batch.size < best[kind].size):
                best[kind] = batch
    return sorted(best.values(), key=lambda batch: batch.max_timestamp)


def segment_bytes() -> bytes:
    """Those batches with offsets that follow each other; the CRC does not cover them in any format.

    Not those of compressed messages of magic 0: offsets inside them are absolute, and covered."""
    out = b""
    offset = 0
    for batch in smallest_batches():
        if batch.magic == 0 and batch.codec != "none":
            continue
        count = len(batch.records())
        first = offset if batch.magic == 2 else offset + count - 1
        out += struct.pack(">q", first) + batch.data[8:]
        offset += batch.last_offset_delta + 1 if batch.magic == 2 else count
    return out


def write_partition(directory: Path, log: bytes) -> Path:
    """A partition directory with one segment and the indexes that recovery makes of it."""
    partition = directory / "small-0"
    partition.mkdir(parents=True, exist_ok=True)
    (partition / LOG).write_bytes(log)
    kstore.open(partition, "r+", clean=False, index_interval_bytes=200).close()
    for path in partition.iterdir():
        if path.suffix not in (".log", ".index", ".timeindex"):
            path.unlink()
    (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return partition


def resealed(data: bytes) -> bytes:
    """A batch of magic 2 with its checksum made right, so that what the checksum covers is parsed."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def turned(data: bytes, bit: int) -> bytes:
    """The bytes with this bit turned."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def bit_flips(data: bytes, count: int = 1 << 30, what: object = "") -> Iterator[tuple[int, bytes]]:
    """(bit, the bytes with that bit turned) for `count` bits at EFFORT=1, evenly spread."""
    for bit in some(range(8 * len(data)), count, what):
        yield bit, turned(data, bit)
