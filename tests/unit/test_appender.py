"""log.appender(): its tickets, records that the log refuses, and an appender or a log that nobody closes."""

import gc
import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.waiting import threads_doing, until

MIB = 1 << 20


class Clock:
    """A clock that runs something when it is read."""

    def __init__(self) -> None:
        self.act: Any = None

    def __call__(self) -> int:
        if self.act is not None:
            act, self.act = self.act, None
            act()
        return 1_700_000_000_000


# ---- tickets -------------------------------------------------------------------------------------


def test_a_ticket_has_the_offset_once_it_is_known(log: kstore.LogWriter) -> None:
    log.append(b"before")
    with log.appender(linger_ms=60_000, batch_bytes=200) as out:
        tickets = [out.append(b"v" * 20) for _ in range(10)]
        assert tickets[0].offset == 1
        assert tickets[-1].offset is None
        for timeout in (0, 0.01):
            with pytest.raises(TimeoutError):
                tickets[-1].wait(timeout=timeout)
        out.flush()
        assert [ticket.wait() for ticket in tickets] == list(range(1, 11))
        assert [ticket.offset for ticket in tickets] == list(range(1, 11))
        late = out.append(b"x")
    assert late.wait() == 11
    assert repr(late) == f"<Ticket of {log.path}: offset 11>"


def test_who_waits_is_served_when_the_batch_is_due(log: kstore.LogWriter) -> None:
    with log.appender(linger_ms=1) as out:
        assert out.append(b"x").wait() == 0
        with threads_doing(*(partial(out.append(b"y").wait, 60) for _ in range(4))):
            pass


# ---- what it refuses -----------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["uncompressed", "lz4"])
def test_a_record_that_is_too_large_is_refused_at_once(tmp_path: Path, codec: str) -> None:
    options: Any = {"segment_bytes": MIB, "max_message_bytes": 8 * MIB, "compression_type": codec}
    with kstore.open(tmp_path / "t-0", "a", **options) as log, log.appender(linger_ms=100_000) as out:
        tickets = [out.append(b"before")]
        for size in (2 * MIB, 9 * MIB):
            with pytest.raises(kstore.RecordTooLargeError):
                out.append(os.urandom(size))
        if codec == "lz4":
            tickets.append(out.append(bytes(2 * MIB)))  # compressed, it fits
        tickets.append(out.append(b"behind"))
        assert out.flush() == len(tickets)
        assert [ticket.wait() for ticket in tickets] == list(range(len(tickets)))
        assert [record.offset for record in log] == list(range(len(tickets)))


def test_limits_that_are_lowered_under_it(log: kstore.LogWriter) -> None:
    """Each ticket of the refused batch raises, then the next call of the appender; then it goes on."""
    with log.appender(linger_ms=100_000, batch_bytes=2000) as out:
        tickets = [out.append(os.urandom(500)) for _ in range(3)]
        log.configure(max_message_bytes=600)
        with pytest.raises(kstore.RecordTooLargeError) as caught:
            out.append(os.urandom(500))
        assert "append it again" in caught.value.__notes__[0]
        for ticket in tickets:
            with pytest.raises(kstore.RecordTooLargeError):
                ticket.wait()
            assert ticket.offset is None
        with pytest.raises(kstore.RecordTooLargeError):  # for those who wait for no ticket
            out.flush()
        assert out.flush() == 0
        out.append(b"small")
        assert out.flush() == 1
        assert [record.value for record in log] == [b"small"]


# ---- clocks and signals --------------------------------------------------------------------------


def test_a_clock_that_fails_does_not_end_the_thread(tmp_path: Path) -> None:
    clock = Clock()
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise ZeroDivisionError

    with kstore.open(tmp_path / "t-0", "a", clock=clock) as log, log.appender(linger_ms=20) as out:
        first = out.append(b"x")
        clock.act = fail
        assert failed.wait(60)
        assert first.wait() == 0
        assert out.append(b"y").wait(60) == 1  # the thread is still there


def test_a_signal_handler_that_appends_gets_an_error_instead_of_a_deadlock(tmp_path: Path) -> None:
    clock = Clock()
    raised: list[BaseException] = []

    def handler(*_: object) -> None:
        try:
            out.append(b"from the handler")
        except RuntimeError as e:
            raised.append(e)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with kstore.open(tmp_path / "t-0", "a", clock=clock) as log, log.appender(linger_ms=60_000) as out:
            clock.act = lambda: os.kill(os.getpid(), signal.SIGUSR1)
            out.append(b"x")
            out.flush()
            assert len(raised) == 1
            assert [record.value for record in log] == [b"x"]
    finally:
        signal.signal(signal.SIGUSR1, before)


# ---- nobody closes it ----------------------------------------------------------------------------


def test_what_a_dropped_appender_has_gathered_is_appended(tmp_path: Path) -> None:
    """Its log was dropped with it, and the garbage collector ran within the linger."""
    path = tmp_path / "t-0"

    def forget() -> None:
        log = kstore.open(path, "a")
        out = log.appender(linger_ms=100)
        for i in range(100):
            out.append(b"%d" % i)

    forget()
    gc.collect()
    until(lambda: kstore.open(path).log_end_offset == 100)

    def reopened() -> bool:  # then nothing holds the log any more
        gc.collect()
        try:
            kstore.open(path, "a").close()
        except kstore.LogLockedError:
            return False
        return True

    until(reopened)
