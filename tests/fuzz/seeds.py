"""What fuzzing begins with: small pieces of what a real Kafka wrote, in the form that each fuzzer takes."""

import struct
from collections.abc import Iterator
from pathlib import Path

import cramjam
from lz4.block import compress as compress_lz4

import kstore
from tests.hostile.material import GOLDEN, segment_bytes, smallest_batches

MOST = 1500  # bytes of one seed
SMALL = 40  # seeds of one kind


def batches() -> Iterator[bytes]:
    yield segment_bytes()
    for batch in smallest_batches():
        yield batch.data


def _plain() -> Iterator[kstore.RecordBatch]:
    for name in ("nulls", "headers", "varints", "timestamps", "transactions"):
        partition = next(p for p in (GOLDEN / name).iterdir() if p.is_dir() and p.name != "expected")
        for batch in kstore.open(partition).batches():
            if batch.magic == 2 and batch.codec == "none" and batch.size < MOST:
                yield batch


def records() -> Iterator[bytes]:
    for batch in _plain():
        head = struct.pack(
            ">bbB", batch.records_count & 127, batch.last_offset_delta & 127, batch.attributes & 0x78
        )
        numbers = struct.pack(">qqq", batch.base_offset, batch.base_timestamp, batch.max_timestamp)
        yield head + numbers + batch.data[61:]


def columns() -> Iterator[bytes]:
    for at, batch in enumerate(_plain()):
        wanted = (15, 3, 47, 31, 8, 44)[at % 6]
        head = struct.pack(">BBBBBBBB", wanted, 40, 255, batch.attributes & 8, 200, 40, 200, 40)
        numbers = struct.pack(">qqq", batch.base_offset, batch.base_timestamp, batch.max_timestamp)
        yield head + numbers + b"\1" + batch.data[61:]


def building() -> Iterator[bytes]:
    for batch in _plain():
        texts = [part for record in batch.records() for part in (record.key, record.value)]
        fields = [b"\xff" if text is None else bytes([min(len(text), 127)]) + text[:127] for text in texts]
        pairs = [b"\0\5" + key + value for key, value in zip(fields[::2], fields[1::2], strict=True)]
        yield bytes([len(pairs[:20])]) + bytes(25) + b"".join(pairs[:20])


def snappy() -> Iterator[bytes]:
    for batch in _plain():
        block = bytes(cramjam.snappy.compress_raw(batch.data))
        at = next(i for i, byte in enumerate(block) if byte < 0x80) + 1  # behind the length
        yield struct.pack(">H", len(batch.data)) + block[at:]


def lz4() -> Iterator[bytes]:
    for batch in _plain():
        yield struct.pack(">H", len(batch.data)) + compress_lz4(batch.data, store_size=False)


def indexes() -> Iterator[bytes]:
    for kind in ("index", "timeindex", "txnindex"):
        for path in sorted(GOLDEN.glob(f"*/*/*.{kind}"))[:60]:
            if 0 < path.stat().st_size < MOST:
                yield b"\7" + path.read_bytes()


def write(target: str, directory: Path) -> None:
    """The seeds of a fuzzer, a file each."""
    directory.mkdir(parents=True, exist_ok=True)
    found = dict.fromkeys(seed[:MOST] for seed in globals()[target]())
    for number, seed in enumerate(sorted(found, key=len)[:SMALL]):
        (directory / f"seed{number:02}").write_bytes(seed)
