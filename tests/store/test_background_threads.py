"""The threads of a store: beside other threads, and to their end."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogStore
from tests.helpers.processes import run_python
from tests.helpers.waiting import until
from tests.store.stores import count, opened, writer

SMALL: dict[str, Any] = {
    "internal_segment_bytes": 500,
    "log_cleaner_backoff_ms": 0,
    "log_retention_check_interval_ms": 1,
}
SLOW = SMALL | {"cleanup_policy": "compact", "log_cleaner_io_max_bytes_per_second": 1000.0}  # for a minute


def threads() -> set[threading.Thread]:
    names = ("kstore-maintenance", "kstore-cleaning")
    return {thread for thread in threading.enumerate() if thread.name in names}


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "kstore.store"]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    until(lambda: not threads())


def append(store: LogStore, records: int = 40) -> None:
    for number in range(records):
        store.append("t", b"%d" % number + b"." * 50, b"%d" % (number % 3))


def newest(store: LogStore) -> list[bytes | None]:
    """The last value of each key."""
    return sorted({record.key: record.value for record in store.open("t")}.values())  # type: ignore[type-var]


def is_compacting(path: Path) -> bool:
    return any(path.glob("t-0/*.cleaned"))


def in_a_compaction(path: Path) -> LogStore:
    store = LogStore(path, mode="a", **SLOW)
    store.create_topic("t")
    append(store, 100)
    until(lambda: is_compacting(path))
    return store


def test_the_work_is_done_by_at_most_two_threads(ram: Path) -> None:
    until(lambda: not threads())  # those of an earlier test end
    with LogStore(ram, mode="a", retention_ms=-1, flush_ms=1, **SMALL) as store:
        assert not threads()  # an empty store needs none
        store.create_topic("t", retention_bytes=2000)
        store.create_topic("c", cleanup_policy="compact", key_files=True)
        for number in range(100):
            store.append("t", b"." * 50)
            store.append("c", b"." * 50, b"%d" % (number % 3))
        until(lambda: store.open("t").log_start_offset > 50)
        until(lambda: count(store, "c") < 20)
        until(lambda: writer(store, "c").durable_offset == 100)
        until(lambda: len(list(ram.glob("c-0/*.keys"))) == len(list(ram.glob("c-0/*.log"))) - 1)
        assert store.health().ok
        assert 1 <= len(threads()) <= 2
        assert all(thread.daemon for thread in threads())
    assert LogStore(ram).closed_cleanly


def test_an_opening_begins_a_thread_that_could_not_begin(ram: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(name: str, run: Callable[[], None]) -> None:
        raise RuntimeError("can't start new thread")

    with LogStore(ram, mode="a", retention_bytes=2000, **SMALL) as store:
        with monkeypatch.context() as patch:
            patch.setattr("kstore.log.worker.begin_thread", no_thread)
            store.create_topic("t")
        assert not threads()
        append(store)
        until(lambda: store.open("t").log_start_offset > 0)


@pytest.mark.parametrize("leave", [LogStore.close, LogStore.abandon])
def test_leaving_a_store_stops_a_compaction(ram: Path, leave: Callable[[LogStore], None]) -> None:
    store = in_a_compaction(ram)
    leave(store)
    if leave is LogStore.close:
        assert LogStore(ram).closed_cleanly
        assert not is_compacting(ram)
    until(lambda: not threads())
    with opened(ram) as store:
        assert newest(store) == [b"%d" % number + b"." * 50 for number in (97, 98, 99)]


# ---- forks, signals, ends ----------------------------------------------------------------------------------


ENDS = """
import pathlib, sys, time, kstore
store = kstore.LogStore(sys.argv[1], mode="a", internal_segment_bytes=500, log_cleaner_backoff_ms=0,
    cleanup_policy="compact", log_cleaner_io_max_bytes_per_second=1000.0,
    log_retention_check_interval_ms=1, flush_ms=1)
store.create_topic("t")
for i in range(100):
    store.append("t", b"%d" % i + b"." * 50, b"%d" % (i % 3))
while not any(pathlib.Path(sys.argv[1]).glob("t-0/*.cleaned")):
    time.sleep(0.001)
print("ends")
"""


def test_the_interpreter_ends_within_a_compaction(ram: Path) -> None:
    done = run_python(ENDS, ram)
    assert (done.returncode, done.stdout) == (0, "ends\n")
    assert all("ResourceWarning" in line or "store" in line for line in done.stderr.splitlines())
    with opened(ram) as store:
        assert newest(store) == [b"%d" % number + b"." * 50 for number in (97, 98, 99)]


class Stop(Exception):
    """Raised by a signal handler."""


def is_of_the_store() -> bool:
    """Whether a clock is called by a thread of the store."""
    return threading.current_thread() is not threading.main_thread()


def test_a_signal_while_closing_waits(ram: Path) -> None:
    """The store's thread hangs in the clock, so close() waits; a handler's exception ends the wait."""
    inside, go_on = threading.Event(), threading.Event()

    def clock() -> int:
        if is_of_the_store():
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


def test_closing_from_within_is_refused(ram: Path) -> None:
    """As a signal handler would: the store's thread may wait for the log in which this thread is."""
    refused: list[str] = []
    calls: list[Callable[[], object]] = []

    def clock() -> int:
        if calls and not is_of_the_store():
            with pytest.raises(kstore.ReentrantCallError) as caught:
                calls.pop()()
            refused.append(str(caught.value))
        return time.time_ns() // 1_000_000

    with LogStore(ram, mode="a", clock=clock, **SMALL) as store:
        store.create_topic("t")
        store.append("t", b"v")
        calls.append(store.close)
        store.append("t", b"v")
        assert len(refused) == 1
        assert not store.is_closed
        append(store)
        assert threads()
    assert LogStore(ram).closed_cleanly


@pytest.mark.parametrize("error", [ZeroDivisionError("no time"), MemoryError()])
def test_a_clock_that_raises(ram: Path, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    fails = True

    def clock() -> int:
        if is_of_the_store():
            calls.append("")
            if fails:
                raise error
        return time.time_ns() // 1_000_000

    with LogStore(ram, mode="a", clock=clock, file_delete_delay_ms=10) as store:
        store.create_topic("t")
        until(lambda: store.health().background)
        for turn in range(3):
            store.alter_topic("t", flush_messages=100 + turn)
            until(lambda: len(calls) > turn + 1)  # noqa: B023
        reason = f"{type(error).__name__}: {error}"
        assert store.health().background == {"clock of the store": reason}
        assert warnings_in(caplog) == [f"clock of the store failed: {reason}"]
        fails = False
        until(lambda: store.health().ok)
