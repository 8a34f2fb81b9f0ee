"""Maintenance in the background, run at the times that the test's clock gives."""

import errno
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from kstore.testing import count_calls, failing
from tests.helpers.effort import SEED, some
from tests.helpers.files import contents, flip
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.store_clock import StoreClock, T
from tests.store.stores import (
    DAY,
    compacting,
    count,
    fill,
    names,
    opened,
    starts,
    with_small_segments,
    writer,
)

pytestmark = pytest.mark.usefixtures("sound_calls")


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock()


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kstore.store"]


# ---- retention ---------------------------------------------------------------------------------------------


def test_old_segments_are_deleted_at_intervals(tmp_path: Path, clock: StoreClock) -> None:
    with with_small_segments(tmp_path, clock) as store:
        store.create_topic("t", 3)
        store.create_topic("kept", retention_ms=-1)
        fill(store)
        fill(store, "kept")
        clock.pass_on(store, 300_000, runs=3)
        assert starts(store) == [0, 0, 0]
        clock.pass_on(store, DAY)
        assert starts(store) == [20, 20, 20]
        fill(store)
        clock.pass_on(store, 299_999)
        assert starts(store) == [20, 20, 20]
        clock.pass_on(store, 1)
        assert starts(store) == [40, 40, 40]
        assert starts(store, "kept") == [0]
        assert store.health().ok


def test_an_idle_store_makes_no_system_calls(tmp_path: Path, clock: StoreClock) -> None:
    """It examines each closed partition once; of an open one it checks only its directory."""
    with with_small_segments(tmp_path, clock) as store:
        store.create_topic("t", 20)
        store.create_topic("compacted", 20, cleanup_policy="compact")
        fill(store, count=2)
        fill(store, "compacted", count=2)
    with with_small_segments(tmp_path, clock) as store:
        clock.pass_on(store, 300_000, runs=2)
        assert store.metrics().open_partitions == 0
        for _ in range(10):
            assert count_calls(lambda: clock.pass_on(store, 15_000)) == 0
        assert count_calls(lambda: clock.pass_on(store, 300_000)) == 0
        for number in range(5):
            store.log("t", number)
        clock.pass_on(store, 300_000, runs=2)
        assert count_calls(lambda: clock.pass_on(store, 300_000)) <= 5


def test_without_a_configured_retention_nothing_is_deleted(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in an open nor in a closed partition does Kafka's default of 7 days apply."""
    with opened(tmp_path, clock=clock, internal_segment_bytes=300) as store:
        store.create_topic("t", 2)
        store.create_topic("configured", retention_ms=7 * DAY)
        fill(store)
        fill(store, "configured")
    with opened(tmp_path, clock=clock, internal_segment_bytes=300) as store:
        store.log("t", 1)
        clock.pass_on(store, 8 * DAY, runs=3)
        assert store.metrics().open_partitions == 2
        health = store.health()
        assert not health.ok
        assert sorted(health.background) == ["retention of t-0", "retention of t-1"]
        assert all("retention_ms" in reason for reason in health.background.values())
        assert len(warnings_in(caplog)) == 2
        assert (starts(store), starts(store, "configured")) == ([0, 0], [20])
        store.alter_topic("t", retention_ms=DAY)
        clock.pass_on(store, 300_000)
        assert starts(store) == [20, 20]
        assert store.health().ok


# ---- removal, checkpoints, flushing, rolls, producers ------------------------------------------------------


def test_deleted_files_and_directories_are_removed(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    with with_small_segments(tmp_path, clock) as store:
        clock.pass_on(store, 0)
        store.create_topic("t")
        store.create_topic("u", 2)
        fill(store)
        clock.pass_on(store, 2 * DAY)
        log = store.log("t")
        assert names(tmp_path, ".deleted")
        store.delete_topic("u")
        left, _ = sorted(tmp_path.glob("u-*-delete"))
        (left / "inner").mkdir()
        clock.pass_on(store, 59_999)
        assert names(tmp_path, ".deleted")
        assert len(names(tmp_path, "-delete")) == 2
        clock.pass_on(store, 60_001, runs=4)
        assert names(tmp_path, ".deleted") == []
        assert names(tmp_path, "-delete") == [left.name]
        assert list(store.health().not_removed) == [left]
        assert store.health().background == {}
        assert len(warnings_in(caplog)) == 1
        (left / "inner").rmdir()
        clock.pass_on(store, 60_000)
        assert not left.exists()
        assert not log.is_closed
        assert store.health().ok


def test_checkpoints_are_written(tmp_path: Path, clock: StoreClock) -> None:
    with with_small_segments(tmp_path, clock, log_flush_offset_checkpoint_interval_ms=5000) as store:
        store.create_topic("t")
        fill(store)
        writer(store).flush()
        file = tmp_path / "recovery-point-offset-checkpoint"
        assert not file.exists()
        clock.pass_on(store, 5000, runs=2)
        # where the active segment begins, or the end, if the log's own thread has come that far: it never
        # goes back
        while file.read_text().splitlines()[-1] not in {"t 0 18", "t 0 20"}:
            clock.pass_on(store, 5000)


def test_flush_ms(tmp_path: Path, clock: StoreClock) -> None:
    with with_small_segments(tmp_path, clock, background=True) as store:
        store.create_topic("t", flush_ms=DAY)
        store.create_topic("never")
        fill(store, count=1)
        fill(store, "never", count=1)
        log = writer(store)
        clock.pass_on(store, 0)  # the store's own thread may not have begun
        clock.pass_on(store, 30_000)
        assert (log.durable_offset, writer(store, "never").durable_offset) == (1, 0)
        log.append(b"v")
        clock.pass_on(store, DAY - 1)
        assert log.durable_offset == 1
        store.alter_topic("t", flush_ms=1000)
        clock.pass_on(store, 1000)
        assert log.durable_offset == 2
        clock.now -= DAY
        log.append(b"v")
        clock.pass_on(store, 1000, runs=2)
        assert log.durable_offset == 3


def test_idle_segments_are_rolled(tmp_path: Path, clock: StoreClock) -> None:
    options = {"internal_segment_bytes": None, "segment_ms": 3_600_000, "retention_ms": -1}
    with with_small_segments(tmp_path, clock, **options) as store:
        store.create_topic("t", 2)
        fill(store)
        store.create_topic("empty", 2)
    with with_small_segments(tmp_path, clock, **options) as store:
        clock.pass_on(store, DAY, runs=2)
        assert store.metrics().open_partitions == 0  # off by default
    clock.now = T
    with with_small_segments(tmp_path, clock, idle_roll_ms=60_000, **options) as store:
        store.log("t", 0)
        clock.pass_on(store, 3_600_000)
        assert (store.metrics().open_partitions, len(store.log("t", 0).segments)) == (1, 1)
        clock.pass_on(store, 60_000)
        for _ in range(2):
            assert store.metrics().open_partitions == 2
            assert [[segment.size > 0 for segment in store.open("t", n).segments] for n in (0, 1)] == [
                [True, False]
            ] * 2
            clock.pass_on(store, 3_600_000, runs=3)


def test_producers_expire(tmp_path: Path, clock: StoreClock) -> None:
    with with_small_segments(tmp_path, clock, producer_id_expiration_ms=DAY) as store:
        store.create_topic("t")
        log = writer(store)
        record = [(T, b"k", b"v", None)]
        log.append_batches(kstore.encode_batch(record, producer_id=7, producer_epoch=0, base_sequence=0))
        clock.pass_on(store, DAY - 1)
        assert list(log.producers()) == [7]
        clock.pass_on(store, 600_000)
        assert list(log.producers()) == []


# ---- compaction --------------------------------------------------------------------------------------------


def test_the_dirtiest_partition_is_compacted_first(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kstore.log")

    def compacted() -> list[str]:
        messages = [r.getMessage() for r in caplog.records if "compacted" in r.getMessage()]
        caplog.clear()
        return [Path(text.partition(": ")[0]).name for text in messages]

    with compacting(tmp_path, clock) as store:
        for name in ("once", "twice", "clean", "off"):
            store.create_topic(name)
        store.alter_topic("off", cleanup_policy="delete")
        for name in ("once", "clean"):
            fill(store, name, 40)
        clock.pass_on(store, 15_000, runs=2)
        for name, more in (("once", 8), ("twice", 40), ("off", 40)):
            fill(store, name, more)
        compacted()
    with compacting(tmp_path, clock, min_cleanable_dirty_ratio=0.0) as store:
        clock.pass_on(store, 15_000, runs=2)
        assert compacted() == ["twice-0", "once-0"]
        assert store.metrics().open_partitions == 2
        assert all(count(store, name) < 15 for name in ("once", "twice", "clean"))
        assert count(store, "off") == 40
        clock.pass_on(store, 15_000, runs=3)
        assert compacted() == []
        assert store.health().ok


def test_what_is_not_compacted_yet(tmp_path: Path, clock: StoreClock) -> None:
    """Nothing if the cleaner is off; no young records, nor any behind the start of an open transaction."""
    with compacting(tmp_path, clock, log_cleaner_enable=False) as store:
        store.create_topic("t")
        store.create_topic("young", min_compaction_lag_ms=DAY)
        store.create_topic("open")
        writer(store, "open").append_batches(transactional((T, b"k", b"v", None)))
        for topic in store.topics:
            fill(store, topic, 40)
        clock.pass_on(store, 15_000, runs=3)
        assert count(store) == 40
    with compacting(tmp_path, clock) as store:
        clock.pass_on(store, 15_000, runs=6)
        assert count(store) < 15
        assert (count(store, "young"), count(store, "open")) == (40, 41)
        end_transaction(writer(store, "open"), "COMMIT", T)
        clock.pass_on(store, DAY, runs=2)
        assert (count(store, "young") < 15, count(store, "open") < 20) == (True, True)


def test_a_damaged_partition_is_set_aside(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    with compacting(tmp_path, clock) as store:
        store.create_topic("t", 3)
        fill(store, count=40)
        damaged = sorted((tmp_path / "t-1").glob("*.log"))[3]
        flip(damaged, 80)
        clock.pass_on(store, 15_000, runs=4)
        ((task, reason),) = store.health().background.items()
        assert task == "cleaning of t-1"
        assert reason.startswith("set aside until")
        assert len(warnings_in(caplog)) == 1
        assert [count(store, "t", number) < 15 for number in (0, 2)] == [True, True]
        flip(damaged, 80)
        clock.pass_on(store, DAY)
        assert not store.health().ok
        store.alter_topic("t", min_cleanable_dirty_ratio=0.4)
        clock.pass_on(store, 15_000)
        assert store.health().ok
        assert count(store, "t", 1) < 15


def test_the_log_of_a_controller_is_not_compacted(tmp_path: Path, clock: StoreClock) -> None:
    """As in Kafka, whose cleaner knows only logs of its log manager, not the metadata log."""
    path = tmp_path / "__cluster_metadata-0"
    with kstore.open(path, "a", clock=clock, internal_segment_bytes=300, cleanup_policy="compact") as log:
        for i in range(40):
            log.append(b"." * 50, b"%d" % (i % 3), timestamp=T + i)
    before = contents(path, "*.log")
    assert len(before) > 5
    with compacting(tmp_path, clock, min_cleanable_dirty_ratio=0.0) as store:
        store.create_topic("t")
        fill(store, count=40)
        clock.pass_on(store, 15_000, runs=4)
        assert count(store) < 15
        assert contents(path, "*.log") == before
        assert store.health().ok


def test_removed_records_without_a_key_are_reported(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    with with_small_segments(tmp_path, clock, min_cleanable_dirty_ratio=0) as store:
        store.create_topic("t")
        store.extend("t", [b"v"] * 5)
        writer(store).roll()
        store.alter_topic("t", cleanup_policy="compact")
        clock.pass_on(store, 60_000, runs=3)
        assert "t-0: its compaction has removed 5 records without a key" in caplog.text


# ---- failures ----------------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with kstore.open(path, "a"):
        yield


@contextmanager
def renamed(path: Path) -> Iterator[None]:
    path.rename(path.with_name("away"))
    yield
    path.with_name("away").rename(path)


def test_a_failure_is_reported_once_for_each_reason(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    with with_small_segments(tmp_path, clock) as store:
        store.create_topic("t", 3)
        fill(store)
    with with_small_segments(tmp_path, clock) as store:
        clock.now += DAY
        reasons: list[tuple[Callable[[Path], Any], str]] = [
            (locked, "LogLockedError"),
            (renamed, "FileNotFoundError"),
            (locked, "LogLockedError"),
        ]
        for number, (failure, reason) in enumerate(reasons, 1):
            with failure(tmp_path / "t-1"):
                clock.pass_on(store, 300_000, runs=2)
                assert store.health().background.keys() == {"retention of t-1"}
                assert reason in store.health().background["retention of t-1"]
                assert len(warnings_in(caplog)) == number
        assert starts(store) == [20, 0, 20]
        clock.pass_on(store, 300_000)
        assert starts(store) == [20, 20, 20]
        assert store.health().ok
        store.log("t", 1).close()
        with renamed(tmp_path / "t-1"):
            store.alter_topic("t", retention_ms=1)
            clock.pass_on(store, 300_000)
        assert len(warnings_in(caplog)) == 4
        clock.pass_on(store, 300_000)
        assert store.health().ok


def test_any_call_fails(ram: Path, clock: StoreClock) -> None:
    def filled(path: Path) -> LogStore:
        clock.now = T
        store = with_small_segments(path, clock, flush_ms=1000, log_cleaner_backoff_ms=1000)
        store.create_topic("t", 2)
        store.create_topic("c", cleanup_policy="compact")
        fill(store)
        fill(store, "c", 30)
        store.create_topic("gone")
        store.delete_topic("gone")
        return store

    def work(store: LogStore) -> None:
        clock.pass_on(store, 30_000)
        clock.pass_on(store, DAY + 300_000)

    with filled(ram / "sound") as store:
        calls = count_calls(lambda: work(store))
        assert store.health().ok
    assert calls > 30
    for nth in some(range(1, calls + 1), 12, "background"):
        path = ram / str(nth)
        store = filled(path)
        with failing(nth, errno.EIO, this_thread=True):
            work(store)
        clock.pass_on(store, DAY, runs=2)
        health, case = store.health(), f"call {nth}, SEED={SEED}"
        if health.partitions:  # these logs refuse writes until they are opened again
            assert all("Input/output error" in reason for reason in health.partitions.values()), case
            store.abandon()
            with opened(path, retention_ms=-1) as store:
                assert store.health().ok, case
        else:
            assert health.ok, (case, health)
            assert starts(store) == [20, 20], case
            assert count(store, "c") < 15, case
            assert names(path, "-delete") == [], case
            fill(store, "t", 1)
            store.close()
