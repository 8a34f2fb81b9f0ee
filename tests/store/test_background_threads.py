"""The threads of a store that work by themselves: beside others, and to their end."""

import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from kstore.log.files.lock import is_locked
from kstore.log.threads.background import Background
from kstore.store.upkeep import Upkeep
from tests.helpers.processes import environment

NAME = "kstore-store"
SMALL = {"internal_segment_bytes": 500, "log_cleaner_backoff_ms": 0, "log_retention_check_interval_ms": 1}
SLOW = SMALL | {"cleanup_policy": "compact", "log_cleaner_io_max_bytes_per_second": 1.0}  # for days


def until(holds: Callable[[], object]) -> None:
    """Waits for what another thread does; whoever waits in vain is stopped by the limit of all tests."""
    for _ in range(60_000):
        if holds():
            return
        time.sleep(0.001)
    raise AssertionError("it does not happen")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not threads())


def fill(store: LogStore, count: int = 40) -> None:
    for i in range(count):
        store.append("t", b"." * 50, b"%d" % (i % 3))


def cleaning(path: Path) -> LogStore:
    """A store that is in the middle of a compaction."""
    store = LogStore(path, mode="a", **SLOW)  # type: ignore[arg-type]
    store.create_topic("t")
    fill(store)
    until(lambda: store._work._cleaned)
    return store


def test_work_is_done(ram: Path) -> None:
    with LogStore(ram, mode="a", retention_ms=-1, **SMALL) as store:  # type: ignore[arg-type]
        store.create_topic("t", retention_bytes=2000)
        store.create_topic("c", cleanup_policy="compact")
        for i in range(100):
            store.append("t", b"." * 50)
            store.append("c", b"." * 50, b"%d" % (i % 3))
        until(lambda: store.log("t").log_start_offset > 50)
        until(lambda: len(list(store.log("c"))) < 20)
        assert store.health().ok
        assert all(thread.daemon for thread in threads())
        assert 1 <= len(threads()) <= 2
    assert LogStore(ram).closed_cleanly


def test_it_can_be_off(ram: Path) -> None:
    with LogStore(ram, mode="a", background=False, retention_bytes=0, **SMALL) as store:  # type: ignore[arg-type]
        store.create_topic("t")
        store.create_topic("c", cleanup_policy="compact")
        fill(store)
        assert threads() == []
    store = LogStore(ram)
    assert len(store.log("t").segments) > 5


def test_an_empty_store_has_no_thread(ram: Path) -> None:
    with LogStore(ram, mode="a") as store:
        assert threads() == []
        store.create_topic("t")
        assert len(threads()) <= 1
        until(threads)


class Interrupt(BaseException):
    """As a signal handler may raise."""


@pytest.mark.parametrize("where", ["Upkeep.start", "Background.start", "Background.has_begun"])
def test_an_interrupt_before_the_thread_is_known_to_have_begun(
    ram: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The topic is there, and so is the thread, at the latest when a partition is opened, or `health` asked for."""
    kind, name = where.split(".")
    owner = {"Upkeep": Upkeep, "Background": Background}[kind]

    def interrupt(*_: object) -> None:
        monkeypatch.undo()
        raise Interrupt

    with LogStore(ram, mode="a", **SMALL) as store:  # type: ignore[arg-type]
        monkeypatch.setattr(owner, name, interrupt)
        with pytest.raises(Interrupt):
            store.create_topic("t")
        assert store.health().background == {}
        assert threads()
    with LogStore(ram / "another", mode="a", **SMALL) as store:  # type: ignore[arg-type]
        monkeypatch.setattr(owner, name, interrupt)
        with pytest.raises(Interrupt):
            store.create_topic("t")
        store.append("t", b"v")
        assert threads()
    assert store.health().background == {}


def test_closing_stops_a_compaction(ram: Path) -> None:
    store = cleaning(ram)
    store.close()
    assert threads() == []
    assert LogStore(ram).closed_cleanly
    assert list(ram.rglob("*.cleaned")) == []
    with LogStore(ram, mode="a", background=False) as store:
        assert len(list(store.log("t"))) == 40


def test_abandoning_stops_a_compaction(ram: Path) -> None:
    store = cleaning(ram)
    store.abandon()
    until(lambda: not threads())
    with LogStore(ram, mode="a", background=False) as store:
        assert len(list(store.log("t"))) == 40


def test_a_topic_is_deleted_while_it_is_compacted(ram: Path, caplog: pytest.LogCaptureFixture) -> None:
    with cleaning(ram) as store:
        store.delete_topic("t")
        until(lambda: not store._work._cleaned)
        store.create_topic("t", cleanup_policy="delete")
        fill(store)
        assert store.health().ok
    assert [r for r in caplog.records if r.name == "kstore.store"] == []


def test_topics_come_and_go(ram: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: Any = SMALL | {"file_delete_delay_ms": 0, "retention_bytes": 1000, "flush_ms": 1}
    with LogStore(ram, mode="a", max_open_partitions=2, idle_roll_ms=1, segment_ms=1, **options) as store:
        for turn in range(30):
            store.create_topic("t", 4, cleanup_policy=("compact", "delete") if turn % 2 else "delete")
            fill(store)
            store.delete_topic("t")
        assert store.health().ok
    assert [r.getMessage() for r in caplog.records if r.name == "kstore.store"] == []
    assert LogStore(ram).closed_cleanly


def test_threads_append_meanwhile(ram: Path, caplog: pytest.LogCaptureFixture) -> None:
    options: Any = SMALL | {"file_delete_delay_ms": 0, "flush_ms": 5, "cleanup_policy": "compact"}
    failures: list[BaseException] = []

    def work(me: int) -> None:
        try:
            for i in range(300):
                store.append("t", b"%d" % i, b"%d of %d" % (i % 10, me))
        except BaseException as e:  # noqa: BLE001 - told to the test
            failures.append(e)

    with LogStore(ram, mode="a", max_open_partitions=2, idle_roll_ms=1, segment_ms=5, **options) as store:
        store.create_topic("t", 5)
        writers = [threading.Thread(target=work, args=(me,)) for me in range(3)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert failures == []
        assert store.health().ok
    assert [r.getMessage() for r in caplog.records if r.name == "kstore.store"] == []
    reader = LogStore(ram)
    newest = {record.key: record.value for number in range(5) for record in reader.log("t", number).records()}
    assert newest == {b"%d of %d" % (i % 10, me): b"%d" % i for me in range(3) for i in range(290, 300)}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_garbage(ram: Path) -> None:
    store: LogStore | None = cleaning(ram)
    found = weakref.ref(store)  # type: ignore[arg-type]
    log = store._work._cleaned  # type: ignore[union-attr]
    store = None
    log._stops_compacting = True  # type: ignore[union-attr] - it would go on for days
    del log
    until(lambda: gc.collect() >= 0 and found() is None)
    until(lambda: not threads())
    # another thread may be the one that collects it, and be in the midst of that
    until(lambda: not is_locked(ram))


def test_a_child_of_fork(ram: Path) -> None:
    store = cleaning(ram)
    child = os.fork()
    if not child:
        code = 1
        try:
            store._work.run_due(2**62)
            store.close()
            store.abandon()
            store._work.wait()
            code = 0 if store.is_closed and not threads() else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    fill(store)
    store.close()
    assert LogStore(ram).closed_cleanly


END = """
import logging, sys, threading, time
import kstore
store = kstore.LogStore(sys.argv[1], mode="a", internal_segment_bytes=500, log_cleaner_backoff_ms=0,
    cleanup_policy="compact", log_cleaner_io_max_bytes_per_second=1.0, log_retention_check_interval_ms=1, flush_ms=1)
store.create_topic("t", 3)
for i in range(100):
    store.append("t", b"." * 50, b"%d" % (i % 5))
while not store._work._cleaned:
    time.sleep(0.001)
print("ends")
"""


def test_the_interpreter_ends(ram: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", END, str(ram)],
        check=False,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (done.returncode, done.stdout) == (0, "ends\n")
    assert all("ResourceWarning" in line or "store" in line for line in done.stderr.splitlines())
    with LogStore(ram, mode="a", background=False) as store:
        assert sum(len(list(store.log("t", number))) for number in range(3)) == 100


class Stop(Exception):
    pass


def test_a_signal_while_closing_waits(ram: Path) -> None:
    """The store's own thread hangs in the clock, so close() waits; what a handler raises comes out, and it is closed."""
    inside, go_on = threading.Event(), threading.Event()

    def clock() -> int:
        if threading.current_thread().name == NAME:
            inside.set()
            go_on.wait()
        return time.time_ns() // 1_000_000

    store = LogStore(ram, mode="a", clock=clock)
    store.create_topic("t")
    store.append("t", b"v")
    inside.wait()

    def interrupt(signum: int, frame: object) -> None:
        if not store.is_closed:  # not yet where it waits
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        raise Stop

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(Stop):
            store.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert store.is_closed
    store.close()
    assert LogStore(ram).closed_cleanly
    go_on.set()


def test_a_signal_handler_cannot_close_from_inside(ram: Path) -> None:
    """The thread of the store may wait for the very log in which the handler has interrupted this thread."""
    with LogStore(ram, mode="a", **SMALL) as store:  # type: ignore[arg-type]
        store.create_topic("t")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        with log._held(), pytest.raises(kstore.ReentrantCallError):
            store.close()
        with store._changing, pytest.raises(kstore.ReentrantCallError):
            store.close()
        assert not store.is_closed
        fill(store)
        assert not store._work._main.is_stopped


def test_a_handler_of_logging_may_wait_for_who_closes(ram: Path) -> None:
    """It runs on the store's thread, for which close() would wait."""
    store = LogStore(ram, mode="a", retention_bytes=0, **SMALL)  # type: ignore[arg-type]
    done = threading.Event()

    class Handler(logging.Handler):
        def createLock(self) -> None:
            self.lock = None

        def emit(self, record: logging.LogRecord) -> None:
            if threading.current_thread().name == NAME and not done.is_set():
                done.set()
                closer = threading.Thread(target=store.close)
                closer.start()
                closer.join()

    logger, handler = logging.getLogger("kstore.log"), Handler()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        store.create_topic("t")
        fill(store)
        until(done.is_set)
        until(lambda: store.is_closed)
    except kstore.LogClosedError:  # it was quicker
        pass
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        store.close()
    until(lambda: not threads())
    assert LogStore(ram).closed_cleanly


def test_a_clock_that_fails(ram: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def clock() -> int:
        if threading.current_thread().name == NAME:
            calls.append("")
            raise ZeroDivisionError("no time")
        return time.time_ns() // 1_000_000

    with LogStore(ram, mode="a", clock=clock) as store:
        store.create_topic("t")
        until(lambda: store.health().background)
        for turn in range(3):
            store.alter_topic("t", flush_messages=100 + turn)
            until(lambda: len(calls) > turn + 1)  # noqa: B023
        assert store.health().background == {"clock of the store": "ZeroDivisionError: no time"}
    told = [r.getMessage() for r in caplog.records if r.name == "kstore.store"]
    assert told == ["clock of the store failed: ZeroDivisionError: no time"]


def test_nothing_is_opened_once_the_store_is_closed(ram: Path) -> None:
    """A thread that was about to use a partition when the store was closed must not leave it open."""
    for leave in (LogStore.close, LogStore.abandon):
        store = LogStore(ram / leave.__name__, mode="a")
        store.create_topic("t")
        leave(store)
        with pytest.raises(kstore.LogClosedError):
            store._open_logs.get(kstore.TopicPartition("t", 0))
