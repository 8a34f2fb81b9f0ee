"""Forged lengths, bombs, noise, and damage to the small files beside a log."""

import random
import resource
import struct
import zlib
from pathlib import Path

import cramjam
import pytest

import kstore
from kstore.engine.record.hashes import crc32c
from kstore.log.files import checkpoints
from kstore.log.producers.states import read_snapshot
from tests.helpers.varint import varint
from tests.hostile.material import bit_flips, segment_bytes, smallest_batches, write_partition

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # what is left out is compared here

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
LOG = "00000000000000000000.log"
EXTREMES = (-(2**31), -1, 0, 1, 13, 14, 48, 49, 2**16, 2**30, 2**31 - 1)


def resealed(data: bytes) -> bytes:
    """A v2 batch with its checksum put right, so that what lies behind it is looked at."""
    return data[:17] + struct.pack(">I", crc32c(data[21:])) + data[21:]


def batch_of(payload: bytes, attributes: int, count: int = 1) -> bytes:
    """A v2 batch around a payload."""
    body = struct.pack(">hiqqqhii", attributes, max(count - 1, 0), 0, 0, -1, -1, -1, count) + payload
    head = struct.pack(">qiib", 0, len(body) + 9, 0, 2)
    return resealed(head + bytes(4) + body)


@pytest.mark.parametrize("at", [0, 8, 12, 23, 27, 35, 43, 53, 57])
@pytest.mark.parametrize("value", EXTREMES)
def test_forged_header_fields(tmp_path: Path, at: int, value: int) -> None:
    """Every 32-bit field at its extremes, with a checksum that agrees: records of the batch, or an error."""
    for batch in smallest_batches():
        if batch.magic < 2:
            continue
        data = bytearray(batch.data)
        struct.pack_into(">i", data, at, value)
        partition = write_log(tmp_path, resealed(bytes(data)) + segment_bytes())
        for clean in (True, False):
            try:
                log = kstore.open(partition, clean=clean)
                records = list(log.records(control=True))
                log.find(timestamp=0)
                log.find(timestamp="max")
                log.last_stable_offset()
            except kstore.KstoreError:
                continue
            assert len(records) < 1000


def write_log(directory: Path, log: bytes) -> Path:
    partition = directory / "forged-0"
    partition.mkdir(exist_ok=True)
    (partition / LOG).write_bytes(log)
    return partition


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\xff" * 5,
        b"\xff" * 11,
        varint(2**31 - 1),
        varint(-1),
        varint(0),
        varint(6) + b"\0\0\0" + varint(2**31 - 1) + b"\0\0",
        varint(6) + b"\0\0\0\0" + varint(100) + b"\0",
        varint(6) + b"\0\0\0\0\0" + varint(-1),
        varint(6) + b"\0\0\0\0\0" + varint(63),
        varint(8) + b"\0\0\0\0\0" + varint(1) + varint(-1) + b"\0",
        varint(8) + b"\0\0\0\0\0" + varint(1) + varint(60) + b"\0",
        varint(8) + b"\0\0\0\0\0\0" + b"extra",
        varint(6) + b"\0\0\0\0\0\0" + b"trailing",
    ],
)
def test_forged_records(record: bytes) -> None:
    with pytest.raises(kstore.CorruptRecordError) as caught:
        kstore.RecordBatch(batch_of(record, 0)).records()
    assert caught.value.position >= 0


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_forged_counts(count: int) -> None:
    sound = varint(6) + b"\0\0\0\1\1\0"
    assert len(kstore.RecordBatch(batch_of(sound, 0)).records()) == 1
    batch = kstore.RecordBatch(batch_of(sound, 0, count))
    if count == 0:
        assert batch.records() == []  # Kafka does not look at the body then
        return
    with pytest.raises(kstore.CorruptRecordError):
        batch.records()


def lz4_frame(data: bytes) -> bytes:
    blocks = b""
    for at in range(0, len(data), 65536):
        block = bytes(cramjam.lz4.compress_block(data[at : at + 65536], store_size=False))
        blocks += struct.pack("<I", len(block)) + block
    return bytes.fromhex("04224d18604082") + blocks + bytes(4)


def snappy_stream(data: bytes) -> bytes:
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), 32768):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + 32768]))
        out += struct.pack(">i", len(block)) + block
    return out


def gzip_stream(data: bytes) -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    return deflate.compress(data) + deflate.flush()


PACKERS = {
    1: gzip_stream,
    2: snappy_stream,
    3: lz4_frame,
    4: lambda data: bytes(cramjam.zstd.compress(data, 3)),
}


@pytest.mark.parametrize("codec", PACKERS)
def test_bombs_stop_at_the_cap(codec: int) -> None:
    """64 MiB of zeros in a few kilobytes: an error of ours, and no more memory than the cap."""
    bomb = batch_of(PACKERS[codec](bytes(64 << 20)), codec)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(kstore.RecordTooLargeError) as caught:
        kstore.RecordBatch(bomb, max_decompressed_bytes=1 << 20).records()
    assert caught.value.limit == 1 << 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 << 10  # KiB


@pytest.mark.parametrize("codec", PACKERS)
def test_a_payload_at_the_cap(codec: int) -> None:
    value = bytes(range(256)) * 4096
    inner = b"\0\0\0\1" + varint(len(value)) + value + b"\0"
    record = varint(len(inner)) + inner
    data = batch_of(PACKERS[codec](record), codec)
    assert kstore.RecordBatch(data, max_decompressed_bytes=len(record)).records()[0].value == value
    with pytest.raises(kstore.RecordTooLargeError):
        kstore.RecordBatch(data, max_decompressed_bytes=len(record) - 1).records()


@pytest.mark.parametrize("codec", PACKERS)
def test_damaged_payloads(codec: int) -> None:
    """Truncations and turned bits of a compressed payload under a checksum that agrees."""
    inner = b"\0\0\0\1" + varint(40) + bytes(40) + b"\0"
    payload = PACKERS[codec](varint(len(inner)) + inner)
    for size in range(len(payload)):
        with pytest.raises(kstore.KstoreError):
            kstore.RecordBatch(batch_of(payload[:size], codec), max_decompressed_bytes=1 << 20).records()
    for _, changed in bit_flips(payload):
        try:
            records = kstore.RecordBatch(batch_of(changed, codec), max_decompressed_bytes=1 << 20).records()
        except kstore.KstoreError:
            continue
        assert len(records) == 1  # codecs without a checksum of their own cannot tell


def test_unknown_codec() -> None:
    for codec in (5, 6, 7):
        batch = kstore.RecordBatch(batch_of(b"x", codec))
        with pytest.raises(kstore.UnsupportedCodecError):
            batch.records()
        with pytest.raises(kstore.UnsupportedCodecError):
            _ = batch.codec


def test_noise(tmp_path: Path) -> None:
    """Random bytes as a log, alone and behind good batches."""
    source = random.Random(20261121)
    whole = segment_bytes()
    write_partition(tmp_path / "sound", whole)
    truth = list(kstore.open(tmp_path / "sound" / "small-0"))
    for round_ in range(400):
        noise = source.randbytes(source.randrange(1, 600))
        log = noise if round_ % 2 else whole + noise
        partition = write_log(tmp_path, log)
        for clean in (True, False):
            try:
                found = list(kstore.open(partition, clean=clean))
            except kstore.KstoreError:
                continue
            assert found == (truth if round_ % 2 == 0 else [])
        skipping = kstore.open(partition, recover=False).records(on_error="skip")
        found = list(skipping)
        assert found == (truth if round_ % 2 == 0 else [])


def test_skip_goes_on_at_the_next_good_batch(tmp_path: Path) -> None:
    whole = segment_bytes()
    partition = write_partition(tmp_path, whole)
    batches = list(kstore.open(partition).batches())
    truth = list(kstore.open(partition))
    victim = batches[5]
    for at in (8, 16, 30):  # its size, its magic, its body
        damaged = bytearray(whole)
        damaged[victim.position + at] ^= 0x40
        (partition / LOG).write_bytes(damaged)
        with pytest.raises(kstore.CorruptRecordError) as caught:
            list(kstore.open(partition))
        assert victim.position <= caught.value.position < victim.position + victim.size
        assert str(partition / LOG) in str(caught.value)
        reader = kstore.open(partition).records(on_error="skip")
        assert list(reader) == [r for r in truth if not victim.base_offset <= r.offset <= victim.last_offset]
        assert [(s.position, s.size) for s in reader.skipped] == [(victim.position, victim.size)]


def test_producer_snapshots() -> None:
    path = next((GOLDEN / "idempotent").glob("*-0/*.snapshot"))
    data = path.read_bytes()
    assert read_snapshot(data)
    for size in range(len(data)):
        with pytest.raises(kstore.CorruptSnapshotError):
            read_snapshot(data[:size], str(path))
    for _, changed in bit_flips(data):
        with pytest.raises(kstore.CorruptSnapshotError):
            read_snapshot(changed, str(path))


def test_transaction_indexes(tmp_path: Path) -> None:
    """They have no checksum: whatever they hold, a reader of committed data gets records or an error of ours."""
    path = next((GOLDEN / "transactions").glob("*-0/*.txnindex"))
    data = path.read_bytes()
    sources = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    partition = tmp_path / "txn-0"
    partition.mkdir()
    for name, content in sources.items():
        (partition / name).write_bytes(content)
    for damaged in [data[:n] for n in range(len(data))] + [c for b, c in bit_flips(data) if b % 5 == 0]:
        (partition / path.name).write_bytes(damaged)
        try:
            log = kstore.open(partition, clean=True)
            list(log.records(isolation="read_committed"))
            list(log.read(0, 1 << 20, "read_committed"))
        except kstore.KstoreError as e:
            assert "txnindex" in str(e)


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_text_files(tmp_path: Path, name: str) -> None:
    whole = (GOLDEN / "leader_epochs" / "epochs-0" / name).read_bytes()
    read = checkpoints.read_epochs if name.startswith("leader") else checkpoints.read_topic_id
    path = tmp_path / name
    for damaged in [whole[:n] for n in range(len(whole))] + [c for _, c in bit_flips(whole)]:
        path.write_bytes(damaged)
        try:
            read(path)
        except kstore.CorruptCheckpointError as e:
            assert str(path) in str(e)


def test_a_directory_of_odd_names(tmp_path: Path) -> None:
    partition = write_partition(tmp_path, segment_bytes())
    truth = list(kstore.open(partition))
    for name in (
        "x.log",
        "00000000000000000000.log.deleted",
        "-1.log",
        "9" * 30 + ".log",
        ".log",
        "1.log.swap.log",
        "00000000000000000000.log.cleaned",
        "\udcff.log",
        "99999999999999999999.index",
        "a.swap",
    ):
        (partition / name).write_bytes(b"")
    (partition / "00000000000000000009.snapshot").mkdir()
    log = kstore.open(partition)
    assert list(log) == truth
    assert {finding.kind for finding in log.recovery.findings} >= {"leftover", "orphan"}


def test_arguments_out_of_range(tmp_path: Path) -> None:
    log = kstore.open(write_partition(tmp_path, segment_bytes()))
    for offset in (-1, log.log_end_offset + 1, 2**62):
        with pytest.raises(kstore.OffsetOutOfRangeError):
            log.read(offset)
        with pytest.raises(LookupError):
            log.get(offset)
    with pytest.raises(ValueError, match="max_bytes"):
        log.read(0, -1)
    with pytest.raises(ValueError, match="offset is from"):
        log.segments[0].translate(2**70)
    with pytest.raises(kstore.KstoreError):
        log.segments[0].batch_at(-5)
    with pytest.raises(kstore.KstoreError):
        log.segments[0].batch_at(2**40)
    with pytest.raises(ValueError, match="isolation"):
        log.read(0, isolation="dirty")
    with pytest.raises(ValueError, match="on_error"):
        log.records(on_error="ignore")
    with pytest.raises(TypeError):
        log.find()
    log.close()
    with pytest.raises(kstore.LogClosedError):
        log.get(0)
