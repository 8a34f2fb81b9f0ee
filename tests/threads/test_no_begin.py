"""A new thread that finds no memory ends without a word to anybody: what it was to do is done by another one, or refused."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.threads import background
from kstore.log.threads.wakeup import Wakeup
from tests.store.test_background_threads import until

Die = Callable[[bool], None]


@pytest.fixture
def die(monkeypatch: pytest.MonkeyPatch) -> Die:
    """Has new threads end before they have begun, or not."""
    begin = background._thread.start_new_thread
    monkeypatch.setattr(background, "BEGINS", 0.05)

    def switch(on: bool) -> None:
        lost: Any = lambda *_: 0
        monkeypatch.setattr(background._thread, "start_new_thread", lost if on else begin)

    return switch


def test_the_threads_of_a_store(ram: Path, die: Die) -> None:
    options: dict[str, Any] = {"internal_segment_bytes": 500, "log_cleaner_backoff_ms": 0, "retention_ms": -1}
    with kstore.LogStore(ram, mode="a", flush_ms=1, **options) as store:
        die(True)
        store.create_topic("c", cleanup_policy="compact")
        for i in range(100):
            store.append("c", b"." * 50, b"%d" % (i % 3))
        health = store.health()
        assert not health.ok
        assert list(health.background) == ["thread of the store"]
        die(False)
        assert store.health().ok
        until(lambda: len(list(store.log("c"))) < 20)
        log = store.log("c")
        assert isinstance(log, kstore.LogWriter)
        until(lambda: log.durable_offset == log.log_end_offset)


def test_one_that_opening_a_partition_begins(ram: Path, die: Die) -> None:
    with kstore.LogStore(ram, mode="a", flush_ms=1) as store:
        die(True)
        store.create_topic("t")
        die(False)
        store.append("t", b"v")
        log = store.log("t")
        assert isinstance(log, kstore.LogWriter)
        until(lambda: log.durable_offset == 1)


def test_a_log_that_flushes_by_time_is_not_opened_without(tmp_path: Path, die: Die) -> None:
    die(True)
    with pytest.raises(MemoryError, match="flush_ms"):
        kstore.open(tmp_path / "t-0", "a", flush_ms=1)
    die(False)
    with kstore.open(tmp_path / "t-0", "a", flush_ms=1) as log:
        log.append(b"v")
        until(lambda: log.durable_offset == 1)
        die(True)
        log.configure(flush_ms=2)  # it has its thread


def test_the_next_occasion_begins_another(tmp_path: Path, die: Die) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        die(True)
        log.append(b"v")
        log.roll()
        die(False)

        def flushed() -> bool:
            log.append(b"v")
            return log.durable_offset >= log.roll() - 1

        until(flushed)


def test_no_appender_without(tmp_path: Path, die: Die) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        die(True)
        with pytest.raises(MemoryError, match="linger_ms"):
            log.appender()
        die(False)
        with log.appender() as out:
            assert out.append(b"v").wait() == 0


def test_no_append_from_asyncio_without(tmp_path: Path, die: Die) -> None:
    async def append(log: kstore.LogWriter) -> int:
        die(True)
        with pytest.raises(MemoryError, match="could not begin"):
            await log.append_async(b"lost")
        die(False)
        return await log.append_async(b"v")

    with kstore.open(tmp_path / "t-0", "a") as log:
        assert asyncio.run(append(log)) == 0
        assert [record.value for record in log] == [b"v"]


def test_an_interrupted_append_from_asyncio(
    tmp_path: Path, die: Die, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a thread begins that never will: nobody waits for it, neither the next call nor close()."""

    async def append(log: kstore.LogWriter) -> None:
        await log.append_async(b"v")

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with kstore.open(tmp_path / "t-0", "a") as log:
        die(True)
        with monkeypatch.context() as patch:
            patch.setattr(Wakeup, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(append(log))
        die(False)
        asyncio.run(append(log))
        appender = log._async
        assert appender is not None
        until(lambda: appender._runs is None)
        die(True)
        with monkeypatch.context() as patch:
            patch.setattr(Wakeup, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(append(log))
    assert len(list(kstore.open(tmp_path / "t-0"))) == 1
