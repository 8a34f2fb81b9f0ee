"""Small files that would take much time or memory to read."""

import gzip
import os
import resource
import struct
from pathlib import Path

import pytest

import kstore
from kstore.engine.record.decompress import CodecError, DecompressLimitError, decompress
from kstore.engine.record.hashes import crc32c

NAME = "00000000000000000000"


def batch_of(payload: bytes, codec: int) -> kstore.RecordBatch:
    """A batch with a right checksum around a compressed payload."""
    data = bytearray(kstore.encode_batch([(1, b"k", b"v", None)])[:61]) + payload
    data[22] = codec
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return kstore.RecordBatch(bytes(data))


def test_many_gzip_members_are_refused() -> None:
    """20 bytes each, which decompress to nothing: no limit on what comes out stops them."""
    empty = gzip.compress(b"")
    assert decompress(1, 2, empty * 1000 + gzip.compress(b"x"), 100) == b"x"
    with pytest.raises(CodecError, match="members"):
        decompress(1, 2, empty * 70_000, 100)
    with pytest.raises(kstore.CorruptRecordError, match="gzip: members"):
        batch_of(empty * 70_000, 1).records()


@pytest.mark.parametrize("sizes", [(1, 511, 512, 513), (100_000, 0, 3), (5,)])
def test_gzip_members_of_all_sizes(sizes: tuple[int, ...]) -> None:
    """What comes out is the same wherever a member ends in what is looked at."""
    parts = [os.urandom(size) for size in sizes]
    packed = b"".join(gzip.compress(part) for part in parts)
    whole = b"".join(parts)
    assert decompress(1, 2, packed, 1 << 20) == whole
    assert decompress(1, 2, packed + b"no member", 1 << 20) == whole
    with pytest.raises(CodecError, match="ends early"):
        decompress(1, 2, packed[:-1], 1 << 20)
    if len(whole) > 1:
        with pytest.raises(DecompressLimitError):
            decompress(1, 2, packed, len(whole) - 1)


def lz4_frame(blocks: bytes) -> bytes:
    """A frame of these blocks; its header checksum is what the reader asks for."""
    for checksum in range(256):
        frame = bytes([0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, checksum]) + blocks + bytes(4)
        try:
            decompress(3, 2, frame[:7] + bytes(4), 10)
        except CodecError as e:
            assert "header checksum" in str(e)
        else:
            return frame
    raise AssertionError


def test_many_lz4_blocks_are_refused() -> None:
    """4 bytes each, stored blocks of nothing."""
    nothing = struct.pack("<I", 1 << 31)
    five = struct.pack("<I", 5 | 1 << 31) + b"abcde"
    assert bytes(decompress(3, 2, lz4_frame(nothing * 1000 + five + five), 100)) == b"abcdeabcde"
    with pytest.raises(CodecError, match="blocks"):
        decompress(3, 2, lz4_frame(nothing * 70_000), 100)


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".txnindex"])
def test_an_index_larger_than_its_log(tmp_path: Path, kind: str) -> None:
    """A hole of 64 GiB on the disk takes no room there, but would in memory: no log of this size has such an index."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        log.append(b"x", timestamp=5)
    path = directory / (NAME + kind)
    path.touch()
    os.truncate(path, 34 * 12 * (1 << 27))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    log = kstore.open(directory)
    assert log.get(0).value == b"x"
    found = log.find(timestamp=0)
    assert found is not None
    assert found[:2] == (0, 5)
    if kind == ".txnindex":
        assert [finding.kind for finding in log.recovery.findings] == ["broken_index"]
    else:
        assert "size of an index" in str(log.segments[0].notes[0])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_headers_of_a_log_with_a_hole(tmp_path: Path) -> None:
    """The table of headers is not sized by a file that is mostly a hole."""
    directory = tmp_path / "t-0"
    with kstore.open(directory, "a") as log:
        for i in range(1100):
            log.append(b"%d" % i)
    path = directory / (NAME + ".log")
    os.truncate(path, 1 << 40)
    with pytest.raises(kstore.CorruptRecordError, match="size field"):
        kstore.Segment(str(directory), NAME, 0).read_headers()
