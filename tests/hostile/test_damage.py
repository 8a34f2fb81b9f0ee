"""Truncations and single turned bits of real batches and indexes: an error of kstore, or the right records.

At EFFORT=1 some of the sizes and bits; with more effort up to every one."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from tests.columns.plain import expected, scanned
from tests.helpers.effort import SEED, some, times
from tests.hostile.material import LOG, bit_flips, resealed, segment_bytes, turned, write_partition

pytestmark = [
    pytest.mark.filterwarnings("ignore::kstore.DataLossWarning"),  # what is left out is compared here
    pytest.mark.timeout(times(300)),
]


@pytest.fixture(scope="module")
def log_bytes() -> bytes:
    return segment_bytes()


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory, log_bytes: bytes) -> Path:
    return write_partition(tmp_path_factory.mktemp("whole"), log_bytes)


@pytest.fixture(scope="module")
def truth(partition: Path) -> list[kstore.Record]:
    return list(kstore.open(partition).records(control=True))


def read_what_comes(records: Iterator[kstore.Record]) -> tuple[list[kstore.Record], bool]:
    found = []
    try:
        found.extend(records)
    except kstore.KstoreError as e:
        assert str(e)
        return found, True
    return found, False


def assert_right(
    partition: Path, truth: list[kstore.Record], *, complete: bool = False, note: object
) -> None:
    """Whatever is read is what was written, from the first record on, and nothing is left out in silence."""
    for clean in (True, False):
        try:
            log = kstore.open(partition, clean=clean)
        except kstore.KstoreError as e:
            assert str(e)
            continue
        found, failed = read_what_comes(log.records(control=True))
        assert found == truth[: len(found)], note
        if complete:
            assert failed or log.recovery.findings or len(found) == len(truth), note
        kept, _ = read_what_comes(log.records(control=True, on_error="skip"))
        assert [record for record in kept if record not in truth] == [], note
        assert_scans_alike(log, note)


def assert_scans_alike(log: kstore.PartitionLog, note: object) -> None:
    """A scan gives what iteration over records gives, rows and error alike."""
    right = expected(log, {})
    assert scanned(log) == right, note
    assert scanned(log, views=True, batch_rows=3, threads=2) == right, note
    kept = [record.offset for record in log.records(on_error="skip")]
    found = [row[0] for batch in log.scan(["offset"], on_error="skip") for row in batch.rows()]
    assert found == kept, note
    scanned(log, since=1)


def test_material_is_worth_damaging(truth: list[kstore.Record], log_bytes: bytes) -> None:
    assert len(log_bytes) < 4000
    kinds = {(r.timestamp_type, r.key is None, bool(r.headers)) for r in truth}
    assert len(truth) > 20
    assert len(kinds) > 4


def test_truncations_of_a_log(tmp_path: Path, log_bytes: bytes, truth: list[kstore.Record]) -> None:
    damaged = write_partition(tmp_path, log_bytes)
    for size in some(range(len(log_bytes)), 250, "truncations"):
        (damaged / LOG).write_bytes(log_bytes[:size])
        assert_right(damaged, truth, note=(SEED, size))


def batches_of(log_bytes: bytes) -> list[tuple[int, bytes]]:
    """Each batch of a log file, with its position."""
    found, at = [], 0
    while at < len(log_bytes):
        end = at + 12 + int.from_bytes(log_bytes[at + 8 : at + 12], "big")
        found.append((at, log_bytes[at:end]))
        at = end
    return found


def covered(log_bytes: bytes) -> set[int]:
    """Bytes whose damage a reader detects: all but leader epochs, and the offsets of the last batch, which no
    checksum covers and nothing after it contradicts. (A message of magic 0 or 1 has no epoch.)"""
    bytes_, last = set(range(len(log_bytes))), 0
    for last, batch in batches_of(log_bytes):
        if batch[16] == 2:
            bytes_ -= set(range(last + 12, last + 16))
    return bytes_ - set(range(last, last + 8))


def test_bit_flips_of_a_log(tmp_path: Path, log_bytes: bytes, truth: list[kstore.Record]) -> None:
    damaged = write_partition(tmp_path, log_bytes)
    detected = covered(log_bytes)
    for bit, changed in bit_flips(log_bytes, 500, "log"):
        (damaged / LOG).write_bytes(changed)
        if bit // 8 in detected:
            assert_right(damaged, truth, complete=True, note=(SEED, bit))
        else:
            log = kstore.open(damaged)
            read_what_comes(iter(log))
            assert_scans_alike(log, (SEED, bit))


def test_bit_flips_that_the_checksum_covers(tmp_path: Path, log_bytes: bytes) -> None:
    """Damage by someone who also makes the checksum right: the records themselves are hostile."""
    damaged = write_partition(tmp_path, log_bytes)
    bits = [(batch, bit) for batch in batches_of(log_bytes) for bit in range(8 * 21, 8 * len(batch[1]))]
    for (start, batch), bit in some([case for case in bits if case[0][1][16] == 2], 300, "resealed"):
        changed = resealed(turned(batch, bit))
        (damaged / LOG).write_bytes(log_bytes[:start] + changed + log_bytes[start + len(batch) :])
        with contextlib.suppress(kstore.KstoreError):
            assert_scans_alike(kstore.open(damaged), (SEED, start, bit))


def answers(partition: Path, truth: list[kstore.Record]) -> list[object]:
    log = kstore.open(partition)
    found: list[object] = []
    for record in truth:
        found += [log.find(offset=record.offset), log.get(record.offset), log.translate(record.offset)]
    for timestamp in sorted({r.timestamp + d for r in truth for d in (-1, 0, 1) if r.timestamp >= 0}):
        found.append(log.find(timestamp=timestamp))
    found.append(log.find(timestamp="max"))
    return found


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_damaged_index_changes_no_answer(
    tmp_path: Path, log_bytes: bytes, truth: list[kstore.Record], kind: str
) -> None:
    damaged = write_partition(tmp_path, log_bytes)
    data = [r for r in truth if not _is_marker(r)]
    expected = answers(damaged, data)
    index = damaged / LOG.replace(".log", kind)
    whole = index.read_bytes()
    entry = 8 if kind == ".index" else 12
    assert len(whole) >= 4 * entry
    # a sound time index with fewer entries is believed, as Kafka does
    sizes = [size for size in range(len(whole)) if kind == ".index" or size % entry]
    contents = [whole[:size] for size in some(sizes, 30, (kind, "sizes"))]
    contents += [turned(whole, bit) for bit in some(range(8 * len(whole)), 80, kind)]
    contents += [b"  ", bytes(4096)]
    for content in contents:
        index.write_bytes(content)
        assert answers(damaged, data) == expected, (SEED, content)
    if kind == ".index":
        index.unlink()
        assert answers(damaged, data) == expected


def _is_marker(record: kstore.Record) -> bool:
    return record.key is not None and record.key[:3] == b"\0\0\0" and len(record.key) == 4
