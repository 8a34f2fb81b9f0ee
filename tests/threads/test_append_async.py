"""Appending from asyncio: each task learns its record's fate, and the event loop never waits."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import LogClosedError, LogFailedError, LogStore, LogWriter
from kstore.testing import count_calls, failing
from tests.helpers.effort import SEED, times
from tests.helpers.waiting import threads_doing, until

NOW = 1_700_000_000_000
both = pytest.mark.parametrize("durability", ["none", "group"])


class Gate:
    """A clock. While it is shut, the thread that asks it stays inside the log, as if the disk were slow."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self._open = threading.Event()
        self._open.set()

    def __call__(self) -> int:
        if not self._open.is_set():
            self.inside.set()
            self._open.wait(60)
        return NOW

    @contextmanager
    def shut(self) -> Iterator[None]:
        self.inside.clear()
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    async def entered(self) -> None:
        """Waits until a thread is inside."""
        while not self.inside.is_set():
            await asyncio.sleep(0.001)


@pytest.fixture
def gate() -> Gate:
    return Gate()


def opened(path: Path, clock: Any = None, **options: Any) -> LogWriter:
    return kstore.open(path / "t-0", "a", clock=clock, **options)


def store_of(path: Path, partitions: int, **options: Any) -> LogStore:
    store = LogStore(path, mode="a", background=False, **options)
    store.create_topic("t", partitions)
    return store


def values(log: kstore.PartitionLog) -> list[bytes | None]:
    return [record.value for record in log]


async def end_of(task: "asyncio.Task[Any]") -> Any:
    """What a cancelled task says was appended."""
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return caught.value.appended  # type: ignore[attr-defined]


@both
def test_offsets_are_those_of_the_calls_in_order(tmp_path: Path, durability: Any) -> None:
    async def main(log: LogWriter) -> None:
        tasks = [asyncio.create_task(log.append_async(b"%d" % i, key=b"k")) for i in range(500)]
        tasks.append(asyncio.create_task(log.extend_async([b"500", b"501"], batch_bytes=100)))
        found = await asyncio.gather(*tasks)
        assert found == [*range(500), range(500, 502)]
        assert log.durable_offset == (502 if durability == "group" else 0)
        assert await log.append_async(b"502", timestamp=5, headers={"h": b"v"}) == 502

    with opened(tmp_path, durability=durability, message_timestamp_before_max_ms=2**62) as log:
        asyncio.run(main(log))
        assert values(log) == [b"%d" % i for i in range(503)]
        assert log.get(502).headers == (("h", b"v"),)
        assert log.append(b"503") == 503


# ---- cancelled ---------------------------------------------------------------------------------------------


@both
def test_cancelled(tmp_path: Path, gate: Gate, durability: Any) -> None:
    async def main(log: LogWriter) -> None:
        with gate.shut():
            first = asyncio.create_task(log.append_async(b"first"))
            await gate.entered()
            second = asyncio.create_task(log.append_async(b"second"))
            wrong = asyncio.create_task(log.append_async("text"))
            await asyncio.sleep(0)
            assert second.cancel()
            assert await end_of(second) is None
            for _ in range(3):  # it has begun: what becomes of it is not known yet
                first.cancel()
                await asyncio.sleep(0.002)
                assert not first.done()
        assert await end_of(first) == 0
        with pytest.raises(TypeError):
            await wrong
        with gate.shut():
            refused = asyncio.create_task(log.append_async(b"late", timestamp=2**62))
            await gate.entered()
            refused.cancel()
        assert await end_of(refused) is None

    with opened(tmp_path, gate, durability=durability) as log:
        asyncio.run(main(log))
        assert values(log) == [b"first"]


def test_a_timeout(tmp_path: Path, gate: Gate) -> None:
    async def main(log: LogWriter) -> None:
        with gate.shut():
            task = asyncio.create_task(asyncio.wait_for(log.append_async(b"first"), 60))
            await gate.entered()
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.01):
                    await log.append_async(b"second")
            assert caught.value.__cause__.appended is None  # type: ignore[union-attr]
        assert await task == 0

    with opened(tmp_path, gate) as log:
        asyncio.run(main(log))
        assert values(log) == [b"first"]


def test_cancelled_at_random(tmp_path: Path) -> None:
    """What tasks learn is what the log holds."""

    async def main(log: LogWriter, chance: random.Random) -> dict[int, bytes]:
        learned: dict[int, bytes] = {}

        async def one(number: int) -> None:
            value = b"%d" % number
            try:
                if chance.random() < 0.3:
                    learned.update(dict.fromkeys(await log.extend_async([value] * 3), value))
                else:
                    learned[await log.append_async(value)] = value
            except asyncio.CancelledError as e:
                if (appended := getattr(e, "appended", None)) is not None:
                    offsets = [appended] if isinstance(appended, int) else appended
                    learned.update(dict.fromkeys(offsets, value))

        tasks = []
        for number in range(300):
            tasks.append(asyncio.create_task(one(number)))
            if chance.random() < 0.2:
                await asyncio.sleep(chance.choice([0, 0.0005]))
            if chance.random() < 0.5:
                chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return learned

    for turn in range(times(4)):
        with opened(tmp_path / str(turn), durability=("none", "group")[turn % 2]) as log:
            learned = asyncio.run(main(log, random.Random(f"{SEED} {turn}")))
            assert {record.offset: record.value for record in log} == learned, f"SEED={SEED}, turn {turn}"


# ---- ends --------------------------------------------------------------------------------------------------


def test_the_loop_is_closed(tmp_path: Path, gate: Gate) -> None:
    with opened(tmp_path, gate) as log:
        with gate.shut():
            loop = asyncio.new_event_loop()
            call = log.append_async(b"v")
            task = loop.create_task(call)
            loop.run_until_complete(gate.entered())
            loop.close()
        until(lambda: values(log) == [b"v"])
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="closed"):
            call.throw(RuntimeError("closed"))
        del task, call


@both
def test_closed_meanwhile(tmp_path: Path, durability: Any) -> None:
    async def main() -> int:
        log = opened(tmp_path, durability=durability)
        tasks = [asyncio.create_task(log.append_async(b"v")) for _ in range(100)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(log.close))
        tasks += [asyncio.create_task(log.append_async(b"v")) for _ in range(100)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await closing
        good = [each for each in found if isinstance(each, int)]
        assert good[:100] == list(range(100))
        assert all(isinstance(each, int | LogClosedError) for each in found)
        for refused in (log.append_async(b"v"), log.extend_async([b"v"])):
            with pytest.raises(LogClosedError):
                await refused
        return len(good)

    count = asyncio.run(main())
    assert kstore.open(tmp_path / "t-0").log_end_offset == count


def test_closed_by_what_it_appends(tmp_path: Path) -> None:
    """Python code that runs in the log's own thread."""

    class Headers(dict[str, bytes]):
        def items(self) -> Any:
            log.close()
            return super().items()

    async def main() -> None:
        with pytest.raises(kstore.ReentrantCallError):
            await log.append_async(b"v", headers=Headers(a=b"v"))
        assert await log.append_async(b"v") == 0

    with opened(tmp_path) as log:
        asyncio.run(main())


def test_abandoned(tmp_path: Path) -> None:
    async def main() -> None:
        log = opened(tmp_path)
        assert await log.append_async(b"v") == 0
        log.abandon()
        with pytest.raises(LogClosedError):
            await log.append_async(b"v")

    asyncio.run(main())


def test_several_loops(tmp_path: Path) -> None:
    found: list[list[int]] = []

    async def main(log: LogWriter) -> None:
        found.append(await asyncio.gather(*(log.append_async(b"v") for _ in range(200))))

    with opened(tmp_path, durability="group") as log, threads_doing(*[lambda: asyncio.run(main(log))] * 4):
        pass
    assert all(each == sorted(each) for each in found)
    assert sorted(offset for each in found for offset in each) == list(range(800))


def test_a_sync_fails(tmp_path: Path) -> None:
    async def main(log: LogWriter) -> None:
        await log.append_async(b"v")
        with failing(2), pytest.raises(OSError, match="Input/output error"):
            await log.append_async(b"v")
        with pytest.raises(LogFailedError):
            await log.append_async(b"v")

    log = opened(tmp_path, durability="group")
    asyncio.run(main(log))
    log.abandon()


@pytest.mark.parametrize("of", ["a log", "a store"])
def test_a_call_from_within_is_refused(tmp_path: Path, of: str) -> None:
    """The thread that appends would wait for the call that waits for it."""
    calls: list[Any] = []
    refused = 0

    def clock() -> int:
        nonlocal refused
        while calls:
            with pytest.raises(kstore.ReentrantCallError):
                asyncio.run(asyncio.wait_for(calls.pop()(), 60))
            refused += 1
        return NOW

    with store_of(tmp_path, 1, clock=clock) as store:
        log: Any = store.log("t", 0)
        log.append(b"one")
        if of == "a log":
            calls += [lambda: log.append_async(b"two"), lambda: log.extend_async([b"two"])]
        else:
            calls += [lambda: store.append_async("t", b"two"), lambda: store.extend_async("t", [b"two"])]
        log.append(b"three")
        assert refused == 2
        assert values(log) == [b"one", b"three"]


# ---- stores ------------------------------------------------------------------------------------------------


def test_a_store(tmp_path: Path) -> None:
    async def main(store: LogStore) -> None:
        keys = [b"%d" % i for i in range(60)]
        placed = await asyncio.gather(*(store.append_async("t", b"v" + key, key) for key in keys))
        for key, (partition, offset) in zip(keys, placed, strict=True):
            assert store.log("t", partition).get(offset).value == b"v" + key
        counts = {n: sum(partition == n for partition, _ in placed) for n in range(8)}
        found = await store.extend_async("t", [b"v"] * 60, keys)
        assert found == {n: range(count, 2 * count) for n, count in counts.items() if count}
        with pytest.raises(kstore.LogNotFoundError):
            await store.append_async("none", b"v")
        with pytest.raises(ValueError, match="keys"):
            await store.extend_async("t", [b"v"], [b"k", b"l"])

    with store_of(tmp_path, 8, durability="group", max_open_partitions=3) as store:
        asyncio.run(main(store))
    with pytest.raises(LogClosedError):
        asyncio.run(store.append_async("t", b"v"))


def test_many_tasks_share_a_sync(tmp_path: Path) -> None:
    async def main(store: LogStore) -> None:
        await asyncio.gather(*(store.append_async("t", b"v") for _ in range(1000)))

    with store_of(tmp_path, 1, durability="group") as store:
        store.append("t", b"first")
        asyncio.run(main(store))
        found = store.metrics()
        assert found.topics["t"].records_in == 1001
        assert found.flush_seconds.calls < 500


def test_a_store_says_what_became_of_what_was_cancelled(tmp_path: Path, gate: Gate) -> None:
    async def main(store: LogStore) -> None:
        works = [
            (lambda: store.append_async("t", b"first"), (0, 0)),
            (lambda: store.extend_async("t", [b"many"] * 2), {0: range(1, 3)}),
        ]
        for work, appended in works:
            with gate.shut():
                begun = asyncio.create_task(work())
                await gate.entered()
                waiting = [
                    asyncio.create_task(store.append_async("t", b"not begun")),
                    asyncio.create_task(store.extend_async("t", [b"not begun"] * 2)),
                ]
                await asyncio.sleep(0.01)
                for task in (begun, *waiting):
                    task.cancel()
                assert [await end_of(task) for task in waiting] == [None, None]
                await asyncio.sleep(0.01)
                assert not begun.done()
            assert await end_of(begun) == appended

    with store_of(tmp_path, 1, clock=gate) as store:
        store.log("t")
        asyncio.run(main(store))
        assert values(store.log("t")) == [b"first", b"many", b"many"]


@both
def test_a_store_keeps_the_order_of_the_calls(tmp_path: Path, durability: Any) -> None:
    """Of both calls, whether a log is open, was closed for others or is opened now."""

    async def main(store: LogStore, topic: str) -> None:
        calls = [
            store.extend_async(topic, [b"%d" % i], [b"k"])
            if i % 3 == 0
            else store.append_async(topic, b"%d" % i, b"k")
            for i in range(20)
        ]
        await asyncio.gather(*calls)

    topics = [f"t{i}" for i in range(8)]
    with store_of(tmp_path, 1, durability=durability, max_open_partitions=4) as store:
        for topic in topics:
            store.create_topic(topic)
        for topic in topics * 2:
            asyncio.run(main(store, topic))
        for topic in topics:
            assert values(store.open(topic)) == [b"%d" % i for i in range(20)] * 2


@both
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
        found = await asyncio.gather(*tasks, return_exceptions=True)
        if turns:
            assert not [each for each in found if isinstance(each, BaseException)]
        else:  # no call was made yet
            assert all(isinstance(each, LogClosedError) for each in found)

    for turns in range(5):
        with store_of(tmp_path / str(turns), 3, durability=durability) as store:
            asyncio.run(main(store, turns))
        reader = LogStore(tmp_path / str(turns))
        assert sum(reader.open("t", n).log_end_offset for n in range(3)) == 60 * bool(turns)


def test_one_partition_of_a_store_fails(tmp_path: Path) -> None:
    """The tasks of the other learn that their records are durable, as they are."""
    found: list[Any] = []

    async def main(store: LogStore) -> None:
        calls = [store.append_async("t", b"v", b"%d" % i) for i in range(20)]
        found[:] = await asyncio.gather(*calls, return_exceptions=True)

    def filled(name: str) -> LogStore:
        store = store_of(tmp_path / name, 2, durability="group")
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
    kinds = {type(each) for each in found}
    assert {tuple, OSError} <= kinds <= {tuple, OSError, LogFailedError}  # the last for later ones
    failed = {n for n, each in zip(partitions, found, strict=True) if not isinstance(each, tuple)}
    assert len(failed) == 1
    store.abandon()
