"""kstore.wait: the readers that have a record, out of several."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from tests.helpers.markers import end_transaction, transactional


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kstore.LogStore]:
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        for topic in "abcdef":
            store.create_topic(topic, 2)
        yield store


KINDS: dict[str, Callable[[kstore.LogStore, str], Any]] = {
    "follower": lambda store, topic: store.log(topic).follow(0),
    "follower of another log": lambda store, topic: kstore.open(store.path / f"{topic}-0").follow(0),
    "follower of a store": lambda store, topic: store.follow([topic]),
    "cursor": lambda store, topic: kstore.open(store.path / f"{topic}-0").cursor("g"),
    "following cursor": lambda store, topic: store.log(topic).cursor("g", follow=True),
    "cursor of a store": lambda store, topic: store.cursor("g", [topic]),
    "following cursor of a store": lambda store, topic: kstore.LogStore(store.path).cursor(
        "g", [topic], follow=True
    ),
}


def append(store: kstore.LogStore, topic: str) -> None:
    store.log(topic).append(b"v")  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_those_that_have_records(store: kstore.LogStore, kind: Callable[..., Any]) -> None:
    with kind(store, "a") as a, kind(store, "b") as b, kind(store, "c") as c:
        readers = [a, b, c]
        assert kstore.wait(readers, timeout=0) == kstore.wait(readers, timeout=0.05) == []
        append(store, "b")
        for _ in range(2):  # nothing was read
            assert kstore.wait(readers) == [b]
        late = threading.Timer(0.05, append, (store, "c"))
        late.start()
        assert kstore.wait([a, c]) == [c]
        late.join()
        assert kstore.wait(readers, timeout=0) == [b, c]
        with pytest.raises(TypeError, match="give a list"):
            kstore.wait(b, timeout=0)
        records = iter(b)
        assert next(records).offset == 0
        assert kstore.wait(readers, timeout=0) == [c]
        append(store, "b")
        append(store, "b")
        assert kstore.wait([b]) == [b]
        fresh = records if hasattr(b, "take") else iter(b)
        assert next(fresh).offset == 1
        assert kstore.wait([b]) == [b]  # in the middle of what is there
        assert next(fresh).offset == 2
        assert kstore.wait([b], timeout=0) == []


def test_readers_of_all_kinds(store: kstore.LogStore) -> None:
    readers = {topic: kind(store, topic) for topic, kind in zip("abcdef", KINDS.values(), strict=False)}
    for topic in "ceb":
        append(store, topic)
        found = kstore.wait(readers.values(), timeout=60)
        assert found == [readers[topic]]
        with readers.pop(topic) as reader:
            assert next(iter(reader)).offset == 0
    for reader in readers.values():
        reader.close()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_one_that_is_closed(store: kstore.LogStore, kind: Callable[..., Any]) -> None:
    """From another thread, and before."""
    reader = kind(store, "a")
    closes = threading.Timer(0.05, reader.close)
    closes.start()
    assert kstore.wait([reader]) == [reader]
    closes.join()
    assert kstore.wait([reader]) == [reader]


def test_errors_wait_for_the_iteration(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        log.extend([b"v"] * 3)
        follower = kstore.open(log.path).follow(3)
        assert kstore.wait([follower], timeout=0) == []
        log.truncate_to(1)
        assert kstore.wait([follower]) == [follower]
        with pytest.raises(kstore.OffsetOutOfRangeError):
            next(follower)
        with log.follow() as own:
            log.close()
            assert kstore.wait([own]) == [own]
            assert list(own) == []


def test_markers_and_open_transactions_are_no_records(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        options: dict[str, Any] = {"isolation": "read_committed", "follow": True}
        with log.cursor("g", **options) as cursor, log.follow(0) as other:
            log.append_batches(transactional((0, None, b"v", None)))
            assert kstore.wait([cursor, other], timeout=0) == [other]
            end_transaction(log, "ABORT", 0)
            assert next(other).offset == 0
            assert kstore.wait([cursor, other], timeout=0) == []
            log.append(b"v")
            assert kstore.wait([cursor, other]) == [cursor, other]
            assert cursor.batch(5).__enter__()[0].offset == other.take().offset == 2  # type: ignore[union-attr]


def test_partitions_and_topics_that_come_later(store: kstore.LogStore) -> None:
    with store.follow(["later", "a"]) as follower:
        assert kstore.wait([follower], timeout=0) == []

        def create() -> None:
            store.create_topic("later")
            append(store, "later")

        late = threading.Timer(0.05, create)
        late.start()
        assert kstore.wait([follower], timeout=60) == [follower]
        late.join()
        assert next(iter(follower)).topic == "later"


def test_what_is_no_reader(tmp_path: Path) -> None:
    with kstore.open(tmp_path / "t-0", "a") as log:
        wrong: Any = log
        with pytest.raises(TypeError, match="readers are followers and cursors"):
            kstore.wait([wrong])
        log.append(b"v")
        with pytest.raises(TypeError, match="readers are followers and cursors"):
            kstore.wait(wrong)
        with pytest.raises(ValueError, match="timeout"):
            kstore.wait([log.follow()], timeout=-1)
        assert kstore.wait([]) == []


def test_in_a_thread_of_an_event_loop(tmp_path: Path) -> None:
    async def main() -> None:
        with kstore.open(tmp_path / "t-0", "a") as log:
            follower = log.follow()
            waiting = asyncio.create_task(asyncio.to_thread(kstore.wait, [follower]))
            await asyncio.sleep(0.02)
            log.append(b"v")
            assert await waiting == [follower]

    asyncio.run(main())
