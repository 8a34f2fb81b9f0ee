"""A call from within a call: a signal handler or a clock that uses the log gets an error, and never waits for
itself.

tests/interrupts tries handlers at all points, and those of real signals.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import run_python

NOW = 1_700_000_000_000
CALLS: dict[str, Callable[[kstore.LogWriter], object]] = {
    "append": lambda log: log.append(b"within"),
    "extend": lambda log: log.extend([b"within"]),
    "append_batches": lambda log: log.append_batches(kstore.encode_batch([(1, None, b"within", None)])),
    "flush": lambda log: log.flush(),
    "roll": lambda log: log.roll(),
    "retain": lambda log: log.retain(),
    "delete_records": lambda log: log.delete_records(1),
    "truncate_to": lambda log: log.truncate_to(1),
    "close": lambda log: log.close(),
    "abandon": lambda log: log.abandon(),
    "configure": lambda log: log.configure(flush_ms=1000),
}


class Within:
    """A clock, which is asked with the log's lock held: makes the next of these calls then."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def __call__(self) -> int:
        if self.calls:
            self.calls.pop()()
        return NOW


@pytest.fixture
def within() -> Within:
    return Within()


@pytest.fixture
def log(tmp_path: Path, within: Within) -> Iterator[kstore.LogWriter]:
    """A log of five records, which goes on after the test."""
    with kstore.open(tmp_path / "t-0", "a", clock=within) as log:
        for i in range(5):
            log.append(b"%d" % i)
        yield log
        end = log.log_end_offset
        assert log.append(b"goes on") == end
    with kstore.open(tmp_path / "t-0", "a") as again:
        assert [record.offset for record in again] == list(range(end + 1))
        assert again.recovery.clean


def test_a_clock_that_uses_its_log(log: kstore.LogWriter, within: Within) -> None:
    for name, call in CALLS.items():
        within.calls.append(lambda call=call: call(log))  # type: ignore[misc]
        with pytest.raises(kstore.ReentrantCallError, match="from within itself"):
            log.append(b"outer")
        assert [record.offset for record in log] == list(range(5)), name


def test_reading_within_a_call_is_fine(log: kstore.LogWriter, within: Within) -> None:
    seen: list[int] = []
    within.calls.append(lambda: seen.extend(record.offset for record in log))
    log.roll()
    assert seen == list(range(5))


def test_another_thread_waits_as_before(log: kstore.LogWriter, within: Within) -> None:
    """Only the thread that is inside is refused."""
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(log.append(b"other")))
    within.calls.append(thread.start)
    assert log.roll() == 5
    thread.join()
    assert done == [5]


def test_a_thread_that_syncs_may_wait_for_another_that_appends(tmp_path: Path, within: Within) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        inside.set()
        leave.wait(60)

    with kstore.open(tmp_path / "t-0", "a", clock=within) as log:
        log.append(b"v")
        within.calls.append(stay)
        thread = threading.Thread(target=log.append, args=(b"v",))
        thread.start()
        inside.wait(60)
        threading.Timer(0.1, leave.set).start()
        log.wait_until_durable(1)
        thread.join()
        assert log.durable_offset >= 1


# ---- programs that may hang, each in a process of its own --------------------------------------------------

# The appender's thread has a batch to append, and waits for this thread, which calls from within the clock.
APPENDER = """
import sys, threading, time, kstore
within, refused = [], 0
def clock():
    global refused
    if within and threading.current_thread() is threading.main_thread():
        time.sleep(.2)  # the appender's thread begins to append meanwhile
        try:
            within.pop()()
        except kstore.ReentrantCallError:
            refused += 1
            raise
    return 1_700_000_000_000
log = kstore.open(sys.argv[1], "a", clock=clock)
out = log.appender(linger_ms=1)
tickets = [out.append(b"0")]
for close in (out.close, log.close):  # within the appender
    within.append(close)
    try:
        out.append(b"refused")
    except kstore.ReentrantCallError:
        tickets.append(out.append(b"1"))
for call in (lambda: out.append(b"within"), out.flush, out.close):  # within the log
    tickets.append(out.append(b"2"))
    within.append(call)
    try:
        log.roll()
    except kstore.ReentrantCallError:
        pass
assert refused >= 3, refused
log.close()
values = [bytes(r.value) for r in kstore.open(sys.argv[1])]
assert [values[t.offset] for t in tickets] == [b"0", b"1", b"1", b"2", b"2", b"2"], values
"""
# The log's threads do not run any more then.
CLOSES_LAST = """
import builtins, sys, kstore
class Owner:
    def __init__(self, directory):
        self.log = kstore.open(directory, "a", internal_segment_bytes=1000)
        self.log.extend([b"x" * 600, b"y" * 600], batch_bytes=700)
        self.ticket = self.log.appender(linger_ms=100_000).append(b"z")
    def __del__(self):
        assert sys.is_finalizing()
        self.log.append(b"x" * 600)
        self.log.append(b"x" * 600)
        self.log.close()
builtins.owner = Owner(sys.argv[1])
"""
PROGRAMS = {"an appender": APPENDER, "closing at the end": CLOSES_LAST}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_ends(tmp_path: Path, name: str) -> None:
    done = run_python(PROGRAMS[name], tmp_path / "t-0")
    assert (done.returncode, done.stderr) == (0, "")
    if name == "closing at the end":
        log = kstore.open(tmp_path / "t-0")
        assert (log.recovery.clean, log.log_end_offset) == (True, 5)
