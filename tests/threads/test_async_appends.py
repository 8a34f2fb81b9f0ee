"""append_async and extend_async: the event loop goes on, and what is acknowledged is there."""

import asyncio
import threading
from pathlib import Path

import pytest

import kstore


def test_the_loop_goes_on(tmp_path: Path) -> None:
    async def work(log: kstore.LogWriter) -> tuple[list[int], range]:
        offsets = await asyncio.gather(*(log.append_async(b"%d" % i, key=b"k") for i in range(50)))
        return offsets, await log.extend_async([b"x", b"y"], [b"k", None], 1_700_000_000_000)

    with kstore.open(tmp_path, "a", durability="group") as log:
        offsets, more = asyncio.run(work(log))
        assert sorted(offsets) == list(range(50))
        assert more == range(50, 52)
        assert log.durable_offset == 52
        assert {int(log.get(offset).value or b"") for offset in offsets} == set(range(50))
        assert log.get(50).timestamp == 1_700_000_000_000


def test_another_task_runs_while_an_append_takes_long(tmp_path: Path) -> None:
    async def work(log: kstore.LogWriter) -> int:
        appended = asyncio.create_task(log.append_async(b"v"))
        await asyncio.to_thread(taken.wait)
        assert not appended.done()
        free.set()
        return await appended

    slow, taken, free = threading.Event(), threading.Event(), threading.Event()

    def clock() -> int:
        if slow.is_set():
            taken.set()
            free.wait()
        return 1_700_000_000_000

    with kstore.open(tmp_path, "a", clock=clock) as log:
        slow.set()
        assert asyncio.run(work(log)) == 0


def test_cancelled_and_closed(tmp_path: Path) -> None:
    async def work(log: kstore.LogWriter) -> None:
        appended = asyncio.create_task(log.append_async(b"v"))
        await asyncio.sleep(0)
        appended.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appended
        await log.append_async(b"w")
        with pytest.raises(TypeError):
            await log.append_async("no bytes")
        log.close()
        with pytest.raises(kstore.LogClosedError):
            await log.append_async(b"late")

    with kstore.open(tmp_path, "a", durability="each") as log:
        asyncio.run(work(log))
    assert [record.value for record in kstore.open(tmp_path)] in ([b"v", b"w"], [b"w", b"v"], [b"w"])


def test_of_a_store(tmp_path: Path) -> None:
    async def work(store: kstore.LogStore) -> None:
        store.create_topic("t", 2)
        found = await asyncio.gather(*(store.append_async("t", b"v", key=b"%d" % i) for i in range(10)))
        assert len(set(found)) == 10
        offsets = await store.extend_async("t", [b"x"] * 4, [b"1", b"2", b"3", b"4"])
        assert sum(map(len, offsets.values())) == 4
        with pytest.raises(kstore.LogNotFoundError):
            await store.append_async("none", b"v")

    with kstore.LogStore(tmp_path, mode="a", durability="group") as store:
        asyncio.run(work(store))
        assert sum(map(len, store.scan("t"))) == 14
