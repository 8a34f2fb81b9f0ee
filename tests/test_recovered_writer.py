"""A log that was recovered when it was opened, and is written since."""

from pathlib import Path

import kstore


def test_truncation_keeps_producers_that_came_after_recovery(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "log", "a")
    log.append(b"before the crash")
    log.abandon()
    record = [(1, None, b"v", None)]
    with kstore.open(tmp_path / "log", "a") as log:
        assert log.recovery.recovered_segments == [0]
        batch = kstore.encode_batch(record, producer_id=7, producer_epoch=0, base_sequence=0)
        assert log.append_batches(batch).first_offset == 1
        log.append(b"truncated")
        log.truncate_to(2)
        assert list(log.producers()) == [7]
        assert log.append_batches(batch).duplicate


def test_truncation_into_a_gap_loses_nothing(tmp_path: Path) -> None:
    """What is durable ends before the gap: no DataLossWarning, which the settings make an error."""
    with kstore.open(tmp_path / "log", "a") as log:
        log.append_batches(kstore.encode_batch([(1, None, b"v", None)], base_offset=4), keep_offsets=True)
        log.delete_records(1)
    log = kstore.open(tmp_path / "log", "a")
    log.truncate_to(2)
    log.abandon()
    with kstore.open(tmp_path / "log", "a") as log:
        assert list(log) == []
