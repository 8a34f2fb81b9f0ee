"""A cursor over many partitions gives each its turn: what it reads on without a look at the log, and the
tuples that it uses again."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstore
from kstore.engine.record.batch import Record
from kstore.engine.scan.batch_reader import TopicRecords
from kstore.store.read import topic_reader

COUNT = 50


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[kstore.LogStore]:
    """Two partitions with 50 records each, in turns of eight."""
    monkeypatch.setattr(topic_reader, "QUANTUM", 8)
    monkeypatch.setattr(topic_reader, "_LEAST_QUANTUM", 0)
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as made:
        made.create_topic("t", 2)
        for number in range(2):
            log = made.log("t", number)
            assert isinstance(log, kstore.LogWriter)
            for at in range(0, COUNT, 5):
                log.extend([b"%d" % i for i in range(at, at + 5)])
        yield made


def test_turns_alternate_and_the_log_is_looked_at_once(
    store: kstore.LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    refresh = kstore.PartitionLog.refresh
    with store.cursor("g", ["t"]) as cursor:
        monkeypatch.setattr(
            kstore.PartitionLog, "refresh", lambda log: looks.append(log.path) or refresh(log)
        )
        seen = [(partition, record.offset) for _, partition, record in cursor]
        assert len(looks) == 2
        assert cursor.positions() == {("t", 0): COUNT, ("t", 1): COUNT}
    assert sorted(seen) == [(number, offset) for number in range(2) for offset in range(COUNT)]
    turns = [(number, len(list(turn))) for number, turn in itertools.groupby(number for number, _ in seen)]
    assert turns == [(0, 8), (1, 8)] * 6 + [(0, 2), (1, 2)]


@pytest.mark.parametrize("kind", ["cursor", "follow"])
def test_what_comes_between_two_turns_is_read(store: kstore.LogStore, kind: str) -> None:
    """Though the end was seen before it came."""
    reader = (
        store.cursor("g", ["t"], follow=True, timeout=0.3)
        if kind == "cursor"
        else store.follow(["t"], "earliest", timeout=0.3)
    )
    with reader:
        seen = []
        for record in reader:
            seen.append((record.partition, record.offset))
            if len(seen) in (5, 21, 70, 99, 101):
                store.log("t", 0).append(b"more")  # type: ignore[union-attr]
    assert sorted(seen) == [(0, i) for i in range(COUNT + 5)] + [(1, i) for i in range(COUNT)]


def test_a_seek_between_two_turns(store: kstore.LogStore) -> None:
    with store.cursor("g", ["t"]) as cursor:
        seen = []
        for record in cursor:
            seen.append((record.partition, record.offset))
            if len(seen) == 20:  # the second turn of the first partition
                cursor.seek(45, "t", 0)
                cursor.seek(2, "t", 1)
        assert seen[:8] == [(0, i) for i in range(8)]
        assert [offset for number, offset in seen[20:] if number == 0] == list(range(45, COUNT))
        assert [offset for number, offset in seen[20:] if number == 1] == list(range(2, COUNT))


def test_records_that_are_cut_off_between_two_turns(store: kstore.LogStore) -> None:
    """The view that is read stays as it was; the next one raises the error."""
    with store.cursor("g", ["t"]) as cursor:
        records = iter(cursor)
        for _ in range(10):
            next(records)
        store.log("t", 0).truncate_to(20)  # type: ignore[union-attr]
        assert cursor.lag()["t", 0] == 12
        seen = [(record.partition, record.offset) for record in records]
        assert [offset for number, offset in seen if number == 0] == list(range(8, COUNT))
        with pytest.raises(kstore.OffsetOutOfRangeError) as caught:
            list(cursor)
        assert caught.value.end == 20
        cursor.seek(20, "t", 0)
        assert list(cursor) == []


class Calling:
    """An iterator that calls the one that asks it, as a signal handler may."""

    def __init__(self, count: int) -> None:
        self.outer: TopicRecords[tuple[str, int, Record]] | None = None
        self.left = count
        self.inner: list[object] = []

    def __iter__(self) -> "Calling":
        return self

    def __next__(self) -> Record:
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        record = Record(offset=self.left)
        if self.outer is not None and self.left % 3:
            outer, self.outer = self.outer, None
            self.inner.append(next(outer, None))
            self.outer = outer
        return record


@pytest.mark.parametrize("keeps", [False, True])
def test_a_call_within_a_call(keeps: bool) -> None:
    source = Calling(40)
    records = TopicRecords(kstore.TopicRecord, "t", 7, iter([source, Calling(3)]), 100, lambda e: None)  # type: ignore[type-var]
    source.outer = records  # type: ignore[assignment]
    kept = []
    offsets = []
    for record in records:
        assert record[:2] == ("t", 7)
        offsets.append(record[2].offset)
        if keeps:
            kept.append(record)
    assert [record[2].offset for record in kept] == (offsets if keeps else [])
    inner = [record[2].offset for record in source.inner if record is not None]  # type: ignore[index]
    assert sorted(offsets + inner) == sorted([*range(40), *range(3)])


def test_a_call_within_the_last_call() -> None:
    """Which finds the end first."""

    class Ending(Calling):
        def __next__(self) -> Record:
            if self.outer is not None:
                outer, self.outer = self.outer, None
                assert next(outer, None) is None
                return Record(offset=5)
            raise StopIteration

    source = Ending(1)
    records = TopicRecords(kstore.TopicRecord, "t", 0, iter([source]), 100, lambda e: None)  # type: ignore[type-var]
    source.outer = records  # type: ignore[assignment]
    assert next(records)[2].offset == 5
    assert list(records) == []


def test_what_a_loop_holds_stays_as_it_was() -> None:
    made = [[Record(offset=i) for i in range(5)], [], [Record(offset=i) for i in range(5, 9)]]
    records = TopicRecords(kstore.TopicRecord, "t", 0, made, 8, lambda e: None)  # type: ignore[type-var]
    first = next(records)
    second = next(records)
    assert [first[2].offset, second[2].offset] == [0, 1]
    assert [record[2].offset for record in records] == [2, 3, 4, 5, 6, 7]  # eight at most
    assert [first[2].offset, second[2].offset] == [0, 1]


def test_a_turn_lasts_for_a_while() -> None:
    made = [[Record(offset=i) for i in range(30)]]
    long = TopicRecords(kstore.TopicRecord, "t", 0, made, 8, lambda e: None, least_ns=10**12)  # type: ignore[type-var]
    assert len(list(long)) == 30
    assert list(long) == []
    short = TopicRecords(kstore.TopicRecord, "t", 0, made, 8, lambda e: None, least_ns=1)  # type: ignore[type-var]
    assert len(list(short)) == 8


def test_an_error_goes_to_whom_it_concerns_and_the_next_call_goes_on() -> None:
    def broken() -> Iterator[Record]:
        yield Record(offset=0)
        raise kstore.CorruptRecordError("a batch", file="f", position=0, offset=0, expected=1, found=2)

    def failed(error: Exception) -> None:
        told.append(error)

    told: list[Exception] = []
    records = TopicRecords(kstore.TopicRecord, "t", 0, [broken()], 8, failed)  # type: ignore[type-var]
    assert len(list(records)) == 1
    assert isinstance(told[0], kstore.CorruptRecordError)
    with pytest.raises(TypeError):
        TopicRecords(dict, "t", 0, [], 8, failed)  # type: ignore[type-var]
    assert list(TopicRecords.__new__(TopicRecords)) == []
