"""Damaged batches in Spark's readers: the error, or what is skipped, is that of log.records()."""

import random
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.spark import SparkSourceError, partition_reader, plan_splits
from tests.helpers.effort import some

HEADER = 27  # the bytes up to the last offset delta, of which damage hides where a batch ends, or its offsets


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "t-0"
    with kstore.open(path, "a", internal_segment_bytes=6000) as log:
        for first in range(0, 500, 10):
            log.extend([b"%050d" % i for i in range(first, first + 10)])
    return path


def places(log: Path) -> list[tuple[Path, int]]:
    """Bytes of headers, and of records, of all segments."""
    found = []
    for file in sorted(log.glob("*.log")):
        data, position = file.read_bytes(), 0
        while position < len(data):
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            found += [(file, position + at) for at in (*range(HEADER), size - 1)]
            position += size
    return found


def read(as_: Any, path: Path, target_bytes: int, *, strict: bool) -> list[int]:
    splits = plan_splits(
        path, "t", target_bytes=target_bytes, fail_on_corrupt_batch=strict, fail_on_data_loss=False
    )
    rows = partition_reader(as_, ["offset"])(splits)
    if as_ == "records":
        return [offset for (offset,) in rows]
    return [int(offset) for batch in rows for offset in batch.offsets]


@pytest.mark.filterwarnings("ignore::kstore.DataLossWarning")
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("target_bytes", [128 << 20, 3000])
def test_a_damaged_byte(log: Path, strict: bool, target_bytes: int) -> None:
    for number, (file, at) in enumerate(some(places(log), 60)):
        data = file.read_bytes()
        bit = 1 << random.Random(number).randrange(8)
        file.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        with kstore.open(log) as own:
            records = own.records(on_error="skip")
            wanted = [record.offset for record in records]
        for as_ in ("records", "batches"):
            case = (file.name, at, bit, as_)
            if strict and records.skipped:
                with pytest.raises(SparkSourceError, match="KSTORE_CORRUPT_BATCH"):
                    read(as_, log.parent, target_bytes, strict=strict)
                continue
            tail = strict and len(wanted) < 500  # recovery would remove it: a task may raise, too
            with suppress(SparkSourceError) if tail else nullcontext():
                assert read(as_, log.parent, target_bytes, strict=strict) == wanted, case
        file.write_bytes(data)


def test_skipped_batches_are_counted(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = min(log.glob("*.log"))
    data = bytearray(file.read_bytes())
    size = 12 + int.from_bytes(data[8:12], "big")
    for batch in (2, 5):
        data[batch * size + 100] ^= 1
    file.write_bytes(data)
    offsets = [offset for offset in range(500) if offset // 10 not in (2, 5)]
    for as_ in ("records", "batches"):
        caplog.clear()
        assert read(as_, log.parent, 128 << 20, strict=False) == offsets
        (line,) = caplog.messages
        assert line.startswith(
            f"KSTORE_CORRUPT_BATCH: topic t, partition 0, file {file}: 2 corrupt batches were skipped, "
            f"{2 * size} bytes; the first at byte {2 * size}: "
        )
