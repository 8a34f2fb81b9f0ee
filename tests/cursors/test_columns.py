"""Cursors that are read as columns."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore.log.follow import follower


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "orders-0"
    with kstore.open(made, "a") as log:
        for i in range(10):
            log.append(b"%d" % i, key=b"k")
            if i in (2, 5):
                log.roll()
    return made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        for topic, count in (("a", 2), ("b", 1)):
            store.create_topic(topic, count)
            for number in range(count):
                store.log(topic, number).extend([b"%d" % i for i in range(5)])
    return tmp_path / "data"


def values(batch: Any) -> list[bytes]:
    found: list[bytes] = batch.column("value").to_list()
    return found


def test_batches_move_the_position(path: Path) -> None:
    with kstore.open(path).cursor("g") as jobs:
        seen = []
        for batch in jobs.scan(["value"], batch_rows=4):
            assert batch.names == ("value",)
            seen.append(values(batch))
            assert jobs.position == sum(map(len, seen))
            if len(seen) == 2:
                jobs.commit()
                break
        assert seen == [[b"0", b"1", b"2", b"3"], [b"4", b"5", b"6", b"7"]]
        assert [record.offset for record in jobs] == [8, 9]
        jobs.seek(8)
        assert [batch.column("offset").to_list() for batch in jobs.scan()] == [[8, 9]]
        assert list(jobs.scan()) == []
    with kstore.open(path).cursor("g") as jobs:
        assert jobs.position == 8
        jobs.seek(0)
        (batch,) = jobs.scan(["offset", "key"])
        assert batch.names == ("offset", "key")
        assert batch.rows()[3] == (3, b"k")


def test_it_may_seek_between_batches(path: Path) -> None:
    with kstore.open(path).cursor("g") as jobs:
        seen = []
        for batch in jobs.scan(["offset"], batch_rows=3):
            seen.append(batch.column("offset").to_list())
            if len(seen) == 1:
                jobs.seek(8)
            elif len(seen) == 2:
                jobs.seek(2)
                jobs.commit()
            elif len(seen) == 3:
                jobs.close()
        assert seen == [[0, 1, 2], [8, 9], [2, 3, 4]]


def test_what_is_refused(path: Path, data: Path) -> None:
    with kstore.open(path).cursor("g") as jobs, kstore.LogStore(data).cursor("g", ["a"]) as cursor:
        for each in (jobs, cursor):
            with pytest.raises(ValueError, match="nothing"):
                each.scan(["nothing"])
        scans = jobs.scan(), cursor.scan()
    for scan in scans:
        with pytest.raises(kstore.LogClosedError):
            iter(scan)
    with kstore.open(path, "a") as log:
        log.delete_records(5)
    with kstore.open(path).cursor("g") as jobs:
        assert jobs.position == 5
        jobs.commit()
        with kstore.open(path, "a") as log:
            log.delete_records(8)
        with pytest.raises(kstore.OffsetOutOfRangeError):
            list(jobs.scan())


def test_an_interrupted_wait_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kstore.open(path, "a") as log, kstore.open(path).cursor("g", "latest", follow=True) as jobs:
        batches = iter(jobs.scan(["value"]))
        log.append(b"new")
        assert values(next(batches)) == [b"new"]
        wait = follower.wait_readable

        def interrupted(*arguments: Any) -> bool:
            wait(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(follower, "wait_readable", interrupted)
        threading.Timer(0.02, log.append, [b"newer"]).start()
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        threading.Timer(0.02, log.append, [b"newest"]).start()
        assert jobs.position == 11
        monkeypatch.undo()
        found: list[bytes] = []
        for batch in jobs.scan(["value"]):
            found += values(batch)
            if len(found) == 2:
                break
        assert found == [b"newer", b"newest"]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_of_many_partitions(data: Path, mode: str) -> None:
    with kstore.LogStore(data).cursor("g", ["a", "b"]) as cursor:
        found: list[tuple[str, int, list[bytes]]] = []

        async def read() -> None:
            async for topic, partition, batch in cursor.scan(["value"], batch_rows=3):
                found.append((topic, partition, values(batch)))
                cursor.commit(durable=False)

        if mode == "async":
            asyncio.run(read())
        else:
            for topic, partition, batch in cursor.scan(["value"], batch_rows=3):
                found.append((topic, partition, values(batch)))
                cursor.commit(durable=False)
    halves = [[b"0", b"1", b"2"], [b"3", b"4"]]
    assert found == [(t, p, half) for t, p in (("a", 0), ("a", 1), ("b", 0)) for half in halves]
    store = kstore.LogStore(data)
    assert {tuple(tp): position.offset for tp, position in store.cursors()["g"].items()} == {
        ("a", 0): 5,
        ("a", 1): 5,
        ("b", 0): 5,
    }
    with store.cursor("g", ["a", "b"]) as cursor:
        assert list(cursor.scan()) == []


def test_each_has_its_turn(tmp_path: Path) -> None:
    """A long partition does not keep the others waiting for ever."""
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 2)
        store.log("t", 0).extend([b"v"] * 50_000)
        store.log("t", 1).extend([b"v"] * 10)
    with kstore.LogStore(tmp_path).cursor("g", ["t"]) as cursor:
        order = [partition for _, partition, _ in cursor.scan(["offset"], batch_rows=5000)]
        assert order.index(1) < 6
        assert cursor.positions() == {("t", 0): 50_000, ("t", 1): 10}


def test_a_damaged_partition_is_named(data: Path) -> None:
    file = data / "a-1" / "00000000000000000000.log"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with (
        kstore.LogStore(data).cursor("g", ["a"]) as cursor,
        pytest.raises(kstore.CorruptRecordError) as found,
    ):
        list(cursor.scan())
    assert "in partition a-1" in str(found.value.__notes__)
