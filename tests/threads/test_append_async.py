"""Appending from asyncio: each task learns what became of its record, and the event loop never waits for the disk."""

import asyncio
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogClosedError, LogFailedError, LogStore, LogWriter
from kstore.log.write import async_appender
from kstore.testing import count_calls, failing

DURABILITY = ["none", "group"]


@pytest.mark.parametrize("of", ["a log", "a store"])
def test_a_call_from_within_is_refused(tmp_path: Path, of: str) -> None:
    """The thread that appends would wait for the call that waits for it."""
    found: list[BaseException] = []
    nested = False

    def clock() -> int:
        nonlocal nested
        if nested:
            nested = False
            for call in calls:
                with pytest.raises(kstore.ReentrantCallError):
                    asyncio.run(asyncio.wait_for(call(), 60))
                found.append(kstore.ReentrantCallError())
        return 1_700_000_000_000

    calls: list[Any] = []
    with LogStore(tmp_path, mode="a", background=False, clock=clock) as store:
        store.create_topic("t")
        log = store.log("t", 0)
        assert isinstance(log, LogWriter)
        log.append(b"one")
        if of == "a log":
            calls += [lambda: log.append_async(b"two"), lambda: log.extend_async([b"two"])]
        else:
            calls += [lambda: store.append_async("t", b"two"), lambda: store.extend_async("t", [b"two"])]
        nested = True
        log.append(b"three")
        assert len(found) == 2
        assert [record.value for record in log] == [b"one", b"three"]


@contextmanager
def busy(log: LogWriter) -> Iterator[None]:
    """Another thread is inside the log, as long as a slow disk would keep it there."""
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with log._held():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def values(log: kstore.PartitionLog) -> list[bytes | None]:
    return [record.value for record in log]


async def begun(log: LogWriter | LogStore) -> None:
    """Waits until the thread has taken what there was."""
    for _ in range(5):
        await asyncio.sleep(0)
    appender = log._async if isinstance(log, LogWriter) else log._async["t"]
    assert appender is not None
    while appender._calls:
        await asyncio.sleep(0.001)


async def end_of(task: "asyncio.Task[Any]") -> Any:
    """What a cancelled task says was appended."""
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return caught.value.appended  # type: ignore[attr-defined]


@pytest.mark.parametrize("durability", DURABILITY)
def test_offsets_are_those_of_the_calls_in_order(tmp_path: Path, durability: Any) -> None:
    async def main(log: LogWriter) -> None:
        tasks = [asyncio.create_task(log.append_async(b"%d" % i, key=b"k")) for i in range(500)]
        tasks.append(asyncio.create_task(log.extend_async([b"500", b"501"], batch_bytes=100)))
        found = await asyncio.gather(*tasks)
        assert found == [*range(500), range(500, 502)]
        assert log.durable_offset == (502 if durability == "group" else 0)
        assert await log.append_async(b"502", timestamp=5, headers={"h": b"v"}) == 502

    with kstore.open(
        tmp_path / "t-0", "a", durability=durability, message_timestamp_before_max_ms=2**62
    ) as log:
        asyncio.run(main(log))
        assert values(log) == [b"%d" % i for i in range(503)]
        assert log.get(502).headers == (("h", b"v"),)
        assert log.append(b"503") == 503


def test_many_tasks_share_a_sync(tmp_path: Path) -> None:
    async def main(store: LogStore) -> None:
        await asyncio.gather(*(store.append_async("t", b"v") for _ in range(1000)))

    with LogStore(tmp_path, mode="a", durability="group") as store:
        store.create_topic("t")
        store.append("t", b"first")
        asyncio.run(main(store))
        found = store.metrics()
        assert found.topics["t"].records_in == 1001
        assert found.flush_seconds.calls < 500


def test_wrong_arguments(tmp_path: Path) -> None:
    async def main(log: LogWriter) -> None:
        with pytest.raises(TypeError):
            await log.append_async("text")
        with pytest.raises(kstore.RecordTooLargeError):
            await log.append_async(b"v" * 2_000_000)
        with pytest.raises(TypeError):
            await log.extend_async(5)
        assert await log.append_async(b"v") == 0

    with kstore.open(tmp_path / "t-0", "a") as log:
        asyncio.run(main(log))
        assert values(log) == [b"v"]


def test_the_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    async def main(log: LogWriter) -> None:
        with busy(log):
            task = asyncio.create_task(log.append_async(b"v"))
            for _ in range(100):
                await asyncio.sleep(0.0001)
            assert not task.done()
        assert await task == 0

    with kstore.open(tmp_path / "t-0", "a") as log:
        asyncio.run(main(log))


# ---- cancelled ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", DURABILITY)
def test_cancelled(tmp_path: Path, durability: Any) -> None:
    async def main(log: LogWriter) -> None:
        with busy(log):
            first = asyncio.create_task(log.append_async(b"first"))
            await begun(log)
            second = asyncio.create_task(log.append_async(b"second"))
            wrong = asyncio.create_task(log.append_async("text"))
            await asyncio.sleep(0)
            assert second.cancel()
            assert await end_of(second) is None
            for _ in range(3):  # it has begun: nobody can say yet
                first.cancel()
                await asyncio.sleep(0.002)
                assert not first.done()
        assert await end_of(first) == 0
        with pytest.raises(TypeError):
            await wrong
        with busy(log):
            wrong = asyncio.create_task(log.append_async(b"late", timestamp=2**62))
            await begun(log)
            wrong.cancel()
        assert await end_of(wrong) is None

    with kstore.open(tmp_path / "t-0", "a", durability=durability) as log:
        asyncio.run(main(log))
        assert values(log) == [b"first"]


def test_time_is_over(tmp_path: Path) -> None:
    async def main(log: LogWriter) -> None:
        with busy(log):
            threading.Thread(target=log.append, args=(b"other",)).start()
            task = asyncio.create_task(asyncio.wait_for(log.append_async(b"first"), 60))
            await begun(log)
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.01):
                    await log.append_async(b"second")
            assert caught.value.__cause__.appended is None  # type: ignore[union-attr]
        assert await task in (0, 1)

    with kstore.open(tmp_path / "t-0", "a") as log:
        asyncio.run(main(log))
        assert sorted(value or b"" for value in values(log)) == [b"first", b"other"]


@pytest.mark.parametrize("seed", range(8))
def test_cancelled_at_random(tmp_path: Path, seed: int) -> None:
    """What tasks are told is what the log holds."""
    chance = random.Random(seed)

    async def main(log: LogWriter) -> dict[int, bytes]:
        told: dict[int, bytes] = {}

        async def one(number: int) -> None:
            value = b"%d" % number
            try:
                if chance.random() < 0.3:
                    found = await log.extend_async([value] * 3)
                    told.update(dict.fromkeys(found, value))
                else:
                    told[await log.append_async(value)] = value
            except asyncio.CancelledError as e:
                if (appended := getattr(e, "appended", None)) is not None:
                    told.update(dict.fromkeys([appended] if isinstance(appended, int) else appended, value))

        tasks = []
        for number in range(300):
            tasks.append(asyncio.create_task(one(number)))
            if chance.random() < 0.2:
                await asyncio.sleep(chance.choice([0, 0.0005]))
            if chance.random() < 0.5:
                chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return told

    with kstore.open(tmp_path / "t-0", "a", durability=DURABILITY[seed % 2]) as log:
        told = asyncio.run(main(log))
        assert {record.offset: record.value for record in log} == told


# ---- ends -----------------------------------------------------------------------------------------------------------


def test_the_loop_is_closed(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        with busy(log):
            loop = asyncio.new_event_loop()
            call = log.append_async(b"v")
            task = loop.create_task(call)
            loop.call_later(0.05, loop.stop)
            loop.run_forever()
            loop.close()
        log._async.close()  # type: ignore[union-attr]
        assert values(log) == [b"v"]
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="closed"):
            call.throw(RuntimeError("closed"))
        del task, call


@pytest.mark.parametrize("durability", DURABILITY)
def test_closed_meanwhile(tmp_path: Path, durability: Any) -> None:
    async def main() -> int:
        log = kstore.open(tmp_path / "t-0", "a", durability=durability)
        tasks = [asyncio.create_task(log.append_async(b"v")) for _ in range(100)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(log.close))
        tasks += [asyncio.create_task(log.append_async(b"v")) for _ in range(100)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await closing
        good = [each for each in found if isinstance(each, int)]
        assert good[:100] == list(range(100))
        assert all(isinstance(each, int | LogClosedError) for each in found)
        with pytest.raises(LogClosedError):
            await log.append_async(b"v")
        with pytest.raises(LogClosedError):
            await log.extend_async([b"v"])
        return len(good)

    count = asyncio.run(main())
    assert kstore.open(tmp_path / "t-0").log_end_offset == count


def test_closed_by_what_it_appends(tmp_path: Path) -> None:
    """Python code that runs in the log's own thread."""
    log = kstore.open(tmp_path / "t-0", "a")

    class Headers(dict[str, bytes]):
        def items(self) -> Any:
            log.close()
            return super().items()

    async def main() -> None:
        with pytest.raises(kstore.ReentrantCallError):
            await log.append_async(b"v", headers=Headers(a=b"v"))
        assert await log.append_async(b"v") == 0

    with log:
        asyncio.run(main())


def test_abandoned(tmp_path: Path) -> None:
    async def main() -> None:
        log = kstore.open(tmp_path / "t-0", "a")
        assert await log.append_async(b"v") == 0
        log.abandon()
        with pytest.raises(LogClosedError):
            await log.append_async(b"v")

    asyncio.run(main())


def test_several_loops(tmp_path: Path) -> None:
    found: list[list[int]] = []

    async def main(log: LogWriter) -> None:
        found.append(await asyncio.gather(*(log.append_async(b"v") for _ in range(200))))

    with kstore.open(tmp_path / "t-0", "a", durability="group") as log:
        threads = [threading.Thread(target=lambda: asyncio.run(main(log))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(each == sorted(each) for each in found)
    assert sorted(offset for each in found for offset in each) == list(range(800))


def test_a_sync_fails(tmp_path: Path) -> None:
    async def main(log: LogWriter) -> None:
        await log.append_async(b"v")
        with failing(2), pytest.raises(OSError, match="Input/output error"):
            await log.append_async(b"v")
        with pytest.raises(LogFailedError):
            await log.append_async(b"v")

    log = kstore.open(tmp_path / "t-0", "a", durability="group")
    asyncio.run(main(log))
    log.abandon()


def test_no_more_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    async def main(log: LogWriter) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("kstore.log.write.async_appender._thread.start_new_thread", start)
            with pytest.raises(RuntimeError):
                await log.append_async(b"v")
        assert await log.append_async(b"v") == 0

    with kstore.open(tmp_path / "t-0", "a") as log:
        asyncio.run(main(log))


def test_a_child_of_fork_refuses(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        asyncio.run(log.append_async(b"v"))
        child = os.fork()
        if not child:
            try:
                asyncio.run(log.append_async(b"v"))
            except LogFailedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert asyncio.run(log.append_async(b"v")) == 1


# ---- stores ---------------------------------------------------------------------------------------------------------


def test_a_store(tmp_path: Path) -> None:
    async def main(store: LogStore) -> None:
        keys = [b"%d" % i for i in range(60)]
        placed = await asyncio.gather(*(store.append_async("t", b"v" + key, key) for key in keys))
        for key, (partition, offset) in zip(keys, placed, strict=True):
            assert store.log("t", partition).get(offset).value == b"v" + key
        found = await store.extend_async("t", [b"v"] * 60, keys)
        assert found == {
            n: range(len(o), 2 * len(o)) for n in range(8) if (o := [p for p in placed if p[0] == n])
        }
        with pytest.raises(kstore.LogNotFoundError):
            await store.append_async("none", b"v")
        with pytest.raises(ValueError, match="keys"):
            await store.extend_async("t", [b"v"], [b"k", b"l"])

    with LogStore(tmp_path, mode="a", durability="group", max_open_partitions=3) as store:
        store.create_topic("t", 8)
        asyncio.run(main(store))
    with pytest.raises(LogClosedError):
        asyncio.run(store.append_async("t", b"v"))


def test_a_store_says_what_became_of_what_was_cancelled(tmp_path: Path) -> None:
    async def main(store: LogStore, log: LogWriter) -> None:
        works = (lambda: store.append_async("t", b"first")), (lambda: store.extend_async("t", [b"many"] * 2))
        for work in works:
            with busy(log):
                begins = asyncio.create_task(work())
                await begun(store)
                one = asyncio.create_task(store.append_async("t", b"not begun"))
                many = asyncio.create_task(store.extend_async("t", [b"not begun"] * 2))
                await asyncio.sleep(0.01)
                for task in (begins, one, many):
                    task.cancel()
                assert await end_of(one) is None
                assert await end_of(many) is None
                await asyncio.sleep(0.01)
                assert not begins.done()
            assert await end_of(begins) == (
                (0, 0) if store.log("t").log_end_offset == 1 else {0: range(1, 3)}
            )
        assert values(log) == [b"first", b"many", b"many"]

    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        log = store.log("t")
        assert isinstance(log, LogWriter)
        asyncio.run(main(store, log))


@pytest.mark.parametrize("durability", DURABILITY)
def test_a_store_keeps_the_order_of_the_calls(tmp_path: Path, durability: Any) -> None:
    """Whether a log is open, was closed for others or is opened now, and of both calls."""

    async def main(store: LogStore, topic: str) -> None:
        calls = [
            store.extend_async(topic, [b"%d" % i], [b"k"])
            if i % 3 == 0
            else store.append_async(topic, b"%d" % i, b"k")
            for i in range(20)
        ]
        await asyncio.gather(*calls)

    topics = [f"t{i}" for i in range(12)]
    with LogStore(tmp_path, mode="a", durability=durability, max_open_partitions=4) as store:
        for topic in topics:
            store.create_topic(topic)
        for topic in topics * 2:
            asyncio.run(main(store, topic))
        for topic in topics:
            assert [r.value for r in store.open(topic)] == [b"%d" % i for i in range(20)] * 2


@pytest.mark.parametrize("durability", DURABILITY)
def test_closing_a_store_appends_what_was_called_before(tmp_path: Path, durability: Any) -> None:
    async def main(store: LogStore, turns: int) -> None:
        keys = [b"%d" % i for i in range(30)]
        tasks = [
            asyncio.create_task(store.extend_async("t", keys, keys)),
            *(asyncio.create_task(store.append_async("t", key, key)) for key in keys),
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        store.close()
        for task in tasks if turns else ():
            await task
        if not turns:  # no call was made yet
            assert all(
                isinstance(e, LogClosedError) for e in await asyncio.gather(*tasks, return_exceptions=True)
            )

    for turns in range(8):
        with LogStore(tmp_path / str(turns), mode="a", durability=durability) as store:
            store.create_topic("t", 3)
            asyncio.run(main(store, turns))
        with LogStore(tmp_path / str(turns)) as store:
            assert sum(log.log_end_offset for log in (store.open("t", p) for p in range(3))) == 60 * bool(
                turns
            )


def test_one_partition_of_a_store_fails(tmp_path: Path) -> None:
    """The other's tasks are told that their records are durable, as they are."""

    found: list[Any] = []

    async def main(store: LogStore) -> None:
        calls = [store.append_async("t", b"v", b"%d" % i) for i in range(20)]
        found[:] = await asyncio.gather(*calls, return_exceptions=True)

    def filled(name: str) -> LogStore:
        store = LogStore(tmp_path / name, mode="a", durability="group", background=False)
        store.create_topic("t", 2)
        store.extend("t", [b"v"] * 20, [b"%d" % i for i in range(20)])
        return store

    with filled("healthy") as store:
        last = count_calls(lambda: asyncio.run(main(store)))  # a sync
    partitions = [partition for partition, _ in found]
    for nth in range(last, 0, -1):  # a sync serves more of them, or fewer, each time
        store = filled(f"failing {nth}")
        with failing(nth):
            asyncio.run(main(store))
        if OSError in map(type, found):
            break
        store.close()
    assert (
        {tuple, OSError} <= {type(each) for each in found} <= {tuple, OSError, LogFailedError}
    )  # it, for later ones
    failed = {
        partition for partition, each in zip(partitions, found, strict=True) if not isinstance(each, tuple)
    }
    assert len(failed) == 1
    store.abandon()


@pytest.mark.parametrize("what", ["_Turn", "_tell"])
def test_no_memory_in_the_thread_that_appends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It tries again, as long as tasks wait: none waits for ever."""
    real = getattr(async_appender, what)
    left = [3]

    def without_memory(*args: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise MemoryError
        return real(*args)

    monkeypatch.setattr(async_appender, what, without_memory)
    with kstore.open(tmp_path / "t-0", "a") as log:

        async def append() -> list[Any]:
            calls = [log.append_async(b"%d" % i) for i in range(5)]
            return await asyncio.wait_for(asyncio.gather(*calls), 20)

        assert sorted(asyncio.run(append())) == list(range(5))
        assert left == [0]
