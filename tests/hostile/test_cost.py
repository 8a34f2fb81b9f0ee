"""Small files that would take much time or memory to read."""

import gzip
import os
import resource
import signal
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.engine.io.file import fail_call
from kstore.engine.record.codec_errors import CodecError, DecompressLimitError
from kstore.engine.record.decompress import decompress
from kstore.engine.record.hashes import crc32c
from tests.helpers.calls import count_calls

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


def with_a_gap(directory: Path, size: int, *, hole: bool) -> Path:
    """A log of 20 batches with `size` bytes of zeros between two of them, as a hole of the file or written out."""
    with kstore.open(directory, "a") as log:
        for i in range(20):
            log.append(b"%d" % i * 10)
    position = list(kstore.open(directory).batches())[10].position
    path = directory / (NAME + ".log")
    rest = path.read_bytes()[position:]
    with path.open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        if not hole:
            file.write(bytes(size))
        file.seek(position + size)
        file.write(rest)
    return path


@pytest.mark.parametrize("size", [4096, (1 << 40) + 5, (1 << 40) - 1])
def test_skipping_passes_over_a_hole_of_a_file(tmp_path: Path, size: int) -> None:
    """It asks the system where the hole ends: to read a TiB of zeros would take hours. A batch may begin in its last
    bytes, because its own first ones are zeros too."""
    with_a_gap(tmp_path / "t-0", size, hole=True)
    log = kstore.open(tmp_path / "t-0", recover=False)
    fail_call(500, own=True)  # reading it all would take more calls
    try:
        for reader in (log.records(on_error="skip"), log.batches(on_error="skip")):
            assert len(list(reader)) == 20
            assert [skipped.size for skipped in reader.skipped] == [size]
        scan = log.scan(on_error="skip")
        assert sum(len(batch) for batch in scan) == 20
        assert [skipped.size for skipped in scan.skipped] == [size]
    finally:
        fail_call(0)


class InterruptError(Exception):
    pass


@pytest.fixture
def interrupted() -> Iterator[None]:
    """A signal comes every few ms, and its handler raises."""

    def handle(_number: int, _frame: object) -> None:
        raise InterruptError

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def zeros(tmp_path: Path) -> kstore.PartitionLog:
    with_a_gap(tmp_path / "t-0", 96 << 20, hole=False)
    return kstore.open(tmp_path / "t-0", recover=False)


def test_skipping_can_be_interrupted(zeros: kstore.PartitionLog, interrupted: None) -> None:
    """Half way: nothing was noted yet as left out. The reader goes on afterwards."""
    reader = zeros.records(on_error="skip")
    found = []
    with pytest.raises(InterruptError):
        found.extend(reader)
    assert len(found) == 10
    assert reader.skipped == []
    found.extend(reader)
    assert [record.offset for record in found] == list(range(20))
    assert [skipped.size for skipped in reader.skipped] == [96 << 20]


def record_with_headers(count: int) -> bytes:
    """A batch of one record with `count` headers of two bytes each: a name of no bytes, and null."""
    plain = kstore.encode_batch([(1, None, b"v", None)])
    body = b"\0\0\0" + varint(-1) + varint(1) + b"v" + varint(count) + (varint(0) + varint(-1)) * count
    data = bytearray(plain[:61]) + varint(len(body)) + body
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def varint(n: int) -> bytes:
    z = (n << 1) ^ (n >> 31)
    out = b""
    while z >= 0x80:
        out += bytes([z & 0x7F | 0x80])
        z >>= 7
    return out + bytes([z])


def test_headers_are_counted_as_the_objects_that_they_become(tmp_path: Path) -> None:
    """Two bytes in the file become some 80 to 176 in memory. The limit is that on what a batch unpacks to."""
    limit = 1 << 20
    most = (limit - 2) // 178
    assert (
        len(kstore.RecordBatch(record_with_headers(most), max_decompressed_bytes=limit).records()[0].headers)
        == most
    )
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / (NAME + ".log")).write_bytes(record_with_headers(most + 1))
    log = kstore.open(directory, max_decompressed_bytes=limit)
    for read in (
        lambda: list(log.records()),
        lambda: [batch.records() for batch in log.batches()],
        lambda: log.get(0),
        lambda: log.find(offset=0),
        lambda: log.find(timestamp=1),
        lambda: list(log.read(0)),
        lambda: list(log.follow(0, timeout=0)),
    ):
        with pytest.raises(
            kstore.RecordTooLargeError, match=f"{most + 1} headers of record 0.*max_decompressed"
        ) as caught:
            read()
        assert caught.value.limit == limit
        assert caught.value.position == 0
    reader = log.records(on_error="skip")
    assert list(reader) == []
    assert len(reader.skipped) == 1
    assert sum(len(batch) for batch in log.scan()) == 1  # columns hold headers as they are
    assert len(kstore.open(directory).get(0).headers) == most + 1  # the default allows 1.5 million


@pytest.mark.parametrize("suffix", [".swap", ".cleaned"])
def test_many_files_of_a_compaction_that_was_interrupted(tmp_path: Path, suffix: str) -> None:
    """With twice as many files an opening has twice as much to do, not four times as much."""
    made = []
    for count in (50, 100):
        directory = tmp_path / f"t-{count}"
        directory.mkdir()
        for offset in range(count):
            (directory / f"{offset:020}.log").touch()
            (directory / f"{offset:020}.index").touch()
            (directory / f"{offset:020}.log{suffix}").touch()
        made.append(count_calls(lambda directory=directory: kstore.open(directory).segments))
    assert made[1] < 2.5 * made[0]


@pytest.mark.parametrize("content", [b"a b c 1\n" * (1 << 17), bytes(1 << 20)])
@pytest.mark.parametrize("mode", ["r", "a"])
def test_a_damaged_checkpoint_costs_what_its_size_does(tmp_path: Path, content: bytes, mode: str) -> None:
    """Of all lines that do not parse the first is told, and not all of it."""
    path = tmp_path / "t-0"
    with kstore.open(path, "a") as log:
        log.append(b"x")
    (path / "leader-epoch-checkpoint").write_bytes(content)
    tracemalloc.start()
    try:
        with kstore.open(path, mode) as log:
            texts = [finding.text for finding in log.recovery.findings]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [len(text) < 2000 for text in texts] == [True]
    assert most < 40 << 20
