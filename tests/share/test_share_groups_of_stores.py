"""Share groups over the topics of a store, and in event loops."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import AcknowledgeType, TopicPartition
from tests.helpers.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> Any:
    """A store with two topics, one with three partitions."""
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as made:
        made.create_topic("urgent")
        made.create_topic("jobs", partitions=3)
        yield made


def offsets(group: kstore.ShareGroup) -> list[tuple[str, int, int]]:
    found = []
    for job in group:
        found.append((job.topic, job.partition, job.offset))
        group.acknowledge(job)
    return found


def test_topics_are_priorities(store: kstore.LogStore) -> None:
    """A topic is read while those before it in the list have nothing."""
    store.extend("jobs", [b"v"] * 30, keys=[b"%d" % i for i in range(30)])
    with store.share_group("g", ["urgent", "jobs"]) as group:
        jobs = iter(group)
        first = next(jobs)
        assert first.topic == "jobs"
        store.append("urgent", b"now")
        until(lambda: next(jobs).topic == "urgent")
        group.release(first)
    with store.share_group("g", ["urgent", "jobs"]) as group:
        found = offsets(group)
        assert found[0] == ("urgent", 0, 0)
        assert len(found) == 31
    assert {tp: state.in_flight for tp, state in store.share_groups()["g"].items()} == dict.fromkeys(
        store.partitions, 0
    )


def test_partitions_take_turns(store: kstore.LogStore) -> None:
    for partition in range(3):
        log = store.log("jobs", partition)
        assert isinstance(log, kstore.LogWriter)
        log.extend([b"v"] * 10)
    with store.share_group("g", ["jobs"]) as group:
        jobs = iter(group)
        assert {next(jobs).partition for _ in range(3)} == {0, 1, 2}
        assert group.partitions == [TopicPartition("jobs", at) for at in range(3)]


def test_dead_letter_topic(store: kstore.LogStore) -> None:
    """A dead letter goes to the partition of its number, modulo the number of partitions, as in Kafka."""
    store.create_topic("dead", partitions=2)
    for partition in range(3):
        log = store.log("jobs", partition)
        assert isinstance(log, kstore.LogWriter)
        log.append(b"%d" % partition)
    with store.share_group("g", ["jobs"], dead_letter_topic="dead") as group:
        for job in group:
            group.acknowledge(job, AcknowledgeType.REJECT)
    letters = {(each.partition, each.record.value) for each in store.cursor("read", ["dead"])}
    assert letters == {(0, b"0"), (1, b"1"), (0, b"2")}


def test_dead_letter_topics_that_cannot_be(store: kstore.LogStore, tmp_path: Path) -> None:
    with pytest.raises(kstore.LogNotFoundError):
        store.share_group("g", ["jobs"], dead_letter_topic="none")
    with pytest.raises(ValueError, match="dead_letter_topic"):
        store.share_group("g", ["jobs"], dead_letter_topic="jobs")
    with pytest.raises(kstore.LogClosedError, match="shared=True"):
        kstore.LogStore(tmp_path / "data").share_group("g", ["jobs"], dead_letter_topic="urgent")
    with pytest.raises(kstore.LogNotFoundError):
        store.share_group("g", ["jobs", "none"])
    with pytest.raises(TypeError, match="topics"):
        store.share_group("g", "jobs")
    assert store.share_groups() == {}


def test_topics_that_come_and_go(store: kstore.LogStore, tmp_path: Path) -> None:
    """A store that reads finds new topics and partitions, and leaves deleted ones."""
    reading = kstore.LogStore(tmp_path / "data")
    with reading.share_group("g", ["jobs", "later"], start="latest", follow=True, timeout=20) as group:
        jobs = iter(group)
        store.create_topic("later")
        store.append("later", b"first")
        job = next(jobs)
        assert (job.topic, job.offset) == ("later", 0)
        store.add_partitions("jobs", 4)
        log = store.log("jobs", 3)
        assert isinstance(log, kstore.LogWriter)
        log.append(b"v")
        assert (next(jobs).partition, len(group.partitions)) == (3, 5)
        store.delete_topic("later")
        until(lambda: not _are_read(group, "later"))
        with pytest.raises(kstore.LogNotFoundError):
            group.acknowledge(job)
        store.create_topic("later")
        store.append("later", b"second")
        assert next(jobs).value == b"second"


def _are_read(group: kstore.ShareGroup, topic: str) -> bool:
    """Whether a group reads a topic, once it has looked."""
    with group.next(timeout=0) as job:
        assert job is None or job.topic != topic
    return any(tp.topic == topic for tp in group.partitions)


def test_start_of_log(store: kstore.LogStore) -> None:
    """Records that were deleted in the middle of a segment are not delivered for long."""
    log = store.log("urgent")
    assert isinstance(log, kstore.LogWriter)
    log.extend([b"v"] * 100)
    with store.share_group("g", ["urgent"], follow=True) as group:
        jobs = iter(group)
        assert next(jobs).offset == 0
        log.delete_records(90)
        time.sleep(0.5)
        assert next(jobs).offset == 90


# ---- event loops -------------------------------------------------------------------------------------------


def test_tasks_share_a_group(store: kstore.LogStore) -> None:
    """Tasks of one loop share a group, and wait without blocking it."""

    async def main() -> list[int]:
        found: list[int] = []
        with store.share_group("g", ["urgent"], follow=True, timeout=30, durable=False) as group:

            async def work() -> None:
                async for job in group:
                    await asyncio.sleep(0)
                    await group.acknowledge_async(job)
                    found.append(job.offset)
                    if len(found) == 40:
                        group.close()

            tasks = [asyncio.create_task(work()) for _ in range(4)]
            for _ in range(8):
                await asyncio.sleep(0.01)
                store.extend("urgent", [b"v"] * 5)
            await asyncio.gather(*tasks)
        return found

    assert sorted(asyncio.run(main())) == list(range(40))


async def _next_of(group: kstore.ShareGroup) -> None:
    async with group.next():
        pass


def test_next_in_a_task(store: kstore.LogStore) -> None:
    async def main() -> None:
        store.extend("urgent", [b"a", b"b"])
        async with store.share_group("g", ["urgent"]) as group:
            async with group.next() as job:
                assert job.value == b"a"
            with pytest.raises(ZeroDivisionError):
                async with group.next() as job:
                    _ = 1 // 0
            async with group.next() as job:
                assert (job.value, job.delivery_count) == (b"b", 2)
            async with group.next(timeout=0.01) as job:
                assert job is None
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_next_of(group), 0.05)
            store.append("urgent", b"c")
            assert [job.value async for job in group] == [b"c"]

    asyncio.run(main())
    assert store.share_groups()["g"][TopicPartition("urgent", 0)].start_offset == 2
