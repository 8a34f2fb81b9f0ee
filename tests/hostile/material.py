"""Small real bytes to damage: one batch of every kind that Kafka wrote in the golden data, put into one segment."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import kstore

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
SOURCES = ("codec_mixed", "headers", "transactions", "magic0", "magic1", "nulls", "compact_2_cleaned")
STEP = int(os.environ.get("KSTORE_BIT_STEP", "1"))  # only each STEPth bit is turned


def smallest_batches() -> list[kstore.RecordBatch]:
    """The smallest batch, with more than one record where there is one, of every magic, codec and set of attributes."""
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
    (partition / "00000000000000000000.log").write_bytes(log)
    scan = kstore.Segment(str(partition), "0" * 20, 0, index_interval_bytes=200).recovery_walk()
    assert scan.error is None
    (partition / "00000000000000000000.index").write_bytes(scan.offset_index.to_bytes())
    (partition / "00000000000000000000.timeindex").write_bytes(scan.time_index.to_bytes())
    (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return partition


def bit_flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(bit, the bytes with that bit turned), for every bit, or each STEPth."""
    for bit in range(0, 8 * len(data), STEP):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << (bit % 8)
        yield bit, bytes(changed)
