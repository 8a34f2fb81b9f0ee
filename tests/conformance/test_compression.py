"""Lz4CompressionTest and the framings of spec 2.6."""

import gzip
import struct

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstore import CorruptRecordError, Record, RecordBatch, RecordTooLargeError
from tests.conformance import forge
from tests.conformance.forge import Rec

REC = Rec(b"value" * 100, b"key", 5)
BODY = forge.record(REC, 0, 5)
READ = [Record(0, 5, "CreateTime", b"key", b"value" * 100)]


def read(codec: str, packed: bytes) -> list[Record]:
    raw = forge.batch(codec=codec, packed=packed, count=1, base_timestamp=5)
    return RecordBatch(raw).records()


def refused(codec: str, packed: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        read(codec, packed)


GOOD = {
    "gzip": forge.gzip(BODY),
    "gzip by another program": gzip.compress(BODY, 1),
    "gzip, two members": forge.gzip(BODY[:50]) + forge.gzip(BODY[50:]),
    "gzip, garbage behind": forge.gzip(BODY) + b"garbage",
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
    "zstd": bytes(cramjam.zstd.compress(BODY)),
    "zstd, best level": bytes(cramjam.zstd.compress(BODY, level=19)),
}


@pytest.mark.parametrize("name", GOOD)
def test_framings(name: str) -> None:
    """Spec 2.6: every framing that Kafka's readers accept."""
    assert read(name.split()[0].rstrip(","), GOOD[name]) == READ


@pytest.mark.parametrize("cut", range(7))
def test_lz4_header_cut_short(cut: int) -> None:
    """A frame that ends inside its header."""
    refused("lz4", forge.lz4(BODY)[:cut])


def test_lz4_wrong_magic() -> None:
    """A frame of another kind."""
    refused("lz4", b"\5" + forge.lz4(BODY)[1:])


def test_lz4_wrong_header_checksum() -> None:
    """A wrong header checksum is refused, unless it is a message of magic 0 that is read."""
    refused("lz4", forge.lz4(BODY, header_checksum=0x1A))
    inner = forge.message(0, b"v", magic=0)
    for checksum in (0x1A, 0x82, 0):
        packed = forge.lz4(inner, header_checksum=checksum)
        assert len(RecordBatch(forge.message(0, packed, magic=0, attributes=3)).records()) == 1
    packed = forge.lz4(forge.message(0, b"v"), header_checksum=0x1A)
    with pytest.raises(CorruptRecordError):
        RecordBatch(forge.message(0, packed, magic=1, attributes=3)).records()


def test_lz4_block_larger_than_its_maximum() -> None:
    """A block size above the 64 KiB that the header allows."""
    frame = forge.lz4(BODY)
    refused("lz4", frame[:7] + struct.pack("<I", 65537) + frame[11:])
    refused("lz4", frame[:7] + struct.pack("<I", 65537 | 1 << 31) + bytes(65537) + bytes(4))


def test_lz4_missing_end_mark() -> None:
    """A frame without its end mark."""
    refused("lz4", forge.lz4(BODY, end_mark=False))


def test_lz4_dependent_blocks_and_versions() -> None:
    """Spec 2.6: blocks must be independent, the version 01."""
    refused("lz4", forge.lz4(BODY, flags=0x40))
    refused("lz4", forge.lz4(BODY, flags=0xA0))


def test_lz4_wrong_block_checksum() -> None:
    """Spec 2.6: a block checksum is verified where the header announces one."""
    frame = forge.lz4(BODY, flags=0x70)
    refused("lz4", frame[:-5] + bytes([frame[-5] ^ 1]) + frame[-4:])


BAD = {
    "gzip cut": forge.gzip(BODY)[:-1],
    "gzip checksum": forge.gzip(BODY)[:-8] + bytes(8),
    "gzip no stream": BODY,
    "snappy chunk too long": forge.XERIAL + struct.pack(">i", 1000) + b"\0",
    "snappy negative chunk": forge.XERIAL + struct.pack(">i", -5) + b"\0" * 8,
    "snappy garbage": b"\xff" * 20,
    "zstd cut": bytes(cramjam.zstd.compress(BODY))[:-1],
    "zstd no frame": BODY,
}


@pytest.mark.parametrize("name", BAD)
def test_broken_streams(name: str) -> None:
    """Spec 2.6: what is no such stream is refused with an error of ours."""
    refused(name.split()[0], BAD[name])


@pytest.mark.parametrize("codec", forge.CODECS[1:])
def test_limit(codec: str) -> None:
    """A batch that unpacks to more than the caller allows is refused, at the limit it is not."""
    raw = forge.batch(REC, codec=codec)
    assert RecordBatch(raw, max_decompressed_bytes=len(BODY)).records() == READ
    with pytest.raises(RecordTooLargeError):
        RecordBatch(raw, max_decompressed_bytes=len(BODY) - 1).records()


@given(
    st.sampled_from(forge.CODECS),
    st.lists(st.binary(max_size=50) | st.integers(0, 200000).map(bytes), min_size=1, max_size=4),
)
@settings(deadline=None)
def test_any_payload(codec: str, values: list[bytes]) -> None:
    """Payloads of several blocks, compressible or not."""
    batch = RecordBatch(forge.batch(*map(Rec, values), codec=codec))
    assert [record.value for record in batch] == values
