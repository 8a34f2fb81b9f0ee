"""What a store does by itself, at times that the test sets: `run_due` is what its threads call."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.engine.io.file import calls_made
from kstore.testing import failing
from kstore.testing.faults import count_calls
from tests.helpers.markers import marker
from tests.helpers.store_clock import StoreClock, T

DAY = 86_400_000


@pytest.fixture
def clock() -> StoreClock:
    return StoreClock()


pytestmark = pytest.mark.usefixtures("sound_calls")


def make(path: Path, clock: StoreClock, **options: Any) -> LogStore:
    """A store whose work the test alone calls."""
    given = {"background": False, "internal_segment_bytes": 300, "retention_ms": DAY} | options
    return LogStore(path, mode="a", clock=clock, **given)


def fill(store: LogStore, topic: str = "t", count: int = 20, at: int = T, keys: int = 3) -> None:
    for number in store.topics[topic]:
        log = store.log(topic, number)
        assert isinstance(log, kstore.LogWriter)
        for i in range(count):
            log.append(b"." * 50, b"%d" % (i % keys), timestamp=at + i)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kstore.store"]


def starts(store: LogStore, topic: str = "t") -> list[int]:
    return [store.log(topic, number).log_start_offset for number in store.topics[topic]]


def files(path: Path, kind: str) -> list[str]:
    return sorted(entry.name for entry in path.rglob(f"*{kind}"))


# ---- retention ----------------------------------------------------------------------------------------------------


def test_old_segments_go(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock) as store:
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


def test_partitions_are_not_opened_for_nothing(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock, message_timestamp_after_max_ms=DAY) as store:
        store.create_topic("t", 4)
        store.create_topic("large", 2, retention_ms=-1, retention_bytes=10**9)
        store.create_topic("empty", 2)
        store.create_topic("compacted", 2, cleanup_policy="compact", min_cleanable_dirty_ratio=1.0)
        for topic in ("t", "large", "compacted"):
            fill(store, topic)
        store.log("t", 3).append(b"young", timestamp=T + DAY)  # type: ignore[attr-defined]
        store.log("t", 2).delete_records(-1)  # type: ignore[attr-defined]
    with make(tmp_path, clock, idle_roll_ms=50_000) as store:
        clock.pass_on(store, 300_000, runs=2)
        assert list(store._open_logs) == [TopicPartition("t", 2)]
        assert store._open_logs.get(TopicPartition("t", 2)).log_start_offset == 20
        clock.pass_on(store, 300_000)
        looked: list[Path] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "scandir", looked.append)
            patch.setattr(os, "listdir", looked.append)
            clock.pass_on(store, 300_000, runs=10)
        assert looked == []
        clock.pass_on(store, DAY)
        assert {tp for tp in store._open_logs if tp.topic != "t"} == set()
        assert starts(store) == [20, 20, 20, 20]
        assert store.log("t", 3).log_end_offset == 21
        store.alter_topic("large", retention_bytes=1000)
        clock.pass_on(store, 300_000)
        assert {tp for tp in store._open_logs if tp.topic == "large"} == {
            TopicPartition("large", number) for number in (0, 1)
        }
        assert all(0 < start < 20 for start in starts(store, "large"))
        assert store.health().ok


def test_an_idle_store_asks_the_system_for_nothing(tmp_path: Path, clock: StoreClock) -> None:
    """However many partitions there are, once each was looked at, until something can be due; of those that are open only where
    their directory is."""
    with make(tmp_path, clock) as store:
        store.create_topic("t", 20)
        store.create_topic("compacted", 20, cleanup_policy="compact")
        fill(store, count=2)
        fill(store, "compacted", count=2)
    with make(tmp_path, clock) as store:
        clock.pass_on(store, 300_000, runs=2)
        assert not list(store._open_logs)
        for _ in range(10):
            assert count_calls(lambda: clock.pass_on(store, 15_000)) == 0
        assert count_calls(lambda: clock.pass_on(store, 300_000)) == 0
        for number in range(5):
            store.log("t", number)
        clock.pass_on(store, 300_000, runs=2)
        assert count_calls(lambda: clock.pass_on(store, 300_000)) <= 5


def test_what_nobody_has_said_deletes_nothing(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    with LogStore(tmp_path, mode="a", clock=clock, background=False, internal_segment_bytes=300) as store:
        store.create_topic("t", 2)
        store.create_topic("said", retention_ms=7 * DAY)
        fill(store)
        fill(store, "said")
    with LogStore(tmp_path, mode="a", clock=clock, background=False, internal_segment_bytes=300) as store:
        store.log("t", 1)
        clock.pass_on(store, 8 * DAY, runs=3)
        assert {str(tp) for tp in store._open_logs} == {"t-1", "said-0"}
        told = store.health()
        assert not told.ok
        assert sorted(told.background) == ["retention of t-0", "retention of t-1"]
        assert all("retention_ms" in reason for reason in told.background.values())
        assert len(warnings_in(caplog)) == 2
        assert starts(store) == [0, 0]
        assert starts(store, "said") == [20]
        store.alter_topic("t", retention_ms=DAY)
        clock.pass_on(store, 300_000)
        assert starts(store) == [20, 20]
        assert store.health().ok


# ---- removal, checkpoints, flushing -------------------------------------------------------------------------------


def test_deleted_files_and_directories_are_removed(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock) as store:
        clock.pass_on(store, 0)
        store.create_topic("t")
        store.create_topic("u", 2)
        fill(store)
        clock.pass_on(store, 2 * DAY)
        log = store.log("t")
        assert files(tmp_path, ".deleted") != []
        store.delete_topic("u")
        assert len(files(tmp_path, "-delete")) == 2
        clock.pass_on(store, 59_999)
        assert files(tmp_path, ".deleted") != []
        assert len(files(tmp_path, "-delete")) == 2
        clock.pass_on(store, 60_001)
        assert files(tmp_path, ".deleted") == []
        assert files(tmp_path, "-delete") == []
        assert not log.is_closed
        assert store.health().ok


def test_what_cannot_be_removed_is_told_once(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    with make(tmp_path, clock) as store:
        store.create_topic("t")
        store.delete_topic("t")
        (left,) = tmp_path.glob("*-delete")
        (left / "inner").mkdir()
        clock.pass_on(store, 60_000, runs=4)
        assert list(store.health().not_removed) == [left]
        assert store.health().background == {}
        assert len(warnings_in(caplog)) == 1
        (left / "inner").rmdir()
        clock.pass_on(store, 60_000)
        assert not left.exists()
        assert store.health().ok


def test_checkpoints_are_written(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock, log_flush_offset_checkpoint_interval_ms=5000) as store:
        store.create_topic("t")
        fill(store)
        store.log("t").flush()  # type: ignore[attr-defined]
        file = tmp_path / "recovery-point-offset-checkpoint"
        assert not file.exists()
        clock.pass_on(store, 5000, runs=2)
        # where the active segment begins, or the end, if the log's own thread has come that far: it never goes back
        while file.read_text().splitlines()[-1] not in {"t 0 18", "t 0 20"}:
            clock.pass_on(store, 5000)


def test_flush_ms(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock, background=True) as store:
        store.create_topic("t", flush_ms=DAY)
        store.create_topic("never")
        fill(store, count=1)
        fill(store, "never", count=1)
        t, never = store.log("t"), store.log("never")
        assert isinstance(t, kstore.LogWriter)
        assert isinstance(never, kstore.LogWriter)
        clock.pass_on(store, 0)  # the store's own thread may not have begun
        clock.pass_on(store, 30_000)
        assert (t.durable_offset, never.durable_offset) == (1, 0)
        t.append(b"v")
        clock.pass_on(store, DAY - 1)
        assert t.durable_offset == 1
        store.alter_topic("t", flush_ms=1000)
        clock.pass_on(store, 1000)
        assert t.durable_offset == 2
        assert t._flusher._thread is None  # type: ignore[union-attr]


# ---- rolls, producers ---------------------------------------------------------------------------------------------


def test_idle_segments_end(tmp_path: Path, clock: StoreClock) -> None:
    options = {"internal_segment_bytes": None, "segment_ms": 3_600_000, "retention_ms": -1}
    with make(tmp_path, clock, **options) as store:
        store.create_topic("t", 2)
        fill(store)
        store.create_topic("empty", 2)
    with make(tmp_path, clock, **options) as store:
        clock.pass_on(store, DAY, runs=2)
        assert len(store._open_logs) == 0  # off by default
    clock.now = T
    with make(tmp_path, clock, idle_roll_ms=60_000, **options) as store:
        store.log("t", 0)
        clock.pass_on(store, 3_600_000, runs=1)
        assert len(store.log("t", 0).segments) == 1
        assert len(store._open_logs) == 1
        clock.pass_on(store, 60_000)
        assert [len(store.log("t", number).segments) for number in (0, 1)] == [2, 2]
        assert [log.segments[-1].size for _, log in store._open_logs.open_now()] == [0, 0]
        clock.pass_on(store, 3_600_000, runs=3)
        assert len(store.log("t", 0).segments) == 2
        assert {tp.topic for tp in store._open_logs} == {"t"}


def test_producers_expire(tmp_path: Path, clock: StoreClock) -> None:
    with make(tmp_path, clock, producer_id_expiration_ms=DAY) as store:
        store.create_topic("t")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        record = [(T, b"k", b"v", None)]
        log.append_batches(kstore.encode_batch(record, producer_id=7, producer_epoch=0, base_sequence=0))
        clock.pass_on(store, DAY - 1)
        assert list(log.producers()) == [7]
        clock.pass_on(store, 600_000)
        assert list(log.producers()) == []


# ---- cleaning -----------------------------------------------------------------------------------------------------


def compacted(path: Path, clock: StoreClock, **options: Any) -> LogStore:
    return make(path, clock, retention_ms=-1, cleanup_policy="compact", **options)


def test_the_dirtiest_partition_is_cleaned_first(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kstore.log")
    with compacted(tmp_path, clock) as store:
        for name in ("once", "twice", "clean", "off"):
            store.create_topic(name)
        store.alter_topic("off", cleanup_policy="delete")
        for name in ("once", "clean"):
            fill(store, name, 40)
        clock.pass_on(store, 15_000, runs=2)
        for name, count in (("once", 8), ("twice", 40), ("off", 40)):
            fill(store, name, count)
        caplog.clear()
    with compacted(tmp_path, clock, min_cleanable_dirty_ratio=0.0) as store:
        clock.pass_on(store, 15_000, runs=2)
        told = [r.getMessage() for r in caplog.records if "compacted" in r.getMessage()]
        assert [Path(text.partition(": ")[0]).name for text in told] == ["twice-0", "once-0"]
        assert {str(tp) for tp in store._open_logs} == {"twice-0", "once-0"}
        for name in ("once", "twice", "clean"):
            assert len(list(store.log(name))) < 15
        assert len(list(store.log("off"))) == 40
        caplog.clear()
        clock.pass_on(store, 15_000, runs=3)
        assert not [r for r in caplog.records if "compacted" in r.getMessage()]
        assert store.health().ok


def test_the_cleaner_can_be_off(tmp_path: Path, clock: StoreClock) -> None:
    with compacted(tmp_path, clock, log_cleaner_enable=False) as store:
        store.create_topic("t")
        fill(store)
        clock.pass_on(store, DAY, runs=3)
        assert len(list(store.log("t"))) == 20


def test_young_records_are_cleaned_later(tmp_path: Path, clock: StoreClock) -> None:
    with compacted(tmp_path, clock, min_compaction_lag_ms=DAY) as store:
        store.create_topic("t")
        fill(store, count=40)
    with compacted(tmp_path, clock, min_compaction_lag_ms=DAY) as store:
        clock.pass_on(store, 15_000, runs=4)
        assert len(list(store.log("t"))) == 40
        clock.pass_on(store, DAY)
        assert len(list(store.log("t"))) < 15


def test_open_transactions_are_cleaned_later(tmp_path: Path, clock: StoreClock) -> None:
    with compacted(tmp_path, clock) as store:
        store.create_topic("t")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        batch = kstore.encode_batch(
            [(T, b"k", b"v", None)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        log.append_batches(batch)
        fill(store, count=40)
        clock.pass_on(store, 15_000, runs=4)
        assert len(list(log)) == 41
        log.append_batches(marker("COMMIT", 7, T), origin="coordinator", transaction_version=0)
        clock.pass_on(store, 300_000)
        assert len(list(log)) < 20


def test_what_cannot_be_cleaned_is_set_aside(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    with compacted(tmp_path, clock) as store:
        store.create_topic("t", 3)
        fill(store, count=40)
        path = tmp_path / "t-1" / (files(tmp_path / "t-1", ".log")[3])
        data = bytearray(path.read_bytes())
        data[80] ^= 1
        path.write_bytes(data)
        clock.pass_on(store, 15_000, runs=4)
        (told,) = store.health().background.items()
        assert told[0] == "cleaning of t-1"
        assert told[1].startswith("set aside until")
        assert len(warnings_in(caplog)) == 1
        assert [len(list(store.log("t", number))) < 15 for number in (0, 2)] == [True, True]
        data[80] ^= 1
        path.write_bytes(data)
        clock.pass_on(store, DAY)
        assert not store.health().ok
        store.alter_topic("t", min_cleanable_dirty_ratio=0.4)
        clock.pass_on(store, 15_000)
        assert store.health().ok
        assert len(list(store.log("t", 1))) < 15


# ---- failures -----------------------------------------------------------------------------------------------------


def test_a_failure_is_told_once_and_tried_again(
    tmp_path: Path, clock: StoreClock, caplog: pytest.LogCaptureFixture
) -> None:
    with make(tmp_path, clock) as store:
        store.create_topic("t", 3)
        fill(store)
        clock.pass_on(store, 1)
        real = kstore.LogWriter._retain
        reason: list[Exception] = [OSError(5, "the disk")]

        def retain(log: kstore.LogWriter, *args: Any) -> Any:
            if log.path.endswith("t-1") and reason:
                raise reason[0]
            return real(log, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kstore.LogWriter, "_retain", retain)
            clock.pass_on(store, DAY + 300_000, runs=3)
            assert starts(store) == [20, 0, 20]
            assert store.health().background == {"retention of t-1": "OSError: [Errno 5] the disk"}
            assert warnings_in(caplog) == ["retention of t-1 failed: OSError: [Errno 5] the disk"]
            reason[0] = ZeroDivisionError("anything")
            clock.pass_on(store, 300_000, runs=2)
            assert len(warnings_in(caplog)) == 2
            error = reason.pop()
            clock.pass_on(store, 300_000)
            assert starts(store) == [20, 20, 20]
            assert store.health().ok
            reason.append(error)
            clock.pass_on(store, 300_000, runs=2)
            assert len(warnings_in(caplog)) == 3


def test_calls_fail(ram: Path, clock: StoreClock) -> None:
    """Whatever file operation of a round fails, the store goes on, and the next rounds do all the work."""
    nth, done = 0, False
    while not done:
        nth += 7  # each one takes long
        path = ram / str(nth)
        clock.now = T
        with make(path, clock, flush_ms=1000, log_cleaner_backoff_ms=1000) as store:
            store.create_topic("t", 2)
            store.create_topic("c", cleanup_policy="compact")
            fill(store)
            fill(store, "c", 30)
            store.create_topic("gone")
            store.delete_topic("gone")
            with failing(nth, this_thread=True):
                clock.pass_on(store, 30_000)
                clock.pass_on(store, DAY + 300_000)
                done = calls_made() < nth
            ok = store.health().ok
            if done:
                assert ok
            clock.pass_on(store, DAY, runs=2)
            health = store.health()
            refused = [tp for tp, log in store._open_logs.all_open() if log._refusal is not None]
            assert list(health.partitions) == refused
            if not refused:
                assert health.ok, (nth, health)
                assert starts(store) == [20, 20]
                assert len(list(store.log("c"))) < 15
                assert files(path, "-delete") == []
            for tp in refused:
                store._open_logs.get(tp).abandon()
    assert nth > 30


def test_names_of_brokers_are_refused_for_topics(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        with pytest.raises(kstore.InvalidConfigError):
            store.create_topic("t", log_cleaner_backoff_ms=1)
        assert store.topics == {}
        store.create_topic("t", internal_segment_bytes=None)
        with pytest.raises(kstore.InvalidConfigError):
            store.alter_topic("t", log_cleaner_enable=False)
    with LogStore(tmp_path, mode="a") as store:
        assert store.describe("t").options == {}
    for wrong in ({"background": 1}, {"idle_roll_ms": "1"}, {"background": None}):
        with pytest.raises(TypeError):
            LogStore(tmp_path, mode="a", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="idle_roll_ms"):
        LogStore(tmp_path, mode="a", idle_roll_ms=0)
    for writing in ({"background": False}, {"idle_roll_ms": 5}):
        with pytest.raises(TypeError, match="to write"):
            LogStore(tmp_path, **writing)  # type: ignore[arg-type]
