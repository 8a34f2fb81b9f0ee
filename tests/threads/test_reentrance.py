"""A call from within a call: a signal handler or a clock that uses the log gets an error, and never waits for itself."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstore
from tests.helpers.processes import environment

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


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kstore.LogWriter]:
    inside: list[Callable[[], object]] = []

    def clock() -> int:  # called with the log's lock held
        if inside:
            inside.pop()()
        return 1_700_000_000_000

    log = kstore.open(tmp_path / "t-0", "a", clock=clock)
    log.inside = inside  # type: ignore[attr-defined]
    for i in range(5):
        log.append(b"%d" % i)
    yield log
    if not log.is_closed:
        assert log.append(b"goes on") == 5
        log.close()
    with kstore.open(tmp_path / "t-0", "a") as again:
        assert [record.offset for record in again] == list(range(again.log_end_offset))
        assert again.log_end_offset >= 5
        assert again.recovery.clean


@pytest.mark.parametrize("name", CALLS)
def test_a_clock_that_uses_its_log(log: kstore.LogWriter, name: str) -> None:
    log.inside.append(lambda: CALLS[name](log))  # type: ignore[attr-defined]
    with pytest.raises(kstore.ReentrantCallError, match="from within itself"):
        log.append(b"outer")
    assert [record.offset for record in log] == list(range(5))


@pytest.mark.parametrize("name", CALLS)
def test_a_signal_handler_that_uses_the_log(log: kstore.LogWriter, name: str) -> None:
    caught: list[BaseException] = []

    def handler(*_: object) -> None:
        try:
            CALLS[name](log)
        except kstore.ReentrantCallError as e:
            caught.append(e)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        log.inside.append(lambda: signal.raise_signal(signal.SIGUSR1))  # type: ignore[attr-defined]
        log.roll()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(caught) == 1
    assert isinstance(caught[0], RuntimeError)


def test_reading_within_a_call_is_fine(log: kstore.LogWriter) -> None:
    seen: list[int] = []
    log.inside.append(lambda: seen.extend(record.offset for record in log))  # type: ignore[attr-defined]
    log.roll()
    assert seen == list(range(5))


HANDLER = """
import os, signal, sys, kstore
what, directory = sys.argv[1:]
log = kstore.open(directory, "a", internal_segment_bytes=4096, file_delete_delay_ms=0, retention_bytes=40_000)
calls = 0
def handler(*_):
    global calls
    calls += 1
    try:
        {"append": lambda: log.append(b"handler"), "flush": log.flush, "retain": log.retain, "close": log.close}[what]()
    except kstore.ReentrantCallError:
        pass
    if calls > 300:
        signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, .005, .0011)
try:
    while calls <= 300:
        log.append(b"x" * 500)
        log.append(b"y" * 3000)
except kstore.LogClosedError:
    assert what == "close"
signal.setitimer(signal.ITIMER_REAL, 0)
log.close()
with kstore.open(directory, "a") as again:
    assert again.recovery.clean, again.recovery
    assert [r.offset for r in again] == list(range(again.log_start_offset, again.log_end_offset))
print("ended")
"""


def ended(code: str, *arguments: str) -> tuple[str, str]:
    """What a program writes to stdout and to stderr, in a process of its own, which may hang."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize("what", ["append", "flush", "retain", "close"])
def test_real_signals(tmp_path: Path, what: str) -> None:
    assert ended(HANDLER, what, str(tmp_path / "t-0")) == ("ended\n", "")


CLOSES_WITHIN = """
import sys, threading, time, kstore
inside = []
def clock():
    if inside and threading.current_thread() is threading.main_thread():
        time.sleep(.2)  # the appender's thread has a batch to append meanwhile, and waits for this one
        inside.pop()()
    return 1_700_000_000_000
log = kstore.open(sys.argv[1], "a", clock=clock)
out = log.appender(linger_ms=1)
tickets = [out.append(b"0")]
for close in (out.close, log.close):
    inside.append(close)
    try:
        out.append(b"refused")
    except kstore.ReentrantCallError:
        tickets.append(out.append(b"1"))
log.close()
assert [t.offset for t in tickets] == [0, 1, 2], tickets
assert [bytes(r.value) for r in kstore.open(sys.argv[1])] == [b"0", b"1", b"1"]
print("ended")
"""


def test_closing_an_appender_from_within(tmp_path: Path) -> None:
    """It waits for no thread that waits for this one, and what was gathered is not lost."""
    assert ended(CLOSES_WITHIN, str(tmp_path / "t-0")) == ("ended\n", "")


APPENDS_WITHIN_THE_LOG = """
import sys, threading, time, kstore
inside = []
def clock():
    if inside and threading.current_thread() is threading.main_thread():
        time.sleep(.2)  # the appender's thread has a batch to append meanwhile, and waits for the log
        inside.pop()()
    return 1_700_000_000_000
log = kstore.open(sys.argv[1], "a", clock=clock)
out = log.appender(linger_ms=1)
for call in (lambda: out.append(b"within"), out.flush, out.close):
    try:
        ticket = out.append(b"first")
    except kstore.LogClosedError:
        break
    inside.append(call)
    try:
        log.roll()
    except kstore.ReentrantCallError:
        pass
log.close()
print("ended")
"""


def test_an_appender_within_its_log(tmp_path: Path) -> None:
    """Its thread has the appender, and waits for the log that this thread is inside of."""
    assert ended(APPENDS_WITHIN_THE_LOG, str(tmp_path / "t-0")) == ("ended\n", "")


CALLS_WHILE_IT_SYNCS = """
import sys, kstore
from kstore.engine.io.file import trace_calls
log = kstore.open(sys.argv[1], "a", internal_segment_bytes=1000)
log.extend([b"x" * 600] * 5, batch_bytes=700)
within = []
def traced(name, path, *_):  # runs where a finalizer may
    if name == "syncs" and path.endswith(".log") and not within:
        within.append(None)
        try:
            {"flush": log.flush, "close": log.close, "durable": lambda: log.wait_until_durable(5)}[sys.argv[2]]()
        except kstore.ReentrantCallError as e:
            within.append(e)
trace_calls(traced)
log._flusher.stop()
log.append(b"y")
log.flush()
trace_calls(None)
assert len(within) == 2, within
log.close()
print("ended")
"""


@pytest.mark.parametrize("what", ["flush", "close", "durable"])
def test_a_call_while_this_thread_syncs(tmp_path: Path, what: str) -> None:
    """Who waits for a sync waits for the thread that syncs for all."""
    assert ended(CALLS_WHILE_IT_SYNCS, str(tmp_path / "t-0"), what) == ("ended\n", "")


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
        print("ended")
builtins.owner = Owner(sys.argv[1])
"""


def test_closing_when_the_interpreter_ends(tmp_path: Path) -> None:
    """The log's threads do not run any more then."""
    assert ended(CLOSES_LAST, str(tmp_path / "t-0")) == ("ended\n", "")
    with kstore.open(tmp_path / "t-0") as log:
        assert (log.recovery.clean, log.log_end_offset) == (True, 5)


def test_another_thread_waits_as_before(log: kstore.LogWriter) -> None:
    """Only the thread that is inside is refused."""
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(log.append(b"other")))
    log.inside.append(thread.start)  # type: ignore[attr-defined]
    assert log.roll() == 5
    thread.join()
    assert done == [5]
    log.truncate_to(5)


CLOSES_AN_APPENDER = """
import sys, threading, time, kstore
inside = []
def clock():
    if inside and threading.current_thread() is threading.main_thread():
        time.sleep(.2)  # the appender's thread has a batch to append meanwhile, and waits for the log
        inside.pop()()
    return 1_700_000_000_000
log = kstore.open(sys.argv[1], "a", clock=clock)
out = log.appender(linger_ms=1)
def close():
    try:
        out.close()
    except kstore.ReentrantCallError:
        print("refused")
out.append(b"waits")
inside.append(close)
log.roll()
log.close()
print("ended")
"""


def test_closing_an_appender_within_its_log(tmp_path: Path) -> None:
    """Its thread waits for what this one is inside of, so it is not waited for."""
    assert ended(CLOSES_AN_APPENDER, str(tmp_path / "t-0")) == ("refused\nended\n", "")


INTERRUPTED_SCANS = """
import signal, sys, threading, time, kstore
from kstore.log.read import scan_splits as splits
splits.SPLIT_BYTES = 4096
log = kstore.open(sys.argv[1])
class Interrupt(BaseException): pass
def handler(*_): raise Interrupt
signal.signal(signal.SIGALRM, handler)
sys.unraisablehook = lambda _: None  # some come in the midst of a weak reference's callback
for n in range(300):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, .0002 + .000_003 * n)
            for _ in log.scan(["offset"], threads=3, batch_rows=100): pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        pass
print(sum(len(batch) for batch in log.scan(["offset"], threads=3)))
"""


def test_interrupted_scans(tmp_path: Path) -> None:
    """No thread is left in the midst of its start, which would keep the interpreter from ending."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"." * 20] * 2000, batch_bytes=1000)
    assert ended(INTERRUPTED_SCANS, str(tmp_path / "t-0")) == ("2000\n", "")
