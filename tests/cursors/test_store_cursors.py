"""A group over the partitions of topics: who reads what, what is committed, and what the death of a member
leaves."""

import contextlib
import datetime
import itertools
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstore
from kstore import TopicPartition
from kstore.log.cursors import member_lock
from kstore.store import store_directory
from tests.cursors.test_cursors import in_a_child
from tests.helpers.markers import end_transaction, transactional
from tests.helpers.processes import environment
from tests.helpers.waiting import until

ORDERS = [TopicPartition("orders", number) for number in range(4)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[kstore.LogStore]:
    """Four partitions with five records each, and a topic without records."""
    with kstore.LogStore(tmp_path / "data", mode="a") as made:
        made.create_topic("orders", 4)
        made.create_topic("other")
        for number in range(4):
            made.log("orders", number).extend([b"%d" % i for i in range(5)])
        yield made


def places(records: Any) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


ALL = [(number, offset) for number in range(4) for offset in range(5)]


def committed(store: kstore.LogStore, group: str = "g") -> list[int]:
    found = [store.open("orders", number).cursors().get(group) for number in range(4)]
    return [0 if position is None else position.offset for position in found]


def test_the_next_one_goes_on(store: kstore.LogStore) -> None:
    with store.cursor("g", ["orders", "other"]) as cursor:
        assert cursor.lag() == {**dict.fromkeys(ORDERS, 5), TopicPartition("other", 0): 0}
        first = next(iter(cursor))
        assert (first.topic, first.partition, first.offset, first.value) == ("orders", 0, 0, b"0")
        assert (first.key, first.timestamp > 0, len(first.headers)) == (None, True, 0)
        cursor.commit(metadata="one")
        assert places(cursor) == ALL[1:]
        assert cursor.lag()[ORDERS[1]] == 0
    assert committed(store) == [1, 0, 0, 0]
    reader = kstore.LogStore(store.path)
    with reader.cursor("g", ["orders"]) as cursor:
        assert places(cursor) == ALL[1:]
        assert places(cursor) == []
        cursor.commit(durable=False)
        cursor.seek(3, "orders", 2)
        assert cursor.positions() == {**dict.fromkeys(ORDERS, 5), ORDERS[2]: 3}
        assert places(cursor) == [(2, 3), (2, 4)]
        cursor.seek("earliest", "orders", 1)
        assert places(cursor) == ALL[5:10]
    assert committed(store) == [5, 5, 5, 5]


def test_one_record_is_committed(store: kstore.LogStore) -> None:
    with store.cursor("g", ["orders"]) as cursor:
        for record in cursor:
            if record.partition == 2 and record.offset == 3:
                cursor.commit(record)
        with pytest.raises(TypeError, match=r"TopicRecord.*for each in cursor: .*cursor\.commit\(each\)"):
            cursor.commit(record.record)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="not 'other'"):
            cursor.commit(kstore.TopicRecord("other", 0, record.record))
    assert committed(store) == [0, 0, 4, 0]


@pytest.mark.parametrize("members", [1, 2, 3, 4, 6])
def test_members_share(store: kstore.LogStore, members: int) -> None:
    """No partition has two, none has nobody, and no member is idle while another has two."""
    with contextlib.ExitStack() as stack:
        cursors = [stack.enter_context(store.cursor("g", ["orders"])) for _ in range(members)]
        for _ in range(2):  # gives up, takes
            for cursor in cursors:
                cursor._update()
        having = [cursor.partitions for cursor in cursors]
        assert sorted(itertools.chain(*having)) == ORDERS
        assert max(map(len, having)) - min(map(len, having)) <= 1
        cursors[0].close()
        for _ in range(2):
            for cursor in cursors[1:]:
                cursor._update()
        left = sorted(itertools.chain(*(cursor.partitions for cursor in cursors[1:])))
        assert left == (ORDERS if members > 1 else [])


def test_what_is_under_way_is_not_given_up(store: kstore.LogStore) -> None:
    with store.cursor("g", ["orders"]) as one:
        records = iter(one)
        given = [next(records) for _ in range(6)]
        with store.cursor("g", ["orders"]) as two:
            one._update()
            assert len(one.partitions) == 2
            assert {record.partition for record in given} <= {tp.partition for tp in one.partitions}
            two._update()
            rest = places(two)
            one.commit()
            assert {number for number, _ in rest} == {2, 3}
            assert sorted(places(given) + places(records) + rest) == ALL
    assert committed(store) == [5, 1, 0, 0]


def test_without_partitions(store: kstore.LogStore, tmp_path: Path) -> None:
    with pytest.raises(kstore.LogNotFoundError, match="no topic missing"):
        store.cursor("g", ["orders", "missing"])
    with store.cursor("g", ["later"], start="latest", follow=True, timeout=0.1) as cursor:
        assert list(cursor) == []
        store.create_topic("later", 2)
        store.append("later", b"v")
        cursor._update()
        assert [record.value for record in cursor] == [b"v"]  # it came after the cursor did
    (tmp_path / "empty").mkdir()
    with kstore.LogStore(tmp_path / "empty").cursor("g", ["t"], follow=True, timeout=0) as cursor:
        assert list(cursor) == []


@pytest.mark.parametrize("mode", ["r", "a"])
def test_it_waits_for_records_and_topics(store: kstore.LogStore, mode: str) -> None:
    source = store if mode == "a" else kstore.LogStore(store.path)
    with source.cursor("g", ["orders", "later"], "latest", follow=True, timeout=30) as cursor:
        records = iter(cursor)
        late = threading.Timer(0.05, store.log("orders", 3).append, [b"new"])
        late.start()
        assert next(records)[:2] == ("orders", 3)
        late.join()
        store.create_topic("later")
        store.append("later", b"first")
        assert next(records)[:2] == ("later", 0)
        store.append("later", b"second")
        assert next(records).value == b"second"
        cursor.commit()
        ends = threading.Timer(0.05, cursor.close)
        ends.start()
        assert list(records) == []
        ends.join()
    assert committed(store) == [5, 5, 5, 6]


def test_markers_of_transactions_are_nothing_under_way(store: kstore.LogStore) -> None:
    """A member gives up a partition of which it has committed all that it was given."""
    now = time.time_ns() // 1_000_000
    for number in range(4):
        log = store.log("orders", number)
        log.append_batches(transactional((now, b"k", b"v", None)))
        end_transaction(log, "COMMIT", now)
    with store.cursor("g", ["orders"]) as one:
        for record in one:
            one.commit(record)
        assert one.positions()[ORDERS[0]] == 7
        with store.cursor("g", ["orders"]):
            one._update()
            assert len(one.partitions) == 2


def test_it_is_closed_while_it_takes_partitions(
    store: kstore.LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.cursor("g", ["orders"]) as one, store.cursor("g", ["orders"]) as two:
        one.close()
        take = two._take

        def closed(share: int) -> None:
            two.close()
            take(share)

        monkeypatch.setattr(two, "_take", closed)
        two._update()
        with store.cursor("g", ["orders"]) as three:
            assert three.partitions == ORDERS


def test_it_ends_when_it_is_closed_while_it_looks(
    store: kstore.LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("list", "_sweep"):
        with store.cursor("g", ["orders"], follow=True) as cursor:
            of: Any = cursor._wanted if name == "list" else cursor
            work = getattr(of, name)

            def closed(cursor: Any = cursor, work: Any = work) -> None:
                cursor.close()
                work()

            monkeypatch.setattr(of, name, closed)
            cursor._next_update = 0
            assert list(cursor) == []
    assert committed(store) == [0, 0, 0, 0]


def test_a_topic_that_is_made_anew_begins_anew(store: kstore.LogStore) -> None:
    with kstore.LogStore(store.path).cursor("g", ["other"], follow=True, timeout=2) as cursor:
        records = iter(cursor)
        store.append("other", b"old")
        assert next(records).value == b"old"
        cursor.commit()
        store.delete_topic("other")
        store.create_topic("other")
        store.log("other").extend([b"a", b"b"])
        assert [next(records).value, next(records).value] == [b"a", b"b"]
        cursor.commit()
    assert store.open("other").cursors()["g"].offset == 2


@pytest.mark.parametrize("then", ["deleted", "made anew"])
@pytest.mark.parametrize("when", ["before its id is made", "before its log is opened"])
def test_a_topic_that_is_deleted_while_a_cursor_opens_it(
    store: kstore.LogStore, monkeypatch: pytest.MonkeyPatch, when: str, then: str
) -> None:
    """Then it is as if it had been deleted before; records of the new one may come twice."""
    store.log("other").extend([b"old"] * 3)
    if when == "before its log is opened":
        with store.cursor("g", ["other"]) as cursor:
            assert len(list(cursor)) == 3
            cursor.commit()
    makes_id, opens = os.urandom, store_directory.PartitionLog

    def change() -> None:
        monkeypatch.undo()
        store.delete_topic("other")
        if then == "made anew":
            store.create_topic("other")
            store.log("other").append(b"new")

    def urandom(size: int) -> bytes:
        change()
        return makes_id(size)

    def partition_log(path: str) -> kstore.PartitionLog:
        change()
        return opens(path)

    if when == "before its log is opened":
        monkeypatch.setattr(store_directory, "PartitionLog", partition_log)
    else:
        monkeypatch.setattr(os, "urandom", urandom)
    with kstore.LogStore(store.path).cursor("g", ["other", "orders"], follow=True, timeout=0.9) as cursor:
        found = {(record.offset, record.value) for record in cursor if record.topic == "other"}
        assert found == ({(0, b"new")} if then == "made anew" else set())


def test_a_topic_whose_partitions_are_lost(store: kstore.LogStore) -> None:
    """The topic is known; what is missing are its partitions."""
    shutil.rmtree(store.path / "other-0")
    reader = kstore.LogStore(store.path)
    with pytest.raises(
        kstore.LogFailedError, match=r"topic other cannot be read by a cursor: its partitions \[0\]"
    ):
        reader.cursor("g", ["other"])
    with pytest.raises(kstore.LogNotFoundError, match="no topic others"):
        reader.cursor("g", ["others"])


def test_where_nobody_has_read_is_remembered(store: kstore.LogStore) -> None:
    """Who takes over must not begin at an end that is a later one."""
    store.cursor("g", ["orders"], "latest").close()
    store.append("orders", b"v")
    with store.cursor("g", ["orders"], "latest") as cursor:
        assert len(list(cursor)) == 1


def test_a_start_in_time(store: kstore.LogStore) -> None:
    early = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
    with store.cursor("g", ["orders"], early) as cursor:
        assert places(cursor) == ALL


def test_several_directories(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in "ab"]
    with kstore.LogStore(*dirs, mode="a") as store:
        store.create_topic("t", 5)
        for number in range(5):
            store.log("t", number).append(b"v")
        with store.cursor("g", ["t"]) as one, kstore.LogStore(*reversed(dirs)).cursor("g", ["t"]) as two:
            one._update()
            two._update()
            assert (len(one.partitions), len(two.partitions)) in {(3, 2), (2, 3)}
            assert len(list(one)) + len(list(two)) == 5
            one.commit()
            two.commit()
    reader = kstore.LogStore(*dirs)
    assert [reader.open("t", number).cursors()["g"].offset for number in range(5)] == [1] * 5


def test_the_lag_of_partitions_that_were_never_committed(store: kstore.LogStore) -> None:
    assert store.lag("g") == {}
    with store.cursor("g", ["orders"]) as cursor:
        record = next(iter(cursor))
        cursor.commit(record)
    store.log("orders", 3).delete_records(2)
    assert (
        store.lag("g")
        == kstore.LogStore(store.path).lag("g")
        == {tp: 5 - (tp.partition == record.partition) - 2 * (tp.partition == 3) for tp in ORDERS}
    )
    assert list(store.cursors()["g"]) == [(record.topic, record.partition)]
    with pytest.raises(ValueError, match="group"):
        store.lag("a/b")


def test_a_partition_that_is_lost_is_not_committed(
    store: kstore.LogStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any descriptor of the lock file that this process closes drops its locks: so does the system."""
    # as where there are no locks that stay
    monkeypatch.setattr(member_lock, "keep_byte", lambda *_, **__: True)
    with store.cursor("g", ["orders"]) as cursor:
        assert places(cursor) == ALL
        (store.path / "kstore-cursors.lock").read_bytes()

        def takes_it() -> None:
            with kstore.open(store.path / "orders-1").cursor("g") as other:
                other.seek(2)
                other.commit()

        assert in_a_child(takes_it) == 0
        with pytest.raises(kstore.CursorLockedError):
            cursor.commit()
        assert committed(store) == [0, 2, 0, 0]
        assert ORDERS[1] not in cursor.partitions
        cursor.commit()
        assert committed(store) == [5, 2, 5, 5]


def test_what_is_refused(store: kstore.LogStore) -> None:
    cursor: Any = store.cursor
    for arguments, error in [
        (("a/b", ["orders"]), ValueError),
        (("g", []), ValueError),
        (("g", ["a/b"]), ValueError),
        (("g", ["orders"], "first"), ValueError),
        (("g", ["orders"], 6), kstore.OffsetOutOfRangeError),
    ]:
        with pytest.raises(error):
            cursor(*arguments)
    jobs = cursor("g", ["orders"])
    assert jobs.partitions == ORDERS
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(jobs)
    assert in_a_child(jobs.commit) == 2
    assert in_a_child(lambda: list(jobs)) == 2
    assert in_a_child(jobs.close) == 0
    jobs.close()
    jobs.close()
    for call in (jobs.commit, jobs.lag, jobs.positions, lambda: jobs.seek(0), lambda: next(iter(jobs))):
        with pytest.raises(kstore.LogClosedError, match="closed"):
            call()
    assert "closed" in repr(jobs)
    store.close()
    with pytest.raises(kstore.LogClosedError):
        store.cursor("g", ["orders"])


MEMBER = """
import os, sys, kstore
with kstore.LogStore(sys.argv[1]).cursor("g", ["orders"], follow=True, timeout=60) as cursor:
    for record in cursor:
        os.write(1, b"%d %d\\n" % (record.partition, record.offset))
        if record.value == b"stop":
            break
        cursor.commit(durable=False)
"""


def member(store: kstore.LogStore) -> "subprocess.Popen[str]":
    words = [sys.executable, "-c", MEMBER, str(store.path)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, env=environment(), text=True)


def test_members_that_are_killed_lose_nothing(store: kstore.LogStore) -> None:
    """Each record comes to somebody, and no position runs backwards, though members die at any moment."""
    members = [member(store) for _ in range(3)]
    gone: list[subprocess.Popen[str]] = []
    wanted = set(ALL)
    try:
        seen = committed(store)
        for turn in range(6):
            for number in range(4):
                offsets = store.log("orders", number).extend([b"v"] * 50)
                wanted |= {(number, offset) for offset in offsets}
            time.sleep(0.05 * turn)
            victim = members.pop(turn % len(members))
            victim.send_signal(signal.SIGKILL)
            gone.append(victim)
            members.append(member(store))
            now = committed(store)
            assert all(new >= old for new, old in zip(now, seen, strict=True))
            seen = now
        ends = [store.open("orders", number).log_end_offset for number in range(4)]
        until(lambda: committed(store) == ends)
    finally:
        for process in members:
            process.send_signal(signal.SIGKILL)
    delivered = set()
    for process in members + gone:
        out, _ = process.communicate()
        lines = [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]
        delivered |= {(int(partition), int(offset)) for partition, offset in lines}
    assert delivered >= wanted


def test_seeking_what_it_does_not_read(store: kstore.LogStore) -> None:
    """A topic's name with a typing error must not look like success."""
    with store.cursor("g", ["orders"]) as cursor:
        with pytest.raises(ValueError, match="'ordres'"):
            cursor.seek(0, "ordres")
        with pytest.raises(ValueError, match="'other'"):
            cursor.seek(0, "other")
        with pytest.raises(TypeError, match="partition is an int"):
            cursor.seek(0, "orders", 1.5)  # type: ignore[arg-type]
        with pytest.raises(kstore.LogNotFoundError, match="no partition orders-7"):
            cursor.seek(0, "orders", 7)
        with pytest.raises(kstore.LogNotFoundError, match="no partition any topic-7"):
            cursor.seek(0, partition=7)
        cursor.seek(3, "orders", 1)
        assert cursor.lag()[TopicPartition("orders", 1)] == 2


def test_committing_what_it_does_not_read(store: kstore.LogStore) -> None:
    """Nobody else has it either, so to wait for another member would be in vain."""
    with store.cursor("g", ["orders"]) as cursor:
        record = next(iter(cursor)).record
        with pytest.raises(ValueError, match="reads orders, not 'ordres'"):
            cursor.commit(kstore.TopicRecord("ordres", 0, record))
        with pytest.raises(kstore.LogNotFoundError, match="no partition orders-7"):
            cursor.commit(kstore.TopicRecord("orders", 7, record))
        assert committed(store) == [0] * 4


@pytest.mark.skipif(
    sys.version_info >= (3, 14), reason="a tuple remembers its hash there, so it is not used again"
)
def test_a_record_that_is_kept_is_not_used_again(store: kstore.LogStore) -> None:
    with kstore.LogStore(store.path).cursor("kept", ["orders"]) as cursor:
        kept, seen, ids = [], [], set()
        for number, record in enumerate(cursor):
            seen.append((record.partition, record.offset))
            ids.add(id(record))
            if number % 3 == 0:
                kept.append(record)
        assert [(record.partition, record.offset) for record in kept] == seen[::3]
        assert len(set(seen)) == len(seen) > len(ids)


def test_a_seek_that_fails_in_one_partition_moves_none(tmp_path: Path) -> None:
    with kstore.LogStore(tmp_path, mode="a", background=False) as store:
        store.create_topic("t", 3)
        for number, count in enumerate((20, 20, 5)):
            store.log("t", number).extend([b"value"] * count)
        with store.cursor("g", ["t"]) as cursor:
            assert len(list(cursor)) == 45
            before = cursor.positions()
            for place in (9, 21):
                with pytest.raises(kstore.OffsetOutOfRangeError) as told:
                    cursor.seek(place)
                assert f"in partition t-{2 if place == 9 else 0}" in told.value.__notes__[-1]
                assert cursor.positions() == before
            cursor.commit()
        assert [at.offset for at in store.cursors()["g"].values()] == [20, 20, 5]


def test_a_reader_beside_a_deletion_of_a_topic(tmp_path: Path) -> None:
    """It knows nothing of it yet, and tells of the others."""
    with kstore.LogStore(tmp_path, mode="a", background=False, file_delete_delay_ms=0) as store:
        for topic in ("a", "b"):
            store.create_topic(topic)
            store.append(topic, b"value")
            store.append(topic, b"value")
            with store.cursor(f"reads-{topic}", [topic]) as cursor:
                cursor.commit(next(iter(cursor)))
        reader = kstore.LogStore(tmp_path)
        assert list(reader.cursors()) == ["reads-a", "reads-b"]
        store.delete_topic("a")
        for _ in range(2):
            assert list(reader.cursors()) == ["reads-b"]
            assert reader.lag("reads-a") == {}
            assert reader.lag("reads-b") == {("b", 0): 1}
            reader.refresh()


@pytest.mark.parametrize("gone", ["t-0", "kstore-cursors.lock"])
def test_a_durable_commit_of_nothing_new_looks_too(tmp_path: Path, gone: str) -> None:
    """What was committed before without waiting for the disk is in a place that nobody finds any more."""
    with kstore.LogStore(tmp_path / "data", mode="a", background=False) as store:
        store.create_topic("t", 2)
        for number in range(2):
            store.log("t", number).extend([b"value"] * 10)
    with kstore.LogStore(tmp_path / "data").cursor("g", ["t"]) as cursor:
        list(cursor)
        cursor.commit(durable=False)
        (tmp_path / "data" / gone).rename(tmp_path / "away")
        error = kstore.LogNotFoundError if gone == "t-0" else kstore.LogFailedError
        with pytest.raises(error):
            cursor.commit()


def test_topics_are_looked_at_as_they_come(store: kstore.LogStore) -> None:
    for endless in (
        itertools.count(),
        itertools.repeat(b"orders"),
        itertools.chain(["orders"], itertools.count()),
    ):
        with pytest.raises(ValueError, match="cannot be the name of a topic"):
            store.cursor("g", endless)  # type: ignore[arg-type]
