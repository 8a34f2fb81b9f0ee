"""Forged lengths under a checksum that agrees, bombs, noise, and odd names of files."""

import random
import resource
import struct
from pathlib import Path

import cramjam
import pytest

import kstore
from tests.helpers import forge
from tests.helpers.effort import SEED, some, times
from tests.helpers.forge import Rec
from tests.hostile.material import LOG, bit_flips, resealed, segment_bytes, smallest_batches, write_partition

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # what is left out is compared here

EXTREMES = (-(2**31), -1, 0, 1, 13, 14, 48, 49, 2**16, 2**30, 2**31 - 1)
FIELDS = (0, 8, 12, 23, 27, 35, 43, 53, 57)  # where 32-bit fields, and halves of 64-bit ones, of a header are
PACKERS = {
    "gzip": forge.gzip,
    "snappy": forge.xerial,
    "lz4": forge.lz4,
    "zstd": lambda data: bytes(cramjam.zstd.compress(data, 3)),
}


def write_log(directory: Path, log: bytes) -> Path:
    partition = directory / "forged-0"
    partition.mkdir(exist_ok=True)
    (partition / LOG).write_bytes(log)
    return partition


def test_forged_header_fields(tmp_path: Path) -> None:
    """Fields of the header at their extremes: records of the batch, or an error."""
    rest = segment_bytes()
    batches = [batch.data for batch in smallest_batches() if batch.magic == 2]
    cases = [(batch, at, value) for batch in batches for at in FIELDS for value in EXTREMES]
    for batch, at, value in some(cases, 300, "fields"):
        data = bytearray(batch)
        struct.pack_into(">i", data, at, value)
        partition = write_log(tmp_path, resealed(bytes(data)) + rest)
        for clean in (True, False):
            try:
                log = kstore.open(partition, clean=clean)
                records = list(log.records(control=True))
                log.find(timestamp=0)
                log.find(timestamp="max")
                log.last_stable_offset()
            except kstore.KstoreError:
                continue
            assert len(records) < 1000, (SEED, at, value)


@pytest.mark.parametrize("codec", PACKERS)
def test_a_bomb_stops_at_the_limit(codec: str) -> None:
    """16 MiB of zeros in some kilobytes: an error of kstore, and no more memory than the limit."""
    bomb = forge.batch(codec=codec, packed=PACKERS[codec](bytes(16 << 20)), count=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(kstore.RecordTooLargeError) as caught:
        kstore.RecordBatch(bomb, max_decompressed_bytes=1 << 20).records()
    assert caught.value.limit == 1 << 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 << 10  # KiB


@pytest.mark.parametrize("codec", PACKERS)
def test_a_payload_at_the_limit(codec: str) -> None:
    value = bytes(range(256)) * 4096
    body = forge.record(Rec(value), 0, -1)
    data = forge.batch(codec=codec, packed=PACKERS[codec](body), count=1)
    assert kstore.RecordBatch(data, max_decompressed_bytes=len(body)).records()[0].value == value
    with pytest.raises(kstore.RecordTooLargeError):
        kstore.RecordBatch(data, max_decompressed_bytes=len(body) - 1).records()


@pytest.mark.parametrize("codec", PACKERS)
def test_damaged_payloads(codec: str) -> None:
    """Truncations and turned bits of a compressed payload."""
    payload = PACKERS[codec](forge.record(Rec(bytes(40)), 0, -1))

    def batch_of(packed: bytes) -> kstore.RecordBatch:
        return kstore.RecordBatch(
            forge.batch(codec=codec, packed=packed, count=1), max_decompressed_bytes=1 << 20
        )

    assert batch_of(payload).records()[0].value == bytes(40)
    for size in range(len(payload)):
        with pytest.raises(kstore.KstoreError):
            batch_of(payload[:size]).records()
    for _, changed in bit_flips(payload):
        try:
            records = batch_of(changed).records()
        except kstore.KstoreError:
            continue
        assert len(records) == 1  # codecs without a checksum of their own detect nothing


def test_noise(tmp_path: Path) -> None:
    """Random bytes as a log, alone and after good batches."""
    source = random.Random(SEED)
    whole = segment_bytes()
    write_partition(tmp_path / "sound", whole)
    truth = list(kstore.open(tmp_path / "sound" / "small-0"))
    for round_ in range(times(100)):
        noise = source.randbytes(source.randrange(1, 600))
        partition = write_log(tmp_path, noise if round_ % 2 else whole + noise)
        right = [] if round_ % 2 else truth
        for clean in (True, False):
            try:
                found = list(kstore.open(partition, clean=clean))
            except kstore.KstoreError:
                continue
            assert found == right, (SEED, round_)
        assert list(kstore.open(partition, recover=False).records(on_error="skip")) == right, (SEED, round_)


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
