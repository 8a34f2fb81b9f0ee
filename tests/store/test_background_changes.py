"""What a store does by itself, while topics and logs change, or fail, at the worst moment."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kstore
from kstore import LogStore, TopicPartition
from kstore.log.files import layout
from kstore.store import upkeep
from kstore.store.topic_catalog import TopicCatalog
from tests.helpers.store_clock import StoreClock, T
from tests.store.test_background import DAY, compacted, fill, make, starts, warnings_in

T0 = TopicPartition("t", 0)


def test_a_cleaning_that_fails_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = StoreClock()
    with compacted(tmp_path, clock) as store:
        store.create_topic("t")
        fill(store, count=40)
        real = kstore.LogWriter.compact

        def compact(log: kstore.LogWriter, **options: Any) -> Any:
            raise OSError(5, "the disk")

        monkeypatch.setattr(kstore.LogWriter, "compact", compact)
        clock.pass_on(store, 15_000, runs=6)
        assert store.health().background == {"cleaning of t-0": "OSError: [Errno 5] the disk"}
        assert warnings_in(caplog) == ["cleaning of t-0 failed: OSError: [Errno 5] the disk"]
        monkeypatch.setattr(kstore.LogWriter, "compact", real)
        clock.pass_on(store, 15_000)
        assert store.health().ok
        assert len(list(store.log("t"))) < 15


def test_a_search_that_failed_is_over_though_nothing_is_to_be_cleaned(tmp_path: Path) -> None:
    clock = StoreClock()
    with compacted(tmp_path, clock) as store:
        store.create_topic("t")
    with compacted(tmp_path, clock) as store:
        (tmp_path / "t-0").rename(tmp_path / "elsewhere")
        clock.pass_on(store, 15_000, runs=3)
        assert "cleaning of t-0" in store.health().background
        (tmp_path / "elsewhere").rename(tmp_path / "t-0")
        clock.pass_on(store, 300_000)
        assert store.health().ok


def test_the_log_of_a_controller_is_not_compacted(tmp_path: Path) -> None:
    """As in Kafka, whose cleaner knows only the logs of its log manager: the metadata log is not one of them."""
    clock = StoreClock()
    name = "__cluster_metadata-0"
    options: Any = {"internal_segment_bytes": 300, "cleanup_policy": "compact"}
    with kstore.open(tmp_path / name, "a", clock=clock, **options) as log:
        for i in range(40):
            log.append(b"." * 50, b"%d" % (i % 3), timestamp=T + i)
    before = {path: path.read_bytes() for path in (tmp_path / name).glob("*.log")}
    with compacted(tmp_path, clock, min_cleanable_dirty_ratio=0.0) as store:
        store.create_topic("t")
        fill(store, count=40)
        clock.pass_on(store, 15_000, runs=4)
        assert len(list(store.log("t"))) < 15
        assert {path: path.read_bytes() for path in (tmp_path / name).glob("*.log")} == before
        assert len(before) > 5
        assert store.health().ok


def test_a_configuration_that_is_read_while_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has read the options of a topic as they were, and goes on once the topic has others."""
    with make(tmp_path, StoreClock()) as store:
        store.create_topic("t", retention_ms=7)
        store._catalog._configs = {}
        real: Callable[[TopicCatalog, str], dict[str, str]] = TopicCatalog.own_options
        changes = [8]

        def own_options(catalog: TopicCatalog, name: str) -> dict[str, str]:
            found = real(catalog, name)
            if changes:
                store.alter_topic("t", retention_ms=changes.pop())
            return found

        monkeypatch.setattr(TopicCatalog, "own_options", own_options)
        store._catalog.config_of("t")
        assert store.describe("t").config.retention_ms == 8


def test_a_partition_that_is_written_while_its_files_are_looked_at(tmp_path: Path) -> None:
    """What was found in the files of a closed partition does not hold any more once it was open."""
    clock = StoreClock()
    with make(tmp_path, clock) as store:
        store.create_topic("t")

        class Quiet(dict[Any, Any]):
            """Another thread uses the partition just before the thread of the store notes what it found."""

            turns = 1

            def __setitem__(self, key: Any, value: Any) -> None:
                if key[1] == T0 and self.turns:
                    self.turns = 0
                    fill(store)
                    store.log("t").close()
                super().__setitem__(key, value)

        store._work._quiet = Quiet()
        clock.pass_on(store, 30_000, runs=11)
        assert store._open_logs.peek(T0) is None
        assert store._work._quiet.turns == 0
        clock.pass_on(store, DAY + 300_000)
        assert starts(store) == [20]


def test_a_clock_that_is_put_back(tmp_path: Path) -> None:
    clock = StoreClock()
    with make(tmp_path, clock, background=True, flush_ms=1000, retention_ms=-1) as store:
        store.create_topic("t")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        fill(store, count=1)
        clock.pass_on(store, 30_000, runs=2)
        assert log.durable_offset == 1
        clock.now -= DAY
        log.append(b"v")
        clock.pass_on(store, 1000, runs=2)
        assert log.durable_offset == 2


def test_a_failed_removal_is_over_once_the_log_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = StoreClock()
    with make(tmp_path, clock) as store:
        store.create_topic("t")
        fill(store)

        def keep_up(log: kstore.LogWriter, now_ms: int) -> None:
            raise OSError(5, "the disk")

        monkeypatch.setattr(kstore.LogWriter, "_keep_up", keep_up)
        clock.pass_on(store, 60_000, runs=2)
        assert list(store.health().background) == ["removal of t-0"]
        monkeypatch.undo()
        store.log("t").close()
        assert store._open_logs.peek(T0) is None
        clock.pass_on(store, 60_000)
        assert store.health().ok


def test_a_topic_is_made_anew_while_it_is_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cleaning of the deleted one fails in some way: the new one is cleaned all the same."""
    clock = StoreClock()
    with compacted(tmp_path, clock) as store:
        store.create_topic("t")
        fill(store, count=40)
        real = kstore.LogWriter.compact

        def compact(log: kstore.LogWriter, **options: Any) -> Any:
            monkeypatch.setattr(kstore.LogWriter, "compact", real)
            store.delete_topic("t")
            store.create_topic("t")
            raise kstore.CorruptFileError("a segment is not there")

        monkeypatch.setattr(kstore.LogWriter, "compact", compact)
        clock.pass_on(store, 15_000, runs=2)
        fill(store, count=40)
        clock.pass_on(store, 15_000)
        assert len(list(store.log("t"))) < 15
        assert store.health().ok


def test_a_log_that_kstore_open_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and forgotten once the log is free: also if its user has done all there was to do."""
    clock = StoreClock()
    with make(tmp_path, clock) as store:
        store.create_topic("t")
        fill(store)
    with make(tmp_path, clock) as store:
        with kstore.open(tmp_path / "t-0", "a", clock=clock, retention_ms=DAY) as log:
            clock.pass_on(store, DAY + 300_000, runs=3)
            assert list(store.health().background) == ["retention of t-0"]
            assert "LogLockedError" in store.health().background["retention of t-0"]
            assert len(warnings_in(caplog)) == 1
            log.retain()
            assert log.log_start_offset == 20
        clock.pass_on(store, 300_000)
        assert store.health().ok


def test_a_change_of_configuration_that_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was decided, so closed partitions go by it."""
    clock = StoreClock()
    with make(tmp_path, clock, retention_ms=-1) as store:
        store.create_topic("t", 2)
        fill(store)
    with make(tmp_path, clock, retention_ms=-1) as store:
        log = store.log("t", 1)
        clock.pass_on(store, 300_000, runs=2)

        def use(log: kstore.LogWriter, config: kstore.LogConfig) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(kstore.LogWriter, "_use", use)
            with pytest.raises(KeyboardInterrupt):
                store.alter_topic("t", retention_ms=DAY)
        assert store.health().unfinished != ""
        clock.pass_on(store, 2 * DAY)
        assert store.log("t", 0).log_start_offset == 20
        assert not log.is_closed


def test_no_memory_does_not_end_the_thread(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even for the words of what failed."""
    calls: list[str] = []
    options: Any = {"log_retention_check_interval_ms": 1, "clock": lambda: time.time_ns() // 1_000_000}
    with LogStore(ram, mode="a", **options) as store:

        def attempt(*args: object) -> Any:
            calls.append("")
            raise MemoryError

        monkeypatch.setattr(store._work._main, "_attempt", attempt)
        store.create_topic("t")
        for turn in range(3):
            while len(calls) <= turn:
                time.sleep(0.001)
            store.alter_topic("t", flush_messages=100 + turn)
        assert len({thread.ident for thread in threading.enumerate() if thread.name == "kstore-store"}) == 1
        thread = store._work._main._thread
        assert thread is not None
        assert thread.is_alive()
    assert not thread.is_alive()


def test_a_file_that_goes_while_files_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for base in (0, 7):
        (tmp_path / f"{base:020}.log").write_bytes(b"12345")

    def late(name: str) -> int | None:
        (tmp_path / f"{0:020}.log").unlink(missing_ok=True)  # another thread removes it
        return layout.segment_offset(name)

    monkeypatch.setattr(upkeep, "layout", SimpleNamespace(segment_offset=late))
    assert upkeep.files_of(tmp_path) == [(7, 5)]
