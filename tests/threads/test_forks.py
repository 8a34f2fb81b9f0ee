"""A forked child writes nothing, waits for nobody, and leaves its parent's directory alone."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kstore
from tests.helpers.effort import times


def in_child(call: Callable[[], object], seconds: float = 60) -> str:
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


def test_what_a_child_may_do(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a")
    log.append(b"parent")
    asyncio.run(log.append_async(b"parent"))
    out = log.appender(linger_ms=60_000)
    ticket = out.append(b"gathered")
    before = sorted((tmp_path / "t-0").iterdir())
    for allowed in (
        log.close,
        log.abandon,
        lambda: log.__exit__(None, None, None),
        log.__del__,
        lambda: list(log),
    ):
        assert in_child(allowed) == ""
    assert in_child(out.close) == ""
    for refused in (
        lambda: log.append(b"child"),
        lambda: asyncio.run(log.append_async(b"child")),
        log.flush,
        log.retain,
        out.flush,
        ticket.wait,
        lambda: out.append(b"child"),
    ):
        assert in_child(refused) == "LogFailedError"
    assert sorted((tmp_path / "t-0").iterdir()) == before
    with pytest.raises(kstore.LogLockedError):
        kstore.open(tmp_path / "t-0", "a")
    out.close()
    assert log.append(b"parent") == 3
    log.close()
    assert [r.value for r in kstore.open(tmp_path / "t-0")] == [b"parent", b"parent", b"gathered", b"parent"]
    assert kstore.open(tmp_path / "t-0").recovery.clean


def test_forks_while_threads_append(tmp_path: Path) -> None:
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
    calls: list[Callable[[], object]] = [out.close, log.close, lambda: log.get(log.log_start_offset)]
    answers = {in_child(call) for _ in range(times(15)) for call in calls}
    stop.set()
    for thread in threads:
        thread.join()
    assert answers <= {"", "LogFailedError", "LogClosedError", "OffsetOutOfRangeError"}
    assert failed == []
    log.close()
    again = kstore.open(tmp_path / "t-0")
    assert again.recovery.clean
    assert [record.offset for record in again] == list(range(again.log_end_offset))
