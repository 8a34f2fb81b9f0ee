"""An int in a commit is the next offset to read, as in Kafka's clients, and never one that was not delivered."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.reading import read_to_end

TP = kstore.TopicPartition


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0"
    with kstore.open(path, "a") as log:
        log.extend([b"v"] * 10)
    return path


@pytest.fixture
def store(tmp_path: Path) -> kstore.LogStore:
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("orders", 3)
        for partition in range(3):
            store.log("orders", partition).extend([b"v"] * 10)  # type: ignore[attr-defined]
    return kstore.LogStore(tmp_path / "data")


def saved(path: Path) -> int | None:
    found = kstore.open(path).cursors().get("g")
    return None if found is None else found.offset


@pytest.mark.parametrize(
    "commit",
    [
        lambda jobs, record: jobs.commit(record),
        lambda jobs, record: jobs.commit(record.offset + 1),
        lambda jobs, record: jobs.commit(jobs.position),
        lambda jobs, record: jobs.commit(),
        lambda jobs, record: asyncio.run(jobs.commit_async(record)),
        lambda jobs, record: asyncio.run(jobs.commit_async(record.offset + 1)),
        lambda jobs, record: asyncio.run(jobs.commit_async()),
    ],
)
@pytest.mark.parametrize("follow", [False, True])
def test_what_a_user_of_kafka_writes(path: Path, commit: Callable[..., None], follow: bool) -> None:
    with kstore.open(path).cursor("g", follow=follow) as jobs:
        for record in jobs:
            commit(jobs, record)
            assert saved(path) == record.offset + 1
            if record.offset == 6:
                break
    with kstore.open(path).cursor("g") as jobs:
        assert [record.offset for record in jobs] == [7, 8, 9]


def refused(jobs: kstore.Cursor, record: Any, position: int) -> None:
    before = jobs.committed
    with pytest.raises(ValueError, match=rf"^record: offset \d+ .*, the records before offset {position}\. "):
        jobs.commit(record)
    assert (jobs.committed, jobs.position) == (before, position)


def test_what_was_not_delivered_is_refused(path: Path) -> None:
    log = kstore.open(path)
    with log.cursor("g") as jobs:
        refused(jobs, 1, 0)
        refused(jobs, 11, 0)
        refused(jobs, log.get(0), 0)
        jobs.commit(0)
        next(iter(jobs))
        refused(jobs, 2, 1)
        jobs.commit(1)
        jobs.seek(5)
        refused(jobs, 6, 5)
        jobs.commit(5)
        read_to_end(jobs)
        refused(jobs, 11, 10)
        with pytest.raises(kstore.OffsetOutOfRangeError):
            jobs.seek(11)
        jobs.commit(8)
        with pytest.raises(
            ValueError, match="offset 7 would move the position of group 'g' backwards from 8"
        ):
            jobs.commit(7)
        jobs.commit(8)
        jobs.seek(2)
        refused(jobs, 3, 2)
        with pytest.raises(ValueError, match="backwards from 2"):
            jobs.commit(1)
        jobs.commit(2)
        assert jobs.forget() is None
        refused(jobs, 3, 2)
    with log.cursor("g", start=4) as jobs:  # nothing was delivered yet
        refused(jobs, 5, 4)
        jobs.commit(4)
    with log.cursor("g") as jobs:
        refused(jobs, 5, 4)
        jobs.commit(4)
    assert saved(path) == 4


def test_columns_deliver_whole_batches(path: Path) -> None:
    with kstore.open(path).cursor("g") as jobs:
        for batch in jobs.scan(["value"], batch_rows=4):
            refused(jobs, jobs.position + 1, jobs.position)
            jobs.commit(jobs.position - 1)
            assert len(batch) == 4
            break
    assert saved(path) == 3


def test_other_threads_commit_while_it_is_iterated(path: Path) -> None:
    """What was delivered is never refused, though the reading moves from segment to segment meanwhile."""
    from concurrent.futures import ThreadPoolExecutor

    with kstore.open(path, "a", internal_segment_bytes=200) as log:
        for _ in range(500):
            log.append(b"v")
    refusals = []

    def commit(record: kstore.Record) -> None:
        try:
            jobs.commit(record, durable=False)
        except ValueError as e:
            refusals.append(str(e))

    with kstore.open(path).cursor("g") as jobs, ThreadPoolExecutor(2) as pool:
        list(pool.map(commit, jobs))
    assert [text for text in refusals if "backwards" not in text] == []
    assert saved(path) == 510


def test_offsets_of_partitions(store: kstore.LogStore) -> None:
    with store.cursor("g", ["orders"]) as cursor:
        for record in cursor:
            cursor.commit({("orders", record.partition): record.offset + 1}, durable=False)
            if record == (*TP("orders", 1), record.record) and record.offset == 3:
                break
        asyncio.run(cursor.commit_async(cursor.positions()))
        assert [store.lag("g")[TP("orders", n)] for n in range(3)] == [0, 6, 10]
        for wrong, error in {
            ("orders", 1): "record\\['orders', 1\\]: offset 11 is beyond what was delivered, .* offset 4",
            ("other", 1): "reads orders, not 'other'",
        }.items():
            with pytest.raises(ValueError, match=error):
                cursor.commit({("orders", 0): 10, wrong: 11})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="record: offset 6 is beyond"):
            cursor.commit(kstore.TopicRecord("orders", 1, store.log("orders", 1).get(5)))
        with pytest.raises(kstore.LogNotFoundError, match="orders-7"):
            cursor.commit({TP("orders", 7): 1})
        for bad in ({"orders": 1}, {("orders", 0): "1"}, {(0, 0): 1}, 5):
            with pytest.raises(TypeError):
                cursor.commit(bad)  # type: ignore[arg-type]
    with store.cursor("g", ["orders"]) as cursor:
        assert list(cursor.positions().values()) == [10, 4, 0]
