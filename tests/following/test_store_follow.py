"""Following many partitions: each record once, in order in its partition, whatever happens meanwhile."""

import asyncio
import json
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kstore
from kstore import (
    LogClosedError,
    LogStore,
    LogWriter,
    OffsetOutOfRangeError,
    Position,
    StoreCursor,
    StoreFollower,
    TopicPartition,
)
from kstore.log.files import checkpoints
from kstore.log.follow import sources
from kstore.log.follow.partition_watch import PartitionWatch
from kstore.store.read import topic_reader
from tests.helpers.processes import Program

SOON = 0.3  # s without a record, after which a follower of these tests ends


def writer(store: LogStore, topic: str = "t", partition: int = 0) -> LogWriter:
    log = store.log(topic, partition)
    assert isinstance(log, LogWriter)
    return log


def taken(follower: StoreFollower | StoreCursor) -> list[tuple[str, int, int, bytes | None]]:
    return sorted((r.topic, r.partition, r.offset, r.value) for r in follower)


@pytest.mark.parametrize("beside", [True, False], ids=["reader", "writer"])
def test_what_is_there_and_what_comes(tmp_path: Path, beside: bool) -> None:
    with LogStore(tmp_path, mode="a") as store:
        for topic in ("a", "b", "c"):
            store.create_topic(topic, 2)
            writer(store, topic, 1).append(b"old")
        reader = LogStore(tmp_path) if beside else store
        late, early = (reader.follow(["a", "b"], start, timeout=SOON) for start in ("latest", "earliest"))
        writer(store, "a", 0).extend([b"0", b"1"])
        writer(store, "b", 1).append(b"2")
        writer(store, "c", 1).append(b"not followed")
        new = [("a", 0, 0, b"0"), ("a", 0, 1, b"1"), ("b", 1, 1, b"2")]
        assert taken(late) == new
        assert taken(early) == sorted([*new, ("a", 1, 0, b"old"), ("b", 1, 0, b"old")])
        assert late.partitions == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
        offsets = {tp: position.offset for tp, position in late.positions().items()}
        assert offsets == {("a", 0): 2, ("a", 1): 1, ("b", 0): 0, ("b", 1): 2}
        writer(store, "a", 1).append(b"3")
        assert taken(late) == [("a", 1, 1, b"3")]
        again = reader.follow(["a", "b"], late.positions(), timeout=0)
        assert taken(again) == []
        assert taken(reader.follow(["a"], {("a", 0): 1}, timeout=0)) == [  # type: ignore[dict-item]
            ("a", 0, 1, b"1"),
            ("a", 1, 0, b"old"),
            ("a", 1, 1, b"3"),
        ]
        assert len(taken(reader.follow(["a"], datetime(2000, 1, 1, tzinfo=UTC), timeout=0))) == 4


def test_topics_and_partitions_that_are_made_later(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("a")
        every, named = (
            LogStore(tmp_path).follow(topics, timeout=2 * SOON + 0.5) for topics in (None, ["a", "b"])
        )
        store.add_partitions("a", 2)
        store.create_topic("b")
        store.create_topic("c")
        store.create_topic("__internal")
        for topic, partition in (("a", 1), ("b", 0), ("c", 0), ("__internal", 0)):
            writer(store, topic, partition).append(b"v")
        assert taken(every) == [("a", 1, 0, b"v"), ("b", 0, 0, b"v"), ("c", 0, 0, b"v")]
        assert taken(named) == [("a", 1, 0, b"v"), ("b", 0, 0, b"v")]


def test_deleted_and_made_anew(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        for topic in ("a", "b"):
            store.create_topic(topic, 2)
            writer(store, topic).extend([b"old"] * 3)
        follower = LogStore(tmp_path).follow(timeout=SOON + 0.5)
        store.delete_topic("a")
        writer(store, "b").append(b"new")
        assert taken(follower) == [("b", 0, 3, b"new")]
        assert follower.partitions == [("b", 0), ("b", 1)]
        store.create_topic("a")
        writer(store, "a").extend([b"x", b"y"])
        assert taken(follower) == [("a", 0, 0, b"x"), ("a", 0, 1, b"y")]
        store.delete_topic("a")  # and at once, before anybody looks
        store.create_topic("a")
        writer(store, "a").append(b"z")
        assert taken(follower) == [("a", 0, 0, b"z")]
    shutil.rmtree(tmp_path / "b-1")
    shutil.rmtree(tmp_path / "a-0")
    assert taken(follower) == []
    assert follower.partitions == [("b", 0)]


def test_positions_of_a_topic_that_was_made_anew(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t")
        writer(store).extend([b"old"] * 3)
        with LogStore(tmp_path).follow(["t"], "earliest", timeout=0) as follower:
            assert len(taken(follower)) == 3
            saved = json.dumps(list(follower.positions().items()))
        positions = {TopicPartition(*tp): Position(*at) for tp, at in json.loads(saved)}
        assert taken(LogStore(tmp_path).follow(["t"], positions, timeout=0)) == []
        store.delete_topic("t")
        store.create_topic("t")
        writer(store).extend([b"new"] * 5)
        everything = [("t", 0, offset, b"new") for offset in range(5)]
        assert taken(LogStore(tmp_path).follow(["t"], positions, timeout=0)) == everything
        with pytest.raises(TypeError, match="topic_id"):
            store.follow(["t"], {("t", 0): positions[TopicPartition("t", 0)]._replace(topic_id=5)})  # type: ignore[arg-type]


@pytest.mark.parametrize("reads", ["follow", "cursor"])
@pytest.mark.parametrize("count", [1, 9], ids=["shorter", "longer"])
def test_a_directory_that_gets_the_inode_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str, count: int
) -> None:
    """As ext4 gives it, and without inotify: only the id of the topic is another one. Records may come twice."""
    monkeypatch.setattr(sources, "_directory_at", lambda path: (1, 1))
    monkeypatch.setattr(topic_reader, "PartitionWatch", NoWatch)
    with LogStore(tmp_path, mode="a", file_delete_delay_ms=0) as store:
        store.create_topic("t")
        writer(store).extend([b"old"] * 3)
        reader = LogStore(tmp_path)
        with (
            reader.follow(["t"], "earliest", timeout=SOON + 0.5)
            if reads == "follow"
            else reader.cursor("g", ["t"], follow=True, timeout=SOON + 0.5)
        ) as follower:
            assert len(taken(follower)) == 3
            store.delete_topic("t")
            store.create_topic("t")
            writer(store).extend([b"new"] * count)
            assert set(taken(follower)) == {("t", 0, offset, b"new") for offset in range(count)}


class NoWatch(PartitionWatch):
    """As if the system had no inotify instance left."""

    def add(self, paths: Mapping[TopicPartition, str]) -> Iterator[TopicPartition]:
        return iter(())


def test_a_position_that_retention_deletes(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 2)
        writer(store).extend([b"v"] * 5)
        follower = store.follow(["t"], "earliest", timeout=0)
        writer(store).delete_records(3)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                taken(follower)
            assert (caught.value.first, caught.value.end) == (3, 5)
            assert "in partition t-0" in caught.value.__notes__[-1]
        start = follower.positions() | {TopicPartition("t", 0): caught.value.first}
        assert [r.offset for r in store.follow(["t"], start, timeout=0)] == [3, 4]
        with pytest.raises(OffsetOutOfRangeError):
            taken(store.follow(["t"], {TopicPartition("t", 1): 1}, timeout=0))


# ---- waiting, closing --------------------------------------------------------------------------------------


def test_one_waiter_for_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many partitions: one inotify, one eventfd."""
    made: list[int] = []
    refused: list[OSError] = []
    real = kstore.log.follow.partition_watch.Inotify

    def counted() -> Any:
        try:
            found = real()
        except OSError as e:
            refused.append(e)
            raise
        made.append(1)
        return found

    monkeypatch.setattr("kstore.log.follow.partition_watch.Inotify", counted)
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 100)
        follower = store.follow(["t"], timeout=SOON)
        for number in range(100):
            writer(store, "t", number).append(b"v")
        assert len(taken(follower)) == 100
    if refused:
        pytest.skip(f"other programs have all inotify instances of this user: {refused[0]}")
    assert made == [1]


def test_without_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("kstore.log.follow.partition_watch.Inotify", none_left)
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 3)
        follower = store.follow(["t"], timeout=SOON)
        threading.Timer(0.1, lambda: writer(store, "t", 2).append(b"v")).start()
        assert taken(follower) == [("t", 2, 0, b"v")]
        reader = LogStore(tmp_path).follow(["t"], timeout=SOON)
        writer(store, "t", 2).append(b"w")
        assert taken(reader) == [("t", 2, 1, b"w")]
        store.delete_topic("t")
        store.create_topic("t", 3)
        writer(store, "t", 2).extend([b"x", b"y", b"z"])
        assert taken(reader) == [("t", 2, 0, b"x"), ("t", 2, 1, b"y"), ("t", 2, 2, b"z")]
        records = iter(store.follow(["t"], "earliest", timeout=0))
        next(records)
        writer(store, "t", 2).truncate_to(1)
        with pytest.raises(kstore.OffsetOutOfRangeError):  # it looks once more when that view is read
            list(records)


def test_closed_by_another_thread_and_with_its_store(tmp_path: Path) -> None:
    for what in ("follower", "store"):
        store = LogStore(tmp_path, mode="a")
        if "t" not in store.topics:
            store.create_topic("t")
        follower = store.follow(["t"])
        found: list[Any] = []
        thread = threading.Thread(target=lambda f=follower, l=found: l.extend(f))
        thread.start()
        writer(store).append(b"v")
        while not found:
            threading.Event().wait(0.01)
        (follower if what == "follower" else store).close()
        thread.join(60)
        assert not thread.is_alive()
        assert len(found) == 1
        follower.close()
        assert follower.is_closed
        with pytest.raises(LogClosedError):
            iter(follower).__next__()
        with pytest.raises(LogClosedError):
            follower.positions()
        store.close()
    with pytest.raises(LogClosedError):
        store.follow()


def test_async(tmp_path: Path) -> None:
    async def main(store: LogStore) -> list[tuple[int, bytes | None]]:
        async def feed() -> None:
            for i in range(200):
                await store.append_async("t", b"%d" % i, key=b"%d" % i)

        found = []
        with store.follow(["t"]) as follower:
            task = asyncio.create_task(feed())
            async for record in follower:
                found.append((record.partition, record.value))
                if len(found) == 200:
                    break
            await task
        return found

    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 4)
        found = asyncio.run(main(store))
        assert sorted(int(value or b"") for _, value in found) == list(range(200))
        for number in range(4):
            of = [int(value or b"") for partition, value in found if partition == number]
            assert of == sorted(of)


FEED = """
import sys, kstore
with kstore.LogStore(sys.argv[1], mode="a", internal_segment_bytes=2000) as store:
    print(flush=True)
    sys.stdin.readline()
    for i in range(500):
        store.append("t", b"%d" % i, key=b"%d" % (i % 17))
        if i == 250:
            store.add_partitions("t", 6)
"""


def test_another_process_that_rolls_and_adds_partitions(tmp_path: Path) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 3)
    with Program(FEED, tmp_path) as feed:
        found: dict[int, list[int]] = defaultdict(list)
        with LogStore(tmp_path).follow(["t"], timeout=20) as follower:
            feed.tell()
            for count, record in enumerate(follower, 1):
                found[record.partition].append(record.offset)
                if count == 500:
                    break
    assert all(offsets == list(range(len(offsets))) for offsets in found.values())
    assert len(found) > 3


@settings(max_examples=15)
@given(st.data())
def test_model(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Against what was appended, in an order that hypothesis chooses."""
    path = tmp_path_factory.mktemp("store")
    with LogStore(path, mode="a", background=False, internal_segment_bytes=300) as store:
        store.create_topic("t", 2)
        follower = store.follow(timeout=0)
        wanted: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        found: dict[tuple[str, int], list[bytes | None]] = defaultdict(list)

        def take() -> None:
            for record in follower:
                found[record.topic, record.partition].append(record.value)

        for step in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from(["append", "append", "make", "grow", "take", "roll"])):
                case "append":
                    topic = data.draw(st.sampled_from(sorted(store.topics)))
                    number = data.draw(st.sampled_from(store.topics[topic]))
                    values = [b"%d %d" % (step, i) for i in range(data.draw(st.integers(1, 30)))]
                    writer(store, topic, number).extend(values, batch_bytes=100)
                    wanted[topic, number] += values
                case "make":
                    store.create_topic(f"t{step}")
                case "grow":
                    store.add_partitions("t", len(store.topics["t"]) + 1)
                case "roll":
                    writer(store).roll()
                case _:
                    take()
        follower._next_update = 0
        take()
        assert found == wanted


@pytest.mark.parametrize("how", ["follow", "cursor"])
def test_it_ends_though_every_update_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """As if it took longer to ask the partitions than the time between two updates."""
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 4)
        writer(store).append(b"v")
    reader = LogStore(tmp_path)
    updates = []
    reading: Any = {
        "follow": lambda: reader.follow(["t"], "earliest", timeout=0),
        "cursor": lambda: reader.cursor("g", ["t"], follow=True, timeout=0),
    }[how]()
    update = type(reading)._update

    def counted(self: Any) -> None:
        update(self)
        updates.append(1)
        assert len(updates) < 100

    monkeypatch.setattr("kstore.store.read.topic_reader._UPDATE", -1.0)
    monkeypatch.setattr(type(reading), "_update", counted)
    reading._next_update = 0.0
    with reading:
        assert [record.value for record in reading] == [b"v"]


def test_a_damaged_checkpoint_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LogStore(tmp_path, mode="a") as store:
        store.create_topic("t", 4)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\nt 0 0\nt x 0\n")
    parsed = []
    parse = checkpoints._read

    def counted(path: Path, *rest: Any) -> Any:
        parsed.append(Path(path).name)
        return parse(path, *rest)

    monkeypatch.setattr(checkpoints, "_read", counted)
    for partition in range(4):
        found = kstore.open(tmp_path / f"t-{partition}").recovery.findings
        known = partition == 0  # its line can be read
        assert [finding.code for finding in found] == ["checkpoint_damaged" if known else "log_start_unknown"]
    assert parsed.count("log-start-offset-checkpoint") == 1


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (("t", "0"), TypeError),
        (("t", None), TypeError),
        (("t", 1.5), TypeError),
        (("t", True), TypeError),
        ((b"t", 0), TypeError),
        ("t-0", TypeError),
        (("t", -1), ValueError),
    ],
)
def test_a_position_of_what_is_no_partition(tmp_path: Path, key: Any, error: type[Exception]) -> None:
    """It is refused: that partition would be read from its beginning."""
    with LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t")
        with pytest.raises(error, match="start"):
            store.follow(["t"], {key: 0})
        with store.cursor("g", ["t"]) as cursor, pytest.raises(error, match="record"):
            cursor.commit({key: 0})
