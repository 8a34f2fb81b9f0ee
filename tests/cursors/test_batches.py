"""A batch that is left early commits the records that are done, and no other."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import kstore

Record = kstore.Record | kstore.TopicRecord


@pytest.fixture(params=["log", "store"])
def cursor(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A cursor of ten records in one partition, or of ten in each of three."""
    count = 1 if request.param == "log" else 3
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", count)
        for partition in range(count):
            store.log("t", partition).extend([b"v"] * 10)  # type: ignore[attr-defined]
    if request.param == "log":
        return kstore.open(tmp_path / "t-0").cursor("g")
    return kstore.LogStore(tmp_path).cursor("g", ["t"])


def place(record: Record) -> tuple[int, int]:
    return getattr(record, "partition", 0), record.offset


def saved(directory: Path) -> dict[int, int]:
    """The next offset of each partition, as it is saved."""
    found = {
        number: kstore.open(directory / f"t-{number}").cursors()
        for number in range(len(kstore.LogStore(directory)))
    }
    return {number: groups["g"].offset if "g" in groups else 0 for number, groups in found.items()}


def positions(cursor: Any) -> dict[int, int]:
    if isinstance(cursor, kstore.Cursor):
        return {0: cursor.position}
    return {tp.partition: offset for tp, offset in cursor.positions().items()}


def by_break(cursor: Any, count: int, done: int) -> list[Record]:
    with cursor.batch(count) as records:
        for i, _ in enumerate(records):
            if i == done:
                break
    return list(records)


def by_return(cursor: Any, count: int, done: int) -> list[Record]:
    with cursor.batch(count) as records:
        for i, _ in enumerate(records):
            if i == done:
                return records.copy()  # type: ignore[no-any-return]
    raise AssertionError


def by_exception(cursor: Any, count: int, done: int) -> list[Record]:
    given: list[Record] = []
    with pytest.raises(OSError, match="the bank"), cursor.batch(count) as records:  # noqa: PT012
        given += records.copy()
        for i, _ in enumerate(records):
            if i == done:
                raise OSError("the bank does not answer")
    return given


def by_cancellation(cursor: Any, count: int, done: int) -> list[Record]:
    given: list[Record] = []
    reached = asyncio.Event()

    async def work() -> None:
        async with cursor.batch(count) as records:
            given.extend(records.copy())
            for i, _ in enumerate(records):
                if i == done:
                    reached.set()
                    await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(work())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    return given


@pytest.mark.parametrize("leave", [by_break, by_return, by_exception, by_cancellation])
def test_only_what_is_done_is_committed(
    cursor: Any, tmp_path: Path, leave: Callable[..., list[Record]]
) -> None:
    expected = dict.fromkeys(positions(cursor), 0)
    seen: list[tuple[int, int]] = []
    with cursor:
        for count, done in ((6, 0), (6, 4), (6, 2), (1, 0), (10, 3)):
            given = leave(cursor, count, done)[:done]
            assert [place(record) for record in given] == [
                (number, expected[number] + i)
                for number in dict.fromkeys(place(record)[0] for record in given)
                for i in range(sum(place(record)[0] == number for record in given))
            ]
            for record in given:
                expected[place(record)[0]] = record.offset + 1
            seen += map(place, given)
            assert positions(cursor) == saved(tmp_path) == expected
        with cursor.batch(100) as rest:
            seen += [place(record) for record in rest]
        assert saved(tmp_path) == dict.fromkeys(expected, 10)
    assert sorted(seen) == [(number, offset) for number in expected for offset in range(10)]


def peek(records: list[Record]) -> None:
    assert any(record.offset == 0 for record in records)  # a loop that is left, before the one that counts
    for _ in records:
        pass


def sort(records: list[Record]) -> None:
    records.sort(key=lambda record: -record.offset)
    for _ in records:
        pass
    records.clear()


WHOLE: dict[str, Callable[[list[Record]], object]] = {
    "without a loop": len,
    "with a loop": lambda records: [record.offset for record in records],
    "with a copy": lambda records: next(iter(list(records))),
    "after a loop that was left": peek,
    "sorted": sort,
}


@pytest.mark.parametrize("work", WHOLE.values(), ids=WHOLE)
def test_a_batch_that_is_done_as_a_whole(
    cursor: Any, tmp_path: Path, work: Callable[[list[Record]], object]
) -> None:
    with cursor:
        for error in (True, False):
            try:
                with cursor.batch(5) as records:
                    number, _ = place(records[0])
                    assert [place(record) for record in records.copy()] == [(number, i) for i in range(5)]
                    work(records)
                    if error:
                        raise OSError("the database does not answer")
            except OSError:
                assert saved(tmp_path) == positions(cursor) == dict.fromkeys(positions(cursor), 0)
        assert saved(tmp_path)[number] == positions(cursor)[number] == 5
        assert sum(saved(tmp_path).values()) == 5


def test_the_first_record_that_is_not_done_is_given_again(cursor: Any, tmp_path: Path) -> None:
    """Though the block has sorted them, and done later ones first."""
    with cursor:
        with cursor.batch(5) as records:
            records.sort(key=lambda record: (record.offset not in (0, 3, 4), record.offset))
            for record in records:
                if record.offset == 1:
                    break
        assert (saved(tmp_path)[0], positions(cursor)[0]) == (1, 1)


def test_what_the_block_committed_stays(cursor: Any, tmp_path: Path) -> None:
    with cursor:
        with cursor.batch(5) as records:
            for record in records:
                cursor.commit(record)
                if record.offset == 2:
                    break
        assert (saved(tmp_path)[0], positions(cursor)[0]) == (3, 3)
        with cursor.batch(5) as records:
            for _ in records:
                cursor.commit()
                break
        assert sum(saved(tmp_path).values()) == sum(positions(cursor).values()) == 8


def test_one_batch_at_a_time(cursor: Any) -> None:
    """One that has ended can be used again."""
    with cursor:
        batch = cursor.batch(5)
        with batch:
            for wrong in (lambda: cursor.seek(3), cursor.batch(2).__enter__):
                with pytest.raises(RuntimeError, match="a batch of this cursor is open"):
                    wrong()
        with batch as records:
            assert len(records) == 5


def numbers(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]


def test_a_batch_of_a_store_waits_for_the_first_record(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 2)

        async def main() -> list[int]:
            async with cursor.batch(10, timeout=60) as records:
                return numbers(records)

        with store.cursor("g", ["t"]) as cursor:
            with cursor.batch(10) as records:
                assert records == []
            for wait in (
                lambda: numbers(cursor.batch(10, timeout=60).__enter__()),
                lambda: asyncio.run(main()),
            ):
                late = threading.Timer(0.05, lambda: store.append("t", b"v"))
                late.start()
                assert len(wait()) == 1
                late.join()
