"""A forked child writes nothing, waits for nobody, and leaves its parent's directory alone."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore


def in_child(call: Callable[[], object], seconds: float = 20) -> str:
    """What a call raises in a forked child, by its class's name; "" for nothing, "hangs" if it does not end."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            call()
            os.write(write, b"-")
        except BaseException as e:  # noqa: BLE001
            os.write(write, type(e).__name__.encode())
        finally:
            os._exit(0)
    os.close(write)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            with os.fdopen(read, "rb") as pipe:
                return pipe.read().decode().strip("-")
        time.sleep(0.002)
    os.kill(child, 9)
    os.waitpid(child, 0)
    os.close(read)
    return "hangs"


def test_a_child_that_closes_or_ends(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"parent")
    before = sorted((tmp_path / "t-0").iterdir())
    assert in_child(log.close) == ""
    assert in_child(log.abandon) == ""
    assert in_child(lambda: log.__exit__(None, None, None)) == ""
    assert in_child(log.__del__) == ""
    assert in_child(lambda: log.append(b"child")) == "LogFailedError"
    assert in_child(log.flush) == "LogFailedError"
    assert in_child(log.retain) == "LogFailedError"
    assert in_child(lambda: list(log)) == ""
    assert sorted((tmp_path / "t-0").iterdir()) == before
    with pytest.raises(kstore.LogLockedError):
        kstore.open(tmp_path / "t-0", "a")
    assert log.append(b"parent") == 1
    log.close()
    assert kstore.open(tmp_path / "t-0").recovery.clean


def test_what_an_appender_has_gathered_is_its_parents(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        out = log.appender(linger_ms=60_000)
        ticket = out.append(b"gathered")
        for call in (out.flush, ticket.wait, lambda: out.append(b"child")):
            assert in_child(call) == "LogFailedError"
        assert in_child(out.close) == ""
        out.close()
        assert [record.value for record in log] == [b"gathered"]


@pytest.mark.parametrize("end", ["appender", "log", "read"])
def test_forks_while_threads_append(tmp_path: Path, end: str) -> None:
    log = kstore.open(tmp_path / "t-0", "a", internal_segment_bytes=20_000, durability="none")
    out = log.appender(linger_ms=1)
    stop = threading.Event()
    failed: list[BaseException] = []

    def work(append: Callable[[bytes], object]) -> None:
        try:
            while not stop.is_set():
                append(b"y" * 50)
        except BaseException as e:  # noqa: BLE001
            failed.append(e)

    threads = [
        threading.Thread(target=work, args=(append,)) for append in (out.append, out.append, log.append)
    ]
    for thread in threads:
        thread.start()
    call: dict[str, Callable[[], object]] = {
        "appender": out.close,
        "log": log.close,
        "read": lambda: log.get(log.log_start_offset),
    }
    answers = {in_child(call[end]) for _ in range(60)}
    stop.set()
    for thread in threads:
        thread.join()
    assert answers <= {"", "LogFailedError", "LogClosedError", "OffsetOutOfRangeError"}
    assert failed == []
    log.close()
    again = kstore.open(tmp_path / "t-0")
    assert again.recovery.clean
    assert [record.offset for record in again] == list(range(again.log_end_offset))
