"""What hostile use of compaction has found."""

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.testing.faults import count_calls, failing
from tests.helpers.calls import some_calls
from tests.helpers.markers import marker

NOW = 1_700_000_000_000
OPTIONS: dict[str, Any] = {
    "cleanup_policy": "compact,delete",
    "min_cleanable_dirty_ratio": 0,
    "retention_ms": -1,
}
COMPACT: dict[str, Any] = {**OPTIONS, "cleanup_policy": "compact"}


def transaction(log: kstore.LogWriter, sequence: int, key: bytes, value: bytes, kind: str) -> None:
    """One record of a transaction, and its end."""
    batch = kstore.encode_batch(
        [(NOW, key, value, None)],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append_batches(batch)
    log.append_batches(marker(kind, 7, NOW), origin="coordinator", transaction_version=0)


def committed(log: kstore.PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.records(isolation="read_committed")]


def with_an_aborted_transaction(path: Path, **options: Any) -> kstore.LogWriter:
    """Its transaction index is in the segment at offset 3."""
    log = kstore.open(path, "a", **(options or OPTIONS))
    for key in (b"p", b"q", b"r"):
        log.append(b"x", key=key)
    log.roll()
    transaction(log, 0, b"a", b"aborted", "ABORT")
    return log


@pytest.mark.parametrize("way", ["truncate_to", "truncate_fully"])
def test_an_index_that_was_deleted_is_no_index_of_the_next_segment(tmp_path: Path, way: str) -> None:
    """The committed record was left out by it, and compact() removed it."""
    with with_an_aborted_transaction(tmp_path / "t-0") as log:
        if way == "truncate_to":
            log.truncate_to(2)
        else:
            log.truncate_fully_and_start_at(2)
        log.append(b"z", key=b"z")
        log.roll()
        transaction(log, 0, b"a", b"committed", "COMMIT")
        log.roll()
        assert list((tmp_path / "t-0").glob("*3.txnindex.deleted"))
        for reader in (log, kstore.open(tmp_path / "t-0")):
            assert committed(reader)[-1] == b"committed"
            assert reader.aborted_transactions(0, 100) == []
        log.compact()
        assert committed(log)[-1] == b"committed"
    assert committed(kstore.open(tmp_path / "t-0"))[-1] == b"committed"


def test_a_deleted_segment_without_the_index_of_an_earlier_one(tmp_path: Path) -> None:
    """A reader that has the segment asks for its transactions when both generations are deleted."""
    with with_an_aborted_transaction(tmp_path / "t-0") as log:
        log.truncate_to(3)
        transaction(log, 0, b"a", b"committed", "COMMIT")
        log.flush()
        segment = kstore.Segment(str(tmp_path / "t-0"), f"{3:020}", 3)
        assert segment.size > 0
        log.truncate_to(2)
        assert list((tmp_path / "t-0").glob("*3.log.deleted"))
        assert segment.transaction_index.is_empty


def test_readers_of_a_deleted_segment_know_its_transactions(tmp_path: Path) -> None:
    """The index is found by its other name, and when that is gone the reader is told."""
    with with_an_aborted_transaction(tmp_path / "t-0") as log:
        log.roll()
        log.flush()
        found, told = (kstore.Segment(str(tmp_path / "t-0"), f"{3:020}", 3) for _ in range(2))
        assert found.size == told.size > 0
        own = log.segments[1]
        log.truncate_to(2)
        assert len(list(found.transaction_index)) == 1
        for path in (tmp_path / "t-0").glob("*.deleted"):
            path.unlink()
        assert len(list(own.transaction_index)) == 1
        with pytest.raises(kstore.LogChangedError, match="deleted"):
            _ = told.transaction_index


@pytest.mark.parametrize(("kind", "damage"), [("ABORT", "missing"), ("COMMIT", "invented")])
def test_markers_contradict_the_transaction_index(tmp_path: Path, kind: str, damage: str) -> None:
    with with_an_aborted_transaction(tmp_path / "t-0", **COMPACT) as log:
        transaction(log, 1, b"b", b"committed", "COMMIT")
        log.append(b"other", key=b"b")
        log.roll()
    [index] = (tmp_path / "t-0").glob("*.txnindex")
    if damage == "missing":
        index.unlink()
    else:
        data = bytearray(index.read_bytes())
        data[10:18] = (5).to_bytes(8, "big")  # first offset: that of the committed one
        data[18:26] = (6).to_bytes(8, "big")
        data[26:34] = (7).to_bytes(8, "big")
        index.write_bytes(data)
    before = {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")}
    log = kstore.open(tmp_path / "t-0", "a", **COMPACT)
    with log, pytest.raises(kstore.CorruptIndexError, match=r"txnindex: the marker at offset \d"):
        log.compact()
    assert {path.name: path.read_bytes() for path in (tmp_path / "t-0").glob("*.log")} == before


def test_another_thread_that_rolls_is_no_failure(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", file_delete_delay_ms=0, **COMPACT) as log:
        rounds = 0
        stop = threading.Event()

        def roll() -> None:
            nonlocal rounds
            while not stop.is_set() or rounds < 50:
                log.append(b"v", key=b"k")
                log.roll()
                rounds += 1

        thread = threading.Thread(target=roll)
        thread.start()
        try:
            for _ in range(300):
                log.compact()
        finally:
            stop.set()
            thread.join()


def test_a_policy_that_changes_meanwhile(tmp_path: Path) -> None:
    """What was done is told."""
    with kstore.open(
        tmp_path / "t-0",
        "a",
        log_cleaner_dedupe_buffer_size=(1 << 20) + 1,
        log_cleaner_io_buffer_load_factor=3 / 43690,
        **COMPACT,
    ) as log:
        for i in range(40):
            log.append(b"v", key=b"%d" % (i % 9))
        log.roll()
        seen = log._compacted_to

        def configure(offset: int) -> None:
            seen(offset)
            log.configure(cleanup_policy="delete")

        log._compacted_to = configure  # type: ignore[method-assign]
        done = log.compact()
        assert done.segments
        with pytest.raises(kstore.PolicyViolationError):
            log.compact()


def test_a_removal_under_way_is_no_loss(ram: Path) -> None:
    """A process that dies in a compaction: no reader, and no writer, is told of lost records. At some of the calls; at all
    with KSTORE_CALLS=all."""
    source = ram / "source-0"
    with kstore.open(source, "a", internal_segment_bytes=300, **COMPACT) as log:
        for i in range(60):
            log.append(b"v" * 50, key=b"%d" % (i % 2))
    last = {record.key: record.value for record in kstore.open(source)}

    def compact(directory: Path) -> None:
        with kstore.open(directory, "a", **{**COMPACT, "internal_segment_bytes": 1000}) as opened:
            opened.compact()

    shutil.copytree(source, ram / "whole-0")
    total = count_calls(lambda: compact(ram / "whole-0"))
    assert total > 100
    for nth in some_calls(total, 4, "removal"):
        directory = ram / f"t{nth}-0"
        shutil.copytree(source, directory)
        child = os.fork()
        if child == 0:
            with failing(nth, how="kill"):
                compact(directory)
            os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        for mode in ("r", "a"):
            with kstore.open(directory, mode) as opened:
                assert {record.key: record.value for record in opened} == last
