"""log.compact(): what it compacts and what not, what it reports, and how it is stopped."""

import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.clock import Clock
from tests.helpers.effort import times
from tests.helpers.files import contents, flip
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.waiting import threads_doing

OPTIONS: dict[str, Any] = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": 1000,
    "index_interval_bytes": 100,
    "file_delete_delay_ms": 0,
}
HOUR = 3_600_000


@pytest.fixture
def clock() -> Clock:
    """Files have the time of the system, so it begins there."""
    return Clock(int(time.time() * 1000))


def opened(directory: Path, **options: Any) -> kstore.LogWriter:
    return kstore.open(directory, "a", **{**OPTIONS, **options})


def fill(log: kstore.LogWriter, count: int = 100, keys: int = 10, first: int = 0) -> None:
    for i in range(first, first + count):
        log.append(b"value %d" % i, b"key %d" % (i % keys))


def offsets(log: kstore.PartitionLog) -> list[int]:
    return [record.offset for record in log]


def transaction(log: kstore.LogWriter, sequence: int, key: bytes, value: bytes | None, kind: str) -> None:
    """One record of a transaction, and its end."""
    log.append_batches(transactional((log.clock_ms(), key, value, None), sequence=sequence))
    end_transaction(log, kind, log.clock_ms())


def committed(log: kstore.PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.records(isolation="read_committed")]


def test_the_dirty_ratio(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        fill(log)
        log.roll()
        first = log.compact()
        assert first.dirty_ratio == 1
        assert first.reason == "the dirty ratio 1 is above min.cleanable.dirty.ratio, 0.5"
        assert first.records_removed == 90
        fill(log, 3, first=100)
        log.roll()
        log.configure(min_cleanable_dirty_ratio=0.9)
        second = log.compact()
        assert second.segments == ()
        assert "is not above" in second.reason
        assert 0 < second.dirty_ratio < 0.9
        assert (second.first_dirty_offset, second.end_offset, second.first_uncleanable_offset) == (
            100,
            100,
            103,
        )
        log.configure(min_cleanable_dirty_ratio=0.1)
        assert log.compact().records_removed == 3
        assert log.compact().segments == ()


def test_lags(tmp_path: Path, clock: Clock) -> None:
    with opened(tmp_path / "t-0", clock=clock, min_compaction_lag_ms=HOUR) as log:
        fill(log, 50)
        log.roll()
        clock.now += HOUR // 2
        fill(log, 50, first=50)
        log.roll()
        assert log.compact().segments == ()
        clock.now += HOUR // 2 + 1
        done = log.compact()
        assert 40 <= done.end_offset <= 50
        clock.now += HOUR
        assert log.compact().end_offset == 100
        assert offsets(log) == list(range(90, 100))
        log.configure(min_cleanable_dirty_ratio=1, min_compaction_lag_ms=0, max_compaction_lag_ms=2 * HOUR)
        fill(log, 10, first=100)
        log.roll()
        assert log.compact().segments == ()
        clock.now += 2 * HOUR + 5
        done = log.compact()
        assert done.reason == "max.compaction.lag.ms was over 5 ms ago"
        assert offsets(log) == list(range(100, 110))


def test_much_memory_is_not_taken(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0", log_cleaner_dedupe_buffer_size=2**63 - 1) as log:
        fill(log)
        log.roll()
        assert log.compact().records_removed == 90


def test_truncation_makes_the_rest_dirty_again(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0", min_cleanable_dirty_ratio=0) as log:
        fill(log, 100)
        log.roll()
        assert log.compact().end_offset == 100
        log.truncate_to(95)
        fill(log, 20, keys=3, first=95)
        log.roll()
        done = log.compact()
        assert done.first_dirty_offset <= 95
        assert [r.key for r in log][-3:] == [b"key %d" % (i % 3) for i in range(112, 115)]
        log.truncate_fully_and_start_at(50)
        fill(log, 20, keys=3)
        log.roll()
        assert log.compact().first_dirty_offset == 50


def test_a_damaged_segment_is_left_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0") as log:
        fill(log, 100)
        log.roll()
        path = Path(log.segments[2].path)
        flip(path, -3)
        before = contents(tmp_path / "t-0", "*.log")
        for dry_run in (True, False):
            with pytest.raises(kstore.CorruptRecordError, match="checksum") as caught:
                log.compact(dry_run=dry_run)
            assert caught.value.file == str(path)
        assert contents(tmp_path / "t-0", "*.log") == before
        assert not list((tmp_path / "t-0").glob("*.cleaned"))
        flip(path, -3)
        assert log.compact().records_removed == 90


# ---- transactions ------------------------------------------------------------------------------------------


def test_transactions_aborted_below_the_log_start(tmp_path: Path) -> None:
    """They count as committed, as in Kafka, and do not pass for a damaged transaction index."""
    policy = {"cleanup_policy": "compact,delete", "retention_ms": -1, "min_cleanable_dirty_ratio": 0}
    policy["delete_retention_ms"] = 0
    with opened(tmp_path / "t-0", internal_segment_bytes=10**6, **policy) as log:
        transaction(log, 0, b"below", b"v", "ABORT")
        log.append(b"v", b"k")
        log.delete_records(2)
        log.roll()
        assert log.compact().records_removed == 0
        transaction(log, 1, b"above", b"v", "ABORT")
        transaction(log, 2, b"last", b"v", "ABORT")  # its batch stays for the sequence number
        for i in range(3):  # the record is removed, then the entry of the index, then the marker
            log.append(b"%d" % i, b"k")
            log.roll()
            log.compact()
        assert [batch.base_offset for batch in log.from_file_start().batches()] == [0, 5, 6, 9]
        assert [txn.first_offset for txn in log.aborted_transactions(0, 100)] == [5]


def test_a_transaction_that_ended_before_the_first_dirty_offset(tmp_path: Path) -> None:
    """What its producer wrote afterwards counts, though the entry of the transaction is in the same segment.

    Kafka's cleaner leaves such records out of its map, so that a deleted key comes back in the end."""
    policy = {"min_cleanable_dirty_ratio": 0, "internal_segment_bytes": 10**6, "delete_retention_ms": 0}
    policy["index_interval_bytes"] = 0
    two_keys = {
        "log_cleaner_dedupe_buffer_size": 24 * 43_691,
        "log_cleaner_io_buffer_load_factor": 2.5 / 43_691,
    }
    with opened(tmp_path / "t-0", **policy, **two_keys) as log:
        transaction(log, 0, b"none", b"v", "ABORT")
        for key in (b"deleted", b"other", b"third"):  # the map is full behind the second one
            log.append(b"v", key)
        transaction(log, 1, b"deleted", None, "COMMIT")
        log.roll()
        done = log.compact()
        assert (len({s.base_offset for s in done.segments}), len(done.segments)) == (1, 2)  # two passes
        assert offsets(log) == [3, 4]
        assert log.last(b"deleted") is None


def with_an_aborted_transaction(path: Path, **options: Any) -> kstore.LogWriter:
    """Its transaction index is in the segment at offset 3."""
    log = opened(path, min_cleanable_dirty_ratio=0, **options)
    for key in (b"p", b"q", b"r"):
        log.append(b"x", key=key)
    log.roll()
    transaction(log, 0, b"a", b"aborted", "ABORT")
    return log


@pytest.mark.parametrize("way", ["truncate_to", "truncate_fully_and_start_at"])
def test_an_index_that_was_deleted_is_no_index_of_the_next_segment(tmp_path: Path, way: str) -> None:
    """The committed record was left out by it, and compact() removed it."""
    with with_an_aborted_transaction(tmp_path / "t-0", file_delete_delay_ms=60_000) as log:
        getattr(log, way)(2)
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


@pytest.mark.parametrize("damage", ["missing", "invented"])
def test_markers_contradict_the_transaction_index(tmp_path: Path, damage: str) -> None:
    with with_an_aborted_transaction(tmp_path / "t-0") as log:
        transaction(log, 1, b"b", b"committed", "COMMIT")
        log.append(b"other", key=b"b")
        log.roll()
    [index] = (tmp_path / "t-0").glob("*.txnindex")
    if damage == "missing":
        index.unlink()
    else:  # its first offset, its last one and the stable offset are those of the committed one
        index.write_bytes(index.read_bytes()[:10] + struct.pack(">qqq", 5, 6, 7))
    before = contents(tmp_path / "t-0", "*.log")
    with (
        opened(tmp_path / "t-0", min_cleanable_dirty_ratio=0) as log,
        pytest.raises(kstore.CorruptIndexError, match=r"txnindex: the marker at offset \d"),
    ):
        log.compact()
    assert contents(tmp_path / "t-0", "*.log") == before


# ---- other threads -----------------------------------------------------------------------------------------


def test_closing_stops_it(tmp_path: Path) -> None:
    log = opened(tmp_path / "t-0", log_cleaner_io_max_bytes_per_second=1)
    fill(log, 100)
    log.roll()
    begun = threading.Event()

    def work() -> None:
        begun.set()
        with pytest.raises(kstore.LogClosedError):
            log.compact()

    with threads_doing(work):
        begun.wait(60)
        log.close()
    assert not list((tmp_path / "t-0").glob("*.cleaned"))
    again = kstore.open(tmp_path / "t-0")
    assert again.recovery.clean
    assert len(offsets(again)) == 100


def test_one_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0", min_cleanable_dirty_ratio=0) as log:
        fill(log, 300)
        log.roll()
        found: list[int] = []
        with threads_doing(*[lambda: found.append(log.compact().records_removed)] * 4):
            pass
        assert sorted(found) == [0, 0, 0, 290]


def test_another_thread_that_rolls_is_no_failure(tmp_path: Path) -> None:
    with opened(tmp_path / "t-0", min_cleanable_dirty_ratio=0) as log:
        stop = threading.Event()
        rounds = 0

        def roll() -> None:
            nonlocal rounds
            while not stop.is_set() or rounds < 20:
                log.append(b"v", key=b"k")
                log.roll()
                rounds += 1

        with threads_doing(roll, ended=stop):
            for _ in range(times(60)):
                log.compact()
