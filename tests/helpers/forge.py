"""Bytes of Kafka's files, made without kstore: only struct, zlib, and the raw blocks of cramjam."""

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cramjam

from tests.helpers.varint import varint

T0 = 1700000000000
MAX32 = 2**31 - 1
MAX64 = 2**63 - 1
ABORT, COMMIT = 0, 1
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 8, 16, 32, 64
XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
OFFSET_ENTRY, TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")
Index = Sequence[tuple[int, int]]

# ---- numbers ------------------------------------------------------------------------------------


def _crc32c_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC32C = [_crc32c_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """CRC-32C: Castagnoli's polynomial, reflected."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def xxh32(data: bytes) -> int:
    """xxHash32, seed 0."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF

    def rotate(n: int, by: int) -> int:
        n &= mask
        return (n << by | n >> (32 - by)) & mask

    lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
    at = 0
    while len(data) - at >= 16:
        words = struct.unpack_from("<4I", data, at)
        lanes = [rotate(lane + word * p2, 13) * p1 & mask for lane, word in zip(lanes, words, strict=True)]
        at += 16
    h = sum(map(rotate, lanes, (1, 7, 12, 18))) if at else p5
    h += len(data)
    while len(data) - at >= 4:
        h = rotate(h + struct.unpack_from("<I", data, at)[0] * p3, 17) * p4
        at += 4
    for byte in data[at:]:
        h = rotate(h + byte * p5, 11) * p1
    h &= mask
    h = (h ^ h >> 15) * p2 & mask
    h = (h ^ h >> 13) * p3 & mask
    return h ^ h >> 16


# ---- compression --------------------------------------------------------------------------------


def gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def xerial(data: bytes, block: int = 32768) -> bytes:
    """The snappy stream that Kafka writes."""
    out = XERIAL
    for at in range(0, len(data), block):
        chunk = snappy_raw(data[at : at + block])
        out += struct.pack(">i", len(chunk)) + chunk
    return out


def snappy_raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def lz4(
    data: bytes,
    *,
    magic: int = 2,
    flags: int = 0x60,
    header_checksum: int | None = None,
    end_mark: bool = True,
    block: int = 65536,
) -> bytes:
    """An lz4 frame as Kafka writes it: for magic 0 with its wrong header checksum."""
    descriptor = bytes([flags, 0x40])
    if flags & 0x08:
        descriptor += struct.pack("<Q", len(data))
    if header_checksum is None:
        covered = (b"\x04\x22\x4d\x18" if magic == 0 else b"") + descriptor
        header_checksum = xxh32(covered) >> 8 & 0xFF
    out = b"\x04\x22\x4d\x18" + descriptor + bytes([header_checksum])
    for at in range(0, len(data), block):
        raw = data[at : at + block]
        packed = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        size = len(packed)
        if size >= len(raw):
            packed, size = raw, len(raw) | 1 << 31
        out += struct.pack("<I", size) + packed
        if flags & 0x10:
            out += struct.pack("<I", xxh32(packed))
    out += struct.pack("<I", 0) if end_mark else b""
    return out + (struct.pack("<I", xxh32(data)) if flags & 0x04 else b"")


def compress(codec: str, data: bytes, magic: int = 2) -> bytes:
    """The payload as the broker frames it."""
    match codec:
        case "gzip":
            return gzip(data)
        case "snappy":
            return xerial(data)
        case "lz4":
            return lz4(data, magic=magic)
        case "zstd":
            return bytes(cramjam.zstd.compress(data))
    return data


# ---- magic 2 ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rec:
    """A record to write; `delta` is its offset delta where it is not its place in the batch."""

    value: bytes | None = b"test"
    key: bytes | None = None
    timestamp: int = -1
    headers: tuple[tuple[str, bytes | None], ...] = ()
    delta: int | None = None


def blob(data: bytes | None) -> bytes:
    """A length as varint and so many bytes; null is length -1."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(rec: Rec, delta: int, base_timestamp: int) -> bytes:
    body = b"\0" + varint(rec.timestamp - base_timestamp) + varint(delta)
    body += blob(rec.key) + blob(rec.value) + varint(len(rec.headers))
    body += b"".join(blob(name.encode()) + blob(value) for name, value in rec.headers)
    return varint(len(body)) + body


def batch(
    *records: Rec,
    base: int = 0,
    codec: str = "none",
    flags: int = 0,
    epoch: int = 0,
    pid: int = -1,
    pid_epoch: int = -1,
    sequence: int = -1,
    horizon: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    last_delta: int | None = None,
    count: int | None = None,
    body: bytes | None = None,
    packed: bytes | None = None,
    length: int | None = None,
    magic: int = 2,
    crc: int | None = None,
) -> bytes:
    """A v2 batch. Every field of its header can be set to something else than what fits.

    `body` replaces the records before, `packed` after compression; `epoch` is the leader's."""
    deltas = [i if rec.delta is None else rec.delta for i, rec in enumerate(records)]
    stamps = [rec.timestamp for rec in records]
    if horizon is not None:
        base_timestamp, flags = horizon, flags | DELETE_HORIZON
    first = (stamps or [-1])[0] if base_timestamp is None else base_timestamp
    if body is None:
        body = b"".join(record(rec, d, first) for rec, d in zip(records, deltas, strict=True))
    if packed is None:
        packed = compress(codec, body)
    rest = struct.pack(
        ">hiqqqhii",
        flags | CODECS.index(codec),
        max(deltas, default=0) if last_delta is None else last_delta,
        first,
        max(stamps, default=-1) if max_timestamp is None else max_timestamp,
        pid,
        pid_epoch,
        sequence,
        len(records) if count is None else count,
    )
    rest += packed
    crc = crc32c(rest) if crc is None else crc
    length = len(rest) + 9 if length is None else length
    return struct.pack(">qiibI", base, length, epoch, magic, crc) + rest


def marker(
    offset: int,
    pid: int,
    kind: int,
    *,
    pid_epoch: int = 0,
    coordinator: int = 0,
    timestamp: int = T0,
    epoch: int = 0,
    key: bytes | None = None,
    value: bytes | None = None,
) -> bytes:
    """The control batch that ends a transaction."""
    key = struct.pack(">hh", 0, kind) if key is None else key
    value = struct.pack(">hi", 0, coordinator) if value is None else value
    flags = TRANSACTIONAL | CONTROL
    rec = Rec(value, key, timestamp)
    return batch(rec, base=offset, flags=flags, pid=pid, pid_epoch=pid_epoch, epoch=epoch)


def simple(offset: int, count: int = 1, timestamp: int = -1, **fields: Any) -> bytes:
    """A batch of `count` records that tell their offsets."""
    recs = [Rec(b"%d" % (offset + i), timestamp=timestamp) for i in range(count)]
    return batch(*recs, base=offset, **fields)


# ---- magic 0 and 1 ------------------------------------------------------------------------------


def message(
    offset: int,
    value: bytes | None,
    key: bytes | None = None,
    *,
    magic: int = 1,
    timestamp: int = -1,
    attributes: int = 0,
    crc: int | None = None,
) -> bytes:
    """One message. Of a compressed wrapper the value is the packed run of inner ones."""
    rest = bytes([magic, attributes]) + (struct.pack(">q", timestamp) if magic else b"")
    for part in (key, value):
        rest += struct.pack(">i", -1 if part is None else len(part)) + (part or b"")
    crc = zlib.crc32(rest) if crc is None else crc
    return struct.pack(">qiI", offset, len(rest) + 4, crc) + rest


def wrapper(
    offset: int,
    inner: Iterable[bytes],
    *,
    magic: int = 1,
    codec: str = "gzip",
    timestamp: int = -1,
    flags: int = 0,
) -> bytes:
    packed = compress(codec, b"".join(inner), magic)
    attributes = flags | CODECS.index(codec)
    return message(offset, packed, magic=magic, timestamp=timestamp, attributes=attributes)


# ---- files --------------------------------------------------------------------------------------


def offset_index(base: int, entries: Index) -> bytes:
    return b"".join(OFFSET_ENTRY.pack(offset - base, position) for offset, position in entries)


def time_index(base: int, entries: Index) -> bytes:
    return b"".join(TIME_ENTRY.pack(timestamp, offset - base) for timestamp, offset in entries)


def txn_index(entries: Iterable[tuple[int, int, int, int]], version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)


def snapshot(entries: Iterable[tuple[int, ...]], version: int = 1) -> bytes:
    """(pid, epoch, last sequence, last offset, offset delta, timestamp, coordinator, txn) each."""
    packed = [struct.pack(">qhiqiqiq", *entry) for entry in entries]
    rest = struct.pack(">i", len(packed)) + b"".join(packed)
    return struct.pack(">hI", version, crc32c(rest)) + rest


def checkpoint(entries: Iterable[Iterable[object]]) -> str:
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "".join(f"{line}\n" for line in (0, len(lines), *lines))


def read_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """The offsets of a checkpoint file, by topic and partition; of one that is not there none."""
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {(topic, int(partition)): int(offset) for topic, partition, offset in map(str.split, lines)}


def read_snapshot(data: bytes) -> list[tuple[int, ...]]:
    """What `snapshot` is made of."""
    assert data[:2] == b"\0\1"
    assert struct.unpack_from(">Ii", data, 2) == (crc32c(data[6:]), (len(data) - 10) // 46)
    return list(struct.iter_unpack(">qhiqiqiq", data[10:]))


def last_offset(entry: bytes) -> int:
    offset: int = struct.unpack_from(">q", entry)[0]
    delta: int = struct.unpack_from(">i", entry, 23)[0] if entry[16] == 2 else 0
    return offset + delta


def max_timestamp(entry: bytes) -> int:
    at = (-1, 18, 35)[entry[16]]
    timestamp: int = struct.unpack_from(">q", entry, at)[0] if at > 0 else -1
    return timestamp


def indexes(
    base: int, batches: Iterable[bytes], interval: int = 4096, closed: bool = True
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The entries that Kafka makes for these batches (spec 8.4); the last one only when closed."""
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    largest, since, position = (-1, base), 0, 0
    for entry in batches:
        if max_timestamp(entry) > largest[0]:
            largest = max_timestamp(entry), last_offset(entry)
        if since > interval:
            offsets.append((last_offset(entry), position))
            if largest[0] > (times[-1][0] if times else -1):
                times.append(largest)
            since = 0
        since += len(entry)
        position += len(entry)
    if closed and largest[0] > (times[-1][0] if times else -1):
        times.append(largest)
    return offsets, times


def stem(offset: int) -> str:
    return f"{offset:020d}"


def partition(
    root: Path,
    segments: Mapping[int, Sequence[bytes]],
    *,
    interval: int = 4096,
    index: bool = True,
    closed: bool = True,
    epochs: Index | None = None,
    aborted: Mapping[int, Sequence[tuple[int, int, int, int]]] | None = None,
    snapshots: Mapping[int, bytes] | None = None,
    name: str = "topic-0",
) -> Path:
    """Writes a partition directory: {base offset: batches}, with the indexes that belong to it.

    epochs: those of the leader-epoch-checkpoint. Default: that of the first batch, if it has one."""
    first = next((batch for batches in segments.values() for batch in batches), b"")
    if epochs is None and len(first) > 16 and first[16] == 2:
        epochs = [(int.from_bytes(first[12:16], "big"), min(segments))]
    path = root / name
    path.mkdir(parents=True, exist_ok=True)
    for base, batches in segments.items():
        (path / f"{stem(base)}.log").write_bytes(b"".join(batches))
        if index:
            offsets, times = indexes(base, batches, interval, closed)
            (path / f"{stem(base)}.index").write_bytes(offset_index(base, offsets))
            (path / f"{stem(base)}.timeindex").write_bytes(time_index(base, times))
    for base, txns in (aborted or {}).items():
        (path / f"{stem(base)}.txnindex").write_bytes(txn_index(txns))
    for offset, data in (snapshots or {}).items():
        (path / f"{stem(offset)}.snapshot").write_bytes(data)
    if epochs is not None:
        (path / "leader-epoch-checkpoint").write_text(checkpoint(epochs))
    return path
