"""Following a log that a thread of this process, or another process, writes."""

import asyncio
import functools
import gc
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kstore
from tests.following.appending import OPTIONS, obey, value_of
from tests.helpers.calls import count_calls
from tests.helpers.processes import Program
from tests.helpers.reader_kinds import KINDS
from tests.helpers.waiting import descriptors, threads_doing, until_closed, until_waiting

Tell = Callable[[str], object]
APPENDING = Path(__file__).with_name("appending.py").read_text()


@pytest.fixture(params=["process", "thread"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[kstore.PartitionLog, Tell]]:
    """A log to follow, and how to have it written: by another process, or by this one."""
    directory = tmp_path / "t-0"
    if request.param == "thread":
        with kstore.open(directory, "a", **OPTIONS) as log:
            yield log, lambda line: obey(log, line)
    else:
        with Program(APPENDING, directory) as other:
            yield kstore.open(directory), other.tell


def take(follower: "kstore.Follower[kstore.RecordBatch]", count: int) -> list[int]:
    return [next(follower).base_offset for _ in range(count)]


def later(seconds: float, work: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        time.sleep(seconds)
        work()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_what_is_there_and_what_comes(both: tuple[kstore.PartitionLog, Tell]) -> None:
    log, tell = both
    tell("append 50")
    with log.follow(0, timeout=20, records=False) as follower:
        offsets = []
        for batch in follower:
            (record,) = batch.records()
            assert record.value == value_of(record.offset)
            offsets.append(record.offset)
            if record.offset == 49:
                thread = later(0.1, lambda: tell("append 300"))  # rolls, too
            if record.offset == 349:
                break
        thread.join()
    assert offsets == list(range(350))


def test_where_it_goes_on(tmp_path: Path) -> None:
    """Its offset is that of the next record, also within a batch: following from there misses none."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        for _ in range(3):
            log.extend([b"."] * 4)
        follower = log.follow(0, timeout=0)
        assert [(record.offset, follower.offset) for record in follower] == [(at, at + 1) for at in range(12)]


def test_it_ends_when_nothing_comes(both: tuple[kstore.PartitionLog, Tell]) -> None:
    log, tell = both
    tell("append 3")
    assert [batch.base_offset for batch in log.follow(0, timeout=0.2, records=False)] == [0, 1, 2]
    follower = log.follow(3, timeout=0, records=False)
    assert list(follower) == []
    tell("append 1")
    assert [batch.base_offset for batch in follower] == [3]  # and it may be asked again
    assert follower.offset == 4


def test_from_the_end_on(both: tuple[kstore.PartitionLog, Tell]) -> None:
    log, tell = both
    follower = log.follow(timeout=20, records=False)
    thread = later(0.05, lambda: tell("append 1"))
    assert next(follower).base_offset == 0
    thread.join()


def test_rolls_and_retention_behind_it(both: tuple[kstore.PartitionLog, Tell]) -> None:
    log, tell = both
    follower = log.follow(0, timeout=20, records=False)
    expected = 0
    for _ in range(8):
        tell("append 137")
        tell("roll")
        seen = [next(follower).base_offset for _ in range(137)]
        assert seen == list(range(expected, expected + 137))
        expected += 137
        tell("retain")  # what was read is deleted, files and all
    assert len(list(Path(log.path).glob("*.log"))) < 4
    tell("append 1")
    assert next(follower).base_offset == expected


def test_outside_the_log(both: tuple[kstore.PartitionLog, Tell]) -> None:
    log, tell = both
    tell("append 3")
    for offset in (4, -1):
        with pytest.raises(kstore.OffsetOutOfRangeError):
            next(log.follow(offset, records=False))
    with pytest.raises(ValueError, match="isolation"):
        log.follow(0, isolation="nonsense", records=False)


def test_the_end_of_the_writer_ends_it(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a", **OPTIONS)
    follower = log.follow(0, records=False)

    def write() -> None:
        obey(log, "append 500")
        log.close()

    thread = later(0.05, write)
    assert [batch.base_offset for batch in follower] == list(range(500))
    thread.join()


@pytest.mark.parametrize("kind", KINDS)
def test_a_leader_epoch_that_begins_before_its_first_record(tmp_path: Path, kind: str) -> None:
    """Nothing was truncated, so no reader gets an error."""
    with kstore.open(tmp_path / "t-0", "a", leader_epoch=3) as log:
        log.append(b"v")
        with KINDS[kind](tmp_path / "t-0", "g") as reader:
            assert reader.take() == [0]
            log.assign_leader_epoch(4)
            assert reader.take() == []
            log.append(b"v")
            assert reader.take() == [1]
            log.roll()
            log.append(b"v")
            assert reader.take() == [2]


def test_a_reader_outlives_the_closing_of_its_log(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a", **OPTIONS) as writer:
        obey(writer, "append 5")
        with kstore.open(tmp_path / "t-0") as log:
            follower = log.follow(0, timeout=0.5, records=False)
        assert next(follower).base_offset == 0
        obey(writer, "append 5")
        assert [b.base_offset for b in follower] == list(range(1, 10))


def test_several_followers_of_threads(tmp_path: Path) -> None:
    log = kstore.open(tmp_path / "t-0", "a", **OPTIONS)
    seen: list[list[int]] = [[] for _ in range(4)]

    def follow(which: int) -> None:
        seen[which] = [r.offset for r in log.follow(0)]

    with threads_doing(*(functools.partial(follow, n) for n in range(4))):
        for _ in range(20):
            log.extend([value_of(n) for n in range(100)])
            time.sleep(0.002)
        log.close()
    assert seen == [list(range(2000))] * 4


def test_asyncio(both: tuple[kstore.PartitionLog, Tell]) -> None:
    log, tell = both
    tell("append 10")

    async def follow() -> list[int]:
        offsets = []
        async for batch in log.follow(0, timeout=60, records=False):
            offsets.append(batch.base_offset)
            if len(offsets) == 215:
                break
        return offsets

    async def main() -> tuple[list[int], list[int]]:
        task, other = asyncio.create_task(follow()), asyncio.create_task(follow())
        await asyncio.sleep(0.05)
        await asyncio.to_thread(tell, "append 200")
        await asyncio.sleep(0.05)
        await asyncio.to_thread(tell, "append 5")
        return await task, await other

    assert asyncio.run(main()) == (list(range(215)), list(range(215)))


def test_asyncio_cancellation_and_closing(both: tuple[kstore.PartitionLog, Tell]) -> None:
    log, tell = both

    found: list[int] = []

    async def follow(follower: "kstore.Follower[kstore.RecordBatch]") -> None:
        async for batch in follower:
            found.append(batch.base_offset)  # noqa: PERF401 - others look meanwhile

    async def main() -> None:
        cancelled = asyncio.create_task(follow(log.follow(records=False)))
        closed = log.follow(records=False)
        ended = asyncio.create_task(follow(closed))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await asyncio.to_thread(tell, "append 2")
        while len(found) < 2:
            await asyncio.sleep(0.002)
        closed.close()
        await ended

    asyncio.run(main())
    assert found == [0, 1]


def test_committed_records_without_transactions_need_no_new_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"0")
        follower = kstore.open(log.path).follow(0, timeout=5, isolation="read_committed")
        assert next(follower).offset == 0
        refreshed: list[object] = []
        refresh = kstore.PartitionLog.refresh

        def counted(self: kstore.PartitionLog) -> object:
            refreshed.append(self)
            return refresh(self)

        monkeypatch.setattr(kstore.PartitionLog, "refresh", counted)
        for offset in range(1, 50):
            log.append(b"more")
            assert next(follower).offset == offset
        assert len(refreshed) <= 2
        follower.close()


@pytest.mark.parametrize("told", [True, False], ids=["inotify", "without"])
def test_a_partition_that_is_made_anew(tmp_path: Path, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offsets are others: to go on at the old one would pass over what comes first."""

    def none_left() -> None:
        raise OSError(24, "Too many open files")

    if not told:
        monkeypatch.setattr("kstore.log.follow.sources.Inotify", none_left)
    with kstore.LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        store.extend("t", [b"old"] * 10)
        with kstore.open(tmp_path / "t-0").follow(0, timeout=5) as follower:
            assert [next(follower).offset for _ in range(10)] == list(range(10))
            store.delete_topic("t")
            store.create_topic("t")
            store.extend("t", [b"new"] * 15)
            with pytest.raises(kstore.LogNotFoundError, match="deleted, or made anew"):
                next(follower)


def test_a_directory_that_goes(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as writer:
        obey(writer, "append 3")
    follower = kstore.open(tmp_path / "t-0").follow(3, timeout=20, records=False)
    assert follower.take() is None
    thread = later(0.05, lambda: shutil.rmtree(tmp_path / "t-0"))
    with pytest.raises((kstore.LogNotFoundError, kstore.OffsetOutOfRangeError)):
        next(follower)
    thread.join()
    with pytest.raises(kstore.LogNotFoundError):
        kstore.open(tmp_path / "t-0")


@pytest.mark.parametrize("records", [True, False])
def test_take_sees_what_comes_after_it_gave_none(
    both: tuple[kstore.PartitionLog, Tell], records: bool
) -> None:
    log, tell = both
    tell("append 1")
    with log.follow(0, records=records) as follower:
        for offset in range(3):
            item = follower.take()
            assert item is not None
            assert (item.offset if isinstance(item, kstore.Record) else item.base_offset) == offset
            assert follower.take() is None
            tell("append 1")


def test_it_sleeps_while_nothing_comes(both: tuple[kstore.PartitionLog, Tell]) -> None:
    """A loop without sleep would make some million calls meanwhile."""
    log, tell = both
    tell("append 1")
    follow = functools.partial(log.follow, 0, timeout=0.5, records=False)
    assert count_calls(lambda: list(follow())) < 10_000


def test_an_append_wakes_the_follower(
    both: tuple[kstore.PartitionLog, Tell], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait until an interval is over, which is longer here than a test may take."""
    monkeypatch.setattr("kstore.log.follow.follower._HEARTBEAT", 1000.0)
    log, tell = both
    follower, me = log.follow(0), threading.get_ident()

    def append() -> None:
        until_waiting(me)
        tell("append 1")

    for offset in range(30):
        with threads_doing(append):
            assert next(follower).offset == offset


@pytest.mark.parametrize("end", ["timeout", "close"])
def test_a_follower_that_is_gone_leaves_no_descriptor(tmp_path: Path, end: str) -> None:
    """It waited for the next append, which never came."""
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.append(b"v")
        before = descriptors()
        for _ in range(50):
            follower = log.follow(1, timeout=0.001)
            assert list(follower) == []
            if end == "close":
                follower.close()
            del follower
        gc.collect()
        until_closed(before + 1)
        waiting = log.follow(1, timeout=10)
        threading.Timer(0.05, log.append, [b"w"]).start()
        assert next(waiting).value == b"w"
