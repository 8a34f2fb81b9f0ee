"""log.appender(): its tickets, its arguments, and what happens where it is in the way of itself."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import kstore


def test_a_ticket_tells_the_offset_once_it_is_known(log: kstore.LogWriter) -> None:
    log.append(b"before")
    with log.appender(linger_ms=60_000, batch_bytes=200) as out:
        tickets = [out.append(b"v" * 20) for _ in range(10)]
        assert tickets[0].offset == 1
        assert tickets[-1].offset is None
        with pytest.raises(TimeoutError):
            tickets[-1].wait(0)
        with pytest.raises(TimeoutError):
            tickets[-1].wait(timeout=0.01)
        out.flush()
        assert [ticket.wait() for ticket in tickets] == list(range(1, 11))
        assert [ticket.offset for ticket in tickets] == list(range(1, 11))
        late = out.append(b"x")
    assert late.wait() == 11
    assert repr(late) == f"<Ticket of {log.path}: offset 11>"


def test_waiting_takes_no_longer_than_lingering(log: kstore.LogWriter) -> None:
    with log.appender(linger_ms=1) as out:
        assert out.append(b"x").wait() == 0
        waiting = [threading.Thread(target=out.append(b"y").wait) for _ in range(4)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(60)
            assert not thread.is_alive()


def test_old_tickets_are_good(log: kstore.LogWriter) -> None:
    with log.appender(linger_ms=60_000, batch_bytes=0) as out:
        first = out.append(b"x")
        for _ in range(5000):
            out.append(b"x")
        assert first.wait() == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"linger_ms": float("nan")}, ValueError),
        ({"linger_ms": float("inf")}, ValueError),
        ({"linger_ms": 1e300}, ValueError),
        ({"linger_ms": 2**70}, ValueError),
        ({"linger_ms": 2**5000}, ValueError),
        ({"linger_ms": -1}, ValueError),
        ({"linger_ms": "5"}, TypeError),
        ({"linger_ms": None}, TypeError),
        ({"linger_ms": True}, TypeError),
        ({"batch_bytes": 1.5}, TypeError),
        ({"batch_bytes": True}, TypeError),
        ({"batch_bytes": -1}, ValueError),
        ({"batch_bytes": 2**70}, ValueError),
    ],
)
def test_nonsense_is_refused_when_it_is_given(
    log: kstore.LogWriter, options: dict[str, Any], error: type[Exception]
) -> None:
    threads = threading.active_count()
    with pytest.raises(error, match=next(iter(options))):
        log.appender(**options)
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    ("timeout", "error"), [(float("nan"), ValueError), (-1, ValueError), ("1", TypeError)]
)
def test_a_timeout_is_a_number(log: kstore.LogWriter, timeout: Any, error: type[Exception]) -> None:
    with log.appender() as out:
        ticket = out.append(b"x")
        with pytest.raises(error, match="timeout"):
            ticket.wait(timeout)


def test_a_record_that_is_too_large_names_the_limit(log: kstore.LogWriter) -> None:
    log.configure(max_message_bytes=100)
    with (
        log.appender() as out,
        pytest.raises(kstore.RecordTooLargeError, match=r"max\.message\.bytes") as caught,
    ):
        out.append(b"x" * 200)
    assert "byte -1" not in str(caught.value)
    assert log.log_end_offset == 0


def test_a_header_of_str_is_named(log: kstore.LogWriter) -> None:
    with log.appender() as out:
        for headers in ({"h": "text"}, [("h", "text")]):
            with pytest.raises(TypeError, match=r"header 'h' is bytes, not str: encode it"):
                out.append(b"x", headers=headers)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match=r"'h' is bytes-like or None, not str: encode it"):
                log.extend([b"x"], headers=headers)
            with pytest.raises(TypeError, match=r"header 'h' is bytes, not str: encode it"):
                log.append(b"x", headers=headers)  # type: ignore[arg-type]


def test_an_appender_of_a_closed_log(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    log.close()
    with pytest.raises(kstore.LogClosedError):
        log.appender()


class Clock:
    """A clock that does something when it is asked."""

    def __init__(self) -> None:
        self.act: Any = None

    def __call__(self) -> int:
        if self.act is not None:
            act, self.act = self.act, None
            act()
        return 1_700_000_000_000


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
        assert out.append(b"y").wait(60) == 1  # flushed by the thread, which is still there


def test_a_signal_handler_that_appends_is_told_instead_of_waiting_for_itself(tmp_path: Path) -> None:
    clock = Clock()
    told: list[BaseException] = []

    def handler(*_: object) -> None:
        try:
            out.append(b"from the handler")
        except RuntimeError as e:
            told.append(e)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with kstore.open(tmp_path / "t-0", "a", clock=clock) as log, log.appender(linger_ms=60_000) as out:
            clock.act = lambda: os.kill(os.getpid(), signal.SIGUSR1)
            out.append(b"x")
            out.flush()
            assert len(told) == 1
            assert [record.value for record in log] == [b"x"]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_forked_process_can_let_go_of_it(log: kstore.LogWriter) -> None:
    go = threading.Event()
    with log.appender(linger_ms=1) as out:

        def work() -> None:
            while not go.is_set():
                out.append(b"v" * 100)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            for _ in range(20):
                child = os.fork()
                if child == 0:
                    signal.alarm(60)
                    code = 1
                    try:
                        out.append(b"x")
                    except kstore.LogFailedError:
                        out.close()
                        code = 0
                    finally:
                        os._exit(code)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            go.set()
            thread.join()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_the_first_record_of_a_batch_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """The next one begins the batch anew: it is no second record of it."""

    def interrupted(self: Any) -> None:
        monkeypatch.undo()
        raise error

    with kstore.open(tmp_path / "t-0", "a") as log, log.appender(linger_ms=60_000) as out:
        monkeypatch.setattr(type(out), "_began", interrupted)
        with pytest.raises(error):
            out.append(b"first")
        tickets = [out.append(b"%d" % i) for i in range(5)]
        out.flush()
        assert [ticket.wait() for ticket in tickets] == [0, 1, 2, 3, 4]
        assert [record.value for record in log] == [b"0", b"1", b"2", b"3", b"4"]
