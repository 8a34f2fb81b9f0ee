"""A reader and a writer that open the same directory know the same producers, transactions and last stable offset."""

import shutil
from pathlib import Path

import pytest

import kstore
from tests.conformance.forge import COMMIT
from tests.conformance.writing import Producer, end


def filled(path: Path, segment_bytes: int = 1 << 20) -> kstore.LogWriter:
    """A transaction of producer 7 that is open from offset 0 on, and plain records behind it."""
    log = kstore.open(path, "a", internal_segment_bytes=segment_bytes)
    log.append_batches(Producer(7).data(3))
    for _ in range(20):
        log.append(b"x" * 50)
    return log


def seen(path: Path, mode: str, copy: Path) -> tuple[int, int, list[int], list[int]]:
    shutil.copytree(path, copy)
    with kstore.open(copy, mode) as log:
        committed = [record.offset for record in log.records(isolation="read_committed")]
        return log.log_start_offset, log.last_stable_offset(), sorted(log.producers()), committed


@pytest.mark.parametrize("start", [0, 1, 10, 23])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1000, 500])
def test_a_transaction_below_the_log_start_after_a_crash(
    tmp_path: Path, start: int, segment_bytes: int
) -> None:
    """Recovery reads its segment from the first byte on, below the log start too (spec 8.4)."""
    log = filled(tmp_path / "t-0", segment_bytes)
    if start:
        log.delete_records(start)
    log.abandon()
    found = {mode: seen(tmp_path / "t-0", mode, tmp_path / mode / "t-0") for mode in ("r", "a")}
    assert found["r"] == found["a"]
    if (
        segment_bytes == 1 << 20
    ):  # where several segments are recovered, Kafka drops what is below the log start
        assert found["r"][:2] == (start, start)


def test_a_clean_log_whose_snapshots_were_lost(tmp_path: Path) -> None:
    filled(tmp_path / "t-0").close()
    for path in (tmp_path / "t-0").glob("*.snapshot"):
        path.unlink()
    found = {mode: seen(tmp_path / "t-0", mode, tmp_path / mode / "t-0") for mode in ("r", "a")}
    assert found["r"] == found["a"] == (0, 0, [7], [])


def test_a_view_that_is_refreshed_learns_of_producers(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"plain")
        reader = kstore.open(log.path)
        assert reader.last_stable_offset() == 1
        producer = Producer(7)
        log.append_batches(producer.data(2))
        reader.refresh()
        assert reader.last_stable_offset() == log.last_stable_offset() == 1
        end(log, producer.marker(COMMIT), 0)
        reader.refresh()
        assert reader.last_stable_offset() == log.last_stable_offset() == 4
