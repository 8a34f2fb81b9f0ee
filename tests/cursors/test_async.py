"""Cursors in an event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.cursors.group_file import GroupFile
from tests.helpers.readers import READERS, offsets_in
from tests.helpers.reading import read_to_end


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "t-0"
    with kstore.open(made, "a") as log:
        log.extend([b"v"] * 100)
    return made


def test_what_is_there(path: Path) -> None:
    async def main() -> list[int]:
        with kstore.open(path).cursor("g") as jobs:
            found = [record.offset async for record in jobs]
            await jobs.commit_async(50, metadata="half")
            assert jobs.committed is not None
            assert jobs.committed.metadata == "half"
            jobs.seek(90)
            async for record in jobs:
                if record.offset == 94:
                    break
            await jobs.commit_async()
            return found

    assert asyncio.run(main()) == list(range(100))
    assert kstore.open(path).cursors()["g"].offset == 95


def test_others_have_their_turn(path: Path) -> None:
    async def main() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        with kstore.open(path).cursor("g") as jobs:
            async for _ in jobs:
                pass
        assert turns > 2
        task.cancel()

    asyncio.run(main())


def test_batches(path: Path) -> None:
    async def main() -> None:
        with kstore.open(path).cursor("g") as jobs:
            async with jobs.batch(40) as records:
                assert [record.offset for record in records] == list(range(40))
            with pytest.raises(ZeroDivisionError):
                async with jobs.batch(1) as records:
                    assert records[0].offset / 0
            assert jobs.position == 40
            async with jobs.batch(1) as records:
                assert [record.offset for record in records] == [40]
            async with jobs.batch(500, timeout=5) as records:
                assert len(records) == 59
            async with jobs.batch(5, timeout=0.01) as records:
                assert records == []
            assert jobs.committed is not None
            assert jobs.committed.offset == 100
            with pytest.raises(ValueError, match=r"record: offset 101 .* the records before offset 100"):
                await jobs.commit_async(101)
            task = asyncio.create_task(asyncio.sleep(0))
            await task

    asyncio.run(main())


def test_one_that_is_cancelled_stays_where_it_was(path: Path) -> None:
    async def main() -> None:
        with kstore.open(path).cursor("g", "latest") as jobs:

            async def work() -> None:
                async with jobs.batch(5, timeout=60):
                    pass

            task = asyncio.create_task(work())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (jobs.position, jobs.committed) == (100, None)

    asyncio.run(main())


async def cancelled_in_a_commit(patch: pytest.MonkeyPatch, work: Callable[[], Awaitable[None]]) -> None:
    """Cancels a task, twice, while a commit of its has begun and is not done."""
    reached, goes_on, write = threading.Event(), threading.Event(), GroupFile.write

    def slow(self: GroupFile, *args: Any) -> None:
        reached.set()
        goes_on.wait(60)
        write(self, *args)

    patch.setattr(GroupFile, "write", slow)
    task = asyncio.ensure_future(work())
    while not reached.is_set():
        await asyncio.sleep(0.001)
    for _ in range(2):
        task.cancel()
        await asyncio.wait([task], timeout=0.02)
    assert not task.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    patch.undo()


def test_one_that_is_cancelled_in_a_commit_knows_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is done, and the cursor stands behind it."""

    async def main() -> None:
        with kstore.open(path).cursor("g") as jobs:

            async def batch() -> None:
                async with jobs.batch(5):
                    pass

            await cancelled_in_a_commit(monkeypatch, batch)
            assert jobs.committed is not None
            assert (jobs.position, jobs.committed.offset) == (5, 5)
            async with jobs.batch(3) as records:
                assert [record.offset for record in records] == [5, 6, 7]
            read_to_end(jobs)
            await cancelled_in_a_commit(monkeypatch, lambda: jobs.commit_async(10))
            assert jobs.committed.offset == 10

    asyncio.run(main())


def test_one_that_is_cancelled_before_its_commit_begins(path: Path) -> None:
    """The commit never comes, though a thread is free later."""

    async def main() -> None:
        goes_on = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, goes_on.wait, 60)
        with kstore.open(path).cursor("g") as jobs:

            async def batch() -> None:
                async with jobs.batch(5):
                    pass

            task = asyncio.ensure_future(batch())
            await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            goes_on.set()
            await busy
            await loop.run_in_executor(None, int)  # behind what was withdrawn
            assert (jobs.position, jobs.committed) == (0, None)
            async with jobs.batch(3) as records:
                assert records[0].offset == 0

    asyncio.run(main())


def test_a_store_s_cursor_that_is_cancelled_in_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("t")
        store.extend("t", [b"v"] * 10)

    async def main() -> None:
        with kstore.LogStore(tmp_path / "data").cursor("g", ["t"]) as cursor:
            given = iter(cursor)
            for _ in range(4):
                next(given)
            await cancelled_in_a_commit(monkeypatch, cursor.commit_async)
            assert cursor.positions() == {("t", 0): 4}
            assert kstore.LogStore(tmp_path / "data").cursors()["g"]["t", 0].offset == 4
            assert [record.record.offset for record in cursor] == [4, 5, 6, 7, 8, 9]
            cursor.commit()

    asyncio.run(main())


WAITING: dict[str, Callable[[Path], Any]] = {
    **{
        kind: lambda path, make=READERS[kind]: make(path, timeout=None)
        for kind in ("following cursor", "follower", "following store cursor", "store follower")
    },
    **{
        f"columns of a {kind}": lambda path, make=READERS[kind]: make(path, timeout=None).scan(
            ["offset"], batch_rows=1
        )
        for kind in ("following cursor", "following store cursor")
    },
}


@pytest.mark.parametrize("how", WAITING)
def test_a_task_asks_again_after_it_was_cancelled(path: Path, how: str) -> None:
    """Wherever that was: it gets what comes next, none twice, none missing."""

    async def main() -> None:
        items, given = aiter(WAITING[how](path)), []

        async def take(count: int) -> None:
            while len(given) < count:
                given.extend(offsets_in(await anext(items)))

        for count in (40, 100):
            task = asyncio.create_task(take(count))
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()  # while it lets others have their turn
            await asyncio.wait([task])
            await take(count)
        for n in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(items), 0.05)  # while it waits
            with kstore.open(path, "a") as log:
                log.append(b"v")
            await take(101 + n)
        assert given == list(range(103))

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("how", [how for how in WAITING if "columns" not in how])
def test_async_with(path: Path, how: str) -> None:
    """What comes after the block has an end, and does not wait."""

    async def main() -> None:
        async with WAITING[how](path) as source:
            assert (await anext(aiter(source))).offset == 0
        if how == "follower":
            assert len([record async for record in source]) < 100
            return
        assert source.is_closed
        with pytest.raises(kstore.LogClosedError):
            aiter(source)

    asyncio.run(asyncio.wait_for(main(), 60))
