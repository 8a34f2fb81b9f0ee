"""A reader that is there before its log."""

import asyncio
import threading
from pathlib import Path

import pytest

import kstore


def made_later(path: Path) -> threading.Timer:
    def make() -> None:
        with kstore.open(path, "a") as log:
            log.extend([b"v"] * 3)

    timer = threading.Timer(0.1, make)
    timer.start()
    return timer


def test_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    timer = made_later(path)
    with kstore.open(path, wait=60).cursor("mailer", follow=True, timeout=60) as jobs:
        records = iter(jobs)
        assert [next(records).offset for _ in range(3)] == [0, 1, 2]
    timer.join()


def test_it_waits_in_an_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    turns = []

    async def beside() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0.005)

    async def main() -> None:
        task = asyncio.create_task(beside())
        with pytest.raises(kstore.LogNotFoundError):
            await kstore.open_async(path)
        with pytest.raises(kstore.LogNotFoundError):
            await kstore.open_async(path, wait=0.02)
        timer = made_later(path)
        log = await kstore.open_async(path, wait=60, recover=True)
        timer.join()
        with log.cursor("mailer", follow=True, timeout=60) as jobs:
            found = []
            async for record in jobs:
                found.append(record.offset)
                if len(found) == 3:
                    break
        assert found == [0, 1, 2]
        task.cancel()

    asyncio.run(main())
    assert len(turns) > 3


def test_not_for_ever(tmp_path: Path) -> None:
    for wait in (0, 0.02):
        with pytest.raises(kstore.LogNotFoundError):
            kstore.open(tmp_path / "orders-0", wait=wait)
    with pytest.raises(ValueError, match="wait"):
        asyncio.run(kstore.open_async(tmp_path / "orders-0", wait=-1))
    with pytest.raises(TypeError, match="durability"):
        asyncio.run(kstore.open_async(tmp_path / "orders-0", durability="each"))
