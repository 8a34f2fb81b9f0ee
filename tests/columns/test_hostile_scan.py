"""Truncations and turned bits under a scan: what Record iteration says, rows and error alike."""

from pathlib import Path

import pytest

import kstore
from tests.columns.plain import expected, scanned
from tests.helpers.effort import SEED, some
from tests.hostile.material import LOG, resealed, segment_bytes, turned, write_partition

pytestmark = pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")  # what is left out is compared here


@pytest.fixture(scope="module")
def log_bytes() -> bytes:
    return segment_bytes()


def assert_alike(partition: Path, changed: object) -> None:
    note = f"{changed} (SEED={SEED})"
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


def test_truncations(tmp_path: Path, log_bytes: bytes) -> None:
    damaged = write_partition(tmp_path, log_bytes)
    for size in some(range(len(log_bytes)), 200):
        (damaged / LOG).write_bytes(log_bytes[:size])
        assert_alike(damaged, size)


def test_turned_bits(tmp_path: Path, log_bytes: bytes) -> None:
    damaged = write_partition(tmp_path, log_bytes)
    for bit in some(range(8 * len(log_bytes)), 300):
        (damaged / LOG).write_bytes(turned(log_bytes, bit))
        assert_alike(damaged, bit)


def test_turned_bits_that_the_checksum_covers(tmp_path: Path, log_bytes: bytes) -> None:
    """Damage by someone who also makes the checksum right: the records themselves are hostile."""
    damaged = write_partition(tmp_path, log_bytes)
    spans, at = [], 0
    while at < len(log_bytes):
        end = at + 12 + int.from_bytes(log_bytes[at + 8 : at + 12], "big")
        if log_bytes[at + 16] == 2:
            spans.append((at, end))
        at = end
    bits = [(start, end, bit) for start, end in spans for bit in range(8 * 21, 8 * (end - start))]
    for start, end, bit in some(bits, 300):
        changed = resealed(turned(log_bytes[start:end], bit))
        (damaged / LOG).write_bytes(log_bytes[:start] + changed + log_bytes[end:])
        assert_alike(damaged, (start, bit))
