"""Every truncation and every turned bit under a scan: what Record iteration says, rows and error alike."""

from pathlib import Path

import pytest

import kstore
from tests.columns.plain import expected, scanned
from tests.hostile.material import STEP, bit_flips, segment_bytes, write_partition

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # what is left out is compared here

LOG = "00000000000000000000.log"


@pytest.fixture(scope="module")
def log_bytes() -> bytes:
    return segment_bytes()


def assert_alike(partition: Path, note: object) -> None:
    try:
        log = kstore.open(partition)
    except kstore.KstoreError:
        return
    right = expected(log, {})
    assert scanned(log) == right, note
    assert scanned(log, views=True, batch_rows=3, threads=2) == right, note
    kept = list(log.records(on_error="skip"))
    found = [row[0] for batch in log.scan(["offset"], on_error="skip") for row in batch.rows()]
    assert found == [record.offset for record in kept], note
    scanned(log, since=1)


def test_every_truncation(tmp_path: Path, log_bytes: bytes) -> None:
    damaged = write_partition(tmp_path, log_bytes)
    for size in range(0, len(log_bytes), 5):
        (damaged / LOG).write_bytes(log_bytes[:size])
        assert_alike(damaged, size)


def test_turned_bits(tmp_path: Path, log_bytes: bytes) -> None:
    damaged = write_partition(tmp_path, log_bytes)
    for bit, changed in bit_flips(log_bytes):
        if bit % 11 == 0:
            (damaged / LOG).write_bytes(changed)
            assert_alike(damaged, bit)


def test_turned_bits_that_the_checksum_covers(tmp_path: Path, log_bytes: bytes) -> None:
    """Damage by someone who also sets the checksum right: the records themselves are hostile."""
    damaged = write_partition(tmp_path, log_bytes)
    starts, at = [], 0
    while at < len(log_bytes):
        starts.append(at)
        at += 12 + int.from_bytes(log_bytes[at + 8 : at + 12], "big")
    from kstore.engine.record.hashes import crc32c

    for start, end in zip(starts, [*starts[1:], len(log_bytes)], strict=True):
        if log_bytes[start + 16] != 2:
            continue
        for bit in range(8 * (start + 21), 8 * end, 11 * STEP):
            changed = bytearray(log_bytes)
            changed[bit // 8] ^= 1 << bit % 8
            changed[start + 17 : start + 21] = crc32c(bytes(changed[start + 21 : end])).to_bytes(4, "big")
            (damaged / LOG).write_bytes(changed)
            assert_alike(damaged, bit)
