"""Cursors in an event loop."""

import asyncio
from pathlib import Path

import pytest

import kstore


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
            await jobs.commit_async(49, metadata="half")
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


def test_waiting(path: Path) -> None:
    async def main() -> list[bytes]:
        values = []
        with kstore.open(path, "a") as log, kstore.open(path).cursor("g", "latest", follow=True) as jobs:
            asyncio.get_running_loop().call_later(0.05, log.append, b"new")
            async for record in jobs:
                values.append(record.value)
                await jobs.commit_async(record)
                if len(values) == 2:
                    break
                asyncio.get_running_loop().call_later(0.05, log.append, b"newer")
        return values

    assert asyncio.run(main()) == [b"new", b"newer"]
    assert kstore.open(path).cursors()["g"].offset == 102


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
            jobs.seek(0)
            with pytest.raises(kstore.OffsetOutOfRangeError):
                jobs.commit(200)
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
